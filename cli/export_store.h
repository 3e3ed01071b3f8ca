/* A checkpoint in a store, as a folder of this machine for a moment. */
#ifndef CLI_EXPORT_STORE_H
#define CLI_EXPORT_STORE_H

#include "cli/client.h"

#include <limits.h>
#include <trainyard/v1/checkpoint.pb-c.h>

struct export_store {
    char folder[PATH_MAX]; /* a new one in $TMPDIR or /tmp; "": none */
    char step[PATH_MAX];   /* the folder of the checkpoint in it */
};
/* Asks the service for links and copies the files with trainyard-data, which is beside this program. */
MUST_CHECK status_t export_store_fetch(struct cli *c, const char *checkpoint, struct export_store *ret, struct err *e);
/* Removes the folder. */
void export_store_done(struct export_store *s);

#endif
