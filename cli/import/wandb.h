/* trainyard import wandb: each file run-ID.wandb that a client of Weights & Biases keeps on its machine, also one that
 * runs offline, is a run, or a part of one that was resumed. */
#ifndef CLI_IMPORT_WANDB_H
#define CLI_IMPORT_WANDB_H

#include "cli/command.h"

enum {
    IMPORT_WANDB_FILES = 10000,
    IMPORT_WANDB_DEPTH = 3,    /* folders below PATH */
    IMPORT_WANDB_IDLE_S = 300, /* a run without an end whose file has not changed for so long was killed */
};

/* path: a folder, or a file. Symbolic links below it are not followed. DATA_LOSS: a file could not be read to its end;
 * all other runs are imported. */
MUST_CHECK status_t import_wandb(struct cli *c, const char *path, struct err *e);

#endif
