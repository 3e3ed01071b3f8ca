/* The scheduler's state and the functions that its files share. Private to this folder. */
#ifndef SERVICE_SCHEDULER_STATE_H
#define SERVICE_SCHEDULER_STATE_H

#include "service/scheduler/placement.h"
#include "service/scheduler/scheduler.h"

/* Slots of one kind. Drained, detached and avoided slots are not in `free` and `slots`. */
struct capacity {
    int attached;                            /* executors */
    int free, slots;                         /* slots that take ranks now; all slots of attached executors */
    int single_rank_free, single_rank_slots; /* the part of these on hosts that take no gangs */
    int quarantined;                         /* devices of attached executors that are no slots */
    int drained, single_rank_drained;        /* slots of attached executors that are drained */
    int drained_hosts;
    const struct executor *drained_at;  /* the first drained executor */
    int detached, single_rank_detached; /* slots of executors whose stream has ended and that may come back */
    int avoided;                        /* slots on hosts that the job avoids */
    const struct avoided *avoided_at;   /* the first of these hosts */
    uint32_t features;                  /* those that every executor with slots has */
    int lacking;                        /* slots on hosts that lack a feature that the job needs */
    const struct executor *lacking_at;  /* the first of these hosts */
};

struct executor {
    char id[SCHEDULER_EXECUTOR_ID_BYTES]; /* first: the tree's key */
    int order;                            /* of arrival; breaks ties in placement */
    int64_t incarnation;
    bool attached; /* its stream is open */
    bool leaving;  /* its agent is stopping */
    bool lost;
    int64_t lease_until_ms;
    int slots[SCHEDULER_SLOT_KINDS], used[SCHEDULER_SLOT_KINDS];
    int quarantined;  /* CUDA devices that are no slots */
    bool single_rank; /* CUDA ranks there cannot communicate: no gangs */
    uint32_t features;
    bool drained, drained_now;
    char drain_reason[160]; /* for messages, shortened; the row has the full text */
    int fault_jobs;         /* jobs that it has failed in a row; 0 after one ran there */
    int64_t fault_job, faulty_until_ms;
    struct part *first_part; /* the parts of live attempts that name it */
    int parts;               /* their number: a lost executor is forgotten at 0 */
    struct fenced_attempt {
        int64_t job;
        int attempt;
    } * fenced; /* old attempts that may still run there */
    int n_fenced;
    /* What scheduler.capacity contains of it, as of the last executor_recount. */
    struct capacity counted[SCHEDULER_SLOT_KINDS];
    uint32_t counted_features, counted_lacks;
};

struct rank {
    struct executor *executor;
    bool started, offered, joined;
    bool ended, stored; /* stored: all records up to end.last_sequence are stored, or lost with the host */
    struct rank_end end;
    struct {
        int64_t until_ms, ms, step; /* as of EV_RANK_SILENT; until_ms 0: it is not silent */
        bool follows;
    } silence;
};

/* The ranks of an attempt on one executor. */
struct part {
    struct executor *executor;
    struct job *job;
    struct part *next, *prev; /* on the executor */
    bool over;                /* no process is left there; its slots are free unless they are kept */
    bool kept;                /* over, and its slots are kept for the next attempt: the job grows */
    bool lost;                /* over because the executor is lost: no acknowledgement */
};

/* Which stop order was sent. The value may only grow. */
enum attempt_ending {
    ATTEMPT_GOES_ON,
    ATTEMPT_CHECKPOINTS, /* its ranks write a checkpoint and end */
    ATTEMPT_STOPS,       /* its ranks end at once */
};

struct attempt {
    int number;
    int n_ranks, n_parts;
    struct rank *ranks;
    struct part *parts;
    bool all_started, rendezvous_sent, all_joined;
    enum attempt_ending ending;
    bool has_cause;
    struct rank_end cause; /* the most likely cause so far, with has_cause */
    bool final_committed;
    int64_t committed_step; /* -1 = none */
    int64_t start_deadline_ms;
    bool grows;                       /* it is stopped so that the next attempt has more ranks */
    int64_t running_ms, committed_ms; /* since when it runs; of its last checkpoint; 0 = none */
};

/* A host that has failed a job. */
struct avoided {
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    enum rank_end_cause cause;
    bool excludes; /* the job gets no ranks there until until_ms, or until it has no other host */
    int64_t until_ms;
    char why[240];
};

struct avoidance {
    int n;
    struct avoided of[SCHEDULER_MAX_AVOIDED];
};

