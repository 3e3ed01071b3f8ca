#include "api/rpc/call_state.h"

#include "api/rpc/endpoints.h"
#include "api/rpc/explain.h"
#include "api/rpc/peer.h"
#include "api/rpc/server_state.h"
#include "base/alloc.h"
#include "base/clock.h"

#include <grpc/support/time.h>
#include <stdlib.h>
#include <string.h>

static void call_over(struct tag *, bool ok);

static void headers_received(struct tag *tag, bool ok) {
    struct rpc_call *c = TAG_OWNER(tag, struct rpc_call, headers);
    if (ok && c->events.open)
        c->events.open(c);
    pthread_mutex_lock(&c->lock);
    c->in.open = true;
    receive_arm(c);
    call_end_of(c);
}

void call_headers_done(struct call_headers *h) {
    for (size_t i = 0; i < h->n; i++)
        grpc_slice_unref(h->items[i].value);
    h->n = 0;
}

struct rpc_call *call_new(struct owner *owner, grpc_call *call, bool is_server, enum rpc_kind kind) {
    struct rpc_call *c = alloc_zeroed(1, sizeof *c);
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    c->is_server = is_server;
    c->kind = kind;
    c->begun_ns = clock_mono_ns();
    c->out.last = &c->out.first;
    c->sent.run = send_finished;
    c->received.run = receive_finished;
    c->headers.run = headers_received;
    c->ended.run = call_over;
    c->details = grpc_empty_slice();
    grpc_metadata_array_init(&c->metadata);
    grpc_metadata_array_init(&c->first_metadata);
    c->owner = owner;
    c->owned.call = call;
    owner_add(owner, &c->owned);
    return c;
}

void rpc_ref(struct rpc_call *c) { atomic_fetch_add(&c->refs, 1); }

struct rpc_call *rpc_unref(struct rpc_call *c) {
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return NULL;
    send_drop_queue(c);
    if (c->out.in_flight)
        grpc_byte_buffer_destroy(c->out.in_flight);
    if (c->in.buffer)
        grpc_byte_buffer_destroy(c->in.buffer);
    grpc_slice_unref(c->details);
    grpc_slice_unref(c->trailing[0].value);
    grpc_slice_unref(c->trailing[1].value);
    call_headers_done(&c->own_headers);
    /* gRPC's call owns the elements, so the arrays are destroyed before the call is released. */
    grpc_metadata_array_destroy(&c->metadata);
    grpc_metadata_array_destroy(&c->first_metadata);
    arena_done(&c->arena);
    pthread_mutex_destroy(&c->lock);
    struct owner *owner = c->owner;
    owner_unlink(owner, &c->owned);
    grpc_call_unref(c->owned.call);
    free(c);
    owner_release(owner);
    return NULL;
}

bool call_start(struct rpc_call *c, const grpc_op *ops, size_t n, struct tag *tag) {
    rpc_ref(c);
    c->running++;
    tag_hand(tag);
    if (grpc_call_start_batch(c->owned.call, ops, n, tag, NULL) == GRPC_CALL_OK)
        return true;
    c->running--;
    atomic_fetch_sub(&c->refs, 1); /* never the last reference: the caller has one */
    grpc_call_cancel(c->owned.call, NULL);
    return false;
}

/* Returns the status, and sets the sentence, that `done` reports. */
static status_t conclude(struct rpc_call *c) {
    if (!c->is_server) {
        if (explain(endpoints_peer(c->endpoints, c->endpoint), c->timeout_ms, c->code, c->details, &c->metadata,
                    &c->status, &c->why, c->reason))
            endpoints_leave(c->endpoints, c->endpoint);
        return c->status;
    }
    if (c->out.settled)
        return c->status;
    return err_set(&c->why, ST_CANCELLED, "the client went away");
}

static void report_end(const struct rpc_call *c, status_t st) {
    const struct rpc_server_config *config = &c->server->config;
    const int64_t ns = clock_mono_ns() - c->begun_ns;
    if (c->route)
        call_times_add(c->route->times, st, ns);
    if (!config->ended)
        return;
    char address[PEER_ADDRESS_BYTES];
    peer_address(c->owned.call, address);
    config->ended(config->ended_ctx, &(struct rpc_ended_call){ .service = c->route ? c->route->service_name : "",
                                                               .method = c->route ? c->route->method->name : "",
                                                               .caller = c->caller,
                                                               .peer = address,
                                                               .request_id = c->request_id,
                                                               .status = st,
                                                               .ns = ns });
}

void call_end_of(struct rpc_call *c) {
    c->running--;
    bool last = atomic_load(&c->over) && c->running == 0 && !c->done;
    c->done = c->done || last;
    pthread_mutex_unlock(&c->lock);
    if (last) {
        status_t st = conclude(c);
        if (c->is_server)
            report_end(c, st);
        if (c->events.done)
            c->events.done(c, st, c->why.msg);
        atomic_fetch_sub(&c->refs, 1); /* the reference of the library; never the last one, which is below */
    }
    rpc_unref(c); /* the reference of the batch or job that has ended */
}

static void call_over(struct tag *tag, bool ok) {
    (void)ok; /* always true: the operands contain the result */
    struct rpc_call *c = TAG_OWNER(tag, struct rpc_call, ended);
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->over, true);
    send_drop_queue(c);
    call_end_of(c);
}

void rpc_cancel(struct rpc_call *c) { grpc_call_cancel(c->owned.call, NULL); }

const ProtobufCMessage *rpc_request(const struct rpc_call *c) { return c->request; }
void *rpc_user(const struct rpc_call *c) { return c->user; }
void rpc_set_user(struct rpc_call *c, void *user) { c->user = user; }
void *rpc_service(const struct rpc_call *c) { return c->service; }
const char *rpc_reason(const struct rpc_call *c) { return c->reason; }

int64_t rpc_time_left_ms(const struct rpc_call *c) {
    if (gpr_time_cmp(c->deadline, gpr_inf_future(c->deadline.clock_type)) == 0)
        return RPC_NO_DEADLINE;
    gpr_timespec left = gpr_time_sub(c->deadline, gpr_now(c->deadline.clock_type));
    int64_t ms = left.tv_sec * 1000 + left.tv_nsec / 1000000;
    return ms > 0 ? ms : 0;
}

deadline_ms_t rpc_deadline(const struct rpc_call *c, int64_t max_ms) {
    const int64_t left = rpc_time_left_ms(c);
    return deadline_in(left < max_ms ? left : max_ms);
}

bool rpc_cancelled(const struct rpc_call *c) { return atomic_load(&c->over) || rpc_time_left_ms(c) == 0; }
