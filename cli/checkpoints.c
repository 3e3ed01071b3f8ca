/* trainyard checkpoints, checkpoint, sample.
 *
 * `checkpoints` prints all pages of ListCheckpoints as one list. `checkpoint` maps its verb to an RPC: pin and unpin to
 * PinCheckpoint, delete to DeleteCheckpoint, verify to VerifyCheckpoint. The last one is a stream with a single
 * message, because reading all bytes takes longer than the deadline of a unary call. `sample` prints the pieces of text
 * as the stream delivers them; the prompt is printed before the first piece, so that nothing appears if the call
 * fails. */
#include "cli/client.h"
#include "cli/job_name.h"
#include "cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const checkpoints = &trainyard__v1__checkpoint_service__descriptor;

static void add_row(struct table *t, const void *message) {
    const Trainyard__V1__Checkpoint *row = message;
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

static const struct output_columns columns = {
    { "ID", "STEP", "ATTEMPT", "STATE", "SIZE", "VALIDATION", "AGE", "DIRECTORY" }, add_row
};

static status_t run_checkpoints(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[JOB_NAME_BYTES];
    (void)args;
    Trainyard__V1__ListCheckpointsRequest request = TRAINYARD__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    TRY(job_name_find(c, words[0], name, e));
    request.parent = name;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, checkpoints, "ListCheckpoints", &request.base, CLIENT_ALL, &all, e));
    return output_list(c, all, &columns, e);
}

const struct command command_checkpoints = {
    .name = "checkpoints",
    .arguments = "JOB",
    .summary = "Lists a job's checkpoints, newest first.",
    .example = "trainyard checkpoints 42\ntrainyard checkpoints 42 -o name",
    .args_bytes = 1,
    .min_words = 1,
    .max_words = 1,
    .run = run_checkpoints,
};

/* ---- verify ---- */

static status_t run_verify(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__VerifyCheckpointRequest request = TRAINYARD__V1__VERIFY_CHECKPOINT_REQUEST__INIT;
    request.name = (char *)name;
    CLEANUP(rpc_stream_closep) struct rpc_stream *stream = NULL;
    TRY(client_stream(c, checkpoints, "VerifyCheckpoint", &request.base, &stream, e));
    const ProtobufCMessage *message = NULL;
    TRY(rpc_stream_next(stream, &message, e));
    const Trainyard__V1__VerifyCheckpointResponse *said = (const void *)message;
    if (!said || !said->checkpoint)
        return err_set(e, ST_INTERNAL, "the controller ended the call without an answer");
    const Trainyard__V1__Checkpoint *row = said->checkpoint;
    bool done = false;
    TRY(output_message(c, &row->base, &done, e));
    if (c->output == OUTPUT_NAME)
        printf("%s\n", row->name);
    else if (!done)
        printf("%s %s: %s\n", row->name, output_enum(&trainyard__v1__checkpoint__state__descriptor, (int)row->state),
               said->bytes_match ? "all bytes are those that were written" : row->reason);
    c->exit_code = said->bytes_match ? EXIT_DONE : EXIT_FAILED;
    return ST_OK;
}

/* ---- pin, unpin, delete ---- */

