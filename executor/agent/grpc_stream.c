/* A gRPC stream on the agent's loop.
 *
 * gRPC's threads call on_message, on_writable and on_done; each copies its arguments into an event and posts the event
 * to the loop, where event_run calls the owner. on_message pauses the call before it posts, and event_run resumes it
 * after the owner's handler has returned, so at most one message waits in the loop. The place for `done` is reserved
 * when the stream is opened: it cannot be lost, and its handler frees the stream. `lock` guards the call, which the
 * gRPC thread releases in on_done while the loop may still send on it. */
#include "executor/agent/grpc_stream.h"

#include "api/codec/message.h"
#include "base/alloc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct event {
    struct grpc_stream *stream;
    enum { EVENT_MESSAGE, EVENT_WRITABLE, EVENT_DONE } kind;
    ProtobufCMessage *message;
    status_t status;
    char why[480];
};

/* Freed when the loop has run the call's `done`, even if the owner has closed the stream before. */
struct grpc_stream {
    struct reactor *loop;
    pthread_mutex_t lock;  /* guards call */
    struct rpc_call *call; /* NULL once it is done: a channel cannot be closed while a reference is held */
    struct grpc_stream_owner owner;
    bool closed;        /* the loop's thread */
    struct err give_up; /* used by the call's thread: why the stream itself has cancelled the call, or "" */
    struct event done;  /* allocated with the stream, so that the end is never lost */
};

static void grpc_stream_free(struct grpc_stream *s) {
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The end is a member of its stream, so the stream is freed with it. */
static void event_free(struct event *ev) {
    if (ev->message)
        protobuf_c_message_free_unpacked(ev->message, NULL);
    if (ev->kind == EVENT_DONE)
        grpc_stream_free(ev->stream);
    else
        free(ev);
}

static void call_cancel(struct grpc_stream *s) {
    pthread_mutex_lock(&s->lock);
    if (s->call)
        rpc_cancel(s->call);
    pthread_mutex_unlock(&s->lock);
}

static void call_resume(struct grpc_stream *s) {
    pthread_mutex_lock(&s->lock);
    if (s->call)
        rpc_resume(s->call);
    pthread_mutex_unlock(&s->lock);
}

/* The loop is closing: no handler is called any more. */
static void event_drop(void *payload) { event_free(payload); }

static void event_run(void *ctx, void *payload) {
    struct event *ev = payload;
    struct grpc_stream *s = ctx;
    bool is_open = !s->closed;
    if (is_open && ev->kind == EVENT_MESSAGE)
        s->owner.message(s->owner.ctx, ev->message);
    else if (is_open && ev->kind == EVENT_WRITABLE)
        s->owner.writable(s->owner.ctx);
    else if (is_open)
        s->owner.ended(s->owner.ctx, ev->status, ev->why);
    if (ev->kind == EVENT_MESSAGE)
        call_resume(s);
    event_free(ev);
}

/* Messages that are lost here are sent again on the next stream. */
static void give_up(struct rpc_call *call, struct event *ev, const char *why) {
    struct grpc_stream *s = rpc_user(call);
    snprintf(s->give_up.msg, sizeof s->give_up.msg, "%s", why);
    event_free(ev);
    rpc_cancel(call);
}

static void event_post(struct rpc_call *call, struct event *ev) {
    struct grpc_stream *s = ev->stream = rpc_user(call);
    struct reactor_post post = { .fn = event_run, .drop = event_drop, .ctx = s, .payload = ev };
    struct err why;
    if (ev->kind == EVENT_DONE)
        reactor_post_reserved(s->loop, &post);
    else if (reactor_post(s->loop, &post, &why) != ST_OK)
        give_up(call, ev, why.msg);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *message) {
    struct event *ev = alloc_zeroed(1, sizeof *ev);
    struct err why;
    rpc_pause(call);
    ev->kind = EVENT_MESSAGE;
    if (message_copy(message, &ev->message, &why) == ST_OK)
        event_post(call, ev);
    else
        give_up(call, ev, why.msg);
}

static void on_writable(struct rpc_call *call) {
    struct event *ev = alloc_zeroed(1, sizeof *ev);
    ev->kind = EVENT_WRITABLE;
    event_post(call, ev);
}

static void on_done(struct rpc_call *call, status_t status, const char *why) {
    struct grpc_stream *s = rpc_user(call);
    struct event *ev = &s->done;
    ev->kind = EVENT_DONE;
    bool gave_up = s->give_up.msg[0];
    ev->status = gave_up ? ST_RESOURCE_EXHAUSTED : status;
    snprintf(ev->why, sizeof ev->why, "%s", gave_up ? s->give_up.msg : why ? why : "");
    pthread_mutex_lock(&s->lock);
    s->call = rpc_unref(s->call);
    pthread_mutex_unlock(&s->lock);
    event_post(call, ev);
}

status_t grpc_stream_open(struct reactor *loop, struct rpc_channel *channel, const ProtobufCServiceDescriptor *service,
                          const char *method, const ProtobufCMessage *first, const struct grpc_stream_owner *owner,
                          struct grpc_stream **ret, struct err *e) {
    static const struct rpc_events events = { .message = on_message, .writable = on_writable, .done = on_done };
    struct grpc_stream *s = alloc_zeroed(1, sizeof *s);
    status_t st = reactor_reserve(loop, e); /* for `done` */
    if (st != ST_OK) {
        free(s);
        return st;
    }
    s->loop = loop;
    s->owner = *owner;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_lock(&s->lock); /* `done` may come before rpc_start returns, and waits here then */
    st = rpc_start(channel, service, method, RPC_BIDI, &events, s, first, 0, &s->call, e);
    pthread_mutex_unlock(&s->lock);
    if (st != ST_OK) {
        reactor_unreserve(loop);
        grpc_stream_free(s);
        return st;
    }
    *ret = s;
    return ST_OK;
}

struct grpc_stream *grpc_stream_close(struct grpc_stream *s) {
    if (!s)
        return NULL;
    s->closed = true;
    call_cancel(s);
    return NULL;
}

enum rpc_sent grpc_stream_send(struct grpc_stream *s, const ProtobufCMessage *message) {
    pthread_mutex_lock(&s->lock);
    enum rpc_sent sent = s->call ? rpc_send(s->call, message) : RPC_CLOSED;
    pthread_mutex_unlock(&s->lock);
    return sent;
}

void grpc_stream_send_end(struct grpc_stream *s) {
    pthread_mutex_lock(&s->lock);
    if (s->call)
        rpc_send_end(s->call);
    pthread_mutex_unlock(&s->lock);
}
