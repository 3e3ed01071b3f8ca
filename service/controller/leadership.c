/* How a controller begins, keeps and ends its leadership. The leader holds a lock of PostgreSQL in a session of its
 * own.
 *
 *   leadership_take   a standby tries to take the lock every LEAD_TRY_MS. With the lock, it reads the election history
 *                     and all live rows (recover), then starts to write under the new epoch (lead_under)
 *   leadership_keep   once per second, and after failed writes: checks that the session is alive. If the session is
 *                     lost, this controller takes the lock again. If no other controller has led since and the database
 *                     has forgotten nothing, it continues under the next epoch with the scheduler it has (lead_on).
 *                     Otherwise it is deposed: the process ends, and a new start reads the rows
 *   leadership_depose ends all writes and closes all streams of agents
 *
 * A database that was restored from a backup has forgotten elections and jobs. leadership_raise_epoch and skip_ids keep
 * new epochs and new job ids above those that executors may still know. */
#include "base/log.h"
#include "service/controller/state.h"

#include <stdio.h>
#include <unistd.h>

/* The interval at which a standby, or a leader that lost its connection, tries to take the lock. */
#define LEAD_TRY_MS 250
/* The longest pause between two tries to read all rows. Pauses grow, because frequent reads of all rows would load a
 * database that is already in trouble. */
#define RECOVER_MAX_PAUSE_MS 5000
/* The interval of log lines while a controller cannot lead. */
#define CANNOT_LEAD_LINE_MS 30000

static void set_lead(struct controller *c, enum controller_lead lead, const char *why) {
    pthread_mutex_lock(&c->lock);
    c->lead = lead;
    c->leads = lead == CONTROLLER_LEADS;
    snprintf(c->cannot_lead.msg, sizeof c->cannot_lead.msg, "%s", why);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (lead != CONTROLLER_CANNOT_LEAD)
        c->cannot_lead_since_ms = 0;
}

/* The log has the full reason. Other readers do not get the reason of a failed connection, because it may name the
 * database's host and user, and any client may ask. */
static void cannot_lead(struct controller *c, status_t st, const struct err *why) {
    int64_t now_ms = clock_mono_ms();
    set_lead(c, CONTROLLER_CANNOT_LEAD, st == ST_UNAVAILABLE ? "its database cannot be reached" : why->msg);
    if (!c->cannot_lead_since_ms)
        c->cannot_lead_since_ms = c->cannot_lead_line_ms = now_ms;
    if (now_ms < c->cannot_lead_line_ms)
        return;
    log_event(LOG_ERROR, "cannot_lead", "reason", LOG_STR(why->msg), "seconds",
              LOG_INT((now_ms - c->cannot_lead_since_ms) / 1000), NULL);
    c->cannot_lead_line_ms = now_ms + CANNOT_LEAD_LINE_MS;
}

static void stand_by(struct controller *c) {
    pthread_mutex_lock(&c->lock);
    bool stands_by = c->lead == CONTROLLER_STANDS_BY;
    pthread_mutex_unlock(&c->lock);
    if (!stands_by)
        log_event(LOG_INFO, "standing_by", "reason", LOG_STR("another controller leads"), NULL);
    set_lead(c, CONTROLLER_STANDS_BY, "");
}

bool leadership_over(struct controller *c) {
    pthread_mutex_lock(&c->lock);
    bool over = c->stopping || c->deposed;
    pthread_mutex_unlock(&c->lock);
    return over;
}

void leadership_depose(struct controller *c, const char *why) {
    log_event(LOG_ERROR, "leadership_lost", "epoch", LOG_INT(c->own_epoch), "reason", LOG_STR(why), NULL);
    set_lead(c, CONTROLLER_STANDS_BY, "");
    pthread_mutex_lock(&c->lock);
    c->deposed = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    ingest_lead(c->ingest, 0); /* stops its writes, which the store would refuse as well */
    checkpoint_gc_lead(c->checkpoint_gc, 0);
    job_gc_lead(c->job_gc, 0);
    code_gc_lead(c->code_gc, 0);
    secret_rotation_lead(c->secret_rotation, 0);
    sweeps_lead(c->sweeps, 0);
    notifier_lead(c->notifier, 0);
    dispatch_close_all(c->dispatch, ST_UNAVAILABLE, "this controller no longer leads");
    job_watchers_notify_all(c->job_watchers);
}

