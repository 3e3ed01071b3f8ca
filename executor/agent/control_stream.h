/* The control stream to the controller: the agent sends its hello, heartbeats and reports about ranks; the controller
 * sends commands.
 *
 * Dials at once, and again 100 ms after a stream has ended; the wait doubles after each failure up to 2 s, and each
 * wait is shortened by a random amount of up to one half, so that all executors do not dial a restarted controller at
 * the same time. The agent refuses messages of an epoch below the highest epoch that it has obeyed: it sends
 * CommandRefused and closes the stream. */
#ifndef EXECUTOR_AGENT_CONTROL_STREAM_H
#define EXECUTOR_AGENT_CONTROL_STREAM_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/heartbeat.h"
#include "executor/agent/host.h"

#include <stdbool.h>
#include <trainyard/v1/dispatch.pb-c.h>

struct control_stream;

/* On the loop's thread. */
struct control_stream_owner {
    void *ctx;
    /* Adds devices and attempts to the hello that opens a stream; after a success hello_end frees them. */
    void (*hello_begin)(void *ctx, Trainyard__V1__AgentHello *hello);
    void (*hello_end)(void *ctx, Trainyard__V1__AgentHello *hello);
    void (*measure)(void *ctx, struct heartbeat_use *ret);                       /* adds the devices to a heartbeat */
    void (*attached)(void *ctx);                                                 /* the welcome has arrived */
    void (*command)(void *ctx, const Trainyard__V1__ControllerMessage *message); /* any other message */
    void (*detached)(void *ctx);                                                 /* the stream has ended */
};

MUST_CHECK status_t control_stream_open(const struct host *host, const struct control_stream_owner *owner,
                                        struct control_stream **ret, struct err *e);
/* Reads the files of TLS and of the token again, for the next dial. */
MUST_CHECK status_t control_stream_reload(struct control_stream *s, struct err *e);
/* Ends the stream and dials again, so that a new hello says what has changed. NULL is fine. */
void control_stream_renew(struct control_stream *s);
struct control_stream *control_stream_close(struct control_stream *s);
CLEANUP_DEFINE(struct control_stream *, control_stream_close)

/* A message that lives as long as its block: AGENT_MESSAGE(HELLO, hello, &hello). */
#define AGENT_MESSAGE(CASE, member, value)                                                                             \
    (&(Trainyard__V1__AgentMessage){ .base = PROTOBUF_C_MESSAGE_INIT(&trainyard__v1__agent_message__descriptor),       \
                                     .message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_##CASE,                     \
                                     .member = (value) })

/* Sends on the open stream. False: the message was dropped, because there is no stream or because it is congested. The
 * next hello repeats everything that matters. If the stream is congested, text of samples and findings of checks are
 * dropped; for any other message the agent ends the stream, so that the next hello carries the state. */
bool control_stream_send(struct control_stream *s, const Trainyard__V1__AgentMessage *message);

/* True between the welcome and the end of the stream. */
bool control_stream_attached(const struct control_stream *s);

/* This signal (SIGTERM) asked the agent to stop: from now on the controller places no ranks on this executor. drain:
 * the controller ends its ranks, and a lost stream is opened again until control_stream_end; otherwise no further
 * stream is opened. A second goodbye replaces the first. */
void control_stream_goodbye(struct control_stream *s, const char *signal, bool drain);

/* Ends the agent's side of the stream; control_stream_ended is true once the controller has received everything. */
void control_stream_end(struct control_stream *s);
bool control_stream_ended(const struct control_stream *s);

#endif
