/* One worker process from its start to its end: commands go down a queue, records and lines come up through a relay, a
 * ladder ends it, its death is told once its pipes are read empty.
 *
 * Lives on the agent's loop. */
#ifndef EXECUTOR_AGENT_CHILD_H
#define EXECUTOR_AGENT_CHILD_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/reactor.h"
#include "executor/agent/reap.h"
#include "executor/agent/relay.h"
#include "executor/agent/spawn.h"

struct child;

/* No handler may close the child, but `ended` with drained = true. */
struct child_owner {
    void *ctx;
    void (*record)(void *ctx, const Trainyard__V1__WorkerRecord *record); /* as relay.h */
    void (*spooled)(void *ctx, bool urgent);
    /* The process is gone. drained: and everything it said is in the spool. Called once with drained = true, and
     * before that once with false when a full spool holds the rest back. */
    void (*ended)(void *ctx, const struct reaped *how, bool drained);
};

struct child_options {
    struct reactor *loop;
    struct spool *spool;
    struct spool_log *log; /* NULL: nothing is spooled */
    struct spawn_options spawn;
    struct child_owner owner;
};

MUST_CHECK status_t child_open(const struct child_options *options, struct child **ret, struct err *e);
/* Kills and reaps the process when it still runs. */
struct child *child_close(struct child *c);
CLEANUP_DEFINE(struct child *, child_close)

pid_t child_pid(const struct child *c);
int64_t child_start_time(const struct child *c);
int64_t child_step(const struct child *c); /* as relay_step */
bool child_waiting(const struct child *c); /* a full spool holds its records back: exempt from hang detection */

void child_say(struct child *c, const char *text);                       /* as relay_say */
void child_sample(struct child *c, const Trainyard__V1__MetricRow *row); /* as relay_sample */
void child_discard(struct child *c);                                     /* as relay_discard */

/* Queues a command; written as the worker reads. RESOURCE_EXHAUSTED when 8 MiB wait: it has not read for long. */
MUST_CHECK status_t child_send(struct child *c, const Trainyard__V1__WorkerCommand *command, struct err *e);

/* TERM after term_ms, KILL after kill_ms (0: now). why completes "rank 1: ...", e.g. "made no progress for 32 s and was
 * killed"; NULL when an end by signal then needs no explanation but itself. A later call may only hasten the end; the
 * first `why` stays. */
void child_end(struct child *c, int term_ms, int kill_ms, const char *why);
/* The reason given to child_end, if KILL was sent for it; else NULL. */
const char *child_killed_because(const struct child *c);

#endif