struct job {
    int64_t id; /* first: the tree's key */
    enum job_state state;
    struct queue *queue;
    struct user *user;
    int priority; /* as its queue allows; given_priority: of its spec */
    int given_priority, world_size, max_restarts, restarts;
    enum scheduler_slot slot;
    uint32_t needs;           /* features */
    bool no_final_checkpoint; /* as in scheduler_job_row */
    int number;               /* of the current or last attempt */
    struct attempt *attempt;  /* NULL if no process of the job can run */
    int failures;             /* attempts in a row without a checkpoint */
    bool finished;            /* loaded: the last attempt's end is stored, and its final checkpoint COMMITTED */
    bool in_queue, waiting_reported;
    int64_t not_before_ms;     /* RESTARTING without an attempt */
    struct avoidance *avoided; /* NULL: no host has failed it */
    bool unreadable;           /* an attempt could not read the job's checkpoint, and no later attempt has read it */
    int64_t unreadable_since_ms;
    struct job *next, *prev; /* the list of active jobs: all but those that are QUEUED or PAUSED */
    bool active;
    /* The list of jobs for which a tick may have to do something: STARTING ones, and active ones without an attempt.
     * A job is added at once, and removed by the next tick that finds nothing to do. */
    struct job *next_timed, *prev_timed;
    bool timed;
    /* Below: what few jobs need, behind what each tick reads. */
    int max_world_size; /* above world_size: the job is elastic */
    bool stops_at_step;
    int ranks;                /* of the current or last attempt; 0 before the first, or unknown */
    int vain_growths;         /* in a row */
    bool growth_lost;         /* a growth stopped an attempt that had stored no checkpoint */
    char *why;                /* of an elastic job: how the last attempt ended; for an event; NULL = unknown */
    struct job *next_started; /* the list of elastic jobs that a placing has started */
};

/* What a waiting job may use: free slots; all slots, with those of hosts that may come back. */
struct capacity_sum {
    int free, width;
};

/* The jobs that need the same features. */
#define SCHEDULER_CLASSES 64
struct capacity_class {
    uint32_t needs;
    struct capacity lacking[SCHEDULER_SLOT_KINDS]; /* of the executors that lack a feature */
};

/* A waiting job as a walk of the queue reads it, without a look at the job. */
struct waiting {
    int64_t id;
    struct job *job;
    struct user *user;
    int priority, world_size;
    int class;  /* of scheduler.classes; -1: none */
    bool exact; /* its capacity is computed from all hosts: it has no class, or avoids hosts */
};

/* The waiting jobs of a queue for one kind of slots, sorted by priority (highest first), then id. */
struct line {
    struct waiting *items;
    size_t n, cap;
    int users;       /* that have jobs in it */
    size_t at, kept; /* of a walk: the next item, and the number of items before it that stay */
    int blocked;     /* of a walk: users none of whose jobs behind the next item may start */
};

/* Queues that lend slots to each other (quota.c). */
struct cohort {
    char name[SCHEDULER_QUEUE_BYTES]; /* first: the tree's key */
    int queues;
    int pool[SCHEDULER_SLOT_KINDS], taken[SCHEDULER_SLOT_KINDS];
    /* As of the last walk: the first job that waits for slots of the pool, 0: none. No job behind it borrows. */
    int64_t claimed_by[SCHEDULER_SLOT_KINDS];
};

/* The jobs of one user in a queue. */
struct user {
    char name[SCHEDULER_USER_BYTES]; /* first: the tree's key */
    int n_jobs;
    int used[SCHEDULER_SLOT_KINDS], waiting[SCHEDULER_SLOT_KINDS]; /* slots; jobs in the line */
    /* The first job that the user's limit keeps back in the walk of this number: no job of the user passes it. */
    struct {
        int64_t walk, job;
    } waits[SCHEDULER_SLOT_KINDS];
};

struct queue {
    char name[SCHEDULER_QUEUE_BYTES]; /* first: the tree's key */
    bool has_row;                     /* else it exists while a job names it */
    int weight, max_priority;
    struct cohort *cohort; /* NULL: none */
    int quota[SCHEDULER_SLOT_KINDS], borrow[SCHEDULER_SLOT_KINDS], lend[SCHEDULER_SLOT_KINDS];
    int user_slots[SCHEDULER_SLOT_KINDS]; /* each -1: no limit */
    struct line lines[SCHEDULER_SLOT_KINDS];
    int n_jobs;  /* live ones */
    void *users; /* tsearch(3) tree */
    int used[SCHEDULER_SLOT_KINDS];
    double average[SCHEDULER_SLOT_KINDS]; /* of `used`, as of average_ms */
    int64_t average_ms;
};

