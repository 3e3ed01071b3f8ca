/* trainyard import. */
#include "cli/client.h"
#include "cli/import/mlflow.h"
#include "cli/import/tensorboard.h"
#include "cli/import/wandb.h"

#include <string.h>

struct import_args {
    const char *experiment;
};

static status_t run_import(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct import_args *args = args_;
    if (args->experiment && strcmp(words[0], "mlflow") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "import: --experiment is for mlflow");
    if (strcmp(words[0], "mlflow") == 0)
        return import_mlflow(c, words[1], args->experiment, e);
    if (strcmp(words[0], "tensorboard") == 0)
        return import_tensorboard(c, words[1], e);
    if (strcmp(words[0], "wandb") == 0)
        return import_wandb(c, words[1], e);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "import: '%.40s' is not a source that can be imported: it is tensorboard, mlflow or wandb",
                   words[0]);
}

static const struct option_row import_options[] = {
    { "experiment", 0, "NAME", "mlflow: only the experiment of this name or number", OPTION_TEXT,
      offsetof(struct import_args, experiment), NULL },
    { 0 },
};

const struct command command_import = {
    .name = "import",
    .arguments = "tensorboard|mlflow|wandb PATH",
    .summary = "Reads runs of an experiment tracker into the service, as jobs that have ended.",
    .details = "tensorboard: PATH is a folder with event files, or one event file. Each folder below it that has event "
               "files is a run.\n\nmlflow: PATH is a database mlflow.db, or a folder mlruns of MLflow's file store, an "
               "experiment or a run in it.\n\nwandb: PATH is a folder wandb of a W&B client, a run in it, or a file "
               "run-ID.wandb.\n\nEach run "
               "becomes a job with all its points, their steps and times. A run that was imported "
               "before gets only its new points. Imported jobs cannot be retried or forked.",
    .example = "trainyard import tensorboard runs\ntrainyard import mlflow mlruns --experiment baseline\ntrainyard "
               "import wandb wandb",
    .options = import_options,
    .args_bytes = sizeof(struct import_args),
    .min_words = 2,
    .max_words = 2,
    .run = run_import,
};
