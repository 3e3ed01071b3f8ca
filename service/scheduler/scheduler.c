#include "base/limits.h"
#include "service/scheduler/state.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>

struct scheduler *scheduler_new(int64_t now_ms) {
    struct scheduler *s = calloc(1, sizeof *s);
    if (s)
        s->last_tick_ms = now_ms;
    return s;
}

static void free_job(void *job) { job_free(job); }

struct scheduler *scheduler_free(struct scheduler *s) {
    if (!s)
        return NULL;
    tdestroy(s->jobs, free_job);
    for (int i = 0; i < s->n_all; i++)
        free(s->all[i]->held);
    tdestroy(s->executors, free);
    free(s->all);
    free(s->queue);
    free(s);
    return NULL;
}

static enum attempt_ending ending_of(enum job_state state) {
    switch (state) {
    case JOB_STATE_RESTARTING:
    case JOB_STATE_CANCELLING: return ATTEMPT_STOPS;
    case JOB_STATE_PREEMPTING:
    case JOB_STATE_PAUSING: return ATTEMPT_CHECKPOINTS;
    default: return ATTEMPT_GOES_ON;
    }
}

static status_t load_attempt(struct scheduler *s, struct job *job, const struct scheduler_job_row *row, int64_t now_ms,
                             struct err *e) {
    CLEANUP(attempt_freep) struct attempt *a = NULL;
    TRY(attempt_new(row->attempt, row->world_size, &a, e));
    for (int r = 0; r < row->world_size; r++) {
        TRY(executor_add(s, row->placement[r], now_ms, &a->ranks[r].executor, e));
        a->ranks[r].executor->lost = false; /* its lease is judged, whatever its row says */
        a->ranks[r].started = row->started && row->started[r];
    }
    a->final_committed = row->final_committed;
    a->committed_step = row->committed_step;
    a->ending = ending_of(row->state);
    a->all_joined = a->all_started = row->state == JOB_STATE_RUNNING;
    a->start_deadline_ms = now_ms + SCHEDULER_START_TIMEOUT_MS;
    attempt_begin(s, job, take_ptr(&a));
    return ST_OK;
}

status_t scheduler_load(struct scheduler *s, const struct scheduler_job_row *row, int64_t now_ms, struct err *e) {
    struct job *job;
    TRY(job_add(s, row, &job, e));
    if (row->state == JOB_STATE_QUEUED) {
        queue_insert(s, job);
        return ST_OK;
    }
    job_activate(s, job, row->state != JOB_STATE_PAUSED);
    if (row->placement)
        return load_attempt(s, job, row, now_ms, e);
    job->not_before_ms = now_ms;
    job->finished = row->final_committed;
    return ST_OK;
}

status_t scheduler_load_executor(struct scheduler *s, const char *id, bool attached,
                                 const struct scheduler_drain *drain, int64_t now_ms, struct err *e) {
    struct executor *ex;
    TRY(executor_add(s, id, now_ms, &ex, e));
    ex->lost = !attached;
    if (drain)
        executor_mark(ex, drain);
    s->drain_due |= ex->drained_now;
    return ST_OK;
}

/* The job, when the event is of its current attempt and that may still run. */
static struct job *current(const struct scheduler *s, const struct scheduler_event *ev) {
    struct job *job = job_find(s, ev->job);
    return job && job->attempt && job->attempt->number == ev->attempt ? job : NULL;
}

static struct rank *current_rank(const struct job *job, int rank) {
    return job && rank >= 0 && rank < job->attempt->n_ranks ? &job->attempt->ranks[rank] : NULL;
}

static void on_rank(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                    struct scheduler_actions *out) {
    struct job *job = current(s, ev);
    struct rank *rank = current_rank(job, ev->rank);
    if (!rank)
        return;
    switch (ev->kind) {
    case EV_RANK_STARTED:
        rank->started = true;
        attempt_started(job, out);
        return;
    case EV_RANK_OFFERED:
        rank->started = rank->offered = true;
        attempt_started(job, out);
        attempt_gather(s, job, out);
        return;
    case EV_RANK_JOINED:
        rank->started = rank->joined = true;
        attempt_gather(s, job, out);
        return;
    case EV_RANK_STORED:
        if (rank->ended && ev->sequence >= rank->end.last_sequence) {
            rank->stored = true;
            attempt_try_close(s, job, now_ms, out);
        }
        return;
    default: return;
    }
}

static void on_part_ended(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                          struct scheduler_actions *out) {
    struct executor *ex = executor_find(s, ev->executor);
    if (!ex)
        return;
    struct job *job = current(s, ev);
    struct part *part = job ? attempt_part(job->attempt, ex) : NULL;
    if (part && !part->lost) {
        attempt_part_ended(s, job, part, ev->ends, ev->n_ends, out);
        attempt_try_close(s, job, now_ms, out);
        return;
    }
    executor_release(ex, ev->job, ev->attempt);
    s->dirty = true;
    action_send(out, ACT_SEND_ACKNOWLEDGE, &(struct job){ .id = ev->job, .number = ev->attempt }, ex);
}

static void on_rank_ended(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out) {
    struct job *job = current(s, ev);
    struct executor *ex = executor_find(s, ev->executor);
    struct part *part = job && ex ? attempt_part(job->attempt, ex) : NULL;
    for (int i = 0; part && !part->over && i < ev->n_ends; i++) {
        const struct rank *rank = current_rank(job, ev->ends[i].rank);
        if (rank && rank->executor == ex)
            attempt_rank_ended(s, job, &ev->ends[i], out);
    }
}

