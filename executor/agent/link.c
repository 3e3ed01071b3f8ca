#include "executor/agent/link.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct event {
    struct link *link;
    enum { EVENT_MESSAGE, EVENT_WRITABLE, EVENT_DONE } kind;
    ProtobufCMessage *message;
    status_t status;
    char why[480];
};

/* Freed when the call's `done` has come through the loop, however early the owner lost interest. */
struct link {
    struct reactor *loop;
    pthread_mutex_t lock;  /* guards call */
    struct rpc_call *call; /* NULL once it is done: a channel cannot be closed while a reference is held */
    struct link_owner owner;
    bool closed;        /* the loop's thread */
    struct err give_up; /* the call's events: why the link itself has cancelled the call, or "" */
    struct event done;  /* there from the start: without it the stream would seem to live for ever */
};

static void link_free(struct link *l) {
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* `done` goes with its link. */
static void event_free(struct event *ev) {
    if (ev->message)
        protobuf_c_message_free_unpacked(ev->message, NULL);
    if (ev->kind == EVENT_DONE)
        link_free(ev->link);
    else
        free(ev);
}

static void call_cancel(struct link *l) {
    pthread_mutex_lock(&l->lock);
    if (l->call)
        rpc_cancel(l->call);
    pthread_mutex_unlock(&l->lock);
}

static void call_resume(struct link *l) {
    pthread_mutex_lock(&l->lock);
    if (l->call)
        rpc_resume(l->call);
    pthread_mutex_unlock(&l->lock);
}

/* The loop is closing: nobody is called any more. */
static void event_drop(void *payload) { event_free(payload); }

static void event_run(void *ctx, void *payload) {
    struct event *ev = payload;
    struct link *l = ctx;
    bool heard = !l->closed;
    if (heard && ev->kind == EVENT_MESSAGE)
        l->owner.message(l->owner.ctx, ev->message);
    else if (heard && ev->kind == EVENT_WRITABLE)
        l->owner.writable(l->owner.ctx);
    else if (heard)
        l->owner.ended(l->owner.ctx, ev->status, ev->why);
    if (ev->kind == EVENT_MESSAGE)
        call_resume(l);
    event_free(ev);
}

/* The next stream says again what is lost here. */
static void give_up(struct rpc_call *call, struct event *ev, const char *why) {
    struct link *l = rpc_user(call);
    snprintf(l->give_up.msg, sizeof l->give_up.msg, "%s", why);
    if (ev)
        event_free(ev);
    rpc_cancel(call);
}

static void event_post(struct rpc_call *call, struct event *ev) {
    struct link *l = ev->link = rpc_user(call);
    struct reactor_post post = { .fn = event_run, .drop = event_drop, .ctx = l, .payload = ev };
    struct err why;
    if (ev->kind == EVENT_DONE)
        reactor_post_reserved(l->loop, &post);
    else if (reactor_post(l->loop, &post, &why) != ST_OK)
        give_up(call, ev, why.msg);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *message) {
    rpc_pause(call);
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(n + 1);
    struct event *ev = calloc(1, sizeof *ev);
    if (packed && ev) {
        protobuf_c_message_pack(message, packed);
        ev->kind = EVENT_MESSAGE;
        ev->message = protobuf_c_message_unpack(message->descriptor, NULL, n, packed);
    }
    free(packed);
    if (ev && ev->message)
        event_post(call, ev);
    else
        give_up(call, ev, "no memory for a message of the stream");
}

static void on_writable(struct rpc_call *call) {
    struct event *ev = calloc(1, sizeof *ev);
    if (!ev) {
        give_up(call, NULL, "no memory for an event of the stream");
        return;
    }
    ev->kind = EVENT_WRITABLE;
    event_post(call, ev);
}

static void on_done(struct rpc_call *call, status_t status, const char *why) {
    struct link *l = rpc_user(call);
    struct event *ev = &l->done;
    ev->kind = EVENT_DONE;
    bool gave_up = l->give_up.msg[0];
    ev->status = gave_up ? ST_RESOURCE_EXHAUSTED : status;
    snprintf(ev->why, sizeof ev->why, "%s", gave_up ? l->give_up.msg : why ? why : "");
    pthread_mutex_lock(&l->lock);
    l->call = rpc_unref(l->call);
    pthread_mutex_unlock(&l->lock);
    event_post(call, ev);
}

status_t link_open(struct reactor *loop, struct rpc_channel *channel, const ProtobufCServiceDescriptor *service,
                   const char *method, const ProtobufCMessage *first, const struct link_owner *owner, struct link **ret,
                   struct err *e) {
    static const struct rpc_events events = { .message = on_message, .writable = on_writable, .done = on_done };
    struct link *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a stream");
    status_t st = reactor_reserve(loop, e); /* for `done` */
    if (st != ST_OK) {
        free(l);
        return st;
    }
    l->loop = loop;
    l->owner = *owner;
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_lock(&l->lock); /* `done` may come before rpc_start returns, and waits here then */
    st = rpc_start(channel, service, method, RPC_BIDI, &events, l, first, 0, &l->call, e);
    pthread_mutex_unlock(&l->lock);
    if (st != ST_OK) {
        reactor_unreserve(loop);
        link_free(l);
        return st;
    }
    *ret = l;
    return ST_OK;
}

struct link *link_close(struct link *l) {
    if (!l)
        return NULL;
    l->closed = true;
    call_cancel(l);
    return NULL;
}

enum rpc_sent link_send(struct link *l, const ProtobufCMessage *message) {
    pthread_mutex_lock(&l->lock);
    enum rpc_sent sent = l->call ? rpc_send(l->call, message) : RPC_CLOSED;
    pthread_mutex_unlock(&l->lock);
    return sent;
}

void link_send_end(struct link *l) {
    pthread_mutex_lock(&l->lock);
    if (l->call)
        rpc_send_end(l->call);
    pthread_mutex_unlock(&l->lock);
}