/* Why the settings of a job's queue keep the job from starting. */
enum queue_limit {
    QUEUE_LIMIT_NONE,
    QUEUE_LIMIT_NEVER,       /* it has more ranks than the queue can ever have slots */
    QUEUE_LIMIT_USER_NEVER,  /* or one user in the queue */
    QUEUE_LIMIT_USER,        /* its user has too many */
    QUEUE_LIMIT_USER_TURN,   /* a job of its user is before it, which QUEUE_LIMIT_USER keeps back */
    QUEUE_LIMIT_QUOTA,       /* the queue has too many, with those that it may borrow */
    QUEUE_LIMIT_COHORT,      /* the cohort has too few left */
    QUEUE_LIMIT_COHORT_TURN, /* it would borrow, and a job that QUEUE_LIMIT_COHORT keeps back is before it */
};

/* The first waiting job of a line, as a walk compares the lines. */
struct head {
    struct queue *queue;
    int64_t id;
    double share;
    int priority;
    bool borrows;
    int starts; /* of the walk when the head was made: after another start it is out of date */
};

/* Hosts that the blocking job avoids: the jobs behind it may use these hosts meanwhile. */
struct detour {
    const struct executor *open[SCHEDULER_MAX_AVOIDED];
    int n;
};

/* Slots of one kind that no waiting job can use: as of the last placing, and since when. */
struct spare {
    int now, lowest;           /* lowest: since free_ms */
    int64_t quiet_ms, free_ms; /* the last change of `now`; since when it is above 0 */
    int64_t check_ms;          /* the next search for a job that grows */
};

struct scheduler {
    void *jobs, *executors; /* tsearch(3) trees */
    struct executor **all;  /* in order of arrival */
    int n_all, next_order;
    struct queue **queues; /* in any order */
    int n_queues;
    void *queues_by_name, *cohorts; /* tsearch(3) trees */
    struct head *heads;             /* memory of queue_place, for n_queues */
    int cap_heads;
    size_t n_queue; /* jobs in all lines */
    struct job *active, *timed;
    int n_jobs;
    bool needs_placing; /* the capacity or the queue has changed, or the last pass was cut off: run queue_place */
    bool restarts_wait; /* a RESTARTING job may be in the queue */
    bool drain_due;     /* loaded: the last leader may have died before it ended attempts on drained hosts */
    /* Of all executors; capacity.c keeps them up to date. */
    struct capacity capacity[SCHEDULER_SLOT_KINDS];
    struct placement_index hosts[SCHEDULER_SLOT_KINDS];
    struct capacity_class classes[SCHEDULER_CLASSES];
    int n_classes;
    int lacking[32]; /* for each feature: executors with slots that lack it */
    /* The result of the last queue_place; valid until needs_placing. */
    const struct job *blocker[SCHEDULER_SLOT_KINDS]; /* jobs behind it start only on a detour; NULL = none */
    struct detour detour[SCHEDULER_SLOT_KINDS];
    int64_t avoid_until_ms; /* the earliest time at which a job may have a host again; INT64_MAX = never */
    int64_t checkpoint_wait_ms, elastic_settle_ms;
    struct spare spare[SCHEDULER_SLOT_KINDS];
    int64_t last_tick_ms;
    int64_t now_ms; /* of the present event */
    int64_t half_time_ms, next_order_ms;
    struct scheduler_effort effort;
};

static inline const char *slot_name(enum scheduler_slot slot) { return slot == SCHEDULER_SLOT_CUDA ? "cuda" : "cpu"; }

/* actions.c. action_add returns a pointer that is valid until the next action is added. */
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
struct job *job_add(struct scheduler *s, const struct scheduler_job_row *row);
/* The only function that changes a job's state, except the start of an attempt (queue.c). Asserts that the table has
 * the edge, adds the action, updates the lists, and forgets a job that has ended: the pointer is invalid then. */
void job_move(struct scheduler *s, struct job *job, enum job_state to, enum job_cause cause, const char *reason,
              struct scheduler_actions *out);
