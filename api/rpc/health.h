/* grpc.health.v1: reports which services serve, once (Check) or at each change (Watch). */
#ifndef API_RPC_HEALTH_H
#define API_RPC_HEALTH_H

#include "api/rpc/server.h"

struct health;

/* Adds the service to the server. */
MUST_CHECK status_t health_open(struct rpc_server *, struct health **ret, struct err *e);
void health_set(struct health *, const char *service, bool serving);
/* Sets all services to NOT_SERVING, reports this to all watchers and ends their streams. */
void health_stop(struct health *);
/* Call it after all calls have ended. NULL is fine; returns NULL. */
struct health *health_close(struct health *);

#endif
