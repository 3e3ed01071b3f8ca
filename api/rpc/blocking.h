/* A call that blocks: the calling thread waits for each batch on a queue of the call. Shared by unary.c and
 * stream.c. */
#ifndef API_RPC_BLOCKING_H
#define API_RPC_BLOCKING_H

#include "api/rpc/client_state.h"

struct blocking {
    struct rpc_channel *channel;
    int endpoint; /* of the channel: the server that the call goes to */
    struct owned owned;
    grpc_completion_queue *queue;
    const ProtobufCMessageDescriptor *reply;
    int64_t timeout_ms;
    struct call_headers own_headers;
    grpc_byte_buffer *request, *received;
    grpc_metadata_array first_metadata, trailing;
    grpc_status_code code;
    grpc_slice details;
    int running; /* batches for which blocking_wait was not called yet */
};

/* If it fails, b is closed. */
MUST_CHECK status_t blocking_open(struct blocking *b, struct rpc_channel *, const ProtobufCServiceDescriptor *,
                                  const char *method, const ProtobufCMessage *request, int64_t timeout_ms,
                                  struct err *e);
/* Cancels the call, waits for the running batches, and frees b's members. */
void blocking_close(struct blocking *b);

/* Operations for blocking_start. Their operands are members of b. */
grpc_op blocking_send_headers(struct blocking *b);
grpc_op blocking_send_request(struct blocking *b);
grpc_op blocking_receive_headers(struct blocking *b);
grpc_op blocking_receive_message(struct blocking *b);
grpc_op blocking_receive_status(struct blocking *b);

/* Starts a batch under a tag (any distinct pointer) and waits for one. */
void blocking_start(struct blocking *b, const grpc_op *ops, size_t n, void *tag);
bool blocking_wait(struct blocking *b, void *tag);

/* The result of the call. Call it after the status was received. *ret_elsewhere: the server has certainly not run the
 * call, and the channel goes on with its next server. */
MUST_CHECK status_t blocking_conclude(struct blocking *b, char ret_reason[RPC_REASON_BYTES], bool *ret_elsewhere,
                                      struct err *e);
const char *blocking_peer(const struct blocking *b);

#endif
