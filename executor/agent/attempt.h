/* An attempt and its ranks as the files about them share them (attempts.c, attempt_tell.c), and what is said of them.
 * Private to them. */
#ifndef EXECUTOR_AGENT_ATTEMPT_H
#define EXECUTOR_AGENT_ATTEMPT_H

#include "executor/agent/attempts.h"
#include "executor/agent/reap.h"

struct rank {
    struct attempt *attempt;
    int32_t rank;
    pid_t pid;
    int64_t start_time;
    struct child *child; /* NULL before the start and after the end */
    struct spool_log *log;
    int device; /* DEVICE_NONE but of a rank on CUDA that runs */
    ProtobufCBinaryData address;
    Trainyard__V1__RankJoined *joined;
    Trainyard__V1__WorkerEnd *word; /* its last one */
    Trainyard__V1__RankEnd *end;    /* NULL until it is dead and its device has been looked at */
    struct reaped how;              /* how it died; zeros while ended_us is 0 */
    int64_t ended_us;               /* when its death was seen; 0 before */
    bool left;                      /* the agent was leaving when its death was seen */
    bool drained;                   /* its last records are in the spool */
    struct reactor_timer look;      /* armed: its device is being looked at */
    int64_t progress, moved_ms, seen_ms;
};

struct attempt {
    struct attempts *owner;
    int64_t job;
    int32_t attempt, world_size;
    struct rank *ranks;
    size_t n_ranks;
    bool stopping, ended, acknowledged;
    struct attempt *next;
};

struct attempts {
    struct agent *agent;
    struct attempt *first;
    struct reactor_timer check;
    int64_t checked_ms;
};

/* A deep copy, for message_free; NULL without memory. */
void *message_copy(const ProtobufCMessage *m);
void message_free(void *m); /* NULL is fine */

/* To the agent's directory, for its next start. Best effort but at the start: a record that cannot be written now is
 * written at the attempt's next change. */
MUST_CHECK status_t attempt_record(const struct attempt *at, struct err *e);

/* To the controller, when it is attached. */
void attempt_tell_ended(const struct attempt *at);
void rank_tell_started(const struct rank *r);
void rank_tell_offer(const struct rank *r);
void rank_tell_ready(const struct rank *r);
void rank_tell_ended(const struct rank *r);

#endif
