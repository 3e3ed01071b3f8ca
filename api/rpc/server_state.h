/* The inside of a server: server.c opens, starts and stops it; listen.c binds its addresses; accept.c takes calls and
 * finds their method; admit.c asks who calls. */
#ifndef API_RPC_SERVER_STATE_H
#define API_RPC_SERVER_STATE_H

#include "api/rpc/descriptors.h"
#include "api/rpc/loop.h"
#include "api/rpc/owner.h"
#include "api/rpc/pool.h"
#include "api/rpc/server.h"

struct health;

enum { ROUTE_BYTES = 192, LISTENERS_MOST = 8 };

/* The rule of a method that needs no token. */
#define RULE_ANYONE (-1)

/* One method that is served. Sorted by path once the server starts. */
struct route {
    char path[ROUTE_BYTES]; /* "/package.Service/Method" */
    const char *service_name;
    const struct rpc_method *method;
    int rule; /* of access.h; 0 on a server without it */
    const ProtobufCMessageDescriptor *input;
    void *service;
};

/* A request for the next call. It outlives the calls that come by it. */
struct slot {
    struct tag tag;
    struct rpc_server *server;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct listener {
    char path[sizeof((struct rpc_address *)0)->path];
    int lock_fd;
};

struct rpc_server {
    struct rpc_server_config config;
    grpc_server *core;
    struct loop loop;
    struct pool *pool;
    struct owner owner;
    struct descriptors *descriptors;
    struct health *health;

    struct route *routes;
    size_t n_routes;
    struct slot *slots;
    struct listener listeners[LISTENERS_MOST]; /* unix sockets */
    size_t n_listeners;

    struct tag down;
    pthread_mutex_t lock;
    pthread_cond_t went_down;
    bool is_down, stopped;
};

/* The services of the runtime itself, whose rule does not stand in their protos. */
MUST_CHECK status_t server_add_own(struct rpc_server *, const ProtobufCServiceDescriptor *, const struct rpc_method *,
                                   size_t n, void *service, int rule, struct err *e);

/* Asks gRPC for calls; at start, before the loop runs. */
MUST_CHECK status_t accept_start(struct rpc_server *, struct err *e);
/* A call that may run: its handler owns its outcome from here on. */
void call_dispatch(struct rpc_call *);

/* Whether a call of that route must show who it is; begin has a worker look, and dispatch or end it. */
bool admit_needed(const struct rpc_server *, const struct rpc_call *, const struct route *);
void admit_begin(struct rpc_server *, struct rpc_call *);

#endif