void job_activate(struct scheduler *s, struct job *job, bool active);
/* A tick may have to do something for the job: adds it to the list. */
void job_time(struct scheduler *s, struct job *job);
void job_untime(struct scheduler *s, struct job *job);
void job_submit(struct scheduler *s, const struct scheduler_event *ev);
void job_cancel(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms, struct scheduler_actions *out);
void job_retry(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out);
/* Stops the attempt after a checkpoint, so that the job can run on other hosts. Does nothing if the attempt is already
 * ending, or there is none. */
void job_preempt(struct scheduler *s, struct job *job, const char *why, struct scheduler_actions *out);
/* A preempted job without an attempt waits again, at its old place in the queue. */
void job_requeue(struct scheduler *s, struct job *job, const char *why, struct scheduler_actions *out);
void job_free(struct job *job);

/* pause.c */
void job_pause(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms, struct scheduler_actions *out);
void job_resume(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out);
/* Writes the reason of a pause, and which steps are not kept, after the attempt of a PAUSING job has ended. */
void pause_describe(const struct job *job, char *ret, size_t n);

/* queue.c */
void queue_insert(struct scheduler *s, struct job *job);
void queue_remove(struct scheduler *s, struct job *job);
/* Whether job a is before b: one that needs no slots beyond its queue's quota first, then by priority, by the shares of
 * their queues, by id. */
bool queue_before(const struct scheduler *s, const struct job *a, const struct job *b);
/* The same for a waiting job of queue q, without a look at that job. */
bool queue_is_ahead(const struct scheduler *s, struct queue *q, const struct waiting *w, const struct job *job);
/* Whether a waiting job that no limit of its queue keeps back could use slots of this kind that become free. */
bool queue_others_wait(const struct scheduler *s, enum scheduler_slot slot);
/* What one job may use of the capacity of its kind; a gang uses no host that takes no gangs. */
struct capacity queue_capacity_for(const struct scheduler *s, struct capacity all, const struct job *job);
/* Whether the jobs behind a waiting job have to wait too. A job that is wider than all executors blocks no job. all:
 * the capacity of its kind. */
bool queue_blocks(const struct scheduler *s, const struct job *job, struct capacity all);
/* Writes one sentence: why the job waits for slots. capacity: what it may use. */
void queue_capacity_text(const struct job *job, struct capacity capacity, char *ret, size_t n);
/* The head of the queue gets a new reason at the next placing. */
void queue_report_again(struct scheduler *s);
/* Starts the jobs that fit, in order. */
void queue_place(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out);

/* Starts the job with up to max ranks on the slots that are free now, whatever its place in the queue. False: they do
 * not suffice. */
bool queue_start_now(struct scheduler *s, struct job *job, int max, int64_t now_ms, struct scheduler_actions *out);

/* quota.c */
struct queue *queue_find(const struct scheduler *s, const char *name);
void queue_free(struct queue *q);
/* Sets the settings of a queue, a new one if there is none. */
void queue_set(struct scheduler *s, const struct scheduler_queue *row);
/* The queue has no row any more. */
void queue_unset(struct scheduler *s, const char *name);
/* The job becomes one of the queue and of the user; is forgotten. */
void queue_join(struct scheduler *s, struct job *job, const char *queue, const char *user);
void queue_leave(struct scheduler *s, struct job *job);
/* The priority that the queue gives a job. */
int queue_priority(const struct queue *q, int given);
/* The job takes so many slots; gives them back (< 0). */
void queue_use(const struct scheduler *s, struct job *job, int slots);
double queue_share(const struct scheduler *s, struct queue *q, enum scheduler_slot slot);
void queue_load_average(const struct scheduler *s, struct queue *q, const double average[SCHEDULER_SLOT_KINDS],
                        int64_t age_ms);
/* Whether so many more ranks would need slots beyond the quota. */
bool queue_borrows(const struct queue *q, enum scheduler_slot slot, int ranks);
/* The limit of job `id` of this user with so many ranks: it is not LIMIT_NONE if the job may not start now. */
enum queue_limit queue_limit(const struct scheduler *s, const struct queue *q, const struct user *u,
                             enum scheduler_slot slot, int ranks, int64_t id);
/* The same for a job that waits. */
enum queue_limit queue_limit_of(const struct scheduler *s, const struct job *job);
/* The slots that an elastic job may have in addition: none of them borrowed. */
int queue_spare(const struct job *job);
/* Writes one sentence. */
void queue_limit_text(const struct scheduler *s, const struct job *job, enum queue_limit limit, char *ret, size_t n);

