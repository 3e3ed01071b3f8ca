/* What the connection of a server's call proves about the peer. Internal to the runtime. */
#ifndef API_RPC_PEER_H
#define API_RPC_PEER_H

#include "api/rpc/access.h"

#include <grpc/grpc.h>
#include <stdbool.h>
#include <sys/types.h>

enum { PEER_ADDRESS_BYTES = 96 };

/* Whether the call came over a unix socket, and from which user of the machine. */
bool peer_user(grpc_call *call, uid_t *ret);
void peer_read(grpc_call *call, struct rpc_peer *ret);
/* The first name in the client's certificate; "" without one. */
void peer_certificate(grpc_call *call, char ret[RPC_PEER_NAME_BYTES]);
/* "ipv4:10.0.0.7:41812", "unix:uid=1000" */
void peer_address(grpc_call *call, char ret[PEER_ADDRESS_BYTES]);

#endif
