/* A pass advances each open sweep by what scheduler/sweep.c decides for its rows:
 *
 *   observe       for search.asha: a new result of a trial at a rung is judged (scheduler/sweep_rung.c) and stored
 *   store ends    a trial whose job has ended gets its final state and metric, and counts in the sweep's row
 *   cancel        jobs of a sweep that is CANCELLING, and of trials that a rung has stopped, through the loop
 *   start         further trials: their specs follow from the sweep's spec and the number, and the request id is
 *                 sweep-ID-NUMBER. controller_create stores the job and the trial's row in one transaction
 *   stop          too many trials failed, or a trial cannot be created: the sweep becomes CANCELLING with that reason
 *   end           no trial is unfinished or left
 *
 * An error of one trial does not keep the other trials from being judged, stored, cancelled and started: the pass goes
 * on, and reports the first error at its end. The sweep's pass ends at once if the database, the loop or the lead is
 * gone, because then every trial fails.
 *
 * Each step is a transaction with a guard, so that a crash between two steps, or a lost answer, repeats none: the next
 * pass reads the rows again. After a failure the pass is incomplete, and background_task.c repeats it soon. */
#include "service/controller/sweeps.h"

#include "api/spec/sweep.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/controller/background_task.h"
#include "service/controller/row_state.h"
#include "service/scheduler/sweep.h"
#include "service/scheduler/sweep_rung.h"
#include "service/store/metric.h"
#include "service/store/metric_at.h"
#include "service/store/sweep.h"
#include "service/store/sweep_rung.h"
#include "service/store/sweep_trial.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest interval of log lines about passes that failed. */
#define FAILURE_LINE_MS 30000

struct sweeps {
    struct store *store;
    struct sweeps_jobs jobs;
    struct background_task *background_task;
    atomic_bool active;   /* the last pass found an open sweep, or one is running */
    atomic_bool woken;    /* by sweeps_wake, since the last pass began */
    int64_t passed_epoch; /* of the last pass; only the task's thread uses this and the next member */
    int64_t line_ms;      /* when the next line about a failure is due */
};

/* A sweep during a pass. */
struct sweep_pass {
    const struct sweeps *s;
    int64_t epoch;
    const struct store_sweep *row;
    const Trainyard__V1__SweepSpec *spec;
    struct store_trial *open;
    size_t n_open;
    struct sweep_rung_decision *decisions; /* [n_open] of each trial's last judgement in this pass */
    struct store_memory *memory;           /* of the rows */
};

/* ---- errors ---- */

/* Keeps the first error in *first and e. Returns whether st concerns all trials; then st is the error that is kept. */
static bool keep_error(status_t st, const struct err *why, status_t *first, struct err *e) {
    const bool all = st == ST_UNAVAILABLE || st == ST_DEADLINE_EXCEEDED;
    if (all || (st != ST_OK && *first == ST_OK)) {
        *first = st;
        *e = *why;
    }
    return all;
}

static bool continues(const struct sweep_pass *p) { return background_task_continues(p->s->background_task, p->epoch); }

/* ---- trials ---- */

static enum sweep_trial_state trial_state(const struct store_trial *t) {
    switch (t->state) {
    case STORE_JOB_SUCCEEDED: return SWEEP_TRIAL_SUCCEEDED;
    case STORE_JOB_FAILED: return SWEEP_TRIAL_FAILED;
    case STORE_JOB_CANCELLED: return SWEEP_TRIAL_CANCELLED;
    case STORE_JOB_CANCELLING: return SWEEP_TRIAL_CANCELLING;
    default: break;
    }
    if (!t->state) /* its job was deleted */
        return SWEEP_TRIAL_CANCELLED;
    return *t->stop_reason ? SWEEP_TRIAL_STOPPED : SWEEP_TRIAL_RUNS;
}

/* Stores the result at the trial's next rung, and what follows from it. A trial that has ended is not stopped, but its
 * results count for others. */
