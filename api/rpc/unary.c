#include "api/rpc/blocking.h"
#include "api/rpc/buffer.h"
#include "base/limits.h"

status_t rpc_call_unary(struct rpc_channel *ch, const ProtobufCServiceDescriptor *service, const char *method,
                        const ProtobufCMessage *request, int64_t timeout_ms, ProtobufCMessage **ret_reply,
                        struct err *e) {
    char reason[RPC_REASON_BYTES];
    return rpc_call_unary_reason(ch, service, method, request, timeout_ms, ret_reply, reason, e);
}

static status_t call_one(struct rpc_channel *ch, const ProtobufCServiceDescriptor *service, const char *method,
                         const ProtobufCMessage *request, int64_t timeout_ms, ProtobufCMessage **ret_reply,
                         char ret_reason[RPC_REASON_BYTES], bool *ret_elsewhere, struct err *e) {
    struct blocking b;
    TRY(blocking_open(&b, ch, service, method, request, timeout_ms > 0 ? timeout_ms : UNARY_DEADLINE_MS, e));
    grpc_op ops[] = {
        blocking_send_headers(&b),    blocking_send_request(&b),    { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
        blocking_receive_headers(&b), blocking_receive_message(&b), blocking_receive_status(&b)
    };
    /* All operations in one batch: one wait for the whole call. */
    blocking_start(&b, ops, sizeof ops / sizeof ops[0], &b);
    blocking_wait(&b, &b);
    status_t st = blocking_conclude(&b, ret_reason, ret_elsewhere, e);
    if (st == ST_OK && !b.received)
        st = err_set(e, ST_INTERNAL, "%s gave no answer to %s", blocking_peer(&b), method);
    else if (st == ST_OK && buffer_decode_owned(b.received, b.reply, ret_reply, e) != ST_OK)
        st = err_prefix(e, ST_INTERNAL, "the answer of %s to %s: ", blocking_peer(&b), method);
    blocking_close(&b);
    return st;
}

status_t rpc_call_unary_reason(struct rpc_channel *ch, const ProtobufCServiceDescriptor *service, const char *method,
                               const ProtobufCMessage *request, int64_t timeout_ms, ProtobufCMessage **ret_reply,
                               char ret_reason[RPC_REASON_BYTES], struct err *e) {
    bool elsewhere = true;
    status_t st = ST_OK;
    for (int left = endpoints_count(ch->endpoints); left > 0 && elsewhere; left--) {
        ret_reason[0] = '\0';
        elsewhere = false;
        st = call_one(ch, service, method, request, timeout_ms, ret_reply, ret_reason, &elsewhere, e);
    }
    return st;
}
