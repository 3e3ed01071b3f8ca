/* Pausing and resuming a job for its user. */
#include "service/scheduler/state.h"

#include <stdio.h>

static bool refuse_pause(const struct job *job, const struct scheduler_event *ev, struct scheduler_actions *out) {
    const long long id = (long long)ev->job;
    if (!job)
        action_refuse(out, ev->token, "JOB_ENDED", "job %lld has already ended", id);
    else if (job->state == JOB_STATE_PAUSED)
        action_refuse(out, ev->token, "JOB_NOT_PAUSABLE", "job %lld is already paused", id);
    else if (job->state == JOB_STATE_PAUSING)
        action_refuse(out, ev->token, "JOB_NOT_PAUSABLE", "job %lld is already being paused", id);
    else if (job->state == JOB_STATE_CANCELLING)
        action_refuse(out, ev->token, "JOB_NOT_PAUSABLE", "job %lld is being cancelled", id);
    else
        return false;
    return true;
}

void job_pause(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms, struct scheduler_actions *out) {
    struct job *job = job_find(s, ev->job);
    if (refuse_pause(job, ev, out))
        return;
    queue_remove(s, job);
    if (job->attempt) {
        job_move(s, job, JOB_STATE_PAUSING, JOB_CAUSE_PAUSE_ASKED,
                 job->no_final_checkpoint ? "its ranks are asked to end" : "its ranks write a checkpoint and end", out);
        attempt_release(s, job);
        attempt_checkpoint(job, "the job is paused", out);
        attempt_try_close(s, job, now_ms, out);
    } else {
        job_move(s, job, JOB_STATE_PAUSED, JOB_CAUSE_PAUSE_ASKED, "paused by its user while it waited", out);
    }
    action_reply(out, ev->token);
}

void job_resume(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out) {
    struct job *job = job_find(s, ev->job);
    if (!job) {
        action_refuse(out, ev->token, "JOB_ENDED", "job %lld has already ended", (long long)ev->job);
        return;
    }
    if (job->state == JOB_STATE_PAUSING) {
        action_refuse(out, ev->token, "JOB_NOT_PAUSED", "job %lld is still being paused: resume it when it is PAUSED",
                      (long long)ev->job);
        return;
    }
    if (job->state != JOB_STATE_PAUSED) {
        action_refuse(out, ev->token, "JOB_NOT_PAUSED", "job %lld is %s: only a PAUSED job is resumed",
                      (long long)ev->job, job_state_name(job->state));
        return;
    }
    job_move(s, job, JOB_STATE_QUEUED, JOB_CAUSE_RESUME_ASKED, "resumed by its user", out);
    queue_insert(s, job);
    action_reply(out, ev->token);
}

/* A program writes checkpoints when it likes, and its metrics name its steps. -1: no checkpoint of this attempt. */
static void describe_program(const struct attempt *a, int64_t done, char *ret, size_t n) {
    if (a->committed_step >= done && a->committed_step >= 0)
        snprintf(ret, n, "paused by its user after step %lld", (long long)a->committed_step);
    else if (a->committed_step >= 0)
        snprintf(ret, n, "paused by its user at step %lld; it will go on from its checkpoint of step %lld",
                 (long long)done, (long long)a->committed_step);
    else
        snprintf(ret, n,
                 "paused by its user at step %lld; this attempt stored no checkpoint: it will go on from an older one, "
                 "or begin again if there is none",
                 (long long)done);
}

void pause_describe(const struct job *job, char *ret, size_t n) {
    const struct attempt *a = job->attempt;
    int64_t done = 0; /* steps, the highest number that a rank has reported */
    for (int r = 0; r < a->n_ranks; r++)
        if (a->ranks[r].end.step > done)
            done = a->ranks[r].end.step;
    if (job->no_final_checkpoint && (done > 0 || a->committed_step >= 0)) {
        describe_program(a, done, ret, n);
        return;
    }
    const bool failed = a->has_cause && a->cause.cause != RANK_END_STOPPED;
    if (a->committed_step >= done && (done > 0 || !failed)) {
        snprintf(ret, n, "paused by its user after step %lld", (long long)a->committed_step);
        return;
    }
    if (done == 0 && !failed) {
        snprintf(ret, n, "paused by its user while it started");
        return;
    }
    char why[sizeof a->cause.message + 32] = "no checkpoint was written in time", from[48] = "its newest checkpoint";
    if (failed)
        attempt_describe(&a->cause, why, sizeof why);
    if (a->committed_step >= 0)
        snprintf(from, sizeof from, "step %lld", (long long)a->committed_step);
    snprintf(ret, n, "paused by its user; it will go on from %s, without what was done after that (%s)", from, why);
}
