/* The control stream to the controller: hello, heartbeats and what happens to ranks go up, commands come down.
 *
 * Dials at once, and again 100 ms after a stream has ended, twice as long after each failure up to 2 s, each wait cut
 * by a random part of up to a half, so that the executors of a restarted controller do not come in step. Commands with
 * an epoch below the highest one ever obeyed are refused: CommandRefused goes up, and the stream is closed. */
#ifndef EXECUTOR_AGENT_ATTACH_H
#define EXECUTOR_AGENT_ATTACH_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/agent.h"

#include <stdbool.h>
#include <trainyard/v1/dispatch.pb-c.h>

MUST_CHECK status_t attach_open(struct agent *agent, struct attach **ret, struct err *e);
struct attach *attach_close(struct attach *a);
CLEANUP_DEFINE(struct attach *, attach_close)

/* Sends on the open stream. False: it was dropped, because there is no stream (the next hello says everything that
 * matters) or the stream is congested. Of congestion: a sample's text is just not sent; for anything else the
 * stream is given up, so that the next hello tells it. */
bool attach_send(struct attach *a, const Trainyard__V1__AgentMessage *message);

/* True between Welcome and the stream's end. */
bool attach_attached(const struct attach *a);

/* Ends the stream in good order and dials no more; attach_gone tells when the other side has taken everything. */
void attach_leave(struct attach *a);
bool attach_gone(const struct attach *a);

#endif
