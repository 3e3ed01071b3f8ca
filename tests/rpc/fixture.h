/* An echo server on its own socket and a channel to it, both in this process, over the real socket. */
#ifndef TESTS_RPC_FIXTURE_H
#define TESTS_RPC_FIXTURE_H

#include "base/clock.h"
#include "tests/rpc/echo.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct echo_fixture {
    char directory[64];
    char address[RPC_ADDRESS_BYTES];
    struct echo echo;
    struct rpc_server *server;
    struct rpc_channel *channel;
};

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct err *why = &(struct err){ "" };                                                                         \
        status_t ok_st_ = (call);                                                                                      \
        if (ok_st_ != ST_OK)                                                                                           \
            fail_msg("%s: %s", status_name(ok_st_), why->msg);                                                         \
    } while (0)

/* Waits for a condition that another thread makes true. Fails after a minute. */
#define AWAIT(condition)                                                                                               \
    do {                                                                                                               \
        int64_t give_up_ = clock_mono_ms() + 60000;                                                                    \
        while (!(condition)) {                                                                                         \
            if (clock_mono_ms() > give_up_)                                                                            \
                fail_msg("never came true: %s", #condition);                                                           \
            sched_yield();                                                                                             \
        }                                                                                                              \
    } while (0)

static inline void echo_directory(struct echo_fixture *y) {
    snprintf(y->directory, sizeof y->directory, "/tmp/rpc-test-XXXXXX");
    assert_non_null(mkdtemp(y->directory));
}

static inline void echo_start(struct echo_fixture *y, const struct rpc_server_config *config, const char *listen) {
    OK(echo_open(config, &y->echo, &y->server, why));
    OK(rpc_server_listen(y->server, listen, NULL, y->address, why));
    OK(rpc_server_start(y->server, why));
}

static inline void echo_dial(struct echo_fixture *y) {
    struct rpc_channel_config config = { .address = y->address, .peer = "the server" };
    OK(rpc_channel_open(&config, &y->channel, why));
}

static inline int setup_unix(void **state) {
    struct echo_fixture *y = calloc(1, sizeof *y);
    char address[96];
    echo_directory(y);
    snprintf(address, sizeof address, "unix:%s/s", y->directory);
    echo_start(y, NULL, address);
    echo_dial(y);
    *state = y;
    return 0;
}

static inline int setup_tcp(void **state) {
    struct echo_fixture *y = calloc(1, sizeof *y);
    echo_directory(y);
    echo_start(y, NULL, "127.0.0.1:0");
    echo_dial(y);
    *state = y;
    return 0;
}

static inline int teardown(void **state) {
    struct echo_fixture *y = *state;
    atomic_store(&y->echo.released, true);
    y->channel = rpc_channel_close(y->channel);
    y->server = rpc_server_close(y->server);
    int left = rmdir(y->directory);
    if (left)
        print_error("%s is not empty\n", y->directory);
    free(y);
    return left;
}

static inline status_t ask(struct rpc_channel *channel, const char *text, int64_t timeout_ms, Test__V1__EchoReply **ret,
                           char reason[RPC_REASON_BYTES], struct err *e) {
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    in.text = (char *)text;
    in.number = 7;
    ProtobufCMessage *reply = NULL;
    char ignored[RPC_REASON_BYTES];
    status_t st = rpc_call_unary_reason(channel, &test__v1__echo__descriptor, "Unary", &in.base, timeout_ms, &reply,
                                        reason ? reason : ignored, e);
    if (st == ST_OK && ret)
        *ret = (Test__V1__EchoReply *)(void *)reply;
    else if (st == ST_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

#endif
