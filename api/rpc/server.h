/* A gRPC server for protobuf-c services.
 *
 *     static status_t get_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
 *         const Trainyard__V1__GetJobRequest *in = (const void *)request;
 *         ...                                             // may block; runs on a worker thread
 *         rpc_reply(call, &job.base);
 *         return ST_OK;                                   // or err_set(e, ST_NOT_FOUND, "jobs/7 does not exist")
 *     }
 *     static const struct rpc_method methods[] = {
 *         { "GetJob", RPC_UNARY, .unary = get_job },
 *         { "WatchJob", RPC_SERVER_STREAM, .events = { .open = ..., .work = ..., .done = ... } },
 *     };
 *     TRY(rpc_server_open(&config, &server, e));
 *     TRY(rpc_server_add(server, &trainyard__v1__job_service__descriptor, methods, 2, service, e));
 *     TRY(rpc_server_listen(server, "unix:/run/trainyard/api.sock", NULL, bound, e));
 *     TRY(rpc_server_start(server, e));
 *     ...
 *     server = rpc_server_close(server);
 *
 * A unary handler runs on one of `workers` threads. When `queue` calls wait for one, the next is refused with
 * RESOURCE_EXHAUSTED. A call that is cancelled or late while it waits is never run.
 *
 * A failed handler's status, sentence and reason travel as grpc-status, grpc-message and a google.rpc.Status with
 * ErrorInfo{reason, domain "trainyard"} in grpc-status-details-bin. Every call's id is in the trailing metadata
 * x-request-id. A method of the descriptor without a row in the
 * table is UNIMPLEMENTED.
 *
 * grpc.health.v1 (Check and Watch) and grpc.reflection.v1 and v1alpha are always served; `descriptors` is the
 * serialised google.protobuf.FileDescriptorSet, imports included, that reflection answers from.
 *
 * open, add, listen, start and close belong to one thread. */
#ifndef API_RPC_SERVER_H
#define API_RPC_SERVER_H

#include "api/rpc/access.h"
#include "api/rpc/address.h"
#include "api/rpc/audit.h"
#include "api/rpc/call.h"
#include "api/rpc/tls.h"
#include "base/cleanup.h"

struct rpc_server;

struct rpc_method {
    const char *name;   /* as in the descriptor */
    enum rpc_kind kind; /* protobuf-c's descriptors do not contain it; rpc_server_add compares it with the protos */
    status_t (*unary)(void *service, struct rpc_call *, const ProtobufCMessage *request, struct err *e);
    struct rpc_events events; /* for the other three kinds */
};

/* A call that has ended, for an access log. The strings are valid during the call of the function; service and method
 * are those of the descriptors, "" if the method does not exist. */
struct rpc_ended_call {
    const char *service, *method;
    const char *caller;     /* the name of the token's owner; "": unknown, or the call needed none */
    const char *peer;       /* "ipv4:10.0.0.7:41812", "unix:uid=1000" */
    const char *request_id; /* of the client (x-request-id: 1 to 64 letters, digits, '.', '_' and '-'), or a new one */
    status_t status;
    int64_t ns;
};

struct rpc_server_config {
    int workers; /* threads for unary handlers and `work`; 0 is 8 */
    int readers; /* workers that methods of access->rule_reads may use at once, so that slow reads delay no other call;
                    0 is all */
    int queue;   /* unary calls that may wait for a worker; 0 is 256 */
    int calls;   /* calls alive at once, streams included, over all connections; 0 is 16384 */
    int streams; /* calls alive at once on one connection; 0 is 256. Further calls wait in the client */
    bool sockets_for_all; /* every user of this machine may connect to unix sockets: the access check decides */
    const void *descriptors;
    size_t descriptors_len;
    /* Called at the end of each call, from several threads; must not block. NULL: nothing is called. */
    void (*ended)(void *ctx, const struct rpc_ended_call *call);
    void *ended_ctx;
    const struct rpc_access *access; /* kept by pointer; NULL: every peer that can connect may call every method */
    const struct rpc_audit *audit;   /* kept by pointer; NULL: no call is recorded. Needs `access` */
};

MUST_CHECK status_t rpc_server_open(const struct rpc_server_config *, struct rpc_server **ret, struct err *e);

/* The table is kept by pointer (static storage). INVALID_ARGUMENT if a method is not in the descriptor, is there twice,
 * has another kind in its proto, has neither handler nor events, has no rule although the server has an access check,
 * does not say what the audit log has about it although the server has one, or is a stream of answers with the event
 * `message` although the access check checks requests. Call it before start. */
MUST_CHECK status_t rpc_server_add(struct rpc_server *, const ProtobufCServiceDescriptor *, const struct rpc_method *,
                                   size_t n, void *service, struct err *e);

/* Before start; may be called for several addresses. ret_bound (RPC_ADDRESS_BYTES) gets the address with the port that
 * the system chose. A TCP address that other machines can reach needs tls with a ca, and an access check:
 * FAILED_PRECONDITION otherwise. An address in use is ALREADY_EXISTS. A unix socket is protected by a lock on
 * `<path>.lock`, which is kept until close. The socket of a server that has died is replaced, and close removes both
 * files. A unix socket does not use TLS: tls is ignored. Only the socket's owner can connect to it (mode 0600), or
 * every user of this machine with config.sockets_for_all (0666). */
MUST_CHECK status_t rpc_server_listen(struct rpc_server *, const char *address, const struct rpc_tls *tls,
                                      char *ret_bound, struct err *e);

/* Before start: listens on a free port of 127.0.0.1 for a channel of this process with `within`. The server
 * checks each call on this port like a call over TLS, even if the access rules allow plain connections more. ret_bound
 * has RPC_ADDRESS_BYTES. */
MUST_CHECK status_t rpc_server_listen_within(struct rpc_server *, char *ret_bound, struct err *e);

MUST_CHECK status_t rpc_server_start(struct rpc_server *, struct err *e);

/* Reads the files of TLS of all addresses again. New connections use them; open ones, and their calls, stay. On an
 * error an address keeps what it had. After start, any thread. */
MUST_CHECK status_t rpc_server_reload_tls(struct rpc_server *, struct err *e);

/* Sends the reply of a unary call. The handler calls it once; the message is copied. */
void rpc_reply(struct rpc_call *, const ProtobufCMessage *message);

/* Sets the answer of grpc.health.v1 for a service ("" is the server as a whole). Services start as serving. Any
 * thread. */
void rpc_server_set_serving(struct rpc_server *, const char *service, bool serving);

/* Refuses new calls and asks clients to disconnect. Running calls may end within grace_ms; after that they are
 * cancelled. Returns when the last call has had its `done` and the last reference is released: a handler that never
 * returns blocks it. */
void rpc_server_stop(struct rpc_server *, int grace_ms);

/* Stops the server with no grace unless it is stopped, and frees it. NULL is fine; returns NULL. */
struct rpc_server *rpc_server_close(struct rpc_server *);
CLEANUP_DEFINE(struct rpc_server *, rpc_server_close)

#endif
