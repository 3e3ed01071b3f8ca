/* A method is found by its name in the descriptors of protobuf-c, and its request and reply are read and written by the
 * codec, so that a new method needs one row here. */
#include "web/server/gateway.h"

#include "api/codec/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>
#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/log.pb-c.h>
#include <trainyard/v1/metric.pb-c.h>
#include <trainyard/v1/queue.pb-c.h>
#include <trainyard/v1/sweep.pb-c.h>

enum {
    STREAM_BYTES = 1 << 20, /* of text: then a stream is left */
    STREAM_MS = 20000,
};

struct row {
    const char *call;
    const ProtobufCServiceDescriptor *service;
    bool streams;
};
static const struct row rows[] = {
    { "JobService/ListJobs", &trainyard__v1__job_service__descriptor, false },
    { "JobService/GetJob", &trainyard__v1__job_service__descriptor, false },
    { "JobService/ListEvents", &trainyard__v1__job_service__descriptor, false },
    { "JobService/ExplainJob", &trainyard__v1__job_service__descriptor, false },
    { "JobService/GetRankSeconds", &trainyard__v1__job_service__descriptor, false },
    { "JobService/ValidateJob", &trainyard__v1__job_service__descriptor, false },
    { "JobService/CreateJob", &trainyard__v1__job_service__descriptor, false },
    { "JobService/CancelJob", &trainyard__v1__job_service__descriptor, false },
    { "JobService/PauseJob", &trainyard__v1__job_service__descriptor, false },
    { "JobService/ResumeJob", &trainyard__v1__job_service__descriptor, false },
    { "JobService/RetryJob", &trainyard__v1__job_service__descriptor, false },
    { "MetricService/QueryMetrics", &trainyard__v1__metric_service__descriptor, false },
    { "CheckpointService/ListCheckpoints", &trainyard__v1__checkpoint_service__descriptor, false },
    { "CheckpointService/PinCheckpoint", &trainyard__v1__checkpoint_service__descriptor, false },
    { "CheckpointService/Sample", &trainyard__v1__checkpoint_service__descriptor, true },
    { "ExecutorService/ListExecutors", &trainyard__v1__executor_service__descriptor, false },
    { "ExecutorService/DrainExecutor", &trainyard__v1__executor_service__descriptor, false },
    { "ExecutorService/UndrainExecutor", &trainyard__v1__executor_service__descriptor, false },
    { "QueueService/ListQueues", &trainyard__v1__queue_service__descriptor, false },
    { "SweepService/GetSweep", &trainyard__v1__sweep_service__descriptor, false },
    { "SweepService/ListSweeps", &trainyard__v1__sweep_service__descriptor, false },
    { "SweepService/ListTrials", &trainyard__v1__sweep_service__descriptor, false },
    { "SweepService/CancelSweep", &trainyard__v1__sweep_service__descriptor, false },
    { "LogService/TailLogs", &trainyard__v1__log_service__descriptor, true },
};

static const struct row *row_find(const char *call) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].call, call) == 0)
            return &rows[i];
    return NULL;
}

static unsigned http_status(status_t st) {
    switch (st) {
    case ST_OK: return 200;
    case ST_INVALID_ARGUMENT:
    case ST_OUT_OF_RANGE: return 400;
    case ST_UNAUTHENTICATED: return 401;
    case ST_PERMISSION_DENIED: return 403;
    case ST_NOT_FOUND: return 404;
    case ST_ALREADY_EXISTS:
    case ST_FAILED_PRECONDITION:
    case ST_ABORTED: return 409;
    case ST_RESOURCE_EXHAUSTED: return 429;
    case ST_UNIMPLEMENTED: return 501;
    case ST_UNAVAILABLE: return 503;
    case ST_DEADLINE_EXCEEDED: return 504;
    default: return 500;
    }
}

static status_t failure_print(status_t failed, const char *reason, const struct err *why, struct bytes *ret,
                              struct err *e) {
    TRY(bytes_printf(ret, e, "{\"status\":\"%s\",\"message\":", status_name(failed)));
    TRY(codec_json_string(why->msg, strlen(why->msg), ret, e));
    TRY(bytes_printf(ret, e, ",\"reason\":"));
    TRY(codec_json_string(reason, strlen(reason), ret, e));
    return bytes_printf(ret, e, "}");
}

