/* Closes an attempt when all of its parts are over and every rank's last record is stored or lost, and decides what
 * follows:
 *
 *   the job is CANCELLING                        CANCELLED
 *   all ranks finished, final checkpoint stored  SUCCEEDED
 *   the job is PREEMPTING                        QUEUED again; no failure is counted
 *   the job is PAUSING, the cause is not fatal   PAUSED; no failure is counted
 *   otherwise                                    close_failed: RESTARTING after a delay, or FAILED
 *
 * close_failed first asks choose_recourse whether a host is to blame. If another host can take the job, the job
 * restarts there at once, and no restart is counted. A checkpoint that no host could read for too long becomes MISSING,
 * and the next attempt uses an older one. The job fails if the cause is fatal, if no host is left, or if a failure that
 * counts finds max_restarts used up. */
#include "base/alloc.h"
#include "service/scheduler/retry.h"
#include "service/scheduler/state.h"

#include <stdio.h>
#include <stdlib.h>

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
    struct scheduler_actions dropped = { 0 }; /* the store has already moved the job */
    for (int p = 0; p < job->attempt->n_parts; p++)
        attempt_part_over(s, job, &job->attempt->parts[p], false);
    attempt_drop(s, job);
    job_move(s, job, JOB_STATE_FAILED, JOB_CAUSE_ORIGIN_GONE, "", &dropped);
    scheduler_actions_done(&dropped);
}

enum { WHY_BYTES = 360 };

/* Closes the attempt and writes the sentence about its cause to why. */
static void close_for(struct scheduler *s, struct job *job, const struct rank_end *cause, char why[WHY_BYTES],
                      struct scheduler_actions *out) {
    attempt_describe(cause, why, WHY_BYTES);
    if (job_is_elastic(job)) {
        free(job->why);
        job->why = alloc_copy_text(why);
    }
    if (cause->cause == RANK_END_CHECKPOINT_BAD)
        action_text(action_add(out, ACT_CHECKPOINT_CORRUPT, job), "%s", cause->message);
    close_attempt(s, job, why, out);
}

/* What follows from a failure that may be a host's. */
enum recourse {
    RECOURSE_NONE,      /* no host is to blame */
    RECOURSE_FAIL,      /* no other host is left, and none may recover */
    RECOURSE_ELSEWHERE, /* another host takes the job, at once */
    RECOURSE_LATER,     /* its hosts may recover: the job restarts after a delay */
};

static enum recourse choose_recourse(struct scheduler *s, struct job *job, const struct rank_end *cause, int64_t now_ms,
                                     struct scheduler_actions *out) {
    if (!rank_end_blames_host(cause->cause) || !job_avoid(s, job, now_ms, out))
        return RECOURSE_NONE;
    if (cause->cause == RANK_END_CHECKPOINT_UNREADABLE && job_checkpoint_missing(s, job, now_ms)) {
        action_text(action_add(out, ACT_CHECKPOINT_MISSING, job), "%s", cause->message);
        job->unreadable = false;
        job_forgive(job);
        return RECOURSE_LATER;
    }
    if (job_has_other_hosts(s, job))
        return RECOURSE_ELSEWHERE;
    return job_forgive(job) && job_has_other_hosts(s, job) ? RECOURSE_LATER : RECOURSE_FAIL;
}

static void fail(struct scheduler *s, struct job *job, const char *why, bool used_up, struct scheduler_actions *out) {
    char reason[sizeof((struct scheduler_action *)0)->text];
    if (used_up)
        snprintf(reason, sizeof reason, "%s (after %d of %d restarts)", why, job->restarts, job->max_restarts);
    else if (!job_avoided_text(job, reason, sizeof reason))
        snprintf(reason, sizeof reason, "%s", why);
    job_move(s, job, JOB_STATE_FAILED, JOB_CAUSE_NO_RETRY, reason, out);
}

