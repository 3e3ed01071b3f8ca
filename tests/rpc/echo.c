/* Handlers of the echo service, one for each kind of call.
 *
 * Unary runs in the handler's thread and chooses its reply by the request's text (echo.h). Count is a server stream: it
 * sends until the queue is full and continues in `writable`, or, if the request asks for it, in `work`, which it wakes
 * many times to check that `work` never runs twice at once. Sum and Chat receive a stream. Each stream counts its
 * opening, its cancellation and its end in struct echo, so that a test can wait until all have ended. */
#include "tests/rpc/echo.h"

#include <echo/descriptors.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static status_t left(struct rpc_call *call, Test__V1__EchoReply *reply) {
    reply->number = rpc_time_left_ms(call);
    rpc_reply(call, &reply->base);
    return ST_OK;
}

static status_t block(struct echo *echo, struct rpc_call *call) {
    atomic_fetch_add(&echo->blocked, 1);
    while (!atomic_load(&echo->released) && !rpc_cancelled(call))
        sched_yield();
    if (rpc_cancelled(call))
        atomic_fetch_add(&echo->cancelled, 1);
    atomic_fetch_sub(&echo->blocked, 1);
    return ST_OK;
}

static status_t unary(void *service, struct rpc_call *call, const ProtobufCMessage *message, struct err *e) {
    const Test__V1__EchoRequest *in = (const void *)message;
    Test__V1__EchoReply reply = TEST__V1__ECHO_REPLY__INIT;
    reply.text = in->text;
    reply.number = in->number;
    reply.blob = in->blob;
    atomic_fetch_add(&((struct echo *)service)->calls, 1);
    if (!strcmp(in->text, "block, away"))
        status_ignore(block(service, call));
    if (strstr(in->text, "away"))
        return err_set(e, ST_UNAVAILABLE, "the echo is away");
    if (!strcmp(in->text, "fail")) {
        rpc_set_reason(call, "ECHO_FAILED");
        return err_set(e, ST_NOT_FOUND, "the écho is away");
    }
    if (!strcmp(in->text, "garbled"))
        return err_set(e, ST_NOT_FOUND, "open 'a\xff\xc3': no such file \xc3");
    if (!strcmp(in->text, "plainly"))
        return err_set(e, ST_ABORTED, "a race was lost");
    if (!strcmp(in->text, "left"))
        return left(call, &reply);
    if (!strcmp(in->text, "caller"))
        reply.text = (char *)rpc_caller(call);
    if (!strcmp(in->text, "silent"))
        return ST_OK;
    if (!strcmp(in->text, "block"))
        status_ignore(block(service, call));
    if (!strcmp(in->text, "big")) {
        reply.blob.len = 5 << 20;
        reply.blob.data = calloc(1, reply.blob.len);
        rpc_reply(call, &reply.base);
        free(reply.blob.data);
        return ST_OK;
    }
    rpc_reply(call, &reply.base);
    return ST_OK;
}

struct counter {
    int64_t i;
    uint8_t *blob;
    atomic_int at_once;
    int wakes;
};

static void count_on(struct rpc_call *call) {
    const Test__V1__CountRequest *in = (const void *)rpc_request(call);
    struct counter *c = rpc_user(call);
    Test__V1__EchoReply reply = TEST__V1__ECHO_REPLY__INIT;
    reply.blob = (ProtobufCBinaryData){ (size_t)in->bytes, c->blob };
    for (; c->i < in->n; c->i++) {
        reply.number = c->i;
        if (rpc_send(call, &reply.base) != RPC_SENT)
            return;
    }
    if (!in->endless)
        rpc_finish(call, ST_OK, NULL);
}

static void count_message(struct rpc_call *call, const ProtobufCMessage *message) {
    const Test__V1__CountRequest *in = (const void *)message;
    struct echo *echo = rpc_service(call);
    struct counter *c = calloc(1, sizeof *c);
    c->blob = calloc(1, (size_t)in->bytes + 1);
    rpc_set_user(call, c);
    atomic_fetch_add(&echo->streams, 1);
    if (in->by_work)
        for (int i = 0; i < 10; i++)
            rpc_wake(call);
    else
        count_on(call);
}

static void count_writable(struct rpc_call *call) {
    const Test__V1__CountRequest *in = (const void *)rpc_request(call);
    if (in->by_work)
        rpc_wake(call);
    else
        count_on(call);
}

