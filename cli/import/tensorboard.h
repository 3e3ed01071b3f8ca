/* trainyard import tensorboard: each folder with event files is one run, as in TensorBoard. */
#ifndef CLI_IMPORT_TENSORBOARD_H
#define CLI_IMPORT_TENSORBOARD_H

#include "cli/command.h"

enum {
    IMPORT_TENSORBOARD_FOLDERS = 10000,
    IMPORT_TENSORBOARD_FILES = 10000, /* of one folder */
    IMPORT_TENSORBOARD_DEPTH = 16,
};

/* path: a folder, with all folders below it, or one event file. Symbolic links below it are not followed. */
MUST_CHECK status_t import_tensorboard(struct cli *c, const char *path, struct err *e);

#endif