static void close_failed(struct scheduler *s, struct job *job, const struct rank_end *cause, int64_t now_ms,
                         struct scheduler_actions *out) {
    char why[WHY_BYTES];
    const enum recourse recourse = choose_recourse(s, job, cause, now_ms, out);
    const bool counts = rank_end_counts(cause->cause) && recourse != RECOURSE_ELSEWHERE;
    const bool fatal = rank_end_fatal(cause->cause) || recourse == RECOURSE_FAIL;
    const bool used_up = counts && !fatal && job->restarts >= job->max_restarts;
    if (counts && !fatal && !used_up)
        job->restarts++;
    job->unreadable &= cause->cause != RANK_END_CHECKPOINT_BAD; /* the next attempt uses an older checkpoint */
    close_for(s, job, cause, why, out);
    if (fatal || used_up) {
        fail(s, job, why, used_up, out);
        return;
    }
    if (job->state != JOB_STATE_RESTARTING)
        job_move(s, job, JOB_STATE_RESTARTING, JOB_CAUSE_ATTEMPT_FAILED, why, out);
    action_add(out, ACT_RESTART, job)->blamed = cause->cause;
    job->failures += recourse != RECOURSE_ELSEWHERE;
    const int64_t delay_ms = cause->cause == RANK_END_NO_ORDER ? retry_no_order_delay_ms(job->failures)
                                                               : retry_delay_ms(job->failures);
    job->not_before_ms = recourse == RECOURSE_ELSEWHERE ? now_ms : now_ms + delay_ms;
}

/* A failure while the job was leaving its hosts is not counted. A fatal cause will occur again in the next attempt. */
static void close_preempted(struct scheduler *s, struct job *job, const struct rank_end *cause, int64_t now_ms,
                            struct scheduler_actions *out) {
    const struct attempt *a = job->attempt;
    const int before = a->grows ? a->n_ranks : 0;
    char why[WHY_BYTES];
    job->growth_lost |= before > 0 && a->committed_step < 0;
    close_for(s, job, cause, why, out);
    if (before == 0) {
        job_requeue(s, job, why, out);
        return;
    }
    job_move(s, job, JOB_STATE_QUEUED, JOB_CAUSE_STOPPED, why, out);
    elastic_restart(s, job, before, now_ms, out);
}

/* The user decides when the job continues, so that no failure of a paused attempt counts as a restart. */
static void close_paused(struct scheduler *s, struct job *job, const struct rank_end *cause,
                         struct scheduler_actions *out) {
    char why[WHY_BYTES], reason[sizeof((struct scheduler_action *)0)->text];
    pause_describe(job, reason, sizeof reason);
    close_for(s, job, cause, why, out);
    job_move(s, job, JOB_STATE_PAUSED, JOB_CAUSE_STOPPED, reason, out);
}

void attempt_try_close(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    if (!sequences_ended(a))
        return;
    if (job->state == JOB_STATE_CANCELLING) {
        close_attempt(s, job, "cancelled", out);
        job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_STOPPED, "", out);
        return;
    }
    if (all_finished(a) && (a->final_committed || job->no_final_checkpoint) && job->state != JOB_STATE_RESTARTING) {
        /* If the controller was down during a short job, it learns of the start only from the end. */
        if (job->state == JOB_STATE_STARTING)
            job_move(s, job, JOB_STATE_RUNNING, JOB_CAUSE_ALL_JOINED, "", out);
        close_attempt(s, job, "finished", out);
        job_move(s, job, JOB_STATE_SUCCEEDED, JOB_CAUSE_DONE, "", out);
        return;
    }
    struct rank_end cause = cause_of(a);
    if (job->state == JOB_STATE_PREEMPTING)
        close_preempted(s, job, &cause, now_ms, out);
    else if (job->state == JOB_STATE_PAUSING && !rank_end_fatal(cause.cause))
        close_paused(s, job, &cause, out);
    else
        close_failed(s, job, &cause, now_ms, out);
}
