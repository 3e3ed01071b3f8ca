/* Simulated executors: bench_attach ADDRESS N SECONDS. Each opens its own Attach and Report streams, a hundred
 * executors over one channel, says hello with no slots, asks for the mark of a rank and sends a heartbeat every 2 s.
 * Prints "attached N" when all have their welcome and their mark, and ends after SECONDS. */
#include "api/rpc/client.h"
#include "base/clock.h"
#include "base/limits.h"
#include "bench/client.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <trainyard/v1/dispatch.pb-c.h>

enum { EXECUTORS_PER_CHANNEL = 100, ATTACH_MS = 120000 };

static atomic_int welcomed, marks, ended;

static void on_message(struct rpc_call *call, const ProtobufCMessage *m) {
    (void)call;
    if (((const Trainyard__V1__ControllerMessage *)m)->message_case ==
        TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME)
        atomic_fetch_add(&welcomed, 1);
}

static void on_mark(struct rpc_call *call, const ProtobufCMessage *m) {
    (void)call;
    (void)m;
    atomic_fetch_add(&marks, 1);
}

static void on_done(struct rpc_call *call, status_t status, const char *why) {
    (void)call;
    if (status != ST_OK && status != ST_CANCELLED && atomic_fetch_add(&ended, 1) == 0)
        fprintf(stderr, "bench: a stream ended: %s\n", why);
}

static void wait_ms(int ms) { poll(NULL, 0, ms); }

static const struct rpc_events control = { .message = on_message, .done = on_done };
static const struct rpc_events bulk = { .message = on_mark, .done = on_done };

static struct rpc_call *open_report(struct rpc_channel *channel, int number) {
    char id[64];
    snprintf(id, sizeof id, "simulated-%d", number);
    Trainyard__V1__ReportBatch batch = TRAINYARD__V1__REPORT_BATCH__INIT;
    batch.executor = id, batch.incarnation = 1, batch.job = 1, batch.attempt = 1, batch.first_sequence = 1;
    struct err e;
    struct rpc_call *call;
    if (rpc_start(channel, &trainyard__v1__dispatch_service__descriptor, "Report", RPC_BIDI, &bulk, NULL, &batch.base,
                  0, &call, &e) != ST_OK)
        bench_fail("Report", e.msg);
    return call;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: bench_attach ADDRESS N SECONDS\n");
        return 2;
    }
    const int n = atoi(argv[2]), n_channels = n / EXECUTORS_PER_CHANNEL + 1;
    struct err e;
    struct rpc_channel **channels = calloc((size_t)n_channels, sizeof *channels);
    struct rpc_call **calls = calloc(2 * (size_t)n, sizeof *calls); /* the second half: reports */
    if (!channels || !calls)
        bench_fail("calloc", "no memory");
    for (int i = 0; i < n_channels; i++)
        if (rpc_channel_open(&(struct rpc_channel_config){ .address = argv[1] }, &channels[i], &e) != ST_OK)
            bench_fail(argv[1], e.msg);
    int64_t t0 = clock_mono_ms();
    for (int i = 0; i < n; i++) {
        calls[i] = bench_executor(channels[i % n_channels], i, 0, &control);
        calls[n + i] = open_report(channels[i % n_channels], i);
    }
    while ((atomic_load(&welcomed) < n || atomic_load(&marks) < n) && atomic_load(&ended) == 0 &&
           clock_mono_ms() < t0 + ATTACH_MS)
        wait_ms(1);
    printf("attached %d in %lld ms\n", atomic_load(&welcomed), (long long)(clock_mono_ms() - t0));
    fflush(stdout);
    int64_t end = clock_mono_ms() + atoi(argv[3]) * 1000;
    for (int64_t number = 1; clock_mono_ms() < end && atomic_load(&ended) == 0; number++) {
        Trainyard__V1__AgentHeartbeat beat = TRAINYARD__V1__AGENT_HEARTBEAT__INIT;
        beat.number = number;
        Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
        m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HEARTBEAT, m.heartbeat = &beat;
        /* Spread over the interval, as a thousand hosts are. */
        for (int i = 0; i < n; i++) {
            rpc_send(calls[i], &m.base);
            if (i % (n / 100 + 1) == n / 100)
                wait_ms(HEARTBEAT_INTERVAL_MS / 100);
        }
    }
    for (int i = 0; i < 2 * n; i++) {
        rpc_cancel(calls[i]);
        rpc_unref(calls[i]);
    }
    for (int i = 0; i < n_channels; i++)
        rpc_channel_close(channels[i]);
    free(channels);
    free(calls);
    return atomic_load(&ended) ? 1 : 0;
}
