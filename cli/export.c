/* trainyard export. */
#include "cli/export.h"

#include "cli/client.h"
#include "cli/export_store.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/sibling.h"

#include <stdbool.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const checkpoints = &trainyard__v1__checkpoint_service__descriptor;

struct export_args {
    const char *huggingface, *csv, *tensorboard;
    bool average, overwrite;
};

static status_t get_checkpoint(struct cli *c, const char *name, Trainyard__V1__Checkpoint **ret, struct err *e) {
    Trainyard__V1__GetCheckpointRequest request = TRAINYARD__V1__GET_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.name = (char *)name;
    TRY(client_call(c, checkpoints, "GetCheckpoint", &request.base, &reply, e));
    *ret = (Trainyard__V1__Checkpoint *)reply;
    return ST_OK;
}

/* The named checkpoint; for a job, its newest COMMITTED one. */
static status_t find_checkpoint(struct cli *c, const char *name, Trainyard__V1__Checkpoint **ret, struct err *e) {
    if (strstr(name, "/checkpoints/"))
        return get_checkpoint(c, name, ret, e);
    Trainyard__V1__ListCheckpointsRequest request = TRAINYARD__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.parent = (char *)name;
    TRY(client_list(c, checkpoints, "ListCheckpoints", &request.base, CLIENT_ALL, &reply, e));
    Trainyard__V1__ListCheckpointsResponse *all = (Trainyard__V1__ListCheckpointsResponse *)reply;
    for (size_t i = 0; i < all->n_checkpoints && !*ret; i++)
        if (all->checkpoints[i]->state == TRAINYARD__V1__CHECKPOINT__STATE__COMMITTED) {
            *ret = all->checkpoints[i];
            all->checkpoints[i] = all->checkpoints[--all->n_checkpoints];
        }
    return *ret ? ST_OK : err_set(e, ST_NOT_FOUND, "%s has no committed checkpoint", name);
}

static void words_add(struct sibling *s, const char *folder, const struct export_args *args) {
    sibling_add(s, "export");
    sibling_add(s, folder);
    sibling_add(s, "--huggingface");
    sibling_add(s, args->huggingface);
    if (args->average)
        sibling_add(s, "--average");
    if (args->overwrite)
        sibling_add(s, "--overwrite");
}

static status_t export_folder(const Trainyard__V1__Checkpoint *checkpoint, const struct export_args *args,
                              struct err *e) {
    struct sibling s = { .n = 0 };
    if (access(checkpoint->directory, R_OK | X_OK) != 0)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "%s is in %s, which this machine cannot read: run the command on a host that shares the folder",
                       checkpoint->name, checkpoint->directory);
    words_add(&s, checkpoint->directory, args);
    return sibling_become(&s, "trainyard-train", e);
}

static status_t export_stored(struct cli *c, const Trainyard__V1__Checkpoint *checkpoint,
                              const struct export_args *args, struct err *e) {
    struct export_store store;
    struct sibling s = { .n = 0 };
    status_t st = export_store_fetch(c, checkpoint->name, &store, e);
    words_add(&s, store.step, args);
    if (st == ST_OK)
        st = sibling_run(&s, "trainyard-train", e);
    export_store_done(&store);
    return st;
}

static status_t export_it(struct cli *c, const Trainyard__V1__Checkpoint *checkpoint, const struct export_args *args,
                          struct err *e) {
    if (checkpoint->state != TRAINYARD__V1__CHECKPOINT__STATE__COMMITTED)
        return err_set(e, ST_FAILED_PRECONDITION, "%s is not COMMITTED: only a complete checkpoint can be exported",
                       checkpoint->name);
    return *checkpoint->directory == '/' ? export_folder(checkpoint, args, e) : export_stored(c, checkpoint, args, e);
}

static status_t export_checkpoint(struct cli *c, const char *name, const struct export_args *args, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__Checkpoint *checkpoint = NULL;
    TRY(find_checkpoint(c, name, &checkpoint, e));
    return export_it(c, checkpoint, args, e);
}

static bool is_empty(const char *text) { return text && !*text; }

static status_t check_args(const struct export_args *args, struct err *e) {
    if (is_empty(args->csv) || is_empty(args->tensorboard) || is_empty(args->huggingface))
        return err_set(e, ST_INVALID_ARGUMENT, "export: the name of the output is empty");
    if (!!args->huggingface + !!args->csv + !!args->tensorboard != 1)
        return err_set(e, ST_INVALID_ARGUMENT, "export: give one of --csv, --tensorboard and --huggingface");
    if (args->average && !args->huggingface)
        return err_set(e, ST_INVALID_ARGUMENT, "export: --average needs --huggingface, which exports weights");
    return ST_OK;
}

static status_t run_export(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct export_args *args = args_;
    char name[JOB_NAME_BYTES];
    TRY(check_args(args, e));
    TRY(job_name_find(c, words[0], name, e));
    if (args->huggingface)
        return export_checkpoint(c, name, args, e);
    struct export_target to = { name, args->csv ? args->csv : args->tensorboard, args->overwrite };
    return args->csv ? export_csv(c, &to, e) : export_tensorboard(c, &to, e);
}

static const struct option_row export_options[] = {
    { "csv", 0, "FILE", "write every point of every metric: metric, rank, attempt, step, time, value", OPTION_TEXT,
      offsetof(struct export_args, csv), NULL },
    { "tensorboard", 0, "DIR", "write an event file per rank: DIR/rank-R", OPTION_TEXT,
      offsetof(struct export_args, tensorboard), NULL },
    { "overwrite", 0, NULL, "replace existing files; keep other files in DIR", OPTION_FLAG,
      offsetof(struct export_args, overwrite), NULL },
    { "huggingface", 0, "DIR", "write config.json, the weights as safetensors and the tokenizer", OPTION_TEXT,
      offsetof(struct export_args, huggingface), NULL },
    { "average", 0, NULL, "export the averaged weights (train.ema) instead of the last ones", OPTION_FLAG,
      offsetof(struct export_args, average), NULL },
    { 0 },
};

const struct command command_export = {
    .name = "export",
    .arguments = "JOB --csv FILE | JOB --tensorboard DIR | JOB|CHECKPOINT --huggingface DIR [--average] [--overwrite]",
    .summary = "Writes a job's metrics as CSV or for TensorBoard, or a checkpoint for Hugging Face's transformers.",
    .details =
        "Metrics: every stored point of every rank, without averaging. If an attempt repeated steps, only the newest\n"
        "attempt's points are written. FILE may be -, standard output. Values are NaN, Infinity, -Infinity or numbers\n"
        "that read back as the same double. TensorBoard shows one run per rank, with 32-bit floats. A file appears\n"
        "when it is complete. An existing FILE, or a DIR that is not empty, is refused without --overwrite.\n"
        "\n"
        "Checkpoints: GPT-2 and Llama; for a JOB its newest good checkpoint. This machine must be able to read the\n"
        "checkpoint's folder; or if the checkpoint is in a store, to reach the store: the service signs links for an\n"
        "hour, and the files are copied to $TMPDIR first. To import such a folder, set train.init_from to its file://\n"
        "URI.",
    .example = "trainyard export 42 --csv metrics.csv\ntrainyard export 42 --csv - | grep ^loss,\n"
               "trainyard export 42 --tensorboard runs/42 && tensorboard --logdir runs\n"
               "trainyard export 42 --huggingface /tmp/model",
    .options = export_options,
    .args_bytes = sizeof(struct export_args),
    .min_words = 1,
    .max_words = 1,
    .run = run_export,
};