/* capacity.c */
/* Call this after each change of an executor, before the next decision. */
void executor_recount(struct scheduler *s, struct executor *ex);
/* The class of jobs with these needs, a new one if there is none; -1: there are too many. */
int capacity_class(struct scheduler *s, uint32_t needs);
/* queue_capacity_for in short: without a walk of the hosts, unless the job is `exact`. */
struct capacity_sum capacity_sum(const struct scheduler *s, enum scheduler_slot slot, const struct waiting *w);

/* elastic.c */
bool job_is_elastic(const struct job *job);
/* The attempt is open: whether it takes more ranks. */
bool elastic_may_grow(const struct job *job);
/* After each placing: notes how many slots no waiting job can use. */
void elastic_refresh(struct scheduler *s, int64_t now_ms);
/* At each tick: stops an attempt that can have more ranks, at most one per kind of slots and settle time. */
void elastic_grow(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out);
/* The stopped attempt has ended, and its slots are free again: starts the next one at once. */
void elastic_restart(struct scheduler *s, struct job *job, int before, int64_t now_ms, struct scheduler_actions *out);
/* Adds the event that the new attempt has another number of ranks than the last one. */
void elastic_note(struct job *job, struct scheduler_actions *out);
/* Writes when the attempt grows: a clause for its explanation. */
void elastic_describe(const struct scheduler *s, const struct job *job, int64_t now_ms, char *ret, size_t n);

/* attempt.c */
/* Gives up the slots that are kept for the next attempt: the job no longer grows. */
void attempt_release(struct scheduler *s, struct job *job);
/* Takes back attempt_begin: the attempt was not announced. */
void attempt_undo(struct scheduler *s, struct job *job);
/* A new attempt whose ranks have no executors yet. */
struct attempt *attempt_new(int number, int n_ranks);
/* The time in which all ranks of an attempt of the job must join. */
int64_t attempt_start_limit_ms(const struct job *job);
void attempt_free(struct attempt *a);
/* Makes `a` the job's attempt. Each rank has its executor, and its slot is in use from now on. */
void attempt_begin(struct scheduler *s, struct job *job, struct attempt *a);
/* Removes the attempt from memory. All its parts are over. */
void attempt_drop(struct scheduler *s, struct job *job);
struct part *attempt_part(const struct attempt *a, const struct executor *ex);
void attempt_stop(struct job *job, const char *why, struct scheduler_actions *out);
/* Stops the attempt at the end of a step, after a checkpoint. A later attempt_stop replaces this order. */
void attempt_checkpoint(struct job *job, const char *why, struct scheduler_actions *out);
/* Sends the stop order of the attempt to one host. */
void attempt_order_end(const struct job *job, const struct part *part, const char *why, struct scheduler_actions *out);
/* After a rank has started: notes when all have. */
void attempt_started(struct job *job, struct scheduler_actions *out);
/* After offers and joins: sends the addresses, or moves the job to RUNNING. */
void attempt_gather(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out);
/* Writes the sentence about an end for the job's reason and its event. */
void attempt_describe(const struct rank_end *end, char *ret, size_t n);
/* The attempt can no longer succeed, because of this end: stops it. */
void attempt_fail(struct scheduler *s, struct job *job, const struct rank_end *end, struct scheduler_actions *out);
void attempt_rank_ended(struct scheduler *s, struct job *job, const struct rank_end *end,
                        struct scheduler_actions *out);
/* No process of the part is left: its slots are free. lost: its records will not arrive either. */
void attempt_part_over(struct scheduler *s, struct job *job, struct part *part, bool lost);
/* ends[]: the ends that the agent reports with its part. Ranks that it does not name never ran. */
void attempt_part_ended(struct scheduler *s, struct job *job, struct part *part, const struct rank_end *ends,
                        int n_ends, struct scheduler_actions *out);
/* The part is lost with its executor. */
/* silence.c: EV_RANK_SILENT. Fails the attempt if every rank is silent. */
void attempt_silent(struct scheduler *s, struct job *job, const struct scheduler_event *ev, int64_t now_ms,
                    struct scheduler_actions *out);
void attempt_part_lost(struct scheduler *s, struct job *job, struct part *part, enum rank_end_cause cause,
                       const char *why, struct scheduler_actions *out);

/* attempt_close.c: closes the attempt once every rank's last record is stored, and decides what follows. May forget the
 * job: do not use the pointer afterwards. */
void attempt_try_close(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out);

