/* submit → workers started → RUNNING → first step, as a client sees it: bench_latency ADDRESS TEXT TIMES.
 * One job at a time on an idle service; each line has three times in ms after CreateJob was called. */
#include "api/rpc/client.h"
#include "base/clock.h"
#include "bench/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct times {
    double started_ms, running_ms, stepped_ms;
};

static double since_ms(int64_t t0_ns) { return (double)(clock_mono_ns() - t0_ns) / 1e6; }

static void note(struct times *t, const Trainyard__V1__WatchJobResponse *u, int64_t t0) {
    if (u->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT) {
        if (strcmp(u->event->kind, "workers_started") == 0)
            t->started_ms = since_ms(t0);
        if (u->event->state == TRAINYARD__V1__JOB__STATE__RUNNING && t->running_ms == 0)
            t->running_ms = since_ms(t0);
    } else if (u->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_PROGRESS && u->progress->step >= 1 &&
               t->stepped_ms == 0) {
        t->stepped_ms = since_ms(t0);
    }
}

static struct times run_one(struct rpc_channel *channel, const char *text) {
    struct err e;
    char id[37];
    bench_request_id(id);
    Trainyard__V1__CreateJobRequest create = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    create.spec = bench_spec(text, 2, 3);
    create.request_id = id;
    ProtobufCMessage *reply;
    int64_t t0 = clock_mono_ns();
    if (rpc_call_unary(channel, &trainyard__v1__job_service__descriptor, "CreateJob", &create.base, 0, &reply, &e) !=
        ST_OK)
        bench_fail("CreateJob", e.msg);
    Trainyard__V1__WatchJobRequest watch = TRAINYARD__V1__WATCH_JOB_REQUEST__INIT;
    watch.name = ((Trainyard__V1__Job *)reply)->name;
    struct rpc_stream *stream;
    if (rpc_stream_open(channel, &trainyard__v1__job_service__descriptor, "WatchJob", &watch.base, 0, &stream, &e) !=
        ST_OK)
        bench_fail("WatchJob", e.msg);
    struct times t = { 0 };
    for (const ProtobufCMessage *m;;) {
        if (rpc_stream_next(stream, &m, &e) != ST_OK)
            bench_fail("WatchJob", e.msg);
        if (!m)
            break;
        const Trainyard__V1__WatchJobResponse *u = (const void *)m;
        note(&t, u, t0);
        if (u->job && u->job->state != TRAINYARD__V1__JOB__STATE__SUCCEEDED)
            bench_fail(watch.name, u->job->reason);
    }
    rpc_stream_close(stream);
    protobuf_c_message_free_unpacked(reply, NULL);
    return t;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: bench_latency ADDRESS TEXT TIMES\n");
        return 2;
    }
    struct err e;
    struct rpc_channel *channel;
    if (rpc_channel_open(&(struct rpc_channel_config){ .address = argv[1] }, &channel, &e) != ST_OK)
        bench_fail(argv[1], e.msg);
    for (int i = 0; i < atoi(argv[3]); i++) {
        struct times t = run_one(channel, argv[2]);
        printf("%.3f %.3f %.3f\n", t.started_ms, t.running_ms, t.stepped_ms);
    }
    rpc_channel_close(channel);
    return 0;
}