static status_t unary(struct rpc_channel *channel, const struct row *row, const char *method,
                      const ProtobufCMessage *request, char reason[RPC_REASON_BYTES], struct bytes *ret,
                      struct err *e) {
    ProtobufCMessage *reply = NULL;
    TRY(rpc_call_unary_reason(channel, row->service, method, request, 0, &reply, reason, e));
    status_t st = codec_print_json(reply, 0, ret, e);
    protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static status_t stream(struct rpc_channel *channel, const struct row *row, const char *method,
                       const ProtobufCMessage *request, char reason[RPC_REASON_BYTES], struct bytes *ret,
                       struct err *e) {
    CLEANUP(rpc_stream_closep) struct rpc_stream *s = NULL;
    TRY(rpc_stream_open(channel, row->service, method, request, STREAM_MS, &s, e));
    TRY(bytes_printf(ret, e, "{\"messages\":["));
    const ProtobufCMessage *message = NULL;
    const size_t begin = ret->len;
    for (bool first = true; ret->len - begin < STREAM_BYTES; first = false) {
        status_t st = rpc_stream_next(s, &message, e);
        if (st != ST_OK) {
            snprintf(reason, RPC_REASON_BYTES, "%s", rpc_stream_reason(s));
            return st;
        }
        if (!message)
            break;
        if (!first)
            TRY(bytes_append(ret, ",", 1, e));
        TRY(codec_print_json(message, 0, ret, e));
    }
    return bytes_printf(ret, e, "],\"more\":%s}", message ? "true" : "false");
}

static status_t call_make(struct rpc_channel *channel, const char *call, const char *request, size_t n,
                          char reason[RPC_REASON_BYTES], struct bytes *ret, struct err *e) {
    const struct codec_options options = { .text_bytes = GATEWAY_REQUEST_BYTES };
    const struct row *row = row_find(call);
    if (!row)
        return err_set(e, ST_UNIMPLEMENTED, "the page has no call '%.80s'", call);
    const char *method = strchr(call, '/') + 1;
    const ProtobufCMethodDescriptor *d = protobuf_c_service_descriptor_get_method_by_name(row->service, method);
    ProtobufCMessage *message = NULL;
    TRY(codec_parse(d->input, request, n, &options, &message, e));
    status_t st = (row->streams ? stream : unary)(channel, row, method, message, reason, ret, e);
    protobuf_c_message_free_unpacked(message, NULL);
    return st;
}

static status_t calls_make(struct rpc_channel *channel, const char *call, const char *requests, size_t n,
                           char reason[RPC_REASON_BYTES], struct bytes *ret, struct err *e) {
    const char *at = requests, *end = requests + n;
    for (int i = 0; at < end; i++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *line_end = newline ? newline : end;
        if (i == GATEWAY_LINES)
            return err_set(e, ST_INVALID_ARGUMENT, "a call of the page has more than %d requests", GATEWAY_LINES);
        TRY(bytes_append(ret, i == 0 ? "[" : ",", 1, e));
        TRY(call_make(channel, call, at, (size_t)(line_end - at), reason, ret, e));
        at = newline ? newline + 1 : end;
    }
    return bytes_printf(ret, e, "%s]", ret->len ? "" : "[");
}

typedef status_t maker(struct rpc_channel *channel, const char *call, const char *request, size_t n,
                       char reason[RPC_REASON_BYTES], struct bytes *ret, struct err *e);

static unsigned answer(maker *make, struct rpc_channel *channel, const char *call, const char *request, size_t n,
                       struct bytes *ret) {
    char reason[RPC_REASON_BYTES] = "";
    struct err why = { "" };
    status_t st = make(channel, call, request, n, reason, ret, &why);
    if (st != ST_OK) {
        bytes_clear(ret);
        if (failure_print(st, reason, &why, ret, NULL) != ST_OK)
            bytes_clear(ret);
    }
    return http_status(st);
}

unsigned gateway_call(struct rpc_channel *channel, const char *call, const char *request, size_t n, struct bytes *ret) {
    return answer(call_make, channel, call, request, n, ret);
}

unsigned gateway_call_lines(struct rpc_channel *channel, const char *call, const char *requests, size_t n,
                            struct bytes *ret) {
    return answer(calls_make, channel, call, requests, n, ret);
}