/* executor.c */
struct executor *executor_find(const struct scheduler *s, const char *id);
/* Returns the executor of this id, a new one if there is none. */
struct executor *executor_add(struct scheduler *s, const char *id, int64_t now_ms);
void executor_forget_if_gone(struct scheduler *s, struct executor *ex);
/* Whether the executor takes ranks of such a job now, and why not. Only this function decides it. */
enum scheduler_host executor_availability(const struct executor *ex, enum scheduler_slot slot, int world_size);
/* The same for one job, which may avoid the host. */
enum scheduler_host executor_availability_for(const struct executor *ex, const struct job *job);
/* Free slots that such a job may use there; 0 if the executor takes none of its ranks. */
int executor_free(const struct executor *ex, enum scheduler_slot slot, int world_size);
int executor_free_for(const struct executor *ex, const struct job *job);
enum scheduler_detachment executor_detachment(const struct executor *ex);
void executor_handle_detached(struct scheduler *s, const struct scheduler_event *ev);
void executor_handle_leaving(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out);
/* An old attempt has ended there. */
void executor_unfence(struct scheduler *s, struct executor *ex, int64_t job, int attempt);
/* Executors whose lease has expired are lost, and the ranks that they had. */
void executor_expire_leases(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out);

/* avoid.c */
bool job_avoids(const struct job *job, const struct executor *ex);
/* Loads the hosts that the job avoids. */
void job_avoid_loaded(struct scheduler *s, struct job *job, const struct scheduler_job_row *row, int64_t now_ms);
/* The job avoids the hosts that its attempt's ranks blame, and each gets an action. False: no rank blames a host. */
bool job_avoid(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out);
/* Whether the hosts that the job does not avoid have enough slots: attached hosts, even if they are full, fenced or
 * drained, and hosts that may come back. */
bool job_has_other_hosts(const struct scheduler *s, const struct job *job);
/* Lets the job use hosts again whose fault may pass. False: there are none. */
bool job_forgive(struct job *job);
/* After an attempt that could not read its checkpoint: whether the job has waited too long for it. */
bool job_checkpoint_missing(const struct scheduler *s, struct job *job, int64_t now_ms);
int job_unreadable_on(const struct job *job); /* number of hosts that could not read the checkpoint */
int64_t job_checkpoint_limit_ms(const struct scheduler *s, const struct job *job); /* how long it waits for it in all */
/* What this host lacked for the job; NULL: it has not failed the job. */
const struct avoided *job_avoided_on(const struct job *job, const struct executor *ex);
/* Jobs may use hosts again that failed them long ago. */
void jobs_forgive_after_time(struct scheduler *s, int64_t now_ms);
/* Subtracts the slots of hosts that the job avoids. */
void job_capacity_without_avoided(const struct scheduler *s, const struct job *job, struct capacity *capacity);
/* Writes one sentence with a clause for each thing that hosts lacked. False: fewer than two hosts are avoided. */
bool job_avoided_text(const struct job *job, char *ret, size_t n);
/* Records that the host has failed this job. */
void executor_blame(struct executor *ex, int64_t job, int64_t now_ms);
/* True if the host has failed a job recently and has run none since. */
bool executor_faulty(const struct executor *ex, int64_t now_ms);

/* lacking.c */
/* The features that the job needs and this host lacks; 0: none. */
uint32_t job_lacks(const struct job *job, const struct executor *ex);
/* Subtracts the slots of hosts that lack a feature. */
void job_capacity_without_lacking(const struct scheduler *s, const struct job *job, struct capacity *capacity);

/* drain.c */
void executor_mark(struct scheduler *s, struct executor *ex, const struct scheduler_drain *drain);
/* why: for the jobs, which end with checkpoints and are QUEUED again. */
void executor_preempt_jobs(struct scheduler *s, const struct executor *ex, const char *why,
                           struct scheduler_actions *out);
void executor_drain(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                    struct scheduler_actions *out);
/* After a start: ends the attempts on hosts that are drained at once. */
void executor_drain_loaded(struct scheduler *s, struct scheduler_actions *out);
void executor_count_drained(const struct executor *ex, enum scheduler_slot slot, struct capacity *capacity);
/* Names the drained hosts and the reason: "executor host-1 (new disk) and 1 other". */
#define DRAINED_BYTES 280
void executor_drained_text(struct capacity capacity, char ret[DRAINED_BYTES]);

/* adopt.c */
void executor_attach(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                     struct scheduler_actions *out);

#endif
