/* The value of grpc-status-details-bin: a google.rpc.Status with ErrorInfo{reason, domain "trainyard"}. */
#ifndef API_RPC_DETAILS_H
#define API_RPC_DETAILS_H

#include "api/rpc/call.h"

#include <grpc/slice.h>

/* Returns the packed Status. An empty reason becomes the status's name. The caller unrefs the slice. */
grpc_slice details_pack(status_t, const char *message, const char *reason);

/* Reads the reason of an ErrorInfo with the domain "trainyard". It is "" for anything else, also for bytes that are not
 * a Status. */
void details_read(const void *data, size_t n, char ret_reason[RPC_REASON_BYTES]);

#endif
