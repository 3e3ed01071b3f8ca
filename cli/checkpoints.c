/* trainyard checkpoints, checkpoint, sample. */
#include "cli/client.h"
#include "cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const checkpoints = &trainyard__v1__checkpoint_service__descriptor;

static void add_row(struct table *t, const Trainyard__V1__Checkpoint *row) {
    char size[24], age[24];
    output_bytes(row->bytes, size);
    output_between(row->create_time, NULL, age);
    table_cell(t, "%s", output_id(row->name));
    table_cell(t, "%" PRId64, row->step);
    table_cell(t, "%d", row->attempt);
    table_cell(t, "%s%s", output_enum(&trainyard__v1__checkpoint__state__descriptor, (int)row->state),
               row->pinned ? ", pinned" : "");
    table_cell(t, "%s", size);
    if (row->_validation_loss_case)
        table_cell(t, "%.4f", row->validation_loss);
    else
        table_cell(t, "-");
    table_cell(t, "%s", age);
    table_cell(t, "%s%s%s", row->directory, *row->reason ? "  " : "", row->reason);
}

static status_t show(const struct cli *c, const Trainyard__V1__ListCheckpointsResponse *all, struct err *e) {
    static const char *const heads[] = { "ID",         "STEP", "ATTEMPT",   "STATE", "SIZE",
                                         "VALIDATION", "AGE",  "DIRECTORY", NULL };
    bool done = false;
    TRY(output_message(c, &all->base, &done, e));
    for (size_t i = 0; c->output == OUTPUT_NAME && i < all->n_checkpoints; i++)
        printf("%s\n", all->checkpoints[i]->name);
    if (done || c->output == OUTPUT_NAME)
        return ST_OK;
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < all->n_checkpoints; i++)
        add_row(&t, all->checkpoints[i]);
    status_t st = output_table(&t, e);
    table_done(&t);
    return st;
}

static status_t run_checkpoints(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[80];
    (void)args;
    Trainyard__V1__ListCheckpointsRequest request = TRAINYARD__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    TRY(client_job_name(words[0], name, e));
    request.parent = name;
    ProtobufCMessage *all = NULL;
    TRY(client_list(c, checkpoints, "ListCheckpoints", &request.base, CLIENT_ALL, &all, e));
    status_t st = show(c, (Trainyard__V1__ListCheckpointsResponse *)all, e);
    protobuf_c_message_free_unpacked(all, NULL);
    return st;
}

const struct command command_checkpoints = {
    .name = "checkpoints",
    .arguments = "JOB",
    .summary = "Lists a job's checkpoints, newest first.",
    .example = "trainyard checkpoints 42\ntrainyard checkpoints 42 -o name",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_checkpoints,
};

/* ---- pin, unpin, delete ---- */

