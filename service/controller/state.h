/* The controller's state and the functions that its files share. Private to this folder. */
#ifndef SERVICE_CONTROLLER_STATE_H
#define SERVICE_CONTROLLER_STATE_H

#include "service/controller/check_cache.h"
#include "service/controller/checkpoint_gc.h"
#include "service/controller/code_gc.h"
#include "service/controller/controller.h"
#include "service/controller/election_history.h"
#include "service/controller/inbox.h"
#include "service/controller/job_gc.h"
#include "service/controller/keyring.h"
#include "service/controller/planner.h"
#include "service/controller/rendezvous.h"
#include "service/controller/secret_rotation.h"
#include "service/controller/spec_check.h"
#include "service/controller/start_orders.h"
#include "service/controller/sweeps.h"
#include "service/notify/notifier.h"
#include "service/store/attempt.h"
#include "service/store/executor.h"
#include "service/store/leader.h"
#include "service/store/queue.h"

#include <pthread.h>
#include <stdatomic.h>

/* Start orders that could not be sent. The scheduler learns of them when the actions of the present event have run. At
 * most one for each action. */
struct refused_orders {
    struct refused_order {
        int64_t job;
        int attempt;
        char executor[SCHEDULER_EXECUTOR_ID_BYTES];
        char reason[320];
    } * items;
    size_t n;
};

/* Rows of started ranks that are not written yet. The scheduler receives a start at once, and the row is written within
 * a tick. A change of a rank's threads (pid 0) is also written then. One transaction writes all rows of a tick. */
struct starts {
    struct store_rank_start items[STORE_MAX_RANK_STARTS];
    char executors[STORE_MAX_RANK_STARTS][SCHEDULER_EXECUTOR_ID_BYTES]; /* of the items */
    size_t n;
};

struct controller {
    char *database;
    char *checkpoint_paths[CONTROLLER_MAX_ROOTS]; /* the strings that `place` points to */
    struct checkpoint_place place;
    struct checkpoint_objects checkpoint_objects; /* of place */
    bool fixed_queues;
    int64_t checkpoint_wait_ms; /* 0 = the scheduler's default */
    int64_t elastic_settle_ms;  /* the same */
    struct store *store;
    struct job_watchers *job_watchers;
    struct dispatch *dispatch;
    struct ingest *ingest;
    struct samples *samples;
    struct spec_checks *spec_checks;
    struct check_cache *check_cache;
    struct progress *progress;
    struct planner *planner;
    struct inbox *inbox;
    struct checkpoint_gc *checkpoint_gc;
    struct job_gc *job_gc;
    struct code_gc *code_gc;
    struct keyring *keyring;
    struct authority *authority;
    struct secret_rotation *secret_rotation;
    struct sweeps *sweeps;
    struct notifier *notifier;
    int64_t code_bytes; /* the maximum of all archives of code */
    struct election_history *election_history;
    char cluster[STORE_UUID_BYTES]; /* the database's cluster id, read at the start */

    pthread_mutex_t lock; /* guards the members up to the empty line */
    pthread_cond_t changed;
    bool leads, deposed, stopping;
    enum controller_lead lead;
    struct err cannot_lead; /* with CONTROLLER_CANNOT_LEAD: the reason, fit for any caller */
    int64_t epoch;
    struct scheduler_counts counts;

    /* Per kind of slot: the priority of the job that blocks the queue; INT_MIN if none does. A submitted job of a lower
     * priority cannot start now, so that a flood of such submits does not wake the loop for each. */
    atomic_int waiting[SCHEDULER_SLOT_KINDS];
    /* Slots that a single-rank job [0] and a gang [1] could ever have: scheduler_offered. */
    atomic_int offered[SCHEDULER_SLOT_KINDS][2];
    atomic_int max_jobs;
    atomic_llong beats;           /* grows as the loop goes on */
    atomic_bool rows_need_rescan; /* a job may be stored that the loop does not know: the next tick lists QUEUED rows */
    atomic_bool election_forgotten; /* an executor has obeyed an epoch below this one that the database does not know */
    atomic_llong unknown_epoch; /* the highest epoch at or above this one that an executor has obeyed and the database
                                     * does not know; 0: none */

    /* Only the loop's thread uses these. */
    pthread_t thread;
    bool thread_runs;
    struct store_leader *leader;
    struct scheduler *scheduler;
    struct scheduler_actions actions;
    struct refused_orders refused_orders;
    struct rendezvous *rendezvous;
    struct start_orders start_orders;
    struct starts starts;
    char holder[192];            /* names this process in the leader's row */
    bool more;                   /* more events of this turn follow: jobs start after them (EV_PLACE) */
    int64_t own_epoch, requests; /* make up request ids */
    int64_t skipped_epoch;       /* the epoch in which job ids were last skipped */
    int64_t next_check_ms, next_seen_ms, next_find_ms, next_averages_ms;
    int64_t cannot_lead_since_ms, cannot_lead_line_ms; /* 0 while it can lead; when the next log line is due */
    atomic_llong events, actions_done, busy_ns;
    atomic_llong restarts[RANK_END_CAUSES];
    struct controller_times times; /* any thread reads them */
};

/* ---- leadership.c ---- */

/* Returns true while this controller leads. Takes the lock again after PostgreSQL was unreachable. If another
 * controller has led since, this one is deposed. */
