#include "service/scheduler/retry.h"
#include "service/scheduler/state.h"

#include <stdio.h>

static bool sequences_ended(const struct attempt *a) {
    for (int p = 0; p < a->n_parts; p++)
        if (!a->parts[p].over)
            return false;
    for (int r = 0; r < a->n_ranks; r++)
        if (!a->ranks[r].stored)
            return false;
    return true;
}

static bool all_finished(const struct attempt *a) {
    for (int r = 0; r < a->n_ranks; r++)
        if (a->ranks[r].end.cause != RANK_END_FINISHED)
            return false;
    return true;
}

static struct rank_end cause_of(const struct attempt *a) {
    struct rank_end end = a->cause;
    if (!a->has_cause) {
        end = (struct rank_end){ .cause = RANK_END_CHECKPOINT_WRITE };
        snprintf(end.message, sizeof end.message, "finished, but the final checkpoint is not whole");
    }
    return end;
}

/* Writes the attempt's end, lets the agents forget it, and drops it from memory. */
static void close_attempt(struct scheduler *s, struct job *job, const char *why, struct scheduler_actions *out) {
    const struct attempt *a = job->attempt;
    action_text(action_add(out, ACT_ATTEMPT_END, job), "%s", why);
    for (int p = 0; p < a->n_parts; p++)
        if (!a->parts[p].lost)
            action_send(out, ACT_SEND_ACKNOWLEDGE, job, a->parts[p].executor);
    attempt_drop(s, job);
}

void scheduler_refused(struct scheduler *s, int64_t id, int attempt) {
    struct job *job = job_find(s, id);
    if (!job || !job->attempt || job->attempt->number != attempt)
        return;
    struct scheduler_action room[2]; /* its move, which the store has made, and that it is forgotten */
    struct scheduler_actions done = { .items = room, .cap = 2 };
    for (int p = 0; p < job->attempt->n_parts; p++)
        attempt_part_over(s, job, &job->attempt->parts[p], false);
    attempt_drop(s, job);
    job_move(s, job, JOB_STATE_FAILED, JOB_CAUSE_ORIGIN_GONE, "", &done);
}

enum { WHY_BYTES = 360 };

/* Closes the attempt with what it died of, and says it. */
static void close_for(struct scheduler *s, struct job *job, const struct rank_end *cause, char why[WHY_BYTES],
                      struct scheduler_actions *out) {
    attempt_describe(cause, why, WHY_BYTES);
    if (cause->cause == RANK_END_CHECKPOINT_BAD)
        action_text(action_add(out, ACT_CHECKPOINT_CORRUPT, job), "%s", cause->message);
    close_attempt(s, job, why, out);
}

static void close_failed(struct scheduler *s, struct job *job, const struct rank_end *cause, int64_t now_ms,
                         struct scheduler_actions *out) {
    char why[WHY_BYTES];
    bool counts = rank_end_counts(cause->cause), fatal = rank_end_fatal(cause->cause);
    bool used_up = counts && !fatal && job->restarts >= job->max_restarts;
    if (counts && !fatal && !used_up)
        job->restarts++;
    close_for(s, job, cause, why, out);
    if (fatal || used_up) {
        char reason[sizeof((struct scheduler_action *)0)->text];
        if (used_up)
            snprintf(reason, sizeof reason, "%s (after %d of %d restarts)", why, job->restarts, job->max_restarts);
        else
            snprintf(reason, sizeof reason, "%s", why);
        job_move(s, job, JOB_STATE_FAILED, JOB_CAUSE_NO_RETRY, reason, out);
        return;
    }
    if (job->state != JOB_STATE_RESTARTING)
        job_move(s, job, JOB_STATE_RESTARTING, JOB_CAUSE_ATTEMPT_FAILED, why, out);
    job->failures++;
    job->not_before_ms = now_ms + retry_delay_ms(job->failures);
}

/* Whatever it died of while it was to leave its hosts counts for nothing, and what is fatal comes again. */
static void close_preempted(struct scheduler *s, struct job *job, const struct rank_end *cause,
                            struct scheduler_actions *out) {
    char why[WHY_BYTES];
    close_for(s, job, cause, why, out);
    job_requeue(s, job, why, out);
}

/* Going on is the user's to ask for: nothing counts as a restart, whatever the attempt died of. */
static void close_paused(struct scheduler *s, struct job *job, const struct rank_end *cause,
                         struct scheduler_actions *out) {
    char why[WHY_BYTES], reason[sizeof((struct scheduler_action *)0)->text];
    pause_describe(job->attempt, reason, sizeof reason);
    close_for(s, job, cause, why, out);
    job_move(s, job, JOB_STATE_PAUSED, JOB_CAUSE_STOPPED, reason, out);
}

void attempt_try_close(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    if (!sequences_ended(a))
        return;
    if (job->state == JOB_STATE_CANCELLING) {
        close_attempt(s, job, "cancelled", out);
        job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_STOPPED, "cancelled by its user", out);
        return;
    }
    if (all_finished(a) && a->final_committed && job->state != JOB_STATE_RESTARTING) {
        /* A controller that was away during a short job learns of its start from its end. */
        if (job->state == JOB_STATE_STARTING)
            job_move(s, job, JOB_STATE_RUNNING, JOB_CAUSE_ALL_JOINED, "", out);
        close_attempt(s, job, "finished", out);
        job_move(s, job, JOB_STATE_SUCCEEDED, JOB_CAUSE_DONE, "", out);
        return;
    }
    struct rank_end cause = cause_of(a);
    if (job->state == JOB_STATE_PREEMPTING)
        close_preempted(s, job, &cause, out);
    else if (job->state == JOB_STATE_PAUSING && !rank_end_fatal(cause.cause))
        close_paused(s, job, &cause, out);
    else
        close_failed(s, job, &cause, now_ms, out);
}