static status_t change(struct cli *c, const char *verb, const char *name, ProtobufCMessage **ret, struct err *e) {
    Trainyard__V1__PinCheckpointRequest pin = TRAINYARD__V1__PIN_CHECKPOINT_REQUEST__INIT;
    Trainyard__V1__DeleteCheckpointRequest delete = TRAINYARD__V1__DELETE_CHECKPOINT_REQUEST__INIT;
    pin.name = delete.name = (char *)name;
    pin.pinned = strcmp(verb, "pin") == 0;
    if (strcmp(verb, "delete") == 0)
        return client_call_again(c, checkpoints, "DeleteCheckpoint", &delete.base, ret, e);
    if (!pin.pinned && strcmp(verb, "unpin") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.40s' is none of pin, unpin and delete", verb);
    return client_call_again(c, checkpoints, "PinCheckpoint", &pin.base, ret, e);
}

static status_t run_checkpoint(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    ProtobufCMessage *reply = NULL;
    TRY(change(c, words[0], words[1], &reply, e));
    const Trainyard__V1__Checkpoint *row = (Trainyard__V1__Checkpoint *)reply;
    bool done = false;
    status_t st = output_message(c, reply, &done, e);
    if (st == ST_OK && c->output == OUTPUT_NAME)
        printf("%s\n", row->name);
    else if (st == ST_OK && !done)
        printf("%s %s%s\n", row->name, output_enum(&trainyard__v1__checkpoint__state__descriptor, (int)row->state),
               row->pinned ? ", pinned" : "");
    protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

const struct command command_checkpoint = {
    .name = "checkpoint",
    .arguments = "pin|unpin|delete CHECKPOINT",
    .summary = "Keeps a checkpoint from retention, or no longer, or deletes it.",
    .details =
        "CHECKPOINT is a name as 'trainyard checkpoints JOB -o name' prints it. One that a job which has not ended\n"
        "needs is not deleted, nor a pinned one.",
    .example = "trainyard checkpoint pin jobs/42/checkpoints/7\ntrainyard checkpoint delete jobs/42/checkpoints/7",
    .args_bytes = 1,
    .least = 2,
    .most = 2,
    .run = run_checkpoint,
};

/* ---- sample ---- */

struct sample_args {
    const char *prompt;
    int64_t tokens, seed;
    double temperature;
};

static status_t show_piece(const struct cli *c, const Trainyard__V1__SampleResponse *piece, struct err *e) {
    if (c->output == OUTPUT_JSON)
        return output_json_line(&piece->base, e);
    if (isatty(STDOUT_FILENO))
        output_text(stdout, piece->text);
    else
        fputs(piece->text, stdout);
    fflush(stdout);
    return ST_OK;
}

static status_t run_sample(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct sample_args *args = args_;
    char name[80];
    Trainyard__V1__SampleRequest request = TRAINYARD__V1__SAMPLE_REQUEST__INIT;
    TRY(client_job_name(words[0], name, e));
    if (args->tokens < 1 || args->tokens > 10000)
        return err_set(e, ST_INVALID_ARGUMENT, "--tokens: %" PRId64 " is not from 1 to 10000", args->tokens);
    request.name = name;
    request.prompt = args->prompt ? (char *)args->prompt : (char *)"\n";
    request.seed = args->seed;
    request._tokens_case = TRAINYARD__V1__SAMPLE_REQUEST___TOKENS_TOKENS;
    request.tokens = (int32_t)args->tokens;
    request._temperature_case = TRAINYARD__V1__SAMPLE_REQUEST___TEMPERATURE_TEMPERATURE;
    request.temperature = args->temperature;
    CLEANUP(rpc_stream_closep) struct rpc_stream *stream = NULL;
    TRY(client_stream(c, checkpoints, "Sample", &request.base, &stream, e));
    for (bool begun = false;; begun = true) {
        const ProtobufCMessage *message = NULL;
        TRY(rpc_stream_next(stream, &message, e));
        if (!message)
            break;
        if (!begun && args->prompt && c->output != OUTPUT_JSON)
            fputs(args->prompt, stdout);
        TRY(show_piece(c, (const Trainyard__V1__SampleResponse *)message, e));
    }
    if (c->output != OUTPUT_JSON)
        putchar('\n');
    return ST_OK;
}

static const struct option_row sample_options[] = {
    { "prompt", 'p', "TEXT", "what the text begins with; default: a new line", OPTION_TEXT,
      offsetof(struct sample_args, prompt), NULL },
    { "tokens", 'n', "N", "how many tokens follow it", OPTION_INT, offsetof(struct sample_args, tokens), "200" },
    { "temperature", 't', "T", "0: always the likeliest token", OPTION_REAL, offsetof(struct sample_args, temperature),
      "0.8" },
    { "seed", 0, "S", "the same seed gives the same text", OPTION_INT, offsetof(struct sample_args, seed), "0" },
    { 0 },
};

const struct command command_sample = {
    .name = "sample",
    .arguments = "JOB|CHECKPOINT [--prompt TEXT] [--tokens N] [--temperature T] [--seed S]",
    .summary = "Prints a prompt and the text that a checkpoint writes after it; of a JOB, its newest good checkpoint.",
    .details = "CHECKPOINT is a name as 'checkpoints -o name' prints it: jobs/42/checkpoints/7.",
    .example = "trainyard sample 42 --prompt '#include <' --tokens 400 --temperature 0.7",
    .options = sample_options,
    .args_bytes = sizeof(struct sample_args),
    .least = 1,
    .most = 1,
    .run = run_sample,
};
