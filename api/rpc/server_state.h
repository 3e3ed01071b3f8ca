/* The inside of a server: server.c opens, starts and stops it; listen.c binds its addresses; accept.c takes calls and
 * finds their method; admit.c checks the callers. */
#ifndef API_RPC_SERVER_STATE_H
#define API_RPC_SERVER_STATE_H

#include "api/rpc/call_times.h"
#include "api/rpc/descriptors.h"
#include "api/rpc/loop.h"
#include "api/rpc/owner.h"
#include "api/rpc/pool.h"
#include "api/rpc/recorded.h"
#include "api/rpc/server.h"

#include <stdatomic.h>

struct certificates;
struct health;

enum { ROUTE_BYTES = 192, MAX_LISTENERS = 8 };

/* The rule of a method that needs no token. */
#define RULE_ANYONE (-1)

/* One method that is served. Sorted by path once the server starts. */
struct route {
    char path[ROUTE_BYTES]; /* "/package.Service/Method" */
    const char *service_name;
    const struct rpc_method *method;
    int rule; /* the rule of access.h; 0 on a server without an access check */
    struct recorded recorded;
    const ProtobufCMessageDescriptor *input;
    void *service;
    struct rpc_call_times *times;
    atomic_bool serves; /* rpc_server_set_serving */
};

/* A request to gRPC for the next call. It is used again after each call. */
struct slot {
    struct tag tag;
    struct rpc_server *server;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct listener {
    char path[sizeof((struct rpc_address *)0)->path];
    int lock_fd, fd;
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
    struct listener listeners[MAX_LISTENERS]; /* unix sockets */
    size_t n_listeners;
    struct certificates *certificates[MAX_LISTENERS]; /* of the addresses with TLS */
    size_t n_certificates;
    pthread_t acceptor; /* socket_accept.c */
    bool accepts;
    int stop_fd; /* ends the acceptor; -1 = none */

    struct tag down;
    pthread_mutex_t lock;
    pthread_cond_t went_down;
    bool is_down, stopped;

    char id_prefix[9]; /* of the request ids that this server makes */
    atomic_uint next_id;
};

/* rpc_server_add with one rule for all methods, for services of the runtime itself, whose protos contain no rules.
 * rule 0: each method's rule is in its proto. */
MUST_CHECK status_t server_add_with_rule(struct rpc_server *, const ProtobufCServiceDescriptor *,
                                         const struct rpc_method *, size_t n, void *service, int rule, struct err *e);

/* Requests calls from gRPC. Called at start, before the loop runs. */
void accept_start(struct rpc_server *);
/* Starts a call that was admitted: from here on its handler decides the result. */
void call_dispatch(struct rpc_call *);

/* admit_needed: whether a call of that route needs authentication. admit_begin: checks the call, at once or on a
 * worker, then dispatches or ends it. */
bool admit_needed(const struct rpc_server *, const struct route *);
void admit_begin(struct rpc_server *, struct rpc_call *);

#endif