static status_t judge(const struct sweep_pass *p, struct store_trial *t, int64_t step, double metric, struct err *e) {
    const double score = sweep_score(metric, sweep_maximizes(p->spec));
    double *scores;
    size_t n;
    TRY(store_rung_scores(p->s->store, p->memory, p->row->id, t->rungs + 1, &scores, &n, e));
    struct sweep_rung_decision *v = &p->decisions[t - p->open];
    *v = sweep_rung_judge(scores, n, score, step, p->spec->search->asha->eta);
    const char *reason = trial_state(t) == SWEEP_TRIAL_RUNS ? v->reason : "";
    const struct store_rung_result result = {
        .trial = t->number, .rung = t->rungs + 1, .step = step, .score = score, .stop_reason = reason
    };
    TRY(store_rung_write(p->s->store, p->epoch, p->row->id, &result, e));
    t->rungs++;
    t->stop_reason = reason;
    if (*reason)
        log_event(LOG_INFO, "trial_stopped", "sweep", LOG_STR(p->row->name), "trial", LOG_INT(t->number), "job",
                  LOG_INT(t->job), "reason", LOG_STR(reason), NULL);
    return ST_OK;
}

/* Judges the rungs that the trial has reached since the last pass. */
static status_t observe_trial(const struct sweep_pass *p, struct store_trial *t, struct err *e) {
    const Trainyard__V1__AshaSearch *asha = p->spec->search->asha;
    int64_t steps[SWEEP_MAX_RUNGS];
    const int n = sweep_rung_steps(asha->min_steps, asha->max_steps, asha->eta, steps);
    while (t->job && t->rungs < n && !*t->stop_reason && t->step >= steps[t->rungs]) {
        bool found;
        int64_t step;
        double metric;
        status_t st = store_metric_at(p->s->store, t->job, p->spec->metric, steps[t->rungs], &found, &step, &metric, e);
        if (st == ST_NOT_FOUND || (st == ST_OK && !found)) /* the job was deleted, or has not reported the metric */
            return ST_OK;
        TRY(st);
        TRY(judge(p, t, step, metric, e));
    }
    return ST_OK;
}

static status_t observe(const struct sweep_pass *p, struct err *e) {
    struct err why = { "" };
    status_t first = ST_OK;
    if (p->spec->search->kind_case != TRAINYARD__V1__SEARCH_SPEC__KIND_ASHA)
        return ST_OK;
    for (size_t i = 0; i < p->n_open && continues(p); i++)
        if (keep_error(observe_trial(p, &p->open[i], &why), &why, &first, e))
            break;
    return first;
}

static status_t store_end(const struct sweep_pass *p, const struct store_trial *t, struct err *e) {
    struct store_trial end = *t;
    const char *metric = p->spec->metric;
    end.metric = NAN;
    if (t->job)
        TRY(store_metric_last(p->s->store, t->job, &metric, 1, &end.metric, e));
    end.has_metric = !isnan(end.metric);
    if (!row_state_final(end.state)) {
        end.state = STORE_JOB_CANCELLED;
        end.reason = "the job was deleted";
    }
    return store_trial_end(p->s->store, p->epoch, p->row->id, &end, e);
}

static status_t cancel(const struct sweep_pass *p, const struct store_trial *t, struct err *e) {
    char why[STORE_SWEEP_REASON_BYTES + 40];
    if (*t->stop_reason)
        snprintf(why, sizeof why, "%s", t->stop_reason);
    else if (*p->row->reason)
        snprintf(why, sizeof why, "its sweep is cancelled: %s", p->row->reason);
    else
        snprintf(why, sizeof why, "its sweep was cancelled");
    return p->s->jobs.cancel(p->s->jobs.ctx, t->job, why, e);
}

static status_t act(const struct sweep_pass *p, enum sweep_trial_action action, const struct store_trial *t,
                    struct err *e) {
    switch (action) {
    case SWEEP_TRIAL_KEEP: break;
    case SWEEP_TRIAL_STORE_END: return store_end(p, t, e);
    case SWEEP_TRIAL_CANCEL: return cancel(p, t, e);
    }
    return ST_OK;
}

