/* What the controller's files share. Private. */
#ifndef SERVICE_CONTROLLER_STATE_H
#define SERVICE_CONTROLLER_STATE_H

#include "service/controller/controller.h"
#include "service/controller/inbox.h"
#include "service/controller/launch.h"
#include "service/controller/planner.h"
#include "service/controller/prune.h"
#include "service/controller/rendezvous.h"
#include "service/controller/retire.h"
#include "service/store/executor.h"
#include "service/store/leader.h"

#include <pthread.h>
#include <stdatomic.h>

/* Processes whose rows are still to be written: a start is told at once, its row follows within a tick. */
struct starts {
    struct start {
        int64_t job, pid_start_time;
        int attempt, rank, pid;
    } * items;
    size_t n, cap;
};

struct controller {
    char *database, *checkpoints;
    struct store *store;
    struct wakes *wakes;
    struct dispatch *dispatch;
    struct ingest *ingest;
    struct samples *samples;
    struct progress *progress;
    struct planner *planner;
    struct inbox *inbox;
    struct retire *retire;
    struct prune *prune;

    pthread_mutex_t lock; /* guards what stands up to the empty line */
    pthread_cond_t changed;
    bool leads, deposed, stopping;
    int64_t epoch;
    struct scheduler_counts counts;
    /* The priority of the job behind which nothing of the kind starts, INT_MIN without one: a flood of submits behind
     * it need not wake the loop one by one. */
    atomic_int waiting[SCHEDULER_SLOT_KINDS];
    /* A job may be stored of which the loop was not told: its rows are looked through at a tick. */
    atomic_bool rows_unsure;

    /* The loop's own. */
    pthread_t thread;
    bool thread_runs;
    struct store_leader *leader;
    struct scheduler *scheduler;
    struct scheduler_actions actions;
    struct rendezvous *rendezvous;
    struct launches launches;
    struct starts starts;
    char holder[192];            /* this process, in the leader's row */
    int64_t own_epoch, requests; /* for request ids */
    int64_t next_check_ms, next_heard_ms, next_find_ms;
    atomic_llong events, actions_done, busy_ns;
};

/* lead.c: true while this controller leads. Takes the lock again after PostgreSQL was away; when another one has led
 * meanwhile, this one is deposed. */
bool lead_keep(struct controller *c);
/* Waits until it leads, or the controller stops. */
bool lead_take(struct controller *c);
void lead_drop(struct controller *c);
bool lead_over(struct controller *c); /* stopping or deposed */
void lead_depose(struct controller *c, const char *why);
/* Sleeps, but not past a stop. */
void lead_pause(struct controller *c, int64_t ms);

/* write.c: a mutation, tried until it is done. The call may stand in a loop: it is repeated while PostgreSQL is away.
 */
enum write_after {
    WRITE_DONE,
    WRITE_AGAIN,
    WRITE_REFUSED, /* what the guard protects is no longer so; for a state of a job: deposed */
};
enum write_after write_judge(struct controller *c, status_t st, const struct err *e, int *tries);

/* act.c: under which id a move is stored: the client's (ask may be NULL, or without one), else a new one. One for each
 * move, the same for each try of it. */
struct request_id {
    char text[ASK_REQUEST_BYTES];
};
struct request_id act_request(struct controller *c, const struct ask *ask);

/* act.c: one event for the scheduler, and what follows from it, in order. Stops early when leading is over. */
void act_on(struct controller *c, const struct scheduler_event *ev);
/* The same for a question: its reply goes to ask. */
void act_ask(struct controller *c, const struct scheduler_event *ev, struct ask *ask);

/* tell.c: an agent's message becomes the scheduler's event. */
void tell_agent(struct controller *c, const struct inbox_item *item);

/* Events handled between two looks at the clock; a flood must not starve the ticks. */
#define EVENTS_PER_TURN 1024
/* hello.c, before the items of a turn are handled: writes the rows of all hellos among them, at once, so that a storm
 * of them costs few transactions. One that is refused is told so, and its item stays not `stored`. */
void hello_store(struct controller *c, struct inbox_item *const *items, size_t n);
/* An executor whose row is stored attaches: its welcome; then what the scheduler says. Else nothing happens. */
void hello_tell(struct controller *c, const struct inbox_item *item);

/* hello.c: devices of a message as rows, which borrow from it. */
struct device_rows {
    struct store_device *items;
    size_t n;
};
struct device_rows device_rows_of(Trainyard__V1__Device *const *devices, size_t n);
void device_rows_done(struct device_rows *rows);
bool device_quarantined(const Trainyard__V1__Device *d);
/* Those on CUDA that are quarantined, or are not. */
int devices_cuda(Trainyard__V1__Device *const *devices, size_t n, bool quarantined);
/* tell.c: the scheduler's form of an end. */
struct rank_end rank_end_of(const Trainyard__V1__RankEnd *m);

/* tell.c: writes the rows of started processes. */
void tell_starts(struct controller *c);

/* recover.c: what the scheduler needs of an executor's row, which it borrows from. */
struct scheduler_drain scheduler_drain_of(const struct store_executor *row);
/* recover.c: a new leader reads what there is. */
MUST_CHECK status_t recover(struct controller *c, struct err *e);

/* loop.c: the thread. */
void *controller_loop(void *controller);

#endif
