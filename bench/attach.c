/* Simulated executors: bench_attach ADDRESS N SECONDS. Each opens its own Attach stream over one of 16 channels, says
 * hello with no slots and sends a heartbeat every 2 s. Prints "attached N" when all have their welcome, and ends after
 * SECONDS. */
#include "api/rpc/client.h"
#include "base/clock.h"
#include "base/limits.h"
#include "bench/client.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <trainyard/v1/dispatch.pb-c.h>

enum { CHANNELS = 16 };

static atomic_int welcomed, ended;

static void on_message(struct rpc_call *call, const ProtobufCMessage *m) {
    (void)call;
    if (((const Trainyard__V1__ControllerMessage *)m)->message_case ==
        TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME)
        atomic_fetch_add(&welcomed, 1);
}

static void on_done(struct rpc_call *call, status_t status, const char *why) {
    (void)call;
    if (status != ST_OK && status != ST_CANCELLED && atomic_fetch_add(&ended, 1) == 0)
        fprintf(stderr, "bench: a stream ended: %s\n", why);
}

static void wait_ms(int ms) { poll(NULL, 0, ms); }

static const struct rpc_events events = { .message = on_message, .done = on_done };

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: bench_attach ADDRESS N SECONDS\n");
        return 2;
    }
    int n = atoi(argv[2]);
    struct err e;
    struct rpc_channel *channels[CHANNELS];
    for (int i = 0; i < CHANNELS; i++)
        if (rpc_channel_open(&(struct rpc_channel_config){ .address = argv[1] }, &channels[i], &e) != ST_OK)
            bench_fail(argv[1], e.msg);
    struct rpc_call **calls = calloc((size_t)n, sizeof *calls);
    int64_t t0 = clock_mono_ms();
    for (int i = 0; i < n; i++)
        calls[i] = bench_executor(channels[i % CHANNELS], i, 0, &events);
    while (atomic_load(&welcomed) < n && atomic_load(&ended) == 0 && clock_mono_ms() < t0 + 30000)
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
    for (int i = 0; i < n; i++) {
        rpc_cancel(calls[i]);
        rpc_unref(calls[i]);
    }
    for (int i = 0; i < CHANNELS; i++)
        rpc_channel_close(channels[i]);
    free(calls);
    return atomic_load(&ended) ? 1 : 0;
}
