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
 * A channel has one connection to each server that it has called. A connection is dialled at the first call, and again
 * after REDIAL_FIRST_MS to REDIAL_MAX_MS if it is lost; each attempt may take CONNECT_TIMEOUT_MS. A call ends with its
 * connection, and the library never repeats a call that a server may have run.
 *
 * The address may be a list, such as "a:7700,b:7700": the controllers of a cluster. One of them serves at a time.
 * A channel goes on to its next server when the current one cannot be reached or does not serve (RPC_NOT_SERVING). A
 * blocking unary call then goes to each server once; other calls fail, and the next call goes to the next server.
 *
 * While the server cannot be reached, calls fail at once with UNAVAILABLE and a sentence that names the peer and
 * the cause: "the controller at 127.0.0.1:7700 cannot be reached: Connection refused". A blocking call that a stopping
 * server drops ends with UNAVAILABLE too.
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
    const char *address;  /* or several, separated by commas: rpc_address_list_parse */
    const char *peer;     /* the name of the peer in error messages; NULL is "the controller" */
    struct rpc_tls tls;   /* with a ca: TLS. Without a ca, and on a unix socket: plain */
    const char *tls_name; /* the name in the server's certificate, if it differs from the dialled host; or NULL */
    /* Sent as `authorization: Bearer ...`: the token, or the content of the file if there is no token; NULL or "" for
     * none. Only over TLS or to this machine: FAILED_PRECONDITION otherwise. */
    const char *token, *token_file;
    /* Sent with each call as x-request-id: 1 to 64 letters, digits, '.', '_' and '-'. NULL or "": the server makes an
     * id for each call. */
    const char *request_id;
    bool within; /* the address is that of rpc_server_listen_within; without TLS */
};

MUST_CHECK status_t rpc_channel_open(const struct rpc_channel_config *, struct rpc_channel **ret, struct err *e);
/* A channel that makes its calls on the connection of another one, with a token of its own. Close it before that one.
 * INVALID_ARGUMENT for a token that a header cannot carry. */
MUST_CHECK status_t rpc_channel_as(struct rpc_channel *connection, const char *token, struct rpc_channel **ret,
                                   struct err *e);
/* Whether no call of the channel is left: then rpc_channel_close does not wait. */
bool rpc_channel_is_idle(struct rpc_channel *);
/* Cancels the calls that have not ended, waits until their references are released, and frees the channel. NULL is
 * fine; returns NULL. Do not call it from an event. */
struct rpc_channel *rpc_channel_close(struct rpc_channel *);
CLEANUP_DEFINE(struct rpc_channel *, rpc_channel_close)

/* Blocks until the reply arrives. timeout_ms <= 0 is UNARY_DEADLINE_MS. *ret_reply is malloc'ed as protobuf-c's unpack
 * does: free it with protobuf_c_message_free_unpacked(reply, NULL). */
MUST_CHECK status_t rpc_call_unary(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                                   const ProtobufCMessage *request, int64_t timeout_ms, ProtobufCMessage **ret_reply,
                                   struct err *e);
/* The same; ret_reason gets the reason of a failure (see rpc_reason). It is "" on success, and if no answer arrived
 * because the connection failed or the deadline passed. */
MUST_CHECK status_t rpc_call_unary_reason(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                                          const ProtobufCMessage *request, int64_t timeout_ms,
                                          ProtobufCMessage **ret_reply, char ret_reason[RPC_REASON_BYTES],
                                          struct err *e);

/* A server stream for a thread that blocks. At most two messages wait on the client's side; flow control stops the
 * server until they are read. */
struct rpc_stream;
/* timeout_ms <= 0: no deadline. If the server cannot be reached, the first rpc_stream_next fails. */
MUST_CHECK status_t rpc_stream_open(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                                    const ProtobufCMessage *request, int64_t timeout_ms, struct rpc_stream **ret,
                                    struct err *e);
/* Blocks until the next message arrives. It is valid until the next call on this stream. NULL and ST_OK at the
 * successful end of the stream. After a failure or the end, further calls return the same result. */
MUST_CHECK status_t rpc_stream_next(struct rpc_stream *, const ProtobufCMessage **ret_message, struct err *e);
/* After a failure: its reason, like ret_reason of rpc_call_unary_reason. */
const char *rpc_stream_reason(const struct rpc_stream *);
struct rpc_stream *rpc_stream_close(struct rpc_stream *); /* cancels a running call; NULL is fine; returns NULL */
CLEANUP_DEFINE(struct rpc_stream *, rpc_stream_close)

/* Starts a call of any kind with events (the table is copied). `request` is sent as the only message of a unary call or
 * a server stream, and as the first of the other kinds unless NULL. timeout_ms <= 0: no deadline, but for a unary call
 * UNARY_DEADLINE_MS. *ret has a reference for the caller, who releases it with rpc_unref; done is called in any case.
 * Events may be called before rpc_start returns. It fails only for wrong arguments (INVALID_ARGUMENT): done reports
 * every other failure. */
MUST_CHECK status_t rpc_start(struct rpc_channel *, const ProtobufCServiceDescriptor *, const char *method,
                              enum rpc_kind, const struct rpc_events *, void *user, const ProtobufCMessage *request,
                              int64_t timeout_ms, struct rpc_call **ret, struct err *e);

#endif
