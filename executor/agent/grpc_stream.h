/* A bidirectional gRPC stream whose events arrive on the agent's loop, one message at a time: the next message is read
 * when the handler of the last message has returned, so a slow loop slows the controller down. If the loop has no space
 * for an event the stream ends with RESOURCE_EXHAUSTED; the end itself always arrives. */
#ifndef EXECUTOR_AGENT_GRPC_STREAM_H
#define EXECUTOR_AGENT_GRPC_STREAM_H

#include "api/rpc/client.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/reactor.h"

struct grpc_stream;

/* On the loop's thread. A handler may close the stream. */
struct grpc_stream_owner {
    void *ctx;
    void (*message)(void *ctx, const ProtobufCMessage *message);
    void (*writable)(void *ctx);                                /* after grpc_stream_send returned RPC_FULL */
    void (*ended)(void *ctx, status_t status, const char *why); /* the last call; the stream is closed then */
};

/* Dials, and sends `first` once the stream is connected; NULL: no message. */
MUST_CHECK status_t grpc_stream_open(struct reactor *loop, struct rpc_channel *channel,
                                     const ProtobufCServiceDescriptor *service, const char *method,
                                     const ProtobufCMessage *first, const struct grpc_stream_owner *owner,
                                     struct grpc_stream **ret, struct err *e);
/* Cancels the stream: no handler is called after it. NULL is allowed. */
struct grpc_stream *grpc_stream_close(struct grpc_stream *s);

enum rpc_sent grpc_stream_send(struct grpc_stream *s, const ProtobufCMessage *message);
/* Ends the agent's side: no message may be sent after this call, and the controller ends the stream. */
void grpc_stream_send_end(struct grpc_stream *s);

#endif
