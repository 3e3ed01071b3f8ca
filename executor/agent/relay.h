/* Moves the records and output of one worker from its pipes into the spool, in the order in which they arrive.
 *
 * Records pipe: address, joined, alive, sample, finding and end are passed to the owner; metrics, shard reports,
 * notices, joined and the end are spooled, one sequence number each. stdout and stderr become LogText records in the
 * same sequence.
 *
 * When the spool fills up, records are dropped in this order: above 80 % of its limit a rank's device samples (metrics
 * with per_rank), above 90 % also log lines. Both are counted, and a notice reports them when there is space again. If
 * the spool or its disk is full, the relay stops reading the records pipe, so the worker's training waits; a notice
 * reports how long it waited. Loss points and shard reports are never dropped.
 *
 * Runs on the agent's loop. The log and the descriptors are borrowed until relay_close. */
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
    void (*spooled)(void *ctx, bool urgent);         /* the log has grown; urgent: not metrics or a log line */
    void (*waiting)(void *ctx, bool waits);          /* the records pipe is (not) held back by a full spool */
    void (*broken)(void *ctx, const char *sentence); /* the worker wrote no valid record: nothing more is read */
};

/* What a relay has read and not passed on, and its newest step: for the relay of the next program in this process. */
struct relay_rest {
    ProtobufCBinaryData records, lines[2]; /* of stdout and stderr */
    int64_t step;
};

/* log NULL: nothing is spooled (a sample). out, err: -1 if there is none. */
struct relay_options {
    struct reactor *loop;
    struct spool *spool;
    struct spool_log *log;
    int records, out, err;
    const struct relay_rest *rest; /* NULL: the pipes are new */
    struct relay_owner owner;
};
MUST_CHECK status_t relay_open(const struct relay_options *options, struct relay **ret, struct err *e);
struct relay *relay_close(struct relay *r);
CLEANUP_DEFINE(struct relay *, relay_close)

/* After the worker's death: reads the pipes until they are empty. True: all records are in the spool. False: a full
 * spool refuses the rest; the relay retries by itself and calls `waiting(false)` when it succeeds. Then drain again. */
bool relay_drain(struct relay *r);

/* Adds a line of the agent to the log, as LogText of the stream "agent"; dropped if the spool has no space. */
void relay_log_line(struct relay *r, const char *text);

/* Adds a notice of the agent, which becomes an event of the job; dropped if the spool has no space. */
void relay_notice(struct relay *r, const char *kind, const char *message);

/* Adds a row of metrics that the agent measured on the rank's device, as a device sample of the rank, with the current
 * time. */
void relay_sample(struct relay *r, const Trainyard__V1__MetricRow *row);

/* From now on nothing is spooled, and a record that waits for space is dropped: the log is about to be removed. */
void relay_discard(struct relay *r);

/* The data are valid until the relay is used again. False: the spool has refused a record, or dropped records are still
 * to be reported. Neither is in a rest. */
bool relay_rest(const struct relay *r, struct relay_rest *ret);

/* The newest step in a metric row; -1 before the first row. */
int64_t relay_step(const struct relay *r);

#endif
