#include "base/array.h"
#include "service/scheduler/state.h"

#include <assert.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

struct job *job_find(const struct scheduler *s, int64_t id) {
    void *const *node = tfind(&id, &s->jobs, array_by_int64);
    return node ? *node : NULL;
}

static struct job *job_of(struct job *job, const struct scheduler_job_row *row) {
    *job = (struct job){ .id = row->job,
                         .state = row->state,
                         .priority = row->priority,
                         .world_size = row->world_size,
                         .slot = row->slot,
                         .max_restarts = row->max_restarts,
                         .restarts = row->restarts,
                         .number = row->attempt };
    return job;
}

status_t job_add(struct scheduler *s, const struct scheduler_job_row *row, struct job **ret, struct err *e) {
    TRY(array_grow(&s->queue, s->n_jobs, e));
    struct job *job = malloc(sizeof *job);
    if (!job || !tsearch(job_of(job, row), &s->jobs, array_by_int64)) {
        free(job);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for job %lld", (long long)row->job);
    }
    s->n_jobs++;
    *ret = job;
    return ST_OK;
}

void job_free(struct job *job) {
    attempt_free(job->attempt);
    free(job);
}

void job_activate(struct scheduler *s, struct job *job, bool active) {
    if (job->active == active)
        return;
    job->active = active;
    if (active) {
        s->n_active++;
        job->prev = NULL;
        job->next = s->active;
        if (s->active)
            s->active->prev = job;
        s->active = job;
        return;
    }
    s->n_active--;
    if (job->next)
        job->next->prev = job->prev;
    if (job->prev)
        job->prev->next = job->next;
    else
        s->active = job->next;
    job->next = job->prev = NULL;
}

static void forget(struct scheduler *s, struct job *job, struct scheduler_actions *out) {
    action_add(out, ACT_FORGET, job);
    queue_remove(s, job);
    job_activate(s, job, false);
    tdelete(job, &s->jobs, array_by_int64);
    s->n_jobs--;
    job_free(job);
}

void job_move(struct scheduler *s, struct job *job, enum job_state to, enum job_cause cause, const char *reason,
              struct scheduler_actions *out) {
    assert(job_state_edge(job->state, to, cause));
    struct scheduler_action *a = action_add(out, ACT_JOB_STATE, job);
    a->from = job->state;
    a->to = to;
    a->cause = cause;
    snprintf(a->text, sizeof a->text, "%s", reason);
    job->state = to;
    if (job_state_final(to)) {
        assert(!job->attempt);
        forget(s, job, out);
        return;
    }
    job_activate(s, job, to != JOB_STATE_QUEUED && to != JOB_STATE_PAUSED);
}

status_t job_submit(struct scheduler *s, const struct scheduler_event *ev, struct err *e) {
    struct job *job;
    if (job_find(s, ev->row->job)) /* told twice: by its handler and by a scan of the rows */
        return ST_OK;
    TRY(job_add(s, ev->row, &job, e));
    queue_insert(s, job);
    return ST_OK;
}

void job_cancel(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms, struct scheduler_actions *out) {
    struct job *job = job_find(s, ev->job);
    if (!job) {
        action_refuse(out, ev->token, "JOB_ENDED", "job %lld has already ended", (long long)ev->job);
        return;
    }
    if (job->state == JOB_STATE_CANCELLING) {
        action_refuse(out, ev->token, "JOB_NOT_CANCELLABLE", "job %lld is already being cancelled", (long long)ev->job);
        return;
    }
    if (job->state == JOB_STATE_QUEUED) {
        job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_CANCEL_ASKED, "cancelled while it was queued", out);
    } else {
        queue_remove(s, job);
        job_move(s, job, JOB_STATE_CANCELLING, JOB_CAUSE_CANCEL_ASKED, "cancelled by its user", out);
        if (job->attempt) {
            attempt_stop(job, "the job is cancelled", out);
            attempt_try_close(s, job, now_ms, out);
        } else {
            job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_STOPPED, "cancelled by its user", out);
        }
    }
    action_reply(out, ev->token);
}

/* One that is STARTING may have trained for long all the same, while no controller was there to hear of it; ranks that
 * have not all joined write nothing, and end as soon as they are told. */
void job_preempt(struct scheduler *s, struct job *job, const char *why, struct scheduler_actions *out) {
    if (!job->attempt || job->attempt->ending || (job->state != JOB_STATE_RUNNING && job->state != JOB_STATE_STARTING))
        return;
    job_move(s, job, JOB_STATE_PREEMPTING, JOB_CAUSE_PREEMPTED, why, out);
    attempt_checkpoint(job, why, out);
}

void job_requeue(struct scheduler *s, struct job *job, const char *why, struct scheduler_actions *out) {
    job_move(s, job, JOB_STATE_QUEUED, JOB_CAUSE_STOPPED, why, out);
    queue_insert(s, job);
}

status_t job_retry(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out,
                   struct err *e) {
    if (job_find(s, ev->row->job) || ev->row->state != JOB_STATE_FAILED) {
        action_refuse(out, ev->token, "JOB_NOT_FAILED", "job %lld is not FAILED: only a failed job is retried",
                      (long long)ev->row->job);
        return ST_OK;
    }
    struct job *job;
    TRY(job_add(s, ev->row, &job, e));
    job->restarts = 0;
    job_move(s, job, JOB_STATE_QUEUED, JOB_CAUSE_RETRY_ASKED, "retried by its user", out);
    queue_insert(s, job);
    action_reply(out, ev->token);
    return ST_OK;
}
