/* What the scheduler's files share: its state, and the few moves that more than one of them makes. Private. */
#ifndef SERVICE_SCHEDULER_STATE_H
#define SERVICE_SCHEDULER_STATE_H

#include "service/scheduler/scheduler.h"

struct executor {
    char id[SCHEDULER_EXECUTOR_ID_BYTES]; /* first: the tree's key */
    int order;                            /* of arrival; breaks ties in placement */
    int64_t incarnation;
    bool attached, lost;
    int64_t lease_until_ms;
    int slots[SCHEDULER_SLOT_KINDS], used[SCHEDULER_SLOT_KINDS];
    int quarantined; /* CUDA devices that are no slots */
    bool lone;       /* CUDA ranks there cannot talk: no gangs */
    bool drained, drained_now;
    char drain_reason[160]; /* for sentences: the row has all of it */
    int parts;              /* of live attempts that name it: a lost executor is forgotten at 0 */
    struct held {
        int64_t job;
        int attempt;
    } * held; /* old attempts that may still run there */
    int n_held;
};

struct rank {
    struct executor *executor;
    bool started, offered, joined;
    bool ended, stored; /* stored: all records up to end.last_sequence, or they are lost with the host */
    struct rank_end end;
};

/* One executor's share of an attempt. */
struct part {
    struct executor *executor;
    bool over; /* no process is left there; its slots are free */
    bool lost; /* over because the executor is: nobody to acknowledge */
};

/* Whether stop orders are out. A later value replaces an earlier one, never the other way round. */
enum attempt_ending {
    ATTEMPT_GOES_ON,
    ATTEMPT_CHECKPOINTS, /* its ranks write what they have, and end */
    ATTEMPT_STOPS,       /* its ranks end, soon */
};

struct attempt {
    int number;
    int n_ranks, n_parts;
    struct rank *ranks;
    struct part *parts;
    bool all_started, rendezvous_sent, all_joined;
    enum attempt_ending ending;
    bool has_cause;
    struct rank_end cause; /* the nearest known, with has_cause */
    bool final_committed;
    int64_t committed_step; /* -1 = none */
    int64_t start_deadline_ms;
};

struct job {
    int64_t id; /* first: the tree's key */
    enum job_state state;
    int priority, world_size, max_restarts, restarts;
    enum scheduler_slot slot;
    int number;              /* of the current or last attempt */
    struct attempt *attempt; /* NULL when no process of it can run */
    int failures;            /* attempts in a row without a checkpoint */
    bool finished;           /* loaded: the last attempt's end is stored, and its final checkpoint COMMITTED */
    bool in_queue, told_waiting;
    int64_t not_before_ms;   /* RESTARTING without an attempt */
    struct job *next, *prev; /* the list of active jobs: all but those that are QUEUED or PAUSED */
    bool active;
};

struct room {
    int attached;              /* executors */
    int free, slots;           /* of those that take work; of all that are attached */
    int lone_free, lone_slots; /* of these, on hosts that take no gangs */
    int quarantined;           /* devices of those that are no slots */
    int drained, lone_drained; /* slots of attached executors that are drained, which are in none of the above */
    int drained_hosts;
    const struct executor *drained_at; /* the first of them */
};

struct scheduler {
    void *jobs, *executors; /* tsearch(3) trees */
    struct executor **all;  /* in order of arrival */
    int n_all, next_order;
    struct job **queue; /* room for all jobs; sorted: priority down, id up */
    size_t n_queue;
    struct job *active;
    int n_jobs;
    size_t n_active, n_parts, n_ranks; /* active jobs; parts and ranks of all attempts */
    bool dirty;                        /* room or the queue changed: place again */
    bool drain_due; /* loaded: the last leader may have died before what a drain asks of running attempts */
    /* What the last placing found; good until dirty. */
    struct room room[SCHEDULER_SLOT_KINDS];
    const struct job *blocker[SCHEDULER_SLOT_KINDS]; /* behind it nothing starts; NULL = none */
    int64_t last_tick_ms;
};

/* actions.c. What may follow from one event, or from placing, has room before anything changes: so an action is always
 * added. */
MUST_CHECK status_t actions_reserve(struct scheduler_actions *out, size_t more, struct err *e);
/* No more can follow from the event (NULL: from placing), but for the starts of attempts, which reserve their own. */
size_t actions_most(const struct scheduler *s, const struct scheduler_event *ev);
struct scheduler_action *action_add(struct scheduler_actions *out, enum scheduler_action_kind kind,
                                    const struct job *job);