static status_t change(struct cli *c, const char *verb, const char *name, ProtobufCMessage **ret, struct err *e) {
    Trainyard__V1__PinCheckpointRequest pin = TRAINYARD__V1__PIN_CHECKPOINT_REQUEST__INIT;
    Trainyard__V1__DeleteCheckpointRequest delete = TRAINYARD__V1__DELETE_CHECKPOINT_REQUEST__INIT;
    pin.name = delete.name = (char *)name;
    pin.pinned = strcmp(verb, "pin") == 0;
    if (strcmp(verb, "delete") == 0)
        return client_call_again(c, checkpoints, "DeleteCheckpoint", &delete.base, ret, e);
    if (!pin.pinned && strcmp(verb, "unpin") != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.40s' is not one of: pin, unpin, verify, delete", verb);
    return client_call_again(c, checkpoints, "PinCheckpoint", &pin.base, ret, e);
}

static status_t run_checkpoint(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    if (strcmp(words[0], "verify") == 0)
        return run_verify(c, words[1], e);
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    TRY(change(c, words[0], words[1], &reply, e));
    const Trainyard__V1__Checkpoint *row = (Trainyard__V1__Checkpoint *)reply;
    bool done = false;
    status_t st = output_message(c, reply, &done, e);
    if (st == ST_OK && c->output == OUTPUT_NAME)
        printf("%s\n", row->name);
    else if (st == ST_OK && !done)
        printf("%s %s%s\n", row->name, output_enum(&trainyard__v1__checkpoint__state__descriptor, (int)row->state),
               row->pinned ? ", pinned" : "");
    return st;
}

const struct command command_checkpoint = {
    .name = "checkpoint",
    .arguments = "pin|unpin|verify|delete CHECKPOINT",
    .summary = "Pins or unpins a checkpoint, verifies its bytes, or deletes it.",
    .details =
        "CHECKPOINT is a name from 'trainyard checkpoints JOB -o name'. Garbage collection keeps a pinned checkpoint.\n"
        "'delete' refuses a pinned checkpoint, and one that a job still needs. 'verify' lets an executor read all\n"
        "bytes: the checkpoint becomes COMMITTED if they match their digests, even if it was MISSING or CORRUPT, and\n"
        "CORRUPT if they do not. The exit status is 1 if they do not match or cannot be read.",
    .example = "trainyard checkpoint pin jobs/42/checkpoints/7\ntrainyard checkpoint verify jobs/42/checkpoints/7",
    .args_bytes = 1,
    .min_words = 2,
    .max_words = 2,
    .run = run_checkpoint,
};

/* ---- sample ---- */

struct sample_args {
    const char *prompt;
    int64_t tokens, seed;
    double temperature;
    bool average;
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
    char name[JOB_NAME_BYTES];
    Trainyard__V1__SampleRequest request = TRAINYARD__V1__SAMPLE_REQUEST__INIT;
    TRY(job_name_find(c, words[0], name, e));
    if (args->tokens < 1 || args->tokens > 10000)
        return err_set(e, ST_INVALID_ARGUMENT, "--tokens: %" PRId64 " is not from 1 to 10000", args->tokens);
    request.name = name;
    request.prompt = args->prompt ? (char *)args->prompt : (char *)"\n";
    request.seed = args->seed;
    request.average = args->average;
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
    { "prompt", 'p', "TEXT", "the beginning of the text; default: a new line", OPTION_TEXT,
      offsetof(struct sample_args, prompt), NULL },
    { "tokens", 'n', "N", "how many tokens to generate", OPTION_INT, offsetof(struct sample_args, tokens), "200" },
    { "temperature", 't', "T", "0: always select the most likely token", OPTION_REAL,
      offsetof(struct sample_args, temperature), "0.8" },
    { "seed", 0, "S", "the same seed gives the same text", OPTION_INT, offsetof(struct sample_args, seed), "0" },
    { "average", 0, NULL, "use the averaged weights (train.ema) instead of the last ones", OPTION_FLAG,
      offsetof(struct sample_args, average), NULL },
    { 0 },
};

const struct command command_sample = {
    .name = "sample",
    .arguments = "JOB|CHECKPOINT [--prompt TEXT] [--tokens N] [--temperature T] [--seed S] [--average]",
    .summary = "Generates text from a checkpoint; for a JOB, from its newest good checkpoint.",
    .details = "CHECKPOINT is a name from 'checkpoints -o name': jobs/42/checkpoints/7.",
    .example = "trainyard sample 42 --prompt '#include <' --tokens 400 --temperature 0.7",
    .options = sample_options,
    .args_bytes = sizeof(struct sample_args),
    .min_words = 1,
    .max_words = 1,
    .run = run_sample,
};
