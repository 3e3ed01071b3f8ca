/* The code of a job that is submitted: packs its folder, uploads the archive if the controller does not have it, and
 * names the archive in the spec in place of the folder. */
#ifndef CLI_CODE_UPLOAD_H
#define CLI_CODE_UPLOAD_H

#include "cli/client.h"

#include <trainyard/v1/spec.pb-c.h>

struct code_request {
    const char *spec_file; /* a folder in the spec is relative to the folder of this file; NULL or "-": to the working
                              directory */
    const char *folder;    /* --code, relative to the working directory; NULL: the spec's */
    bool upload;           /* false: the archive is only packed, and its name computed */
};

/* Changes nothing if the spec names no folder. INVALID_ARGUMENT: the folder cannot be packed, or the command is a path
 * that is not an executable file of the folder. */
MUST_CHECK status_t code_resolve(struct cli *c, Trainyard__V1__JobSpec *spec, const struct code_request *request,
                                 struct err *e);

#endif