void action_text(struct scheduler_action *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void action_send(struct scheduler_actions *out, enum scheduler_action_kind kind, const struct job *job,
                 const struct executor *to);
void action_reply(struct scheduler_actions *out, uint64_t token); /* it was done */
void action_refuse(struct scheduler_actions *out, uint64_t token, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* job.c */
struct job *job_find(const struct scheduler *s, int64_t id);
/* With room for it in the queue. RESOURCE_EXHAUSTED: nothing was added. */
MUST_CHECK status_t job_add(struct scheduler *s, const struct scheduler_job_row *row, struct job **ret, struct err *e);
/* The one door: asserts that the table has the edge, writes the action, keeps the lists, forgets an ended job (the
 * pointer is dead then). */
void job_move(struct scheduler *s, struct job *job, enum job_state to, enum job_cause cause, const char *reason,
              struct scheduler_actions *out);
void job_activate(struct scheduler *s, struct job *job, bool active);
MUST_CHECK status_t job_submit(struct scheduler *s, const struct scheduler_event *ev, struct err *e);
void job_cancel(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms, struct scheduler_actions *out);
MUST_CHECK status_t job_retry(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out,
                              struct err *e);
/* Its attempt leaves its hosts with all that it has done, and the job waits for others. One that is ending already, or
 * has no attempt, is left as it is. */
void job_preempt(struct scheduler *s, struct job *job, const char *why, struct scheduler_actions *out);
/* What was preempted, and has no attempt any more, waits at its old place in the queue. */
void job_requeue(struct scheduler *s, struct job *job, const char *why, struct scheduler_actions *out);
void job_free(struct job *job);

/* pause.c */
void job_pause(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms, struct scheduler_actions *out);
void job_resume(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out);
/* The attempt of a PAUSING job has ended its sequence, without having done all steps: what is told of the pause, and of
 * steps that are not kept. */
void pause_describe(const struct attempt *a, char *ret, size_t n);

/* queue.c */
void queue_insert(struct scheduler *s, struct job *job);
void queue_remove(struct scheduler *s, struct job *job);
bool queue_before(const struct job *a, const struct job *b);
/* What there is of a kind; of that what a job may have: a gang nothing on hosts that take none. */
struct room queue_room(const struct scheduler *s, enum scheduler_slot slot);
struct room queue_room_for(struct room all, const struct job *job);
/* Whether jobs behind one that waits have to wait too: not behind one that no waiting helps. all: of its kind. */
bool queue_holds_up(const struct job *job, struct room all);
/* Why a job waits for slots, one sentence; room: what it may have. */
void queue_room_text(const struct job *job, struct room room, char *ret, size_t n);
/* Whoever waits at the head is told again why. */
void queue_tell_again(struct scheduler *s);
/* Places what fits, in order. What finds no memory for it is placed after the next event: it stays dirty. */
void queue_place(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out);

/* attempt.c */
/* Of no host yet. */
MUST_CHECK status_t attempt_new(int number, int n_ranks, struct attempt **ret, struct err *e);
struct attempt *attempt_free(struct attempt *a);
CLEANUP_DEFINE(struct attempt *, attempt_free)
/* The job's attempt begins: each rank has its executor, whose slots are in use from now. attempt_drop: all its parts
 * are over. */
void attempt_begin(struct scheduler *s, struct job *job, struct attempt *a);
void attempt_drop(struct scheduler *s, struct job *job);
struct part *attempt_part(const struct attempt *a, const struct executor *ex);
void attempt_stop(struct job *job, const char *why, struct scheduler_actions *out);
/* The same at the end of a step, with a checkpoint of it: a stop that loses nothing. It gives way to attempt_stop. */
void attempt_checkpoint(struct job *job, const char *why, struct scheduler_actions *out);
/* Tells a part's host how the attempt ends. */
void attempt_order_end(const struct job *job, const struct part *part, const char *why, struct scheduler_actions *out);
/* After a rank started: tells when all have. */
void attempt_started(struct job *job, struct scheduler_actions *out);
/* After offers and joins: sends the addresses, or moves the job to RUNNING. */
void attempt_gather(struct scheduler *s, struct job *job, struct scheduler_actions *out);
/* What the job's reason and the event say of an end. */
void attempt_describe(const struct rank_end *end, char *ret, size_t n);
/* The attempt cannot succeed any more, for this reason. */
void attempt_fail(struct scheduler *s, struct job *job, const struct rank_end *end, struct scheduler_actions *out);
void attempt_rank_ended(struct scheduler *s, struct job *job, const struct rank_end *end,
                        struct scheduler_actions *out);
/* No process is left on the part's host. lost: nor will its records come. */
void attempt_part_over(struct scheduler *s, struct job *job, struct part *part, bool lost);
/* ends[]: what the agent tells with the end of its part; ranks that it does not name never ran. */
void attempt_part_ended(struct scheduler *s, struct job *job, struct part *part, const struct rank_end *ends,
                        int n_ends, struct scheduler_actions *out);
/* Everything of the part is gone with its executor, for this reason. */
void attempt_part_lost(struct scheduler *s, struct job *job, struct part *part, enum rank_end_cause cause,
                       const char *why, struct scheduler_actions *out);

/* verdict.c: closes the attempt when its last sequence has ended, and decides what follows. May forget the job: do not
 * touch it afterwards. */
void attempt_try_close(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out);

/* executor.c */
struct executor *executor_find(const struct scheduler *s, const char *id);
/* The one of this id, new where there is none. RESOURCE_EXHAUSTED: nothing was added. */
MUST_CHECK status_t executor_add(struct scheduler *s, const char *id, int64_t now_ms, struct executor **ret,
                                 struct err *e);
void executor_forget_if_gone(struct scheduler *s, struct executor *ex);
/* Whether it takes ranks of such a job now, and what keeps it from that: the one place that says so. */
enum scheduler_host executor_judge(const struct executor *ex, enum scheduler_slot slot, int world_size);
/* Slots that such a job may have there now; 0 where it takes none. */
int executor_free(const struct executor *ex, enum scheduler_slot slot, int world_size);
void executor_release(struct executor *ex, int64_t job, int attempt); /* a held attempt has ended */
void executor_judge_leases(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out);

/* drain.c */
void executor_mark(struct executor *ex, const struct scheduler_drain *drain);
MUST_CHECK status_t executor_drain(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                                   struct scheduler_actions *out, struct err *e);
/* After a start: attempts leave the hosts that are drained without waiting for their ends. */
void executor_drain_loaded(struct scheduler *s, struct scheduler_actions *out);
void executor_count_drained(const struct executor *ex, enum scheduler_slot slot, struct room *room);
/* Where a room's drained slots are, and why: "executor host-1 (new disk) and 1 other". */
#define DRAINED_BYTES 280
void executor_drained_text(struct room room, char ret[DRAINED_BYTES]);

/* adopt.c */
MUST_CHECK status_t executor_attach(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                                    struct scheduler_actions *out, struct err *e);

#endif
