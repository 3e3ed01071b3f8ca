#include "api/rpc/call_state.h"

#include "api/rpc/request_id.h"
#include "api/rpc/server_state.h"
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* The number of calls that gRPC can hand over while the loop is busy; further calls wait inside gRPC. */
enum { SLOTS = 64 };

static void accepted(struct tag *, bool ok);

static void slot_arm(struct slot *s) {
    grpc_call_details_init(&s->details);
    grpc_metadata_array_init(&s->metadata);
    grpc_completion_queue *queue = s->server->loop.queue;
    tag_hand(&s->tag);
    grpc_call_error refused = grpc_server_request_call(s->server->core, &s->call, &s->details, &s->metadata, queue,
                                                       queue, &s->tag);
    if (refused != GRPC_CALL_OK) { /* the server is going down */
        grpc_call_details_destroy(&s->details);
        grpc_metadata_array_destroy(&s->metadata);
    }
}

void accept_start(struct rpc_server *s) {
    s->slots = alloc_zeroed(SLOTS, sizeof *s->slots);
    for (size_t i = 0; i < SLOTS; i++) {
        s->slots[i].tag.run = accepted;
        s->slots[i].server = s;
        slot_arm(&s->slots[i]);
    }
}

static int compare_path(const void *path, const void *route) {
    return strcmp(path, ((const struct route *)route)->path);
}

static const struct route *find_route(const struct rpc_server *s, const char *path) {
    return bsearch(path, s->routes, s->n_routes, sizeof *s->routes, compare_path);
}

void call_dispatch(struct rpc_call *c) {
    const struct rpc_method *method = c->route->method;
    c->events = method->events;
    if (c->events.open)
        c->events.open(c);
    pthread_mutex_lock(&c->lock);
    if (method->kind != RPC_UNARY)
        send_pump(c); /* sends the headers, so that the client knows that the call was accepted */
    c->in.open = true;
    receive_arm(c);
    pthread_mutex_unlock(&c->lock);
}

static status_t admit(struct rpc_server *s, const struct route *route, const char *path, struct err *e) {
    if (!route)
        return err_set(e, ST_UNIMPLEMENTED, "the method %s does not exist", path);
    pthread_mutex_lock(&s->owner.lock);
    size_t alive = s->owner.n;
    pthread_mutex_unlock(&s->owner.lock);
    /* Calls without a token get at most half of the calls; the other half is reserved for callers with a token. */
    int limit = s->config.access && route->rule == RULE_ANYONE ? s->config.calls / 2 : s->config.calls;
    if (alive > (size_t)limit)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the server is busy: %d calls are open already", limit);
    return ST_OK;
}

static void take_call(struct rpc_server *s, struct rpc_call *c, const char *path) {
    const struct route *route = find_route(s, path);
    c->server = s;
    request_id_take(s, c);
    if (route) {
        c->route = route;
        c->was_served = atomic_load(&route->serves);
        c->kind = route->method->kind;
        c->incoming = route->input;
        c->service = route->service;
        c->unary = route->method->unary;
        c->work.pool = s->pool;
        c->work.limited = s->config.access && route->rule == s->config.access->rule_reads;
    }
    grpc_op op = { .op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &c->cancelled };
    rpc_ref(c);
    pthread_mutex_lock(&c->lock);
    bool watched = call_start(c, &op, 1, &c->ended);
    pthread_mutex_unlock(&c->lock);
    struct err e = { "" };
    status_t st = watched ? admit(s, route, path, &e) : ST_INTERNAL;
    if (st == ST_OK && admit_needed(s, route))
        admit_begin(s, c);
    else if (st == ST_OK)
        call_dispatch(c);
    else
        rpc_finish(c, st, e.msg);
    if (!watched)
        rpc_unref(c); /* `done` will not be called, so its reference is released here */
    rpc_unref(c);
}

static void accepted(struct tag *tag, bool ok) {
    struct slot *slot = TAG_OWNER(tag, struct slot, tag);
    struct rpc_server *s = slot->server;
    if (!ok) { /* the server is going down, and gRPC has not filled in the slot's call */
        grpc_call_details_destroy(&slot->details);
        grpc_metadata_array_destroy(&slot->metadata);
        return;
    }
    char path[ROUTE_BYTES] = "";
    size_t n = GRPC_SLICE_LENGTH(slot->details.method);
    memcpy(path, GRPC_SLICE_START_PTR(slot->details.method), n < sizeof path ? n : sizeof path - 1);
    struct rpc_call *c = call_new(&s->owner, slot->call, true, RPC_UNARY);
    c->metadata = slot->metadata;
    c->deadline = slot->details.deadline;
    grpc_call_details_destroy(&slot->details);
    slot_arm(slot); /* if the server shuts down, the slot returns at once with ok = false */
    take_call(s, c, path);
}
