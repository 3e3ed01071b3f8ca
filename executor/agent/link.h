/* A bidirectional stream whose events arrive on the agent's loop, one message at a time: the next is read only when the
 * handler of the last one has returned, so that the loop holds the controller back and not the other way round. A loop
 * with no room for an event ends the link, with RESOURCE_EXHAUSTED; the end itself always gets through. */
#ifndef EXECUTOR_AGENT_LINK_H
#define EXECUTOR_AGENT_LINK_H

#include "api/rpc/client.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/reactor.h"

struct link;

/* On the loop's thread. A handler may close the link. */
struct link_owner {
    void *ctx;
    void (*message)(void *ctx, const ProtobufCMessage *message);
    void (*writable)(void *ctx);                                /* after link_send said RPC_FULL */
    void (*ended)(void *ctx, status_t status, const char *why); /* the last one; the link is closed then */
};

/* Dials; `first` goes up as soon as the connection stands. */
MUST_CHECK status_t link_open(struct reactor *loop, struct rpc_channel *channel,
                              const ProtobufCServiceDescriptor *service, const char *method,
                              const ProtobufCMessage *first, const struct link_owner *owner, struct link **ret,
                              struct err *e);
/* Cancels the stream; no handler is called any more. NULL is fine. */
struct link *link_close(struct link *l);

enum rpc_sent link_send(struct link *l, const ProtobufCMessage *message);
/* No more messages from here: the other side ends the stream. */
void link_send_end(struct link *l);

#endif
