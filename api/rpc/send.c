/* Sending: the queue of a call.
 *
 * rpc_send appends a message to the call's queue, whose size is limited in bytes. send_pump starts the next batch if
 * none is in flight: the headers if they have not been sent, the oldest message, and, after the last message, the end
 * (a client closes its side, a server sends its status). gRPC allows one batch that sends per call, so the queue is
 * pumped again when a batch has finished. The reply of a unary call is deferred until the handler has returned, so that
 * it is sent together with its status. */
#include "api/rpc/buffer.h"
#include "api/rpc/call_state.h"
#include "api/rpc/details.h"
#include "api/rpc/request_id.h"
#include "api/rpc/server_state.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counted for each queued message in addition to its bytes, so that many empty messages fill the queue too. */
enum { QUEUE_ENTRY_BYTES = 128 };

void send_drop_queue(struct rpc_call *c) {
    for (struct outgoing *o = c->out.first, *next; o; o = next) {
        next = o->next;
        grpc_byte_buffer_destroy(o->buffer);
        free(o);
    }
    c->out.first = NULL;
    c->out.last = &c->out.first;
    c->out.bytes = 0;
}

static void take_message(struct rpc_call *c, grpc_op *op) {
    struct outgoing *o = c->out.first;
    c->out.first = o->next;
    if (!o->next)
        c->out.last = &c->out.first;
    c->out.bytes -= o->bytes;
    c->out.in_flight = o->buffer;
    free(o);
    *op = (grpc_op){ .op = GRPC_OP_SEND_MESSAGE,
                     .flags = c->out.first ? GRPC_WRITE_BUFFER_HINT : 0,
                     .data.send_message.send_message = c->out.in_flight };
}

static grpc_op end_op(struct rpc_call *c) {
    c->out.ended = true;
    if (!c->is_server)
        return (grpc_op){ .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT };
    grpc_op op = { .op = GRPC_OP_SEND_STATUS_FROM_SERVER };
    op.data.send_status_from_server.status = (grpc_status_code)c->status;
    op.data.send_status_from_server.status_details = &c->details;
    op.data.send_status_from_server.trailing_metadata = c->trailing;
    op.data.send_status_from_server.trailing_metadata_count = c->status != ST_OK ? 2 : 1;
    return op;
}

void send_pump(struct rpc_call *c) {
    struct sender *out = &c->out;
    if (out->busy || out->failed || atomic_load(&c->over))
        return;
    grpc_op ops[3];
    size_t n = 0;
    if (!out->headers_sent) {
        out->headers_sent = true;
        ops[n] = (grpc_op){ .op = GRPC_OP_SEND_INITIAL_METADATA };
        ops[n].data.send_initial_metadata.metadata = c->own_headers.items;
        ops[n].data.send_initial_metadata.count = c->own_headers.n;
        n++;
    }
    if (out->first)
        take_message(c, &ops[n++]);
    if (!out->first && out->ending && !out->ended)
        ops[n++] = end_op(c);
    if (n == 0)
        return;
    out->busy = call_start(c, ops, n, &c->sent);
    out->failed = !out->busy;
}

void send_finished(struct tag *tag, bool ok) {
    struct rpc_call *c = TAG_OWNER(tag, struct rpc_call, sent);
    struct sender *out = &c->out;
    pthread_mutex_lock(&c->lock);
    out->busy = false;
    if (out->in_flight)
        grpc_byte_buffer_destroy(out->in_flight);
    out->in_flight = NULL;
    out->failed = !ok;
    out->settled = ok && out->ended;
    send_pump(c);
    bool writable = out->writable_due && out->bytes <= RPC_QUEUE_BYTES / 2 && !out->ending && !out->failed;
    if (writable) {
        out->writable_due = false;
        pthread_mutex_unlock(&c->lock);
        if (c->events.writable)
            c->events.writable(c);
        else if (c->events.work)
            rpc_wake(c);
        pthread_mutex_lock(&c->lock);
    }
    call_end_of(c);
}

static bool is_closed(const struct rpc_call *c) { return atomic_load(&c->over) || c->out.ending || c->out.failed; }

