/* Why an attempt ended: many ranks report, and only one of them tells the cause; the others tell its echo.
 *
 * The numbers but RANK_END_HOST_LOST are those of trainyard.v1.WorkerEnd.Cause. */
#ifndef SERVICE_SCHEDULER_FAILURE_H
#define SERVICE_SCHEDULER_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

enum rank_end_cause {
    RANK_END_UNKNOWN = 0, /* killed by a signal, or an exit without a word */
    RANK_END_FINISHED = 1,
    RANK_END_STOPPED = 2,
    RANK_END_BAD_SPEC = 3,
    RANK_END_PEER_LOST = 4,
    RANK_END_CHECKPOINT_BAD = 5,
    RANK_END_CHECKPOINT_WRITE = 6,
    RANK_END_NUMERIC = 7,
    RANK_END_INTERNAL = 8,
    RANK_END_AGENT_LOST = 9,
    RANK_END_HOST_LOST = 10, /* the scheduler's own: its executor's lease is over */
    RANK_END_DEVICE_LOST = 11,
};

/* 320 bytes: a path and a reason fit; the full sentence stands in the job's log. */
struct rank_end {
    int rank;
    enum rank_end_cause cause;
    int64_t last_sequence; /* every record up to it will be reported */
    int64_t step;          /* steps done */
    char message[320];     /* one sentence; may be empty */
};

/* True when a is nearer to the cause than b. Equals are not: the first one heard stays. */
bool rank_end_prefer(const struct rank_end *a, const struct rank_end *b);

/* No retry helps: the spec or the numbers themselves are at fault. */
bool rank_end_fatal(enum rank_end_cause cause);

/* Counts against max_restarts: the job's own failure, not its host's or its checkpoint's. */
bool rank_end_counts(enum rank_end_cause cause);

/* Never NULL: a clause such as "ended without a reason", for an end without a message. Static storage. */
const char *rank_end_text(enum rank_end_cause cause);

#endif