static void count_work(struct rpc_call *call) {
    struct echo *echo = rpc_service(call);
    struct counter *c = rpc_user(call);
    int now = atomic_fetch_add(&c->at_once, 1) + 1;
    if (now > atomic_load(&echo->work_most))
        atomic_store(&echo->work_most, now);
    if (c->wakes++ < 10)
        rpc_wake(call); /* while it runs: `work` must run again afterwards */
    else
        count_on(call);
    atomic_fetch_sub(&c->at_once, 1);
}

static void stream_done(struct rpc_call *call, status_t status) {
    struct echo *echo = rpc_service(call);
    atomic_fetch_sub(&echo->streams, 1);
    atomic_fetch_add(&echo->cancelled, status == ST_CANCELLED);
    atomic_fetch_add(&echo->done, 1);
}

static void count_done(struct rpc_call *call, status_t status, const char *why) {
    (void)why;
    struct counter *c = rpc_user(call);
    if (c) {
        free(c->blob);
        free(c);
        stream_done(call, status);
    }
}

static void sum_open(struct rpc_call *call) {
    struct echo *echo = rpc_service(call);
    rpc_set_user(call, calloc(1, sizeof(int64_t)));
    atomic_fetch_add(&echo->streams, 1);
}

static void sum_message(struct rpc_call *call, const ProtobufCMessage *message) {
    *(int64_t *)rpc_user(call) += ((const Test__V1__EchoRequest *)(const void *)message)->number;
}

static void sum_half_closed(struct rpc_call *call) {
    Test__V1__EchoReply reply = TEST__V1__ECHO_REPLY__INIT;
    reply.number = *(int64_t *)rpc_user(call);
    (void)rpc_send(call, &reply.base);
    rpc_finish(call, ST_OK, NULL);
}

static void sum_done(struct rpc_call *call, status_t status, const char *why) {
    (void)why;
    free(rpc_user(call));
    stream_done(call, status);
}

static void chat_open(struct rpc_call *call) {
    struct echo *echo = rpc_service(call);
    atomic_fetch_add(&echo->streams, 1);
}

static void chat_message(struct rpc_call *call, const ProtobufCMessage *message) {
    const Test__V1__EchoRequest *in = (const void *)message;
    Test__V1__EchoReply reply = TEST__V1__ECHO_REPLY__INIT;
    reply.text = in->text;
    reply.number = in->number;
    if (!strcmp(in->text, "pause")) {
        rpc_pause(call);
        return;
    }
    if (!strcmp(in->text, "finish")) {
        rpc_set_reason(call, "CHAT_FENCED");
        rpc_finish(call, ST_ABORTED, "enough");
        return;
    }
    if (rpc_send(call, &reply.base) == RPC_FULL)
        rpc_finish(call, ST_RESOURCE_EXHAUSTED, "the reader is too slow");
}

static void chat_half_closed(struct rpc_call *call) { rpc_finish(call, ST_OK, NULL); }

static void chat_done(struct rpc_call *call, status_t status, const char *why) {
    (void)why;
    stream_done(call, status);
}

static const struct rpc_method methods[] = {
    { "Unary", RPC_UNARY, .unary = unary },
    { "Count", RPC_SERVER_STREAM,
      .events = { .message = count_message, .writable = count_writable, .work = count_work, .done = count_done } },
    { "Sum", RPC_CLIENT_STREAM,
      .events = { .open = sum_open, .message = sum_message, .half_closed = sum_half_closed, .done = sum_done } },
    { "Chat", RPC_BIDI,
      .events = { .open = chat_open, .message = chat_message, .half_closed = chat_half_closed, .done = chat_done } },
};

status_t echo_add(struct rpc_server *server, struct echo *echo, struct err *e) {
    return rpc_server_add(server, &test__v1__echo__descriptor, methods, sizeof methods / sizeof methods[0], echo, e);
}

status_t echo_open(const struct rpc_server_config *config, struct echo *echo, struct rpc_server **ret, struct err *e) {
    struct rpc_server_config mine = config ? *config : (struct rpc_server_config){ 0 };
    mine.descriptors = echo_descriptors;
    mine.descriptors_len = echo_descriptors_len;
    CLEANUP(rpc_server_closep) struct rpc_server *server = NULL;
    TRY(rpc_server_open(&mine, &server, e));
    TRY(echo_add(server, echo, e));
    *ret = take_ptr(&server);
    return ST_OK;
}