static status_t act_on_trials(const struct sweep_pass *p, const enum sweep_trial_action *actions, struct err *e) {
    struct err why = { "" };
    status_t first = ST_OK;
    for (size_t i = 0; i < p->n_open && continues(p); i++)
        if (keep_error(act(p, actions[i], &p->open[i], &why), &why, &first, e))
            break;
    return first;
}

static status_t start(const struct sweep_pass *p, int number, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *given = NULL;
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    char request_id[64];
    TRY(sweep_trial_spec(p->spec, number, &given, e));
    TRY(spec_resolve(given, &spec, NULL, e));
    snprintf(request_id, sizeof request_id, "sweep-%lld-%d", (long long)p->row->id, number);
    struct job_creation creation = { .request_id = request_id,
                                     .user = p->row->user,
                                     .spec = spec,
                                     .sweep = p->row->id,
                                     .trial = number,
                                     .origin.weights_only = true };
    if (spec->train && !spec_checkpoint_name(spec->train->init_from, &creation.origin.job, &creation.origin.checkpoint))
        creation.origin.checkpoint = 0;
    int64_t job;
    TRY(p->s->jobs.create(p->s->jobs.ctx, &creation, &job, e));
    log_event(LOG_INFO, "trial_created", "sweep", LOG_STR(p->row->name), "trial", LOG_INT(number), "job", LOG_INT(job),
              NULL);
    return ST_OK;
}

/* ---- a sweep ---- */

static status_t stop(const struct sweep_pass *p, const char *reason, struct err *e) {
    log_event(LOG_INFO, "sweep_stopped", "sweep", LOG_STR(p->row->name), "reason", LOG_STR(reason), NULL);
    return store_sweep_stop(p->s->store, p->epoch, p->row->id, reason, e);
}

/* The spec was checked when the sweep was created. If a trial is refused now, the world has changed: the checkpoint
 * that it begins with or the archive of its code is gone. */
static status_t start_trials(const struct sweep_pass *p, int n, struct err *e) {
    for (int number = p->row->created + 1; number <= p->row->created + n; number++) {
        struct err why = { "" };
        if (!continues(p))
            return ST_OK;
        status_t st = start(p, number, &why);
        char reason[STORE_SWEEP_REASON_BYTES];
        snprintf(reason, sizeof reason, "trial %d cannot be created: %.400s", number, why.msg);
        if (st == ST_INVALID_ARGUMENT || st == ST_FAILED_PRECONDITION || st == ST_NOT_FOUND)
            return stop(p, reason, e);
        if (st != ST_OK)
            return err_set(e, st, "%s", reason);
    }
    return ST_OK;
}

static status_t end(const struct sweep_pass *p, const struct sweep_decision *d, struct err *e) {
    const enum store_sweep_state to = d->end == SWEEP_END_SUCCEEDED ? STORE_SWEEP_SUCCEEDED
                                      : d->end == SWEEP_END_FAILED  ? STORE_SWEEP_FAILED
                                                                    : STORE_SWEEP_CANCELLED;
    const char *reason = *p->row->reason ? p->row->reason : d->reason;
    TRY(store_sweep_end(p->s->store, p->epoch, p->row->id, p->row->state, to, reason, e));
    log_event(LOG_INFO, "sweep_ended", "sweep", LOG_STR(p->row->name), "state", LOG_STR(store_sweep_state_name(to)),
              "reason", LOG_STR(reason), NULL);
    return ST_OK;
}

