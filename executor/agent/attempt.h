/* An attempt and its ranks as the files about them share them (attempts.c, attempt_*.c), and what they do for each
 * other. Private to them. */
#ifndef EXECUTOR_AGENT_ATTEMPT_H
#define EXECUTOR_AGENT_ATTEMPT_H

#include "executor/agent/attempts.h"
#include "executor/agent/reap.h"

/* Room for a rank's end: a death waits for no memory. */
struct rank_end_room {
    Trainyard__V1__RankEnd end;
    char message[sizeof((struct err *)0)->msg], weights_sha256[65];
};

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
    Trainyard__V1__RankEnd *end;    /* NULL until it is dead and its device has been looked at; then end_room's */
    struct rank_end_room end_room;
    struct reaped how;         /* how it died; zeros while ended_us is 0 */
    int64_t ended_us;          /* when its death was seen; 0 before */
    bool left;                 /* the agent was leaving when its death was seen */
    bool drained;              /* its last records are in the spool */
    struct reactor_timer look; /* armed: its device is being looked at */
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

/* From TERM to KILL: a worker in a checkpoint's write gets out of it. */
enum { LADDER_MS = 2000 };

/* attempts.c: the list. An attempt that is removed is freed, with its record in the directory. */
struct attempt *attempt_find(const struct attempts *a, int64_t job, int32_t attempt);
struct attempt *attempt_new(struct attempts *a, int64_t job, int32_t number, int32_t world_size, size_t n);
void attempt_remove(struct attempt *at);

/* attempt_recover.c: an attempt of an earlier agent, as its directory has it; it has ended then. */
MUST_CHECK status_t attempt_recover(struct attempts *a, const Trainyard__V1__AttemptStatus *status, struct err *e);

/* attempt_hear.c: a child's owner's calls; ctx is its rank. rank_moved: a sign of progress. */
void rank_record(void *ctx, const Trainyard__V1__WorkerRecord *record);
void rank_spooled(void *ctx, bool urgent);
void rank_moved(struct rank *r);

/* attempt_hang.c: from now on, until a->check is cancelled. */
void attempts_watch(struct attempts *a);

/* attempt_end.c */
void rank_ended(void *ctx, const struct reaped *how, bool drained); /* a child's owner's call; ctx is its rank */
/* The rank's device has been looked at, or that takes too long (ctx: the rank, whose timer it is). */
void rank_looked(struct rank *r);
void rank_look_over(void *ctx);
/* r->end, from how the process ended (NULL: it never started) and its last word; or as an earlier agent has told it. */
void rank_end_make(struct rank *r, const struct reaped *how, Trainyard__V1__WorkerEnd__Cause cause,
                   const char *sentence);
void rank_end_keep(struct rank *r, const Trainyard__V1__RankEnd *end);
void rank_fail(struct rank *r, Trainyard__V1__WorkerEnd__Cause cause, const char *sentence); /* could not be started */
/* When all ranks are gone: tells it, and forgets the attempt when the controller has done so already. */
void attempt_check_ended(struct attempt *at);

/* A deep copy, for message_free; NULL without memory. */
void *message_copy(const ProtobufCMessage *m);
void message_free(void *m); /* NULL is fine */

/* attempt_tell.c: to the agent's directory, for its next start. Best effort but at the start: a record that cannot be
 * written now is written at the attempt's next change. */
MUST_CHECK status_t attempt_record(const struct attempt *at, struct err *e);

/* To the controller, when it is attached. */
void attempt_tell_ended(const struct attempt *at);
void rank_tell_started(const struct rank *r);
void rank_tell_offer(const struct rank *r);
void rank_tell_ready(const struct rank *r);
void rank_tell_ended(const struct rank *r);

#endif
