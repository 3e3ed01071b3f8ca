/* bench_rpc ADDRESS MS: the RPC runtime's client against any server of tests/rpc/echo.proto. Prints `NAME VALUE` lines:
 *
 *     unary_1   calls/s, one after the other, blocking
 *     unary_64  calls/s, 64 in flight on one connection
 *     down_16   messages/s of a server stream, 16 bytes each
 *     down_16k  the same, 16 KiB each
 */
#include "api/rpc/client.h"
#include "base/clock.h"

#include <echo.pb-c.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_FLIGHT = 64 };

struct flight {
    struct rpc_channel *channel;
    int64_t until_ms;
    atomic_long answered;
    atomic_int running;
};

static const ProtobufCServiceDescriptor *const service = &test__v1__echo__descriptor;

static Test__V1__EchoRequest request(void) {
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    in.text = (char *)"twelve bytes";
    in.number = 7;
    return in;
}

static void fly(struct flight *f);

static void landed(struct rpc_call *call, status_t status, const char *why) {
    struct flight *f = rpc_user(call);
    if (status != ST_OK) {
        fprintf(stderr, "bench_rpc: %s\n", why);
        exit(1);
    }
    atomic_fetch_add(&f->answered, 1);
    if (clock_mono_ms() < f->until_ms)
        fly(f);
    else
        atomic_fetch_sub(&f->running, 1);
}

static void fly(struct flight *f) {
    static const struct rpc_events events = { .done = landed };
    Test__V1__EchoRequest in = request();
    struct rpc_call *call;
    struct err e;
    if (rpc_start(f->channel, service, "Unary", RPC_UNARY, &events, f, &in.base, 0, &call, &e) != ST_OK)
        exit(1);
    rpc_unref(call);
}

static double many_at_once(struct rpc_channel *channel, int64_t ms) {
    struct flight f = { .channel = channel, .until_ms = clock_mono_ms() + ms, .running = IN_FLIGHT };
    int64_t start = clock_mono_ns();
    for (int i = 0; i < IN_FLIGHT; i++)
        fly(&f);
    struct timespec nap = { .tv_nsec = 1000000 };
    while (atomic_load(&f.running))
        nanosleep(&nap, NULL);
    return (double)atomic_load(&f.answered) * 1e9 / (double)(clock_mono_ns() - start);
}

static status_t one_by_one(struct rpc_channel *channel, int64_t ms, double *ret, struct err *e) {
    Test__V1__EchoRequest in = request();
    int64_t start = clock_mono_ns(), until = clock_mono_ms() + ms;
    long n = 0;
    for (; clock_mono_ms() < until; n++) {
        ProtobufCMessage *reply;
        TRY(rpc_call_unary(channel, service, "Unary", &in.base, 0, &reply, e));
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    *ret = (double)n * 1e9 / (double)(clock_mono_ns() - start);
    return ST_OK;
}

static status_t down(struct rpc_channel *channel, int bytes, int64_t ms, double *ret, struct err *e) {
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = INT64_MAX;
    in.bytes = bytes;
    CLEANUP(rpc_stream_closep) struct rpc_stream *stream = NULL;
    const ProtobufCMessage *message;
    int64_t start = clock_mono_ns(), until = clock_mono_ms() + ms;
    long n = 0;
    TRY(rpc_stream_open(channel, service, "Count", &in.base, 0, &stream, e));
    for (; clock_mono_ms() < until; n++)
        TRY(rpc_stream_next(stream, &message, e));
    *ret = (double)n * 1e9 / (double)(clock_mono_ns() - start);
    return ST_OK;
}

static status_t measure(const char *address, int64_t ms, struct err *e) {
    struct rpc_channel_config config = { .address = address, .peer = "the server" };
    CLEANUP(rpc_channel_closep) struct rpc_channel *channel = NULL;
    double value;
    TRY(rpc_channel_open(&config, &channel, e));
    TRY(one_by_one(channel, 100, &value, e)); /* the connection stands, the caches are warm */
    TRY(one_by_one(channel, ms, &value, e));
    printf("unary_1 %.0f\n", value);
    printf("unary_64 %.0f\n", many_at_once(channel, ms));
    TRY(down(channel, 16, ms, &value, e));
    printf("down_16 %.0f\n", value);
    TRY(down(channel, 16 << 10, ms, &value, e));
    printf("down_16k %.0f\n", value);
    return ST_OK;
}

int main(int argc, char **argv) {
    struct err e;
    if (argc != 3) {
        fprintf(stderr, "usage: bench_rpc ADDRESS MS\n");
        return 2;
    }
    if (measure(argv[1], atoll(argv[2]), &e) == ST_OK)
        return 0;
    fprintf(stderr, "bench_rpc: %s\n", e.msg);
    return 1;
}