static void on_committed(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                         struct scheduler_actions *out) {
    struct job *job = current(s, ev);
    if (!job)
        return;
    if (ev->step > job->attempt->committed_step)
        job->attempt->committed_step = ev->step;
    for (int p = 0; p < job->attempt->n_parts; p++) {
        const struct part *part = &job->attempt->parts[p];
        if (part->over)
            continue;
        action_send(out, ACT_SEND_COMMITTED, job, part->executor);
        out->items[out->n - 1].step = ev->step;
    }
    job->failures = 0;
    job->attempt->final_committed |= ev->final;
    attempt_try_close(s, job, now_ms, out);
}

/* The last leader died between an attempt's end and the move that follows from it: two transactions. A failure is not
 * counted: which one it was is no longer known, and one that is fatal comes again. */
static void settle_closed(struct scheduler *s, struct job *job, struct scheduler_actions *out) {
    static const char died[] = "the controller died while the attempt ended";
    if (job->finished &&
        (job->state == JOB_STATE_RUNNING || job->state == JOB_STATE_PREEMPTING || job->state == JOB_STATE_PAUSING))
        job_move(s, job, JOB_STATE_SUCCEEDED, JOB_CAUSE_DONE, "", out);
    else if (job->state == JOB_STATE_PREEMPTING)
        job_requeue(s, job, died, out);
    else if (job->state == JOB_STATE_PAUSING)
        job_move(s, job, JOB_STATE_PAUSED, JOB_CAUSE_STOPPED, "paused by its user", out);
    else if (job->state == JOB_STATE_CANCELLING)
        job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_STOPPED, "cancelled by its user", out);
    else if (job->state == JOB_STATE_STARTING || job->state == JOB_STATE_RUNNING)
        job_move(s, job, JOB_STATE_RESTARTING, JOB_CAUSE_ATTEMPT_FAILED, died, out);
}

static void on_tick(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    executor_judge_leases(s, now_ms, out);
    executor_drain_loaded(s, out);
    for (struct job *job = s->active, *next; job; job = next) {
        next = job->next;
        if (!job->attempt) {
            if (job->state != JOB_STATE_RESTARTING) {
                settle_closed(s, job, out);
            } else if (!job->in_queue && now_ms >= job->not_before_ms) {
                queue_insert(s, job);
                s->dirty = true; /* it is placed now, or becomes QUEUED */
            }
            continue;
        }
        struct attempt *a = job->attempt;
        if (job->state == JOB_STATE_STARTING && now_ms >= a->start_deadline_ms) {
            struct rank_end end = { .cause = RANK_END_INTERNAL };
            for (int r = 0; r < a->n_ranks; r++)
                if (!a->ranks[r].joined) {
                    end.rank = r;
                    break;
                }
            snprintf(end.message, sizeof end.message, "did not join within %d s", SCHEDULER_START_TIMEOUT_MS / 1000);
            attempt_fail(s, job, &end, out);
        }
    }
}

static void on_heard(struct scheduler *s, const struct scheduler_event *ev) {
    struct executor *ex = executor_find(s, ev->executor);
    if (ex && ex->lease_until_ms < ev->heard_ms + LEASE_TTL_MS)
        ex->lease_until_ms = ev->heard_ms + LEASE_TTL_MS;
}

status_t scheduler_step(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                        struct scheduler_actions *ret, struct err *e) {
    struct executor *ex;
    if (ev->kind == EV_EXECUTOR_HEARD) {
        on_heard(s, ev);
        return ST_OK;
    }
    TRY(actions_reserve(ret, actions_most(s, ev), e));
    switch (ev->kind) {
    case EV_TICK: on_tick(s, now_ms, ret); break;
    case EV_JOB_SUBMITTED: TRY(job_submit(s, ev, e)); break;
    case EV_JOB_CANCEL: job_cancel(s, ev, now_ms, ret); break;
    case EV_JOB_PAUSE: job_pause(s, ev, now_ms, ret); break;
    case EV_JOB_RESUME: job_resume(s, ev, ret); break;
    case EV_JOB_RETRY: TRY(job_retry(s, ev, ret, e)); break;
    case EV_EXECUTOR_ATTACHED: TRY(executor_attach(s, ev, now_ms, ret, e)); break;
    case EV_EXECUTOR_DEVICES:
        ex = executor_find(s, ev->executor);
        if (ex && ev->attach.incarnation >= ex->incarnation) { /* an older start's word comes too late */
            ex->slots[SCHEDULER_SLOT_CUDA] = ev->attach.slots[SCHEDULER_SLOT_CUDA];
            ex->quarantined = ev->attach.quarantined;
            queue_tell_again(s);
        }
        break;
    case EV_EXECUTOR_DRAIN: TRY(executor_drain(s, ev, now_ms, ret, e)); break;
    case EV_RANK_ENDED: on_rank_ended(s, ev, ret); break;
    case EV_PART_ENDED: on_part_ended(s, ev, now_ms, ret); break;
    case EV_COMMITTED: on_committed(s, ev, now_ms, ret); break;
    default: on_rank(s, ev, now_ms, ret); break;
    }
    if (s->dirty)
        queue_place(s, now_ms, ret);
    return ST_OK;
}