void leadership_pause(struct controller *c, int64_t ms) {
    struct timespec until = deadline_timespec(deadline_in(ms));
    atomic_fetch_add(&c->beats, 1); /* waiting for PostgreSQL or for the lead is no standstill */
    pthread_mutex_lock(&c->lock);
    int rc = 0;
    while (!c->stopping && !c->deposed && rc == 0)
        rc = pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&c->lock);
}

/* Containers may share a host name and a pid, so that the name also contains the time. */
static void holder_name(struct controller *c) {
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    snprintf(c->holder, sizeof c->holder, "%s:%d:%llx", host, (int)getpid(), (unsigned long long)clock_wall_us());
}

static status_t try_once(struct controller *c, struct err *e) {
    if (!c->holder[0])
        holder_name(c);
    return store_leader_try(c->store, c->holder, c->own_epoch, &c->leader, e);
}

static void lead_under(struct controller *c, int64_t epoch) {
    c->own_epoch = epoch;
    dispatch_set_epoch(c->dispatch, epoch, store_leader_nonce(c->leader));
    ingest_lead(c->ingest, epoch);
    checkpoint_gc_lead(c->checkpoint_gc, epoch);
    job_gc_lead(c->job_gc, epoch);
    code_gc_lead(c->code_gc, epoch);
    secret_rotation_lead(c->secret_rotation, epoch);
    notifier_lead(c->notifier, epoch);
    pthread_mutex_lock(&c->lock);
    c->epoch = epoch;
    pthread_mutex_unlock(&c->lock);
    log_event(LOG_INFO, "leading", "epoch", LOG_INT(epoch),
              NULL); /* before set_lead wakes callers that wait for leadership */
    set_lead(c, CONTROLLER_LEADS, "");
    sweeps_lead(c->sweeps, epoch); /* last, because it creates jobs */
}

/* Skips job ids, as far as possible. If that fails, a new job may get an id that an executor knows from a lost job. */
static void skip_ids(struct controller *c, const char *why) {
    struct err e = { "" };
    status_t st = store_leader_skip_ids(c->leader, &e);
    c->skipped_epoch = c->own_epoch;
    log_event(LOG_ERROR, "database_set_back", "epoch", LOG_INT(c->own_epoch), "message", LOG_STR(why), "job_ids",
              LOG_STR(st == ST_OK ? "skipped a million, which forgotten jobs may have" : e.msg), NULL);
}

/* ST_OK without *ret_leads: another controller leads. */
static status_t take_once(struct controller *c, bool *ret_leads, struct err *e) {
    TRY(try_once(c, e));
    *ret_leads = c->leader != NULL;
    if (!*ret_leads)
        return ST_OK;
    c->own_epoch = store_leader_epoch(c->leader);
    if (store_leader_moved(c->leader))
        skip_ids(c, "PostgreSQL's cluster or timeline is another one than at the last election: it was restored from a "
                    "backup, or a standby took over; the events of jobs name what was lost");
    status_t st = election_history_read(c->election_history, c->store, e);
    if (st == ST_OK)
        st = recover(c, e);
    if (st != ST_OK) {
        c->leader = store_leader_close(c->leader);
        return err_prefix(e, st, "what jobs and executors there are could not be read: ");
    }
    lead_under(c, c->own_epoch);
    return ST_OK;
}