static status_t carry_out(const struct sweep_pass *p, struct err *e) {
    CLEANUP(freep) enum sweep_trial_state *states = alloc_zeroed(p->n_open, sizeof *states);
    CLEANUP(freep) enum sweep_trial_action *actions = alloc_zeroed(p->n_open, sizeof *actions);
    for (size_t i = 0; i < p->n_open; i++)
        states[i] = trial_state(&p->open[i]);
    const struct sweep_state state = { .cancelling = p->row->state == STORE_SWEEP_CANCELLING,
                                       .stopped = *p->row->reason != '\0',
                                       .trials = p->row->trials,
                                       .created = p->row->created,
                                       .succeeded = p->row->succeeded,
                                       .failed = p->row->failed,
                                       .max_parallel = p->spec->max_parallel,
                                       .max_failures = p->spec->max_failures,
                                       .open = states,
                                       .n_open = p->n_open };
    struct sweep_decision d;
    sweep_decide(&state, actions, &d);
    struct err why = { "" };
    status_t first = ST_OK;
    if (keep_error(act_on_trials(p, actions, &why), &why, &first, e) || !continues(p))
        return first;
    keep_error(d.stop ? stop(p, d.reason, &why) : start_trials(p, d.start, &why), &why, &first, e);
    if (first != ST_OK || d.end == SWEEP_GOES_ON)
        return first;
    return end(p, &d, e); /* the ends of all trials are stored */
}

static status_t advance(const struct sweeps *s, int64_t epoch, const struct store_sweep *row, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(sweep_freep)
    Trainyard__V1__SweepSpec *spec = trainyard__v1__sweep_spec__unpack(NULL, row->spec_bytes, row->spec);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "its stored spec cannot be read");
    CLEANUP(freep) struct sweep_rung_decision *decisions = NULL;
    struct sweep_pass p = { .s = s, .epoch = epoch, .row = row, .spec = spec, .memory = m };
    TRY(store_trial_open(s->store, m, row->id, &p.open, &p.n_open, e));
    p.decisions = decisions = alloc_zeroed(p.n_open, sizeof *decisions);
    struct err why = { "" };
    status_t first = ST_OK;
    if (!keep_error(observe(&p, &why), &why, &first, e))
        keep_error(carry_out(&p, &why), &why, &first, e);
    return first;
}

/* ---- a pass ---- */

/* While the database is unreachable, each pass fails in the same way. */
static void log_failure(struct sweeps *s, const char *sweep, const struct err *why) {
    if (clock_mono_ms() < s->line_ms)
        return;
    s->line_ms = clock_mono_ms() + FAILURE_LINE_MS;
    log_event(LOG_WARN, "sweep_not_advanced", "sweep", LOG_STR(sweep), "reason", LOG_STR(why->msg), NULL);
}

static bool run_pass(struct background_task *task, void *ctx, int64_t epoch, bool all) {
    struct sweeps *s = ctx;
    bool done = true, any = false;
    const bool woken = atomic_exchange(&s->woken, false);
    if (all && s->passed_epoch == epoch && !woken && !atomic_load(&s->active))
        return true;
    atomic_store(&s->active, true); /* a job that ends during the pass wakes the task */
    for (int64_t after = 0; background_task_continues(task, epoch);) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_sweep row;
        struct err e = { "" };
        if (store_sweep_open_next(s->store, m, after, &row, &e) != ST_OK) {
            log_failure(s, "", &e);
            return false;
        }
        if (!row.id)
            break;
        any = true;
        after = row.id;
        if (advance(s, epoch, &row, &e) != ST_OK) {
            log_failure(s, row.name, &e);
            done = false;
        }
    }
    atomic_store(&s->active, any);
    s->passed_epoch = epoch;
    return done;
}

status_t sweeps_open(struct store *store, const struct sweeps_jobs *jobs, struct sweeps **ret, struct err *e) {
    CLEANUP(sweeps_closep) struct sweeps *s = alloc_zeroed(1, sizeof *s);
    s->store = store;
    s->jobs = *jobs;
    TRY(background_task_open("sweeps", SWEEPS_PERIOD_MS, run_pass, s, &s->background_task, e));
    *ret = take_ptr(&s);
    return ST_OK;
}

struct sweeps *sweeps_close(struct sweeps *s) {
    if (!s)
        return NULL;
    background_task_close(s->background_task);
    free(s);
    return NULL;
}

void sweeps_lead(struct sweeps *s, int64_t epoch) { background_task_lead(s->background_task, epoch); }

void sweeps_wake(struct sweeps *s) {
    atomic_store(&s->woken, true);
    background_task_wake(s->background_task);
}

void sweeps_job_ended(struct sweeps *s) {
    if (atomic_load(&s->active))
        sweeps_wake(s);
}
