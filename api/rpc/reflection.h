/* grpc.reflection.v1 and v1alpha, by which a client without the protos asks the server for its descriptors. */
#ifndef API_RPC_REFLECTION_H
#define API_RPC_REFLECTION_H

#include "api/rpc/server.h"

MUST_CHECK status_t reflection_add(struct rpc_server *, struct err *e);

#endif
