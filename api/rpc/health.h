/* grpc.health.v1: which services serve, asked once (Check) or followed (Watch). */
#ifndef API_RPC_HEALTH_H
#define API_RPC_HEALTH_H

#include "api/rpc/server.h"

struct health;

/* Adds the service to the server. */
MUST_CHECK status_t health_open(struct rpc_server *, struct health **ret, struct err *e);
void health_set(struct health *, const char *service, bool serving);
/* Nothing serves any more; those who watch are told, and their streams end. */
void health_stop(struct health *);
/* No call lives. NULL is fine; returns NULL. */
struct health *health_close(struct health *);

#endif