bool leadership_take(struct controller *c) {
    int64_t pause_ms = LEAD_TRY_MS;
    while (!leadership_over(c)) {
        struct err e;
        bool leads = false;
        status_t st = take_once(c, &leads, &e);
        if (st == ST_OK && leads)
            return true;
        if (st == ST_OK)
            stand_by(c);
        else if (!leadership_over(c))
            cannot_lead(c, st, &e);
        leadership_pause(c, pause_ms);
        pause_ms = !leads ? LEAD_TRY_MS : 2 * pause_ms < RECOVER_MAX_PAUSE_MS ? 2 * pause_ms : RECOVER_MAX_PAUSE_MS;
    }
    return false;
}

/* Continues as the same leader under another epoch. False: the election history could not be read, and the next
 * leadership_keep tries again. */
static bool lead_on(struct controller *c) {
    struct err e;
    status_t st = election_history_read(c->election_history, c->store, &e);
    c->own_epoch = store_leader_epoch(c->leader);
    if (st != ST_OK) {
        c->leader = store_leader_close(c->leader);
        cannot_lead(c, st, &e);
        return false;
    }
    atomic_store(&c->rows_need_rescan, true); /* a job may have been stored whose handler got no reply */
    lead_under(c, c->own_epoch);
    return true;
}

bool leadership_keep(struct controller *c) {
    struct err e;
    if (c->leader && store_leader_check(c->leader, &e) == ST_OK)
        return true;
    if (c->leader)
        log_event(LOG_WARN, "leader_lock_lost", "reason", LOG_STR(e.msg), NULL);
    bool followed = false;
    if (c->lead == CONTROLLER_LEADS) /* else the reason of the last try stays until this try has failed */
        set_lead(c, CONTROLLER_CANNOT_LEAD, "its session with the database ended, and it opens another one");
    c->leader = store_leader_close(c->leader);
    status_t st = try_once(c, &e);
    /* This controller's old session may still hold the lock, because PostgreSQL has not noticed its end. The leader's
     * row shows whether another controller has led since. */
    if (st == ST_OK && !c->leader)
        st = store_leader_followed(c->store, c->holder, c->own_epoch, &followed, &e);
    if (st == ST_OK && !c->leader && !followed)
        st = err_set(&e, ST_ABORTED, "an earlier session of this controller still holds the leader's lock");
    if (st != ST_OK) {
        cannot_lead(c, st, &e);
        return false;
    }
    if (!c->leader || store_leader_succession(c->leader) != STORE_SUCCESSION_OWN) {
        const bool forgotten = c->leader && store_leader_succession(c->leader) == STORE_SUCCESSION_FORGOTTEN;
        if (forgotten)
            skip_ids(c, "the database has lost transactions that it had confirmed");
        leadership_depose(
            c, forgotten ? "the database has lost transactions that it had confirmed: it was restored from a backup, "
                           "or a standby took over that lacked them; a new start reads its rows again"
                         : "another controller has led meanwhile");
        return false;
    }
    return lead_on(c);
}

void leadership_raise_epoch(struct controller *c) {
    struct err e;
    const int64_t epoch = atomic_exchange(&c->unknown_epoch, 0);
    if (epoch < c->own_epoch || !c->leader)
        return; /* already raised; or no longer leading: the executor reports its epoch to the next leader */
    if (store_leader_raise(c->leader, epoch, &e) != ST_OK) {
        leadership_keep(c);
        return;
    }
    skip_ids(c,
             "an executor has obeyed an epoch that the database does not know: it was restored from a backup, or a "
             "standby took over that lacked it; this controller continues under a higher epoch, and the events of jobs "
             "name what was lost");
    lead_on(c);
}

void leadership_skip_ids(struct controller *c) {
    if (!c->leader || !atomic_exchange(&c->election_forgotten, false) || c->skipped_epoch == c->own_epoch)
        return;
    skip_ids(c,
             "an executor has obeyed an earlier epoch that the database does not know: it was restored from a backup, "
             "or a standby took over that lacked it; the events of jobs name what was lost");
}

void leadership_drop(struct controller *c) {
    set_lead(c, CONTROLLER_STARTS, "");
    c->leader = store_leader_close(c->leader);
}
