/* One remote call, as either side sees it: sending, reading, deadlines and cancellation.
 *
 * A call is unary (one request, one reply), a server stream, a client stream or bidirectional. server.h says how a
 * service is offered and client.h how one is called; what both share stands here. Messages are protobuf-c's.
 *
 * Events of a stream arrive on the completion-queue thread, in order and one at a time for each call, and must not
 * block: PostgreSQL, files and locks that are held long belong into `work`, which runs on the server's worker threads.
 *
 *   open         server: the call was taken.     client: the server's headers are here, it is talking to us
 *   message      one message; it lives until the callback returns, copy what is kept
 *   half_closed  server: the peer has sent its last message
 *   writable     after rpc_send said RPC_FULL: less than half of the bytes are still queued
 *   work         server only: asked for by rpc_wake; on a worker thread; may block; never twice at once for one call
 *   done         the last event, exactly once, also after a refusal or a lost connection
 *
 * Any may be NULL. rpc_send, rpc_finish, rpc_wake, rpc_cancel, rpc_pause and rpc_resume are allowed on any thread that
 * holds a reference, also within an event; after done they do nothing. The library holds a reference until done has
 * returned; whoever keeps the pointer elsewhere takes one by rpc_ref, and a server cannot stop before it is given back.
 *
 * Limits: a message has at most LIMIT_RPC_MESSAGE_BYTES, decodes into at most LIMIT_RPC_DECODE_BYTES, and nests at most
 * RPC_NESTING_MOST deep; every string in it is valid UTF-8 without NUL. A server answers anything else with
 * INVALID_ARGUMENT or RESOURCE_EXHAUSTED and the field's path before a handler sees it; a client ends the call. */
#ifndef API_RPC_CALL_H
#define API_RPC_CALL_H

#include "base/clock.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpc_call;

enum rpc_kind { RPC_UNARY, RPC_CLIENT_STREAM, RPC_SERVER_STREAM, RPC_BIDI };

enum rpc_sent {
    RPC_SENT,   /* queued, in order */
    RPC_FULL,   /* not queued: RPC_QUEUE_BYTES wait already; `writable` follows */
    RPC_CLOSED, /* not queued: the call is over, or its last message was sent */
};

/* Bytes that wait in one call's queue before RPC_FULL; one message may go over it. HTTP/2's windows come on top. */
#define RPC_QUEUE_BYTES  (1 << 20)
#define RPC_NESTING_MOST 32
#define RPC_REASON_BYTES 64
#define RPC_NO_DEADLINE  INT64_MAX

struct rpc_events {
    void (*open)(struct rpc_call *);
    void (*message)(struct rpc_call *, const ProtobufCMessage *message);
    void (*half_closed)(struct rpc_call *);
    void (*writable)(struct rpc_call *);
    void (*work)(struct rpc_call *);
    /* server: the status that was sent, or CANCELLED when the peer went away or its deadline passed before that.
     * client: the server's answer, or the reason why there is none. `why` lives until the callback returns. */
    void (*done)(struct rpc_call *, status_t status, const char *why);
};

/* Copies the message into the queue. A message over LIMIT_RPC_MESSAGE_BYTES is the caller's bug on a client
 * (RPC_CLOSED, the call ends with RESOURCE_EXHAUSTED) and ends a server's call the same way. */
enum rpc_sent rpc_send(struct rpc_call *, const ProtobufCMessage *message);

/* Server: no more messages; what is queued goes out first when status is ST_OK and is dropped otherwise. `why` becomes
 * the message of the status (NULL or "" for none). Only the first call counts. */
void rpc_finish(struct rpc_call *, status_t status, const char *why);

/* Server, before rpc_finish or the return of a unary handler: the machine-readable reason of a failure, UPPER_SNAKE,
 * e.g. "ATTEMPT_FENCED". Without it the reason is the status's name. Cut to RPC_REASON_BYTES - 1. */
void rpc_set_reason(struct rpc_call *, const char *reason);
/* Client, within done: the server's reason, or "" when the failure is not one of a trainyard server. */
const char *rpc_reason(const struct rpc_call *);

/* Client: no more messages (half-close); the answer is still read. */
void rpc_send_end(struct rpc_call *);

/* Ends the call at once on both sides; done follows. */
void rpc_cancel(struct rpc_call *);

/* Stops and resumes reading, so that HTTP/2's window stops the peer. One message that was already read may still
 * arrive. A call starts reading. */
void rpc_pause(struct rpc_call *);
void rpc_resume(struct rpc_call *);

/* Server: runs the `work` event on a worker thread soon. Wakes before it starts count as one; a wake while it runs
 * makes it run again. Not lost when the workers are busy. */
void rpc_wake(struct rpc_call *);

/* Server, unary and server stream: the request; it lives until done has returned. NULL before it has arrived. */
const ProtobufCMessage *rpc_request(const struct rpc_call *);

void rpc_ref(struct rpc_call *);
struct rpc_call *rpc_unref(struct rpc_call *); /* NULL is fine; returns NULL */

/* A pointer of the handler's own; NULL at first on a server. Not synchronised: set it in open. */
void *rpc_user(const struct rpc_call *);
void rpc_set_user(struct rpc_call *, void *user);
/* Server: the `service` of rpc_server_add. */
void *rpc_service(const struct rpc_call *);

/* Milliseconds to the deadline, 0 when it is over, RPC_NO_DEADLINE without one. A server may read up to 1 % more than
 * the client has: the wire rounds up. */
int64_t rpc_time_left_ms(const struct rpc_call *);
/* The same as a deadline, and never later than most_ms from now. */
deadline_ms_t rpc_deadline(const struct rpc_call *, int64_t most_ms);
/* The peer went away, the deadline is over, or the call was cancelled: a long handler looks and gives up. */
bool rpc_cancelled(const struct rpc_call *);

#endif
