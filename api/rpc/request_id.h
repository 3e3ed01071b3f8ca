/* The id of a call: the one that its client sent in the metadata x-request-id, or a new one. Private to this folder. */
#ifndef API_RPC_REQUEST_ID_H
#define API_RPC_REQUEST_ID_H

#include "api/rpc/call_state.h"

#define REQUEST_ID_KEY "x-request-id"

/* Whether n bytes may be an id: 1 to 64 letters, digits, '.', '_' and '-'. They are logged and sent back. */
bool request_id_valid(const void *id, size_t n);

/* Copies the first valid id of the metadata to ret. If there is no valid id, returns false and sets ret to "". */
bool request_id_find(const grpc_metadata_array *metadata, char ret[RPC_REQUEST_ID_BYTES]);

struct rpc_server;
/* Once per server, before calls. */
void request_id_prefix(struct rpc_server *s);
/* Sets the call's id from its metadata, or to a new one. */
void request_id_take(struct rpc_server *s, struct rpc_call *c);

#endif
