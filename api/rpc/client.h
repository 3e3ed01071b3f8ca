/* Calling a gRPC server: a channel, blocking unary calls and server streams, and calls with events.
 *
 *     struct rpc_channel_config config = { .address = "unix:/run/trainyard/api.sock" };
 *     TRY(rpc_channel_open(&config, &channel, e));
 *     ProtobufCMessage *reply;
 *     TRY(rpc_call_unary(channel, &trainyard__v1__job_service__descriptor, "GetJob", &in.base, 0, &reply, e));
 *     ...
 *     protobuf_c_message_free_unpacked(reply, NULL);
 *     channel = rpc_channel_close(channel);
 *
 * A channel is one connection of its own, dialled at the first call and again after REDIAL_FIRST_MS to REDIAL_MOST_MS
 * when it is lost; each attempt has CONNECT_TIMEOUT_MS. A call does not outlive its connection and is never repeated by
 * the library. While the server cannot be reached calls fail at once with UNAVAILABLE and a sentence that says who and
 * why: "the controller at 127.0.0.1:7700 cannot be reached: Connection refused".
 *
 * Channels and calls may be used from any thread; a stream belongs to one thread. */
#ifndef API_RPC_CLIENT_H
#define API_RPC_CLIENT_H

#include "api/rpc/address.h"
#include "api/rpc/call.h"
#include "api/rpc/tls.h"
#include "base/cleanup.h"

struct rpc_channel;

struct rpc_channel_config {
    const char *address;
    const char *peer;   /* how sentences name the other side; NULL is "the controller" */
    struct rpc_tls tls; /* with a ca: TLS. Without, and on a unix socket: plain */
    const char
        *tls_name; /* the name that the server's certificate must bear, when it is not the host dialled; or NULL */
    /* Sent as `authorization: Bearer ...`: the token, else what the file holds; NULL or "" for none. Only over TLS or
     * to this machine: FAILED_PRECONDITION otherwise. */
    const char *token, *token_file;
};

MUST_CHECK status_t rpc_channel_open(const struct rpc_channel_config *, struct rpc_channel **ret, struct err *e);
/* Cancels the calls that still live, waits until their references are given back, and frees. NULL is fine; returns
 * NULL. Not from within an event. */
struct rpc_channel *rpc_channel_close(struct rpc_channel *);
CLEANUP_DEFINE(struct rpc_channel *, rpc_channel_close)

/* Blocks until the answer. timeout_ms <= 0 is UNARY_DEADLINE_MS. *ret_reply is malloc'ed as protobuf-c's unpack does:
 * free it with protobuf_c_message_free_unpacked(reply, NULL). */
MUST_CHECK status_t rpc_call_unary(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                                   const ProtobufCMessage *request, int64_t timeout_ms, ProtobufCMessage **ret_reply,
                                   struct err *e);
/* The same; ret_reason gets the failure's reason (see rpc_reason), "" on success and where no answer came: then it
 * is the connection that failed, or the deadline that passed. */
MUST_CHECK status_t rpc_call_unary_reason(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                                          const ProtobufCMessage *request, int64_t timeout_ms,
                                          ProtobufCMessage **ret_reply, char ret_reason[RPC_REASON_BYTES],
                                          struct err *e);

/* A server stream read by blocking. The server is held back while nobody reads: at most two messages wait here. */
struct rpc_stream;
/* timeout_ms <= 0: no deadline. A server that cannot be reached shows in the first rpc_stream_next. */
MUST_CHECK status_t rpc_stream_open(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                                    const ProtobufCMessage *request, int64_t timeout_ms, struct rpc_stream **ret,
                                    struct err *e);
/* Blocks for the next message, which lives until the next call on this stream; NULL and ST_OK at the stream's good end.
 * After a failure or the end it says the same again. */
MUST_CHECK status_t rpc_stream_next(struct rpc_stream *, const ProtobufCMessage **ret_message, struct err *e);
/* After a failure: its reason, as rpc_call_unary_reason has it. */
const char *rpc_stream_reason(const struct rpc_stream *);
struct rpc_stream *rpc_stream_close(struct rpc_stream *); /* cancels what still runs; NULL is fine; returns NULL */
CLEANUP_DEFINE(struct rpc_stream *, rpc_stream_close)

/* Starts a call of any kind with events (the table is copied). `request` is sent as the only message of a unary call or
 * a server stream, and as the first of the other kinds unless NULL. timeout_ms <= 0: no deadline, but for a unary call
 * UNARY_DEADLINE_MS. *ret has a reference for the caller: rpc_unref it; done fires nevertheless. Events may fire before
 * this returns. Not OK only for what was asked wrongly (INVALID_ARGUMENT): every other failure is told by done. */
MUST_CHECK status_t rpc_start(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                              enum rpc_kind, const struct rpc_events *, void *user, const ProtobufCMessage *request,
                              int64_t timeout_ms, struct rpc_call **ret, struct err *e);

#endif
