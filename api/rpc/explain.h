/* Explains how a call ended, for the client: converts gRPC's status, details and trailing metadata to a status, a
 * sentence that names the peer, and the server's reason. */
#ifndef API_RPC_EXPLAIN_H
#define API_RPC_EXPLAIN_H

#include "api/rpc/call.h"

#include <grpc/grpc.h>

/* peer: for example "the controller at 127.0.0.1:7700". timeout_ms: the timeout of the call, for the sentence about a
 * deadline that has passed. Returns true if the server has certainly not run the call, and another one may: it cannot
 * be reached, or it does not serve (RPC_NOT_SERVING). */
bool explain(const char *peer, int64_t timeout_ms, grpc_status_code, grpc_slice details,
             const grpc_metadata_array *trailing, status_t *ret_status, struct err *ret_why,
             char ret_reason[RPC_REASON_BYTES]);

#endif
