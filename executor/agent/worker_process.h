/* One worker process from its start to its death. Commands are written from a queue; records and lines are read by a
 * relay (relay.h). The owner is called when the process is gone, and a second time if its pipes could only be emptied
 * later.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_WORKER_PROCESS_H
#define EXECUTOR_AGENT_WORKER_PROCESS_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/cgroups.h"
#include "executor/agent/core/exit_reason.h"
#include "executor/agent/handover.h"
#include "executor/agent/reactor.h"
#include "executor/agent/relay.h"
#include "executor/agent/spawn.h"

struct worker_process;

/* No handler may close the process, except `ended` with drained = true. */
struct worker_process_owner {
    void *ctx;
    void (*record)(void *ctx, const Trainyard__V1__WorkerRecord *record); /* as in relay.h */
    void (*spooled)(void *ctx, bool urgent);
    void (*waiting)(void *ctx, bool waits);          /* a full spool holds its records back, or no longer; or NULL */
    void (*broken)(void *ctx, const char *sentence); /* it wrote no valid record; NULL: it is killed with this reason */
    /* The process is gone. drained: all that it wrote is in the spool. Called once with drained = true. If a full spool
     * holds the rest back, called once with false before that. */
    void (*ended)(void *ctx, const struct exit_status *status, bool drained);
};

struct worker_process_options {
    struct reactor *loop;
    struct spool *spool;
    struct spool_log *log;   /* NULL: no record is spooled */
    struct orphans *orphans; /* NULL: what a killed worker leaves behind stays */
    struct cgroup *cgroup;   /* in which it runs from its start on; closed with the process; NULL: none */
    struct spawn_options spawn;
    struct worker_process_owner owner;
};

/* On failure the caller still owns `cgroup`. */
MUST_CHECK status_t worker_process_open(const struct worker_process_options *options, struct worker_process **ret,
                                        struct err *e);
/* The process of the program that this process executed before (handover.h). It need not have died: a death while no
 * program watched is found at once. */
MUST_CHECK status_t worker_process_resume(const struct worker_process_options *options,
                                          const Trainyard__Handover__HandedProcess *handed, struct worker_process **ret,
                                          struct err *e);
/* Kills and reaps the process if it still runs. */
struct worker_process *worker_process_close(struct worker_process *p);
CLEANUP_DEFINE(struct worker_process *, worker_process_close)

/* Fills in a process that is to be handed over; the data are valid until p is used again. False: it cannot be handed
 * over now, because it has died, or a command or a record waits. */
bool worker_process_hand_over(const struct worker_process *p, Trainyard__Handover__HandedProcess *ret);

pid_t worker_process_pid(const struct worker_process *p);
int64_t worker_process_start_time(const struct worker_process *p);
int64_t worker_process_step(const struct worker_process *p); /* as relay_step */

/* Whether the kernel has killed a process of its control group for memory, the sentence about the last kill, and its
 * age in ms, to 2 s; read when the process ended. The sentence and the age are not set if it has not. */
enum cgroup_memory worker_process_memory(const struct worker_process *p, char *ret_sentence, size_t n,
                                         int64_t *ret_age_ms);

void worker_process_log_line(struct worker_process *p, const char *text);                  /* as relay_log_line */
void worker_process_sample(struct worker_process *p, const Trainyard__V1__MetricRow *row); /* as relay_sample */
void worker_process_discard(struct worker_process *p);                                     /* as relay_discard */

/* Queues a command; it is written when the worker reads. RESOURCE_EXHAUSTED if 24 MiB wait: the worker does not read.
 */
MUST_CHECK status_t worker_process_send(struct worker_process *p, const Trainyard__V1__WorkerCommand *command,
                                        struct err *e);

/* SIGTERM and SIGKILL to its process group. why completes "its worker ...", e.g. "took too long and was killed". */
void worker_process_terminate(struct worker_process *p);
void worker_process_kill(struct worker_process *p, const char *why);
/* The first `why`; NULL if worker_process_kill was not called while the process ran. */
const char *worker_process_killed_because(const struct worker_process *p);

#endif
