#include "api/rpc/buffer.h"
#include "api/rpc/call_state.h"
#include "base/limits.h"

void receive_arm(struct rpc_call *c) {
    if (!c->in.open || c->in.busy || c->in.paused || c->in.ended || atomic_load(&c->over))
        return;
    grpc_op op = { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &c->in.buffer };
    c->in.busy = call_start(c, &op, 1, &c->received);
}

static void refuse(struct rpc_call *c, status_t st, const struct err *e) {
    if (c->is_server)
        rpc_finish(c, st, e->msg);
    else
        grpc_call_cancel_with_status(c->owned.call, GRPC_STATUS_INTERNAL, e->msg, NULL);
}

/* Without the lock: only one message is being delivered at a time. */
static void deliver(struct rpc_call *c) {
    struct err e;
    ProtobufCMessage *message;
    arena_init(&c->arena, LIMIT_RPC_DECODE_BYTES);
    status_t st = buffer_decode(c->in.buffer, c->incoming, &c->arena, &message, &e);
    grpc_byte_buffer_destroy(c->in.buffer);
    c->in.buffer = NULL;
    if (st != ST_OK)
        refuse(c, st, &e);
    else if (c->is_server && !streams_in(c))
        c->request = message; /* it stays valid until the call is freed */
    if (st == ST_OK && c->unary)
        work_offer_unary(c);
    else if (st == ST_OK && c->events.message)
        c->events.message(c, message);
    else if (st == ST_OK && c->events.work)
        rpc_wake(c);
    if (!c->request)
        arena_done(&c->arena);
}

/* The peer sends no more messages. */
static void half_close(struct rpc_call *c) {
    if (streams_in(c)) {
        if (c->events.half_closed)
            c->events.half_closed(c);
    } else if (!c->request) {
        rpc_finish(c, ST_INVALID_ARGUMENT, "the request message is missing");
    }
}

void receive_finished(struct tag *tag, bool ok) {
    struct rpc_call *c = TAG_OWNER(tag, struct rpc_call, received);
    bool got = ok && c->in.buffer;
    if (got)
        deliver(c);
    else if (ok && c->is_server && !atomic_load(&c->over))
        half_close(c);
    pthread_mutex_lock(&c->lock);
    c->in.busy = false;
    c->in.ended = !got || (c->is_server && !streams_in(c));
    receive_arm(c);
    call_end_of(c);
}

void rpc_pause(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    c->in.paused = true;
    pthread_mutex_unlock(&c->lock);
}

void rpc_resume(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    c->in.paused = false;
    receive_arm(c);
    pthread_mutex_unlock(&c->lock);
}
