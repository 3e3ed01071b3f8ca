/* The bulk stream: batches of spooled records up, high-water marks down.
 *
 * Each log is sent from its last acknowledged record on; after a reconnect unacknowledged records go again. A record
 * waits at most REPORT_DELAY_MS for company. At most REPORT_WINDOW_BYTES of records per log are under way; beyond
 * that, and while the stream is congested, they wait in the spool. A log that is fenced is dropped and its workers are
 * stopped; a log whose attempt is gone is removed when all of it is acknowledged. */
#ifndef EXECUTOR_AGENT_REPORT_H
#define EXECUTOR_AGENT_REPORT_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/agent.h"

MUST_CHECK status_t report_open(struct agent *agent, struct report **ret, struct err *e);
struct report *report_close(struct report *r);
CLEANUP_DEFINE(struct report *, report_close)

/* A log has grown; urgent: someone waits for the record (a shard report, an end), so nothing is gathered. */
void report_wake(struct report *r, bool urgent);

/* The log is about to be removed, or its attempt has just been acknowledged. */
void report_forget(struct report *r, const struct spool_log *log);
void report_sweep(struct report *r); /* removes logs of gone attempts that are acknowledged to the end */

/* Everything in the spool is acknowledged. */
bool report_drained(const struct report *r);

#endif
