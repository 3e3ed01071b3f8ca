/* What one worker says, from its pipes into the spool, in the order in which it came.
 *
 * Records pipe: address, joined, alive, sample and end are told to the owner; metrics, shard reports, notices and the
 * end are spooled, one sequence number each. stdout and stderr become LogText records in the same sequence.
 *
 * When the spool fills up, in this order: above 80 % of its limit a rank's device samples (metrics with per_rank) are
 * dropped, above 90 % log lines too (both counted, and told by a notice when there is room again); when it is full, or
 * the disk is, the records pipe is not read any more, so that the worker's training waits. Loss points and shard
 * reports are never dropped. After a wait a notice tells how long it was.
 *
 * Lives on the agent's loop. The log and the descriptors are borrowed until relay_close. */
#ifndef EXECUTOR_AGENT_RELAY_H
#define EXECUTOR_AGENT_RELAY_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/reactor.h"
#include "executor/agent/spool.h"

#include <stdbool.h>
#include <trainyard/v1/worker.pb-c.h>

struct relay;

/* Messages are valid during the call. Handlers may not close the relay. */
struct relay_owner {
    void *ctx;
    void (*record)(void *ctx, const Trainyard__V1__WorkerRecord *record); /* address, joined, alive, sample, end */
    void (*spooled)(void *ctx, bool urgent);         /* the log has grown; urgent: someone waits for this record */
    void (*waiting)(void *ctx, bool waits);          /* the records pipe is (not) held back by a full spool */
    void (*broken)(void *ctx, const char *sentence); /* the worker wrote what is no record: nothing more is read */
};

/* log NULL: nothing is spooled (a sample). out, err: -1 when there is none. */
struct relay_options {
    struct reactor *loop;
    struct spool *spool;
    struct spool_log *log;
    int records, out, err;
    struct relay_owner owner;
};
MUST_CHECK status_t relay_open(const struct relay_options *options, struct relay **ret, struct err *e);
struct relay *relay_close(struct relay *r);
CLEANUP_DEFINE(struct relay *, relay_close)

/* After the worker's death: takes what is left in the pipes. True when all of it is in the spool; false while a full
 * spool holds the rest back (the relay goes on by itself and calls `waiting(false)`: drain again then). */
bool relay_drain(struct relay *r);

/* A line of the agent's own, as LogText of the stream "agent"; dropped when there is no room. */
void relay_say(struct relay *r, const char *text);

/* A row of what the agent measures of the rank's device, as a device sample of the rank's own; the time is now. */
void relay_sample(struct relay *r, const Trainyard__V1__MetricRow *row);

/* From now on nothing is spooled, and a record that is held back is let go: the attempt is over, its log is about to be
 * removed. */
void relay_discard(struct relay *r);

/* The newest step that a metric row named; -1 before the first. */
int64_t relay_step(const struct relay *r);

#endif