bool leadership_keep(struct controller *c);
/* Takes an epoch above c->unknown_epoch if the database does not know that one. If the database knows it, this
 * controller is deposed. */
void leadership_raise_epoch(struct controller *c);
/* Skips job ids, once in an epoch, after an executor has reported a forgotten election below this epoch. */
void leadership_skip_ids(struct controller *c);
/* Waits until this controller leads, or stops. False: it stops. */
bool leadership_take(struct controller *c);
void leadership_drop(struct controller *c);
bool leadership_over(struct controller *c); /* stopping or deposed */
void leadership_depose(struct controller *c, const char *why);
/* Sleeps for ms, or until the controller stops. */
void leadership_pause(struct controller *c, int64_t ms);

/* ---- secret_orders.c ---- */

/* Reads the secrets of a job's next attempt. ret_refusal: why the job must not start. ret_lacks_key: why this
 * controller cannot start it, but another one perhaps can. "": nothing. */
void secret_orders_read(struct controller *c, int64_t job, struct attempt_secrets *ret, struct err *ret_refusal,
                        struct err *ret_lacks_key);
/* Decrypts the secrets of the order into `start`, for attempt_secrets_wipe. False: the order must not be sent; the
 * reason is logged and in ret_refusal, unless leadership is over. */
bool secret_orders_open(struct controller *c, const struct start_order *order, Trainyard__V1__AttemptStart *start,
                        struct err *ret_refusal);

/* ---- write_retry.c ---- */

/* Evaluates `write`, an expression of a status, until PostgreSQL takes or refuses it, and evaluates to that result:
 *
 *     after = WRITE_REPEATED(c, store_job_move(c->store, c->own_epoch, &move, NULL, &e), &e);
 */
#define WRITE_REPEATED(c, write, e)                                                                                    \
    __extension__({                                                                                                    \
        int tries_ = 0;                                                                                                \
        enum write_result result_;                                                                                     \
        do                                                                                                             \
            result_ = write_retry((c), (write), (e), &tries_);                                                         \
        while (result_ == WRITE_AGAIN);                                                                                \
        result_;                                                                                                       \
    })

/* Decides what follows from the status of a write. Sleeps before it returns WRITE_AGAIN. */
enum write_result {
    WRITE_DONE,
    WRITE_AGAIN,
    WRITE_REFUSED, /* the statement's guard failed, or this controller no longer leads */
};
enum write_result write_retry(struct controller *c, status_t st, const struct err *e, int *tries);

/* ---- actions.c ---- */

/* The id under which a move is stored: the id of the client's request, or a new one if request is NULL or has none.
 * Every try of one move uses the same id. */
struct request_id {
    char text[LOOP_REQUEST_ID_BYTES];
};
struct request_id actions_request_id(struct controller *c, const struct loop_request *request);

/* Tells the executor's agent the stop step of the attempt, if it has one. */
void send_stop_step(struct controller *c, const struct start_order *order, const char *executor);

/* Passes one event to the scheduler and runs the actions that follow, in order. Stops early when leadership is over. */
void actions_run(struct controller *c, const struct scheduler_event *ev);
/* The same for an event that a client requested: the scheduler's reply goes to request. */
void actions_run_request(struct controller *c, const struct scheduler_event *ev, struct loop_request *request);

/* Queues the row of a started rank; writes the queued rows. */
void rank_starts_add(struct controller *c, const struct store_rank_start *start);
void rank_starts_write(struct controller *c);

/* ---- agent_messages.c, attach.c, detach.c: messages from agents and ends of their streams ---- */

void handle_agent_message(struct controller *c, const struct inbox_item *item);

/* The loop handles at most this many items between two looks at the clock, so that a flood does not delay the ticks. */
#define EVENTS_PER_TURN 1024
/* Writes the rows of all hellos among the items, in one transaction, before the items are handled: a thousand executors
 * may attach at once. Sets `stored` of each item whose row is written, and closes the streams of the others. */
void attach_write_rows(struct controller *c, struct inbox_item *const *items, size_t n);
/* Welcomes the executor and passes the attach to the scheduler, if the executor's row is stored. */
void attach_handle_hello(struct controller *c, const struct inbox_item *item);

/* Handles the executors whose streams have ended since the last call. They get no more ranks: the scheduler is notified
 * first, then their rows change. */
void detach_ended_streams(struct controller *c);
/* The same for one executor. */
void detach_executor(struct controller *c, const char *executor, int64_t incarnation);
/* The agent of the executor has said goodbye. drain: its jobs leave with checkpoints. */
void detach_leaving(struct controller *c, const char *executor, int64_t incarnation, bool drain);

/* ---- queues.c ---- */

/* Converts a queue's row for the scheduler. The result borrows the row's strings. */
struct scheduler_queue scheduler_queue_of(const struct store_queue_row *row);
/* Reads the rows of all queues into the new scheduler. */
MUST_CHECK status_t queues_load(struct controller *c, struct err *e);
/* Writes what the queues used until now, from time to time. If a write fails, the next one corrects it. */
void queues_write_averages(struct controller *c);

/* ---- recover.c ---- */

/* Converts the drain mark of an executor's row for the scheduler. The result borrows the row's strings. */
struct scheduler_drain scheduler_drain_of(const struct store_executor *row);
/* Reads the rows of live jobs and executors into a new scheduler. */
MUST_CHECK status_t recover(struct controller *c, struct err *e);

/* ---- loop.c ---- */

void *controller_loop(void *controller);

#endif
