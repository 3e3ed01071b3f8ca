/* The agent's heartbeats, from a thread of their own. The agent's loop reads and writes files, and a disk may block it
 * for longer than a lease; the host is still alive then, and its ranks keep training.
 *
 * If the loop is late by stalled_ms, the heartbeats stop until the loop calls heartbeat_loop_alive again. The lease
 * then ends, because the controller gets no reports from this host. */
#ifndef EXECUTOR_AGENT_HEARTBEAT_H
#define EXECUTOR_AGENT_HEARTBEAT_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/grpc_stream.h"

#include <stdint.h>

struct heartbeat;
/* Counts the loop as alive from now. */
MUST_CHECK status_t heartbeat_open(int stalled_ms, struct heartbeat **ret, struct err *e);
struct heartbeat *heartbeat_close(struct heartbeat *h);
CLEANUP_DEFINE(struct heartbeat *, heartbeat_close)

/* From the loop's thread, at least every HEARTBEAT_INTERVAL_MS. spool_bytes is sent with the next heartbeat. */
void heartbeat_loop_alive(struct heartbeat *h, int64_t spool_bytes);
/* Sends a heartbeat on this stream every HEARTBEAT_INTERVAL_MS from now. NULL: no heartbeats; set it before the stream
 * is closed. A congested stream misses heartbeats. */
void heartbeat_set_stream(struct heartbeat *h, struct grpc_stream *stream);

#endif