/* Ends the call, because the peer would refuse the message; the sentence names the message. */
static enum rpc_sent refuse_large(struct rpc_call *c, const ProtobufCMessage *message, size_t bytes) {
    struct err e;
    status_ignore(err_set(&e, ST_RESOURCE_EXHAUSTED, "a %s of %zu bytes is larger than the limit of %d",
                          message->descriptor->name, bytes, LIMIT_RPC_MESSAGE_BYTES));
    if (c->is_server)
        rpc_finish(c, ST_RESOURCE_EXHAUSTED, e.msg);
    else
        grpc_call_cancel_with_status(c->owned.call, GRPC_STATUS_RESOURCE_EXHAUSTED, e.msg, NULL);
    return RPC_CLOSED;
}

enum rpc_sent send_queue(struct rpc_call *c, const ProtobufCMessage *message) {
    pthread_mutex_lock(&c->lock);
    bool closed = is_closed(c), full = c->out.bytes >= RPC_QUEUE_BYTES;
    c->out.writable_due = c->out.writable_due || (full && !closed);
    pthread_mutex_unlock(&c->lock);
    if (closed || full)
        return closed ? RPC_CLOSED : RPC_FULL;
    /* Packing is slow, so it runs without the lock. Two concurrent senders may therefore each exceed the limit by one
     * message. */
    size_t bytes;
    grpc_byte_buffer *buffer = buffer_pack(message, &bytes);
    if (bytes > LIMIT_RPC_MESSAGE_BYTES) {
        grpc_byte_buffer_destroy(buffer);
        return refuse_large(c, message, bytes);
    }
    struct outgoing *o = alloc_zeroed(1, sizeof *o);
    *o = (struct outgoing){ .buffer = buffer, .bytes = bytes + QUEUE_ENTRY_BYTES };
    pthread_mutex_lock(&c->lock);
    closed = is_closed(c);
    if (!closed) {
        *c->out.last = o;
        c->out.last = &o->next;
        c->out.bytes += o->bytes;
        if (!c->out.deferred)
            send_pump(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (!closed)
        return RPC_SENT;
    grpc_byte_buffer_destroy(buffer);
    free(o);
    return RPC_CLOSED;
}

enum rpc_sent rpc_send(struct rpc_call *c, const ProtobufCMessage *message) { return send_queue(c, message); }

void rpc_set_reason(struct rpc_call *c, const char *reason) {
    pthread_mutex_lock(&c->lock);
    snprintf(c->reason, sizeof c->reason, "%s", reason);
    pthread_mutex_unlock(&c->lock);
}

/* Copies the sentence as valid UTF-8: it may quote a file's name, or be cut inside a character. */
static void copy_sentence(const char *why, struct err *ret) {
    size_t used = 0, len;
    for (size_t left = strlen(why); left && used + 4 < sizeof ret->msg; left -= len, why += len) {
        utf8_next(why, left, &len);
        if (len)
            memcpy(ret->msg + used, why, len);
        else
            ret->msg[used] = '?';
        len = len ? len : 1;
        used += len;
    }
    ret->msg[used] = '\0';
}

void rpc_finish(struct rpc_call *c, status_t status, const char *why) {
    pthread_mutex_lock(&c->lock);
    if (!is_closed(c)) {
        c->out.ending = true;
        c->out.deferred = false;
        c->status = status;
        if (status == ST_UNAVAILABLE && c->route && !c->was_served &&
            !atomic_load(&c->route->serves)) /* else it may have run before the lead was lost */
            snprintf(c->reason, sizeof c->reason, "%s", RPC_NOT_SERVING);
        c->trailing[0].key = grpc_slice_from_static_string(REQUEST_ID_KEY);
        c->trailing[0].value = grpc_slice_from_copied_string(c->request_id);
        if (status != ST_OK) {
            copy_sentence(why ? why : "", &c->why);
            c->details = grpc_slice_from_copied_string(c->why.msg);
            c->trailing[1].key = grpc_slice_from_static_string("grpc-status-details-bin");
            c->trailing[1].value = details_pack(status, c->why.msg, c->reason);
            send_drop_queue(c);
        }
        send_pump(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void rpc_send_end(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    if (!is_closed(c)) {
        c->out.ending = true;
        send_pump(c);
    }
    pthread_mutex_unlock(&c->lock);
}
