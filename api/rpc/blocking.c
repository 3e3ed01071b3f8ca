#include "api/rpc/blocking.h"

#include "api/rpc/buffer.h"
#include "api/rpc/explain.h"

#include <assert.h>

status_t blocking_open(struct blocking *b, struct rpc_channel *ch, const ProtobufCServiceDescriptor *service,
                       const char *method, const ProtobufCMessage *request, int64_t timeout_ms, struct err *e) {
    *b = (struct blocking){ .channel = ch,
                            .endpoint = endpoints_current(ch->endpoints),
                            .timeout_ms = timeout_ms,
                            .details = grpc_empty_slice() };
    TRY(channel_check_size(request, e));
    /* A queue for plucking returns the completion of one tag to the thread that waits for this tag: no loop thread. */
    b->queue = grpc_completion_queue_create_for_pluck(NULL);
    status_t st = channel_call(ch, b->endpoint, service, method, b->queue, channel_deadline(timeout_ms), &b->owned.call,
                               &b->reply, e);
    if (st != ST_OK) {
        grpc_completion_queue_shutdown(b->queue);
        grpc_completion_queue_destroy(b->queue);
        return st;
    }
    owner_add(&ch->owner, &b->owned);
    size_t bytes;
    b->request = buffer_pack(request, &bytes);
    channel_headers(ch, &b->own_headers);
    grpc_metadata_array_init(&b->first_metadata);
    grpc_metadata_array_init(&b->trailing);
    return ST_OK;
}

void blocking_close(struct blocking *b) {
    assert(b->running == 0);
    grpc_byte_buffer_destroy(b->request);
    if (b->received)
        grpc_byte_buffer_destroy(b->received);
    grpc_slice_unref(b->details);
    call_headers_done(&b->own_headers);
    grpc_metadata_array_destroy(&b->first_metadata);
    grpc_metadata_array_destroy(&b->trailing);
    owner_unlink(&b->channel->owner, &b->owned);
    grpc_call_unref(b->owned.call);
    grpc_completion_queue_shutdown(b->queue);
    grpc_completion_queue_destroy(b->queue);
    owner_release(&b->channel->owner);
}

grpc_op blocking_send_headers(struct blocking *b) {
    grpc_op op = { .op = GRPC_OP_SEND_INITIAL_METADATA };
    op.data.send_initial_metadata.metadata = b->own_headers.items;
    op.data.send_initial_metadata.count = b->own_headers.n;
    return op;
}

grpc_op blocking_send_request(struct blocking *b) {
    return (grpc_op){ .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = b->request };
}

grpc_op blocking_receive_headers(struct blocking *b) {
    return (grpc_op){ .op = GRPC_OP_RECV_INITIAL_METADATA,
                      .data.recv_initial_metadata.recv_initial_metadata = &b->first_metadata };
}

grpc_op blocking_receive_message(struct blocking *b) {
    return (grpc_op){ .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &b->received };
}

grpc_op blocking_receive_status(struct blocking *b) {
    grpc_op op = { .op = GRPC_OP_RECV_STATUS_ON_CLIENT };
    op.data.recv_status_on_client.trailing_metadata = &b->trailing;
    op.data.recv_status_on_client.status = &b->code;
    op.data.recv_status_on_client.status_details = &b->details;
    return op;
}

void blocking_start(struct blocking *b, const grpc_op *ops, size_t n, void *tag) {
    grpc_call_error refused = grpc_call_start_batch(b->owned.call, ops, n, tag, NULL);
    assert(refused == GRPC_CALL_OK); /* the operations are correct, and the metadata was checked */
    (void)refused;
    b->running++;
}

bool blocking_wait(struct blocking *b, void *tag) {
    grpc_event event = grpc_completion_queue_pluck(b->queue, tag, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    b->running--;
    return event.success;
}

const char *blocking_peer(const struct blocking *b) { return endpoints_peer(b->channel->endpoints, b->endpoint); }

/* The caller waits for the call, and does not cancel it. CANCELLED therefore means that the server stopped. */
status_t blocking_conclude(struct blocking *b, char ret_reason[RPC_REASON_BYTES], bool *ret_elsewhere, struct err *e) {
    status_t st;
    struct err why = { "" };
    *ret_elsewhere = explain(blocking_peer(b), b->timeout_ms, b->code, b->details, &b->trailing, &st, &why, ret_reason);
    if (*ret_elsewhere || st == ST_CANCELLED)
        endpoints_leave(b->channel->endpoints, b->endpoint);
    if (st == ST_CANCELLED) /* it may have run: gRPC also cancels what runs when the server has waited long enough */
        return err_set(e, ST_UNAVAILABLE, "%s dropped the call, because it was stopping", blocking_peer(b));
    return st == ST_OK ? ST_OK : err_set(e, st, "%s", why.msg);
}
