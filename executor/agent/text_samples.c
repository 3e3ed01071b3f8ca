#include "executor/agent/text_samples.h"

#include "executor/agent/data_exclusions.h"
#include "executor/agent/job_sandboxes.h"

static bool output_send(struct control_stream *stream, int64_t id, const char *text, bool last, status_t status,
                        const char *why) {
    Trainyard__V1__SampleOutput output = TRAINYARD__V1__SAMPLE_OUTPUT__INIT;
    output.sample = id;
    output.text = (char *)(uintptr_t)text;
    output.last = last;
    output.status = status;
    output.message = (char *)(uintptr_t)why;
    return control_stream_send(stream, AGENT_MESSAGE(SAMPLE_OUTPUT, sample_output, &output));
}

static void send_last(struct control_stream *stream, int64_t id, status_t status, const char *why) {
    output_send(stream, id, "", true, status, why);
}

static bool forward(struct control_stream *stream, int64_t id, const Trainyard__V1__WorkerRecord *record) {
    return record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_SAMPLE ||
           output_send(stream, id, record->sample->text, false, ST_OK, "");
}

static status_t status_of(Trainyard__V1__WorkerEnd__Cause cause) {
    switch (cause) {
    case TRAINYARD__V1__WORKER_END__CAUSE__FINISHED: return ST_OK;
    case TRAINYARD__V1__WORKER_END__CAUSE__STOPPED: return ST_CANCELLED;
    case TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC: return ST_INVALID_ARGUMENT;
    case TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD: return ST_DATA_LOSS;
    case TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT:
    case TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE: return ST_NOT_FOUND;
    default: return ST_INTERNAL;
    }
}

const struct request_kind text_sample_kind = {
    .max = 4,
    .full = "this executor already writes 4 samples, its maximum",
    .worker = "the sample's worker:",
    .unread = "was killed because its reader does not read",
    .forward = forward,
    .send_last = send_last,
    .status_of = status_of,
};

/* No other cluster has this folder. */
static void copy_take(const struct text_sample_copy *copy, Trainyard__V1__WorkerSample *own) {
    own->checkpoint_uri = own->directory;
    own->checkpoint_local = (char *)(uintptr_t)copy->local;
    own->directory = (char *)(uintptr_t)copy->folder;
    own->cluster = (char *)(uintptr_t) "";
}

void text_sample_start(struct request_workers *samples, const struct host *host,
                       const Trainyard__V1__StartSample *start, const struct text_sample_copy *copy) {
    if (!start->request) {
        request_workers_refuse(samples, start->sample, "the order to write a sample has no checkpoint");
        return;
    }
    struct data_exclusions exclusions;
    data_exclusions_find(host, &exclusions);
    Trainyard__V1__WorkerSample own = *start->request;
    own.spec = NULL;
    own.n_secrets = 0;
    own.n_checkpoint_roots = host->options->n_checkpoint_roots;
    own.checkpoint_roots = (char **)(uintptr_t)host->options->checkpoint_roots;
    own.data_except = exclusions.list;
    own.n_data_except = exclusions.n;
    Trainyard__V1__SandboxOrder sandbox;
    own.sandbox = job_sandbox_order(host->options, &sandbox);
    own.cluster = (char *)(uintptr_t)directory_cluster(host->directory);
    own.threads = host->inventory.threads_per_rank;
    if (copy)
        copy_take(copy, &own);
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_SAMPLE;
    command.sample = &own;
    request_workers_start(samples, &(struct request_order){
                                       .id = start->sample,
                                       .threads = own.threads,
                                       .command = &command,
                                       .limit_s = own.verify ? VERIFY_SECONDS_MAX : SAMPLE_SECONDS_MAX,
                                       .too_long = own.verify ? "took more than an hour and was killed"
                                                              : "took more than ten minutes and was killed",
                                       .ended = copy ? copy->ended : NULL,
                                       .ctx = copy ? copy->ctx : NULL,
                                   });
}
