/* The core's state and the functions that its files share. Private to this folder. */
#ifndef EXECUTOR_AGENT_CORE_STATE_H
#define EXECUTOR_AGENT_CORE_STATE_H

#include "base/status.h"
#include "executor/agent/core/agent_core.h"

struct agent_core {
    struct agent_core_config config;
    struct agent_device *devices; /* [config.n_devices] */
    struct cpu *cpus;             /* [config.n_cpus] */
    struct agent_attempt *first;  /* oldest first */
    int64_t hang_check_ms;        /* when hung ranks are searched next */
    int64_t share_cores_ms;       /* when free cores are given out; 0: no time is set */
    bool leaving, stream_closing; /* the agent was asked to stop; AGENT_ACT_END_STREAM was given */
    bool draining;                /* with leaving: the controller ends the ranks, and there is no time limit */
    int64_t leave_check_ms, leave_until_ms;
    /* Of the current step. */
    int64_t now_ms, wall_us;
    struct agent_actions *actions;
};

#define EACH_ATTEMPT(c, at) for (struct agent_attempt *at = (c)->first; at; at = at->next)
#define EACH_RANK(at, r)    for (struct agent_rank *r = (at)->ranks; r < (at)->ranks + (at)->n_ranks; r++)

/* state.c. act: appends an action about an attempt and one of its ranks, either of which may be NULL; valid until the
 * next one. The find functions and rank_on return NULL if nothing matches. rank_on: the rank that has this device. */
struct agent_action *act(struct agent_core *c, enum agent_action_kind kind, const struct agent_attempt *at,
                         const struct agent_rank *r);
struct agent_attempt *attempt_find(const struct agent_core *c, int64_t job, int32_t attempt);
struct agent_rank *rank_find(struct agent_attempt *at, int32_t rank);
struct agent_rank *rank_on(const struct agent_core *c, int device, struct agent_attempt **ret);
void attempt_removed(struct agent_core *c, struct agent_attempt *at); /* frees it */
struct agent_attempt *attempt_new(struct agent_core *c, int64_t job, int32_t number, int32_t world_size, size_t n);

/* start.c */
void start_order(struct agent_core *c, const struct agent_event *ev);
void start_spawned(struct agent_core *c, struct agent_rank *r, const struct agent_event *ev);
void start_done(struct agent_core *c, struct agent_attempt *at);
void start_failed(struct agent_core *c, struct agent_attempt *at, const char *reason);

/* stop.c: rank_stop takes its times like kill_escalation_request, and ignores a rank that does not run or has already
 * got KILL. */
void rank_stop(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r, int64_t term_ms, int64_t kill_ms,
               const char *reason);
void stop_order(struct agent_core *c, const struct agent_event *ev);
void stop_acknowledged(struct agent_core *c, struct agent_attempt *at);
void stop_fenced(struct agent_core *c, struct agent_attempt *at);
void stop_all(struct agent_core *c);   /* the agent leaves */
void stop_drain(struct agent_core *c); /* the agent leaves when the controller has ended its ranks */
void stop_tick(struct agent_core *c,
               const struct agent_event *ev); /* signals that are due; whether the agent may exit */

/* end.c */
void end_exited(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r, const struct agent_event *ev);
void end_unstarted(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r, const char *reason);
void end_device_unhealthy(struct agent_core *c, int device, const char *reason); /* its rank ends */
void end_device_inspected(struct agent_core *c, int device);
void end_tick(struct agent_core *c); /* inspections that take too long */
void end_attempt_if_closed(struct agent_core *c, struct agent_attempt *at);

/* hang.c */
enum { HANG_CHECK_MS = 1000 };
void rank_progressed(struct agent_core *c, struct agent_rank *r);
void hang_tick(struct agent_core *c);

/* threads.c. threads_take: a starting attempt gets its share, and the others give up their surplus. threads_freed:
 * ranks have ended. threads_tick: gives out free cores after a delay. */
void threads_take(struct agent_core *c, struct agent_attempt *at);
void threads_freed(struct agent_core *c);
void threads_tick(struct agent_core *c);

/* devices.c */
MUST_CHECK status_t device_take(struct agent_core *c, int *ret, struct err *e);
void device_release(struct agent_core *c, struct agent_rank *r);
const char *device_reason(const struct agent_core *c, const struct agent_rank *r); /* NULL: no device, or healthy */

#endif
