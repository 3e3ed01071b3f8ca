/* The servers that a channel may call, with a gRPC channel for each. A call goes to the current server. If the current
 * server cannot be reached, or answers that it does not serve, the next one in the order of the addresses becomes the
 * current server; the first one follows the last. Any thread may use the servers. */
#ifndef API_RPC_ENDPOINTS_H
#define API_RPC_ENDPOINTS_H

#include "api/rpc/address.h"
#include "base/cleanup.h"

#include <grpc/grpc.h>

struct endpoints;

/* peer: the name of each server in sentences, for example "the controller". Gives no core a connection before the first
 * call. `core_new` makes the gRPC channel of an address, or returns why it cannot. */
typedef status_t endpoints_core_new(const struct rpc_address *, const void *ctx, grpc_channel **ret, struct err *e);
MUST_CHECK status_t endpoints_open(const struct rpc_address_list *, const char *peer, endpoints_core_new *core_new,
                                   const void *ctx, struct endpoints **ret, struct err *e);
/* Each user of the same endpoints has a reference, and closes it; the last one destroys the cores. NULL is fine;
 * returns NULL. */
struct endpoints *endpoints_ref(struct endpoints *);
struct endpoints *endpoints_close(struct endpoints *);
CLEANUP_DEFINE(struct endpoints *, endpoints_close)

int endpoints_count(const struct endpoints *);
int endpoints_current(const struct endpoints *);
grpc_channel *endpoints_core(const struct endpoints *, int i);
/* "the controller at 127.0.0.1:7700" */
const char *endpoints_peer(const struct endpoints *, int i);
/* If i is still the current one: makes the next one the current. */
void endpoints_leave(struct endpoints *, int i);

#endif
