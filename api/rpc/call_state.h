/* The inside of a call. gRPC runs batches of operations and hands each back through the completion queue; a call has at
 * most one batch that sends (send.c), one that receives a message (receive.c), one for the headers (client) and one
 * that ends when the call does. Each batch, and each job on a worker thread (work.c), holds a reference and counts in
 * `running`; `done` is called when the call has ended and `running` is 0. */
#ifndef API_RPC_CALL_STATE_H
#define API_RPC_CALL_STATE_H

#include "api/rpc/access.h"
#include "api/rpc/arena.h"
#include "api/rpc/audit.h"
#include "api/rpc/call.h"
#include "api/rpc/loop.h"
#include "api/rpc/owner.h"
#include "api/rpc/pool.h"
#include "api/rpc/server.h"

#include <pthread.h>
#include <stdatomic.h>

struct route;

/* What a client sends with each call: the authorization and the request id, if the channel has them. */
struct call_headers {
    grpc_metadata items[2];
    size_t n;
};
void call_headers_done(struct call_headers *);

struct outgoing {
    struct outgoing *next;
    grpc_byte_buffer *buffer;
    size_t bytes;
};

struct sender {
    struct outgoing *first, **last;
    size_t bytes;                /* queued */
    grpc_byte_buffer *in_flight; /* destroyed when its batch has finished */
    bool busy;                   /* a batch is in flight */
    bool headers_sent;
    bool deferred; /* unary: nothing is sent before the handler has returned */
    bool ending;   /* rpc_finish or rpc_send_end was called */
    bool ended;    /* the operation that ends the call was started */
    bool settled;  /* server: that operation has succeeded */
    bool failed;
    bool writable_due; /* rpc_send returned RPC_FULL; `writable` must follow */
};

struct receiver {
    grpc_byte_buffer *buffer;
    bool open, busy, paused, ended;
};

struct worker {
    struct pool *pool; /* NULL on a client */
    bool limited;      /* its jobs in the pool */
    struct pool_job job;
    bool queued, running, again;
};

struct rpc_call {
    struct owned owned;
    struct owner *owner;
    atomic_int refs;
    bool is_server;
    enum rpc_kind kind;
    const ProtobufCMessageDescriptor *incoming;
    struct rpc_events events;
    status_t (*unary)(void *service, struct rpc_call *, const ProtobufCMessage *request, struct err *e);
    void *service, *user;
    gpr_timespec deadline;
    int64_t begun_ns;

    /* server */
    const struct rpc_server *server;
    const struct route *route;       /* NULL for a method that does not exist */
    bool was_served;                 /* its service served when the call arrived */
    const struct rpc_access *access; /* NULL for a call that is not checked */
    atomic_bool admitted;            /* its token was accepted; the members below are set before */
    uint8_t token[SHA256_BYTES];     /* its digest */
    char caller[RPC_CALLER_BYTES];
    bool judged; /* its request was accepted; written on its worker thread, as scope is */
    char scope[RPC_SCOPE_BYTES];
    char request_id[RPC_REQUEST_ID_BYTES];
    char object[RPC_OBJECT_BYTES]; /* for the audit log; "" until it is known */

    pthread_mutex_t lock; /* guards the members below; never held during an event */
    int running;
    atomic_bool over; /* nothing can be sent or received any more */
    bool done;
    struct sender out;
    struct receiver in;
    struct worker work;
    struct tag sent, received, headers, ended;
    struct arena arena; /* memory of the request, or of the message that is being delivered */
    ProtobufCMessage *request;

    status_t status; /* server: sent by rpc_finish; client: received */
    struct err why;
    char reason[RPC_REASON_BYTES];
    grpc_metadata_array metadata, first_metadata; /* server: the request's; client: trailing and initial */
    /* server: the operands of the batch that carries the status */
    grpc_slice details;
    grpc_metadata trailing[2]; /* the request id; the details of a failure */
    int cancelled;
    /* client */
    struct endpoints *endpoints; /* of the channel; `endpoint` is the server that the call goes to */
    int endpoint;
    int64_t timeout_ms;
    grpc_status_code code;
    struct call_headers own_headers;
};

/* Takes ownership of gRPC's call. The new call has one reference, which belongs to the library. */
struct rpc_call *call_new(struct owner *, grpc_call *, bool is_server, enum rpc_kind);

static inline bool streams_in(const struct rpc_call *c) {
    return c->kind == RPC_BIDI || c->kind == (c->is_server ? RPC_CLIENT_STREAM : RPC_SERVER_STREAM);
}

/* With the lock held: starts a batch; its completion runs `tag`. If gRPC refuses the batch, the call is cancelled and
 * the result is false. */
bool call_start(struct rpc_call *, const grpc_op *ops, size_t n, struct tag *tag);
/* With the lock held, which it releases: a batch or job that counted in `running` has ended. Calls done if it was the
 * last. */
void call_end_of(struct rpc_call *);

/* With the lock held: starts the next batch from the queue, if none is in flight. */
void send_pump(struct rpc_call *);
void send_drop_queue(struct rpc_call *);
void send_finished(struct tag *, bool ok);
/* Without the lock: appends a message to the queue, also if the call is `deferred`. */
enum rpc_sent send_queue(struct rpc_call *, const ProtobufCMessage *);

/* With the lock held: requests the next message, unless reading is paused or has ended. */
void receive_arm(struct rpc_call *);
void receive_finished(struct tag *, bool ok);

/* Without the lock: queues a unary call for a worker. Its request has arrived. */
void work_offer_unary(struct rpc_call *);

#endif
