/* trainyard import mlflow, for the SQLite database that is the default store of MLflow 3 (mlflow.db). */
#ifndef CLI_IMPORT_MLFLOW_DATABASE_H
#define CLI_IMPORT_MLFLOW_DATABASE_H

#include "cli/command.h"

#include <stdbool.h>

/* The file begins like a database of SQLite. */
bool import_is_database(const char *path);

/* Reads a snapshot of the database; MLflow may write to it meanwhile. experiment: NULL, or the name or the number of
 * the only one to import. INVALID_ARGUMENT: the database is not one of MLflow, or is damaged. */
MUST_CHECK status_t import_mlflow_database(struct cli *c, const char *path, const char *experiment, struct err *e);

#endif
