/* The agent's heartbeats, from a thread of their own: its loop reads and writes files, and a disk may stand still for
 * longer than a lease. The host is no less there for that, and its ranks train on.
 *
 * A loop that stands still for `still_ms` beyond a heartbeat's interval is another matter: nobody would hear its ranks
 * again. There are no heartbeats then until it turns, and the lease ends. */
#ifndef EXECUTOR_AGENT_HEART_H
#define EXECUTOR_AGENT_HEART_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/link.h"

#include <stdint.h>

struct heart;
/* The loop counts as turning from here on. */
MUST_CHECK status_t heart_open(int still_ms, struct heart **ret, struct err *e);
struct heart *heart_close(struct heart *h);
CLEANUP_DEFINE(struct heart *, heart_close)

/* On the loop's thread, at least every HEARTBEAT_INTERVAL_MS: it turns, and the spool has so many bytes. */
void heart_turn(struct heart *h, int64_t spool_bytes);
/* A heartbeat goes up on this link every HEARTBEAT_INTERVAL_MS from now, until another one is named: NULL is none, and
 * must be named before a link is closed. One that is congested misses it. */
void heart_follow(struct heart *h, struct link *link);

#endif
