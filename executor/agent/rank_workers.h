/* The workers of this host's ranks: their processes and spool logs, and the addresses and joins that they have sent for
 * their gangs. Turns the records of a worker into events of the core (core/agent_core.h).
 *
 * A worker is named by its job, attempt and rank. It stays in the list, without a process, until its attempt is
 * removed. All functions run on the agent's loop. */
#ifndef EXECUTOR_AGENT_RANK_WORKERS_H
#define EXECUTOR_AGENT_RANK_WORKERS_H

#include "executor/agent/core/agent_core.h"
#include "executor/agent/host.h"
#include "executor/agent/worker_process.h"

#include <trainyard/v1/dispatch.pb-c.h>

struct rank_workers_owner {
    void *ctx;
    void (*event)(void *ctx, struct agent_event *event); /* all but wall_us is filled in */
    void (*spooled)(void *ctx, bool urgent);
    void (*silent)(void *ctx, const Trainyard__V1__RankSilent *silent); /* a rank's report for the controller */
    /* The files of a shard are to be uploaded; the answer is a command. */
    void (*shard_written)(void *ctx, int64_t job, int32_t attempt, int32_t rank, int64_t step);
    /* A text is to be encoded; the answers are commands. */
    void (*encode_text)(void *ctx, int64_t job, int32_t attempt, int32_t rank, const Trainyard__V1__EncodeText *text);
};

struct rank_worker {
    struct rank_workers *list;
    int64_t job;
    int32_t attempt, rank;
    struct worker_process *process;    /* NULL before the start and after the end */
    ProtobufCBinaryData address;       /* for the rendezvous; empty: none yet */
    Trainyard__V1__RankJoined *joined; /* NULL: it has not joined */
    int64_t stop_step;                 /* that it has chosen for its gang */
    struct rank_worker *next;
};

struct rank_workers;
struct rank_workers *rank_workers_new(const struct host *host, const struct rank_workers_owner *owner);
void rank_workers_free(struct rank_workers *ws); /* kills the processes that still run */

/* Starts the process of a rank with a new spool log. spec: the job's. device: its GPU's UUID; NULL: no GPU. Call it
 * once for each rank. */
MUST_CHECK status_t rank_workers_spawn(struct rank_workers *ws, const struct agent_attempt *at,
                                       const struct agent_rank *r, const Trainyard__V1__JobSpec *spec,
                                       const char *device, struct rank_worker **ret, struct err *e);
/* A rank that was handed over: its process continues with its spool log. */
MUST_CHECK status_t rank_workers_resume(struct rank_workers *ws, int64_t job, int32_t attempt,
                                        const Trainyard__Handover__HandedRank *handed, struct err *e);
/* Fills in a rank that is to be handed over, except its device, progress and CPUs, which the core knows. `ret` has a
 * message of a process, and borrows from w. False: it cannot be handed over now. */
bool rank_worker_hand_over(const struct rank_worker *w, Trainyard__Handover__HandedRank *ret);
/* Sends the start order that a worker waits for: its spec, and the settings that this host adds. */
MUST_CHECK status_t rank_worker_send_start(struct rank_worker *w, const struct agent_attempt *at,
                                           const Trainyard__V1__AttemptStart *order, struct err *e);

struct rank_worker *rank_workers_find(const struct rank_workers *ws, int64_t job, int32_t attempt, int32_t rank);

/* Sends a command to each process of the attempt. A command that cannot be queued is dropped: its worker does not read,
 * and the hang check will find it. */
void rank_workers_send(struct rank_workers *ws, int64_t job, int32_t attempt,
                       const Trainyard__V1__WorkerCommand *command);

/* The same for a command that a worker cannot do without: a worker for which it cannot be queued is killed. */
void rank_workers_send_all(struct rank_workers *ws, int64_t job, int32_t attempt,
                           const Trainyard__V1__WorkerCommand *command);

/* As rank_workers_send, to the lowest rank of the attempt on this host. */
void rank_workers_send_first(struct rank_workers *ws, int64_t job, int32_t attempt,
                             const Trainyard__V1__WorkerCommand *command);

/* Frees the attempt's workers. Their processes are gone. */
void rank_workers_remove(struct rank_workers *ws, int64_t job, int32_t attempt);

#endif
