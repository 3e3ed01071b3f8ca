#include "api/rpc/blocking.h"
#include "api/rpc/buffer.h"
#include "base/alloc.h"
#include "base/limits.h"

struct rpc_stream {
    struct blocking b;
    struct arena arena; /* memory of the last message */
    bool ended;
    status_t status;
    struct err why;
    char reason[RPC_REASON_BYTES];
    char ask_tag, read_tag, end_tag; /* only their addresses are used */
};

status_t rpc_stream_open(struct rpc_channel *ch, const ProtobufCServiceDescriptor *service, const char *method,
                         const ProtobufCMessage *request, int64_t timeout_ms, struct rpc_stream **ret, struct err *e) {
    CLEANUP(freep) struct rpc_stream *s = alloc_zeroed(1, sizeof *s);
    TRY(blocking_open(&s->b, ch, service, method, request, timeout_ms, e));
    arena_init(&s->arena, LIMIT_RPC_DECODE_BYTES);
    grpc_op ask[] = { blocking_send_headers(&s->b),
                      blocking_send_request(&s->b),
                      { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
                      blocking_receive_headers(&s->b) };
    grpc_op end = blocking_receive_status(&s->b);
    blocking_start(&s->b, &end, 1, &s->end_tag);
    blocking_start(&s->b, ask, sizeof ask / sizeof ask[0], &s->ask_tag);
    *ret = take_ptr(&s);
    return ST_OK;
}

static void wait_end(struct rpc_stream *s) {
    blocking_wait(&s->b, &s->end_tag);
    blocking_wait(&s->b, &s->ask_tag);
    s->ended = true;
    bool elsewhere; /* a stream is opened again by its user */
    s->status = blocking_conclude(&s->b, s->reason, &elsewhere, &s->why);
}

static status_t say_end(struct rpc_stream *s, const ProtobufCMessage **ret, struct err *e) {
    if (s->status != ST_OK)
        return err_set(e, s->status, "%s", s->why.msg);
    *ret = NULL;
    return ST_OK;
}

status_t rpc_stream_next(struct rpc_stream *s, const ProtobufCMessage **ret, struct err *e) {
    if (s->ended)
        return say_end(s, ret, e);
    grpc_op read = blocking_receive_message(&s->b);
    blocking_start(&s->b, &read, 1, &s->read_tag);
    blocking_wait(&s->b, &s->read_tag);
    if (!s->b.received) {
        wait_end(s);
        return say_end(s, ret, e);
    }
    arena_done(&s->arena);
    ProtobufCMessage *message;
    status_t st = buffer_decode(s->b.received, s->b.reply, &s->arena, &message, &s->why);
    grpc_byte_buffer_destroy(s->b.received);
    s->b.received = NULL;
    if (st == ST_OK) {
        *ret = message;
        return ST_OK;
    }
    struct err malformed = s->why;
    grpc_call_cancel(s->b.owned.call, NULL);
    wait_end(s);
    s->status = err_set(&s->why, ST_INTERNAL, "a message of %s: %.300s", blocking_peer(&s->b), malformed.msg);
    return say_end(s, ret, e);
}

const char *rpc_stream_reason(const struct rpc_stream *s) { return s->reason; }

struct rpc_stream *rpc_stream_close(struct rpc_stream *s) {
    if (!s)
        return NULL;
    if (!s->ended) {
        grpc_call_cancel(s->b.owned.call, NULL);
        wait_end(s);
    }
    blocking_close(&s->b);
    arena_done(&s->arena);
    free(s);
    return NULL;
}
