/* One remote call, as either side sees it: sending, reading, deadlines and cancellation.
 *
 * A call is unary (one request, one reply), a server stream, a client stream or bidirectional. server.h describes how
 * to offer a service, client.h how to call one; this header has the parts that both share. Messages are protobuf-c's.
 *
 * Events of a stream arrive on the completion-queue thread, in order and one at a time for each call, and must not
 * block. Use `work`, which runs on the server's worker threads, for PostgreSQL, for files and for locks that are held
 * long.
 *
 *   open         server: the call was accepted.  client: the server's headers have arrived
 *   message      one message; it is valid until the callback returns, so copy the parts to keep
 *   half_closed  server: the peer has sent its last message
 *   writable     after rpc_send returned RPC_FULL: at most half of RPC_QUEUE_BYTES is still queued
 *   work         server only: asked for by rpc_wake; on a worker thread; may block; never twice at once for one call
 *   done         the last event, exactly once, also after a refusal or a lost connection
 *
 * Any event may be NULL. rpc_send, rpc_finish, rpc_wake, rpc_cancel, rpc_pause and rpc_resume are allowed on any thread
 * that holds a reference, also within an event; after done they do nothing. The library holds a reference until done
 * has returned. Code that keeps the pointer elsewhere needs its own reference (rpc_ref), and a server cannot stop
 * before that reference is released.
 *
 * Limits: a message has at most LIMIT_RPC_MESSAGE_BYTES, decodes into at most LIMIT_RPC_DECODE_BYTES, and nests at most
 * RPC_MAX_NESTING deep; every string in it is valid UTF-8 without NUL. A server answers anything else with
 * INVALID_ARGUMENT or RESOURCE_EXHAUSTED and the field's path before a handler sees it; a client ends the call. */
#ifndef API_RPC_CALL_H
#define API_RPC_CALL_H

#include "base/clock.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With the NUL: the id of a call in the access log. */
enum { RPC_REQUEST_ID_BYTES = 65 };

struct rpc_call;

enum rpc_kind { RPC_UNARY, RPC_CLIENT_STREAM, RPC_SERVER_STREAM, RPC_BIDI };

enum rpc_sent {
    RPC_SENT,   /* queued, in order */
    RPC_FULL,   /* not queued: RPC_QUEUE_BYTES wait already; `writable` follows */
    RPC_CLOSED, /* not queued: the call is over, or its last message was sent */
};

/* Bytes that wait in one call's queue before RPC_FULL; one message may go over it. HTTP/2's windows come on top. */
#define RPC_QUEUE_BYTES  (1 << 20)
#define RPC_MAX_NESTING  32
#define RPC_REASON_BYTES 64
/* The reason of UNAVAILABLE if the server served the service neither when the call arrived nor when it ended
 * (rpc_server_set_serving): it has not run the call, and another server of the service may. */
#define RPC_NOT_SERVING "NOT_SERVING"
#define RPC_NO_DEADLINE INT64_MAX

struct rpc_events {
    void (*open)(struct rpc_call *);
    void (*message)(struct rpc_call *, const ProtobufCMessage *message);
    void (*half_closed)(struct rpc_call *);
    void (*writable)(struct rpc_call *);
    void (*work)(struct rpc_call *);
    /* server: the status that was sent, or CANCELLED if the peer left or its deadline passed before that.
     * client: the server's status, or the reason why it did not arrive. `why` is valid until the callback returns. */
    void (*done)(struct rpc_call *, status_t status, const char *why);
};

/* Copies the message into the queue. A message over LIMIT_RPC_MESSAGE_BYTES returns RPC_CLOSED and ends the call with
 * RESOURCE_EXHAUSTED, on both sides. */
enum rpc_sent rpc_send(struct rpc_call *, const ProtobufCMessage *message);

/* Server: ends the call. Queued messages are sent first if status is ST_OK, and are dropped otherwise. `why` becomes
 * the message of the status (NULL or "" for none). Only the first rpc_finish of a call has an effect. */
void rpc_finish(struct rpc_call *, status_t status, const char *why);

/* Server, before rpc_finish or the return of a unary handler: the machine-readable reason of a failure, UPPER_SNAKE,
 * e.g. "ATTEMPT_FENCED". Without it the reason is the status's name. Cut to RPC_REASON_BYTES - 1. */
void rpc_set_reason(struct rpc_call *, const char *reason);
/* Client, within done: the server's reason, or "" if the failure does not come from a trainyard server. */
const char *rpc_reason(const struct rpc_call *);

/* Client: sends no more messages (half-close); the server's messages are still read. */
void rpc_send_end(struct rpc_call *);

/* Ends the call at once on both sides; done follows. */
void rpc_cancel(struct rpc_call *);

/* Stops and resumes reading, so that HTTP/2's flow control stops the peer. One message that was already read may still
 * arrive. A new call reads. */
void rpc_pause(struct rpc_call *);
void rpc_resume(struct rpc_call *);

/* Server: runs the `work` event on a worker thread soon. Wakes before it starts count as one; a wake while it runs
 * makes it run again. Not lost when the workers are busy. */
void rpc_wake(struct rpc_call *);

/* Server, unary and server stream: the request; it is valid until done has returned. NULL before it has arrived. */
const ProtobufCMessage *rpc_request(const struct rpc_call *);

void rpc_ref(struct rpc_call *);
struct rpc_call *rpc_unref(struct rpc_call *); /* NULL is fine; returns NULL */

/* A pointer for the handler; NULL at first on a server. Not synchronised: set it in the first event. */
void *rpc_user(const struct rpc_call *);
void rpc_set_user(struct rpc_call *, void *user);
/* Server: the `service` of rpc_server_add. */
void *rpc_service(const struct rpc_call *);

/* Milliseconds to the deadline, 0 after it, RPC_NO_DEADLINE without one. On a server the result may be up to 1 % larger
 * than on the client, because the wire format rounds up. */
int64_t rpc_time_left_ms(const struct rpc_call *);
/* The same as a deadline, and never later than max_ms from now. */
deadline_ms_t rpc_deadline(const struct rpc_call *, int64_t max_ms);
/* The peer is gone, the deadline has passed, or the call was cancelled. A long handler polls this and returns early. */
bool rpc_cancelled(const struct rpc_call *);

#endif
