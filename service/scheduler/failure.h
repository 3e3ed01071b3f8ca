/* Why an attempt ended. Many ranks report an end, but only one of them reports the cause; the others report its
 * consequences, such as a lost peer.
 *
 * Except RANK_END_HOST_LOST and RANK_END_NO_ORDER, the numbers are those of trainyard.v1.WorkerEnd.Cause. */
#ifndef SERVICE_SCHEDULER_FAILURE_H
#define SERVICE_SCHEDULER_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

enum rank_end_cause {
    RANK_END_UNKNOWN = 0, /* killed by a signal, or an exit without a final report */
    RANK_END_FINISHED = 1,
    RANK_END_STOPPED = 2,
    RANK_END_BAD_SPEC = 3,
    RANK_END_PEER_LOST = 4,
    RANK_END_CHECKPOINT_BAD = 5,
    RANK_END_CHECKPOINT_WRITE = 6,
    RANK_END_NUMERIC = 7,
    RANK_END_INTERNAL = 8,
    RANK_END_AGENT_LOST = 9,
    RANK_END_HOST_LOST = 10, /* set by the scheduler: the executor's lease has expired */
    RANK_END_DEVICE_LOST = 11,
    RANK_END_HOST_FAULT = 12,
    RANK_END_CHECKPOINT_UNREADABLE = 13,
    RANK_END_NOT_STARTED = 14,
    RANK_END_NO_ORDER = 15, /* set by the scheduler: the controller could not send the start order */
    RANK_END_CAUSES,
};

/* The end of a rank. A path and a reason fit into 320 bytes; the job's log has the full sentence. */
struct rank_end {
    int rank;
    enum rank_end_cause cause;
    int64_t last_sequence; /* every record up to it will be reported */
    int64_t step;          /* steps done */
    char message[320];     /* one sentence; may be empty */
};

/* True if a is more likely the cause than b. False if they are equal, so that the first report is kept. */
bool rank_end_prefer(const struct rank_end *a, const struct rank_end *b);

/* No retry helps: the spec or the numbers themselves are at fault. */
bool rank_end_fatal(enum rank_end_cause cause);

/* True if the failure counts against max_restarts: it is the job's own, not its host's or its checkpoint's. A failure
 * that blames the host counts only if the job has no other host. */
bool rank_end_counts(enum rank_end_cause cause);

/* True if the rank's host alone may be at fault: the job continues on another host. */
bool rank_end_blames_host(enum rank_end_cause cause);

/* With rank_end_blames_host: true if the same host may work later (an unreachable share, a full disk). A host that
 * lacks something else, such as a file, will lack it in the next attempt too. */
bool rank_end_may_pass(enum rank_end_cause cause);

/* A label for /metrics, such as "host_lost". Static storage. */
const char *rank_end_name(enum rank_end_cause cause);

/* Never NULL: a clause such as "ended without a reason", for an end without a message. Static storage. */
const char *rank_end_text(enum rank_end_cause cause);

#endif
