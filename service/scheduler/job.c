/* Jobs: adding, moving and forgetting them, and the requests of users except pause and resume (pause.c).
 *
 * A job is in the tree `jobs` from its submit to its end. It is also in the queue while it waits for slots, and in the
 * list of active jobs in every state but QUEUED and PAUSED. A tick walks a part of the active jobs, the timed ones, so
 * that neither a long queue nor running jobs cost anything there.
 *
 * job_move is the only function that changes a state, except the start of an attempt in queue.c. It asserts that
 * job_state.c allows the edge, and adds the action that stores the move. A job in a final state is forgotten. */
#include "base/alloc.h"
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

struct job *job_add(struct scheduler *s, const struct scheduler_job_row *row) {
    struct job *job = alloc_zeroed(1, sizeof *job);
    *job = (struct job){ .id = row->job,
                         .state = row->state,
                         .given_priority = row->priority,
                         .world_size = row->world_size,
                         .max_world_size = row->max_world_size > row->world_size ? row->max_world_size
                                                                                 : row->world_size,
                         .stops_at_step = row->stops_at_step,
                         .ranks = row->ranks,
                         .slot = row->slot,
                         .needs = row->needs,
                         .max_restarts = row->max_restarts,
                         .no_final_checkpoint = row->no_final_checkpoint,
                         .restarts = row->restarts,
                         .number = row->attempt };
    alloc_tree_node(job, &s->jobs, array_by_int64);
    s->n_jobs++;
    queue_join(s, job, row->queue, row->user);
    job->priority = queue_priority(job->queue, job->given_priority);
    return job;
}

void job_free(struct job *job) {
    attempt_free(job->attempt);
    free(job->avoided);
    free(job->why);
    free(job);
}

void job_activate(struct scheduler *s, struct job *job, bool active) {
    if (job->active == active)
        return;
    job->active = active;
    if (active) {
        job->prev = NULL;
        job->next = s->active;
        if (s->active)
            s->active->prev = job;
        s->active = job;
        job_time(s, job);
        return;
    }
    job_untime(s, job);
    if (job->next)
        job->next->prev = job->prev;
    if (job->prev)
        job->prev->next = job->next;
    else
        s->active = job->next;
    job->next = job->prev = NULL;
}

void job_time(struct scheduler *s, struct job *job) {
    if (job->timed || !job->active)
        return;
    job->timed = true;
    job->prev_timed = NULL;
    job->next_timed = s->timed;
    if (s->timed)
        s->timed->prev_timed = job;
    s->timed = job;
}

void job_untime(struct scheduler *s, struct job *job) {
    if (!job->timed)
        return;
    job->timed = false;
    if (job->next_timed)
        job->next_timed->prev_timed = job->prev_timed;
    if (job->prev_timed)
        job->prev_timed->next_timed = job->next_timed;
    else
        s->timed = job->next_timed;
}

static void forget(struct scheduler *s, struct job *job, struct scheduler_actions *out) {
    action_add(out, ACT_FORGET, job);
    queue_remove(s, job);
    job_activate(s, job, false);
    tdelete(job, &s->jobs, array_by_int64);
    s->n_jobs--;
    queue_leave(s, job);
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

void job_submit(struct scheduler *s, const struct scheduler_event *ev) {
    if (!job_find(s, ev->row->job)) /* else submitted twice: by its handler and by a scan of the rows */
        queue_insert(s, job_add(s, ev->row));
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
    const bool given = ev->reason && *ev->reason;
    if (job->state == JOB_STATE_QUEUED) {
        job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_CANCEL_ASKED,
                 given ? ev->reason : "cancelled while it was queued", out);
    } else {
        queue_remove(s, job);
        job_move(s, job, JOB_STATE_CANCELLING, JOB_CAUSE_CANCEL_ASKED, given ? ev->reason : "cancelled by its user",
                 out);
        if (job->attempt) {
            attempt_release(s, job);
            attempt_stop(job, "the job is cancelled", out);
            attempt_try_close(s, job, now_ms, out);
        } else {
            job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_STOPPED, "", out);
        }
    }
    action_reply(out, ev->token);
}

/* A STARTING job is preempted with a checkpoint too, because it may have trained for long while no controller was
 * running. Ranks that have not all joined write no checkpoint and end as soon as they get the order. */
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

void job_retry(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out) {
    if (job_find(s, ev->row->job) || ev->row->state != JOB_STATE_FAILED) {
        action_refuse(out, ev->token, "JOB_NOT_FAILED", "job %lld is not FAILED: only a failed job is retried",
                      (long long)ev->row->job);
        return;
    }
    struct job *job = job_add(s, ev->row);
    job->restarts = 0;
    job_move(s, job, JOB_STATE_QUEUED, JOB_CAUSE_RETRY_ASKED, "retried by its user", out);
    queue_insert(s, job);
    action_reply(out, ev->token);
}
