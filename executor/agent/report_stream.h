/* The report stream: sends batches of spooled records to the controller and receives its high-water marks.
 *
 * A record waits at most 100 ms for others, and less if it is urgent. A log has at most 16 MiB in flight; further
 * records wait in the spool. While the stream is congested, all records wait. If the controller fences a log, the log
 * is dropped and its workers are killed; the log of an attempt that the agent no longer knows is removed once it is
 * acknowledged to its end. Records that were acknowledged are sent again if the controller's database was set back to a
 * backup. */
#ifndef EXECUTOR_AGENT_REPORT_STREAM_H
#define EXECUTOR_AGENT_REPORT_STREAM_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/host.h"

struct report_stream;

/* On the loop's thread. */
struct report_stream_owner {
    void *ctx;
    bool (*is_known)(void *ctx, int64_t job, int32_t attempt); /* may this attempt still add records? */
    void (*fenced)(void *ctx, int64_t job, int32_t attempt);   /* a known attempt is over: drop its logs */
};

MUST_CHECK status_t report_stream_open(const struct host *host, const struct report_stream_owner *owner,
                                       struct report_stream **ret, struct err *e);
/* Reads the files of TLS and of the token again, for the next dial. */
MUST_CHECK status_t report_stream_reload(struct report_stream *r, struct err *e);
struct report_stream *report_stream_close(struct report_stream *r);
CLEANUP_DEFINE(struct report_stream *, report_stream_close)

/* Whether the control stream is attached: the report stream is dialled only while the control stream is attached. */
void report_stream_set_attached(struct report_stream *r, bool attached);

/* A log has grown. urgent: send the record at once (a shard report, a final report). */
void report_stream_wake(struct report_stream *r, bool urgent);

/* The log is about to be removed. */
void report_stream_forget(struct report_stream *r, const struct spool_log *log);
/* Removes the logs of attempts that the agent no longer knows, if they are acknowledged to the end. */
void report_stream_sweep(struct report_stream *r);

/* Every record in the spool is acknowledged. */
bool report_stream_drained(const struct report_stream *r);

#endif
