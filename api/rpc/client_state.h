/* The inside of a channel. client.c opens it and starts calls with events. unary.c and stream.c block on a completion
 * queue per call, which avoids a switch to another thread. */
#ifndef API_RPC_CLIENT_STATE_H
#define API_RPC_CLIENT_STATE_H

#include "api/rpc/call_state.h"
#include "api/rpc/client.h"
#include "api/rpc/endpoints.h"
#include "api/rpc/loop.h"
#include "api/rpc/owner.h"

struct rpc_channel {
    struct endpoints *endpoints;
    struct loop *loop;
    struct owner owner;
    char *authorization;                   /* "Bearer ...", or NULL */
    char request_id[RPC_REQUEST_ID_BYTES]; /* "": each call gets one from the server */
};

gpr_timespec channel_deadline(int64_t timeout_ms); /* timeout_ms <= 0: no deadline */

/* Creates a call to the endpoint `at` on `queue`. *ret_reply is the type of the method's reply. INVALID_ARGUMENT if the
 * service has no such method. */
MUST_CHECK status_t channel_call(struct rpc_channel *, int at, const ProtobufCServiceDescriptor *, const char *method,
                                 grpc_completion_queue *queue, gpr_timespec deadline, grpc_call **ret,
                                 const ProtobufCMessageDescriptor **ret_reply, struct err *e);

/* The headers of a new call; the caller releases them with call_headers_done. */
void channel_headers(const struct rpc_channel *, struct call_headers *ret);

/* RESOURCE_EXHAUSTED for a request that is larger than the server accepts. */
MUST_CHECK status_t channel_check_size(const ProtobufCMessage *request, struct err *e);

#endif
