/* trainyard import mlflow: the runs of MLflow's file store. */
#ifndef CLI_IMPORT_MLFLOW_H
#define CLI_IMPORT_MLFLOW_H

#include "cli/command.h"

enum {
    IMPORT_MLFLOW_METRICS = 1024, /* of one run: a job has no more */
    IMPORT_MLFLOW_DEPTH = 8,      /* folders below metrics/: a '/' in a name is a folder */
};

/* path: an mlruns folder, an experiment's or a run's. experiment: only that of this name or number; NULL: all. Runs
 * that have not ended, and deleted ones, are left out. DATA_LOSS: all runs were imported, but lines that are too long
 * or files that cannot be read were left out. */
MUST_CHECK status_t import_mlflow(struct cli *c, const char *path, const char *experiment, struct err *e);

#endif
