/* An attempt from its begin to the end of its parts. A part is the ranks on one executor.
 *
 *   attempt_begin         counts the slots as used
 *   attempt_started       adds an event when every rank has a process
 *   attempt_gather        sends the addresses when every rank has offered its own, and moves the job to RUNNING when
 *                         every rank has joined
 *   attempt_rank_ended    keeps the most likely cause of a rank's end. Any end but FINISHED fails the attempt
 *   attempt_fail          keeps the most likely cause of all ranks, and stops the other parts
 *   attempt_part_ended    the agent has no process left: frees the slots, and waits for the last record of each rank
 *   attempt_part_lost     the executor is lost: frees the slots, and waits for nothing
 *
 * Stop orders only become stricter (enum attempt_ending): a stop after a checkpoint may be followed by an immediate
 * stop, never the reverse. attempt_close.c decides what follows when all parts are over. */
#include "base/alloc.h"
#include "service/scheduler/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

int64_t attempt_start_limit_ms(const struct job *job) {
    const uint32_t copies = SCHEDULER_FEATURE_DATA | SCHEDULER_FEATURE_STORE_CHECKPOINTS |
                            SCHEDULER_FEATURE_STORE_WEIGHTS;
    return job->needs & copies ? SCHEDULER_START_DATA_TIMEOUT_MS : SCHEDULER_START_TIMEOUT_MS;
}

struct attempt *attempt_new(int number, int n_ranks) {
    struct attempt *a = alloc_zeroed(1, sizeof *a);
    a->number = number;
    a->n_ranks = n_ranks;
    a->committed_step = -1;
    a->ranks = alloc_zeroed((size_t)n_ranks, sizeof *a->ranks);
    a->parts = alloc_zeroed((size_t)n_ranks, sizeof *a->parts);
    return a;
}

void attempt_free(struct attempt *a) {
    if (!a)
        return;
    free(a->ranks);
    free(a->parts);
    free(a);
}

static void part_link(struct part *part, struct job *job, struct executor *host) {
    *part = (struct part){ .executor = host, .job = job, .next = host->first_part };
    if (host->first_part)
        host->first_part->prev = part;
    host->first_part = part;
    host->parts++;
}

static void part_unlink(struct part *part) {
    if (part->next)
        part->next->prev = part->prev;
    if (part->prev)
        part->prev->next = part->next;
    else
        part->executor->first_part = part->next;
    part->executor->parts--;
}

void attempt_begin(struct scheduler *s, struct job *job, struct attempt *a) {
    for (int r = 0; r < a->n_ranks; r++) {
        struct executor *host = a->ranks[r].executor;
        host->used[job->slot]++;
        if ((r == 0 || host != a->ranks[r - 1].executor) && !attempt_part(a, host))
            part_link(&a->parts[a->n_parts++], job, host);
    }
    for (int p = 0; p < a->n_parts; p++)
        executor_recount(s, a->parts[p].executor);
    queue_use(s, job, a->n_ranks);
    job->attempt = a;
}

void attempt_undo(struct scheduler *s, struct job *job) {
    struct attempt *a = job->attempt;
    for (int r = 0; r < a->n_ranks; r++)
        a->ranks[r].executor->used[job->slot]--;
    for (int p = 0; p < a->n_parts; p++) {
        part_unlink(&a->parts[p]);
        executor_recount(s, a->parts[p].executor);
    }
    queue_use(s, job, -a->n_ranks);
    attempt_free(a);
    job->attempt = NULL;
}

void attempt_release(struct scheduler *s, struct job *job) {
    struct attempt *a = job->attempt;
    int freed = 0;
    a->grows = false;
    for (int r = 0; r < a->n_ranks; r++)
        if (attempt_part(a, a->ranks[r].executor)->kept) {
            a->ranks[r].executor->used[job->slot]--;
            freed++;
        }
    if (freed > 0)
        queue_use(s, job, -freed);
    for (int p = 0; p < a->n_parts; p++) {
        if (!a->parts[p].kept)
            continue;
        s->needs_placing = true;
        a->parts[p].kept = false;
        executor_recount(s, a->parts[p].executor);
    }
}

void attempt_drop(struct scheduler *s, struct job *job) {
    struct attempt *a = job->attempt;
    attempt_release(s, job);
    for (int p = 0; p < a->n_parts; p++) {
        part_unlink(&a->parts[p]);
        executor_forget_if_gone(s, a->parts[p].executor);
    }
    attempt_free(a);
    job->attempt = NULL;
    job_time(s, job);
}

struct part *attempt_part(const struct attempt *a, const struct executor *ex) {
    for (int p = 0; p < a->n_parts; p++)
        if (a->parts[p].executor == ex)
            return &a->parts[p];
    return NULL;
}

void attempt_order_end(const struct job *job, const struct part *part, const char *why, struct scheduler_actions *out) {
    action_send(out, ACT_SEND_STOP, job, part->executor);
    struct scheduler_action *a = &out->items[out->n - 1];
    if (job->attempt->ending == ATTEMPT_CHECKPOINTS)
        a->grace_ms = SCHEDULER_CHECKPOINT_GRACE_MS;
    action_text(a, "%s", why);
}

static void order_end(struct job *job, enum attempt_ending how, const char *why, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    if (a->ending >= how)
        return;
    a->ending = how;
    for (int p = 0; p < a->n_parts; p++)
        if (!a->parts[p].over)
            attempt_order_end(job, &a->parts[p], why, out);
}

void attempt_stop(struct job *job, const char *why, struct scheduler_actions *out) {
    order_end(job, ATTEMPT_STOPS, why, out);
}

void attempt_checkpoint(struct job *job, const char *why, struct scheduler_actions *out) {
    order_end(job, ATTEMPT_CHECKPOINTS, why, out);
}

void attempt_started(struct job *job, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    for (int r = 0; r < a->n_ranks; r++)
        if (!a->ranks[r].started)
            return;
    if (!a->all_started && !a->ending)
        action_add(out, ACT_NOTE, job)->note = "workers_started";
    a->all_started = true;
}

void attempt_gather(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    if (a->ending)
        return;
    int offered = 0, joined = 0;
    for (int r = 0; r < a->n_ranks; r++) {
        offered += a->ranks[r].offered;
        joined += a->ranks[r].joined;
    }
    if (offered == a->n_ranks && joined < a->n_ranks && !a->rendezvous_sent) {
        a->rendezvous_sent = true;
        for (int p = 0; p < a->n_parts; p++)
            action_send(out, ACT_SEND_RENDEZVOUS, job, a->parts[p].executor);
    }
    a->all_joined = joined == a->n_ranks;
    for (int p = 0; a->all_joined && p < a->n_parts; p++)
        a->parts[p].executor->fault_jobs = 0;
    job->unreadable &= !a->all_joined;
    if (a->all_joined && job->state == JOB_STATE_STARTING)
        a->running_ms = now_ms;
    if (a->all_joined && job->state == JOB_STATE_STARTING)
        job_move(s, job, JOB_STATE_RUNNING, JOB_CAUSE_ALL_JOINED, "", out);
}

void attempt_describe(const struct rank_end *end, char *ret, size_t n) {
    if (end->message[0])
        snprintf(ret, n, "rank %d: %s", end->rank, end->message);
    else
        snprintf(ret, n, "rank %d %s", end->rank, rank_end_text(end->cause));
}

void attempt_fail(struct scheduler *s, struct job *job, const struct rank_end *end, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    if (a->has_cause && !rank_end_prefer(end, &a->cause))
        return;
    a->has_cause = true;
    a->cause = *end;
    char why[sizeof((struct scheduler_action *)0)->text];
    attempt_describe(end, why, sizeof why);
    /* A rank that ended as ordered, after its checkpoint, must not stop the other ranks, which may still write. */
    if (a->ending != ATTEMPT_CHECKPOINTS || end->cause != RANK_END_STOPPED)
        attempt_stop(job, why, out);
    bool may_retry = !rank_end_fatal(end->cause);
    if (may_retry && (job->state == JOB_STATE_STARTING || job->state == JOB_STATE_RUNNING))
        job_move(s, job, JOB_STATE_RESTARTING, JOB_CAUSE_ATTEMPT_FAILED, why, out);
}

void attempt_rank_ended(struct scheduler *s, struct job *job, const struct rank_end *end,
                        struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    assert(end->rank >= 0 && end->rank < a->n_ranks);
    struct rank *rank = &a->ranks[end->rank];
    bool known = rank->ended;
    rank->started = true;
    rank->ended = true;
    if (!known || rank_end_prefer(end, &rank->end))
        rank->end = *end;
    else if (end->last_sequence > rank->end.last_sequence)
        rank->end.last_sequence = end->last_sequence;
    if (end->cause != RANK_END_FINISHED)
        attempt_fail(s, job, end, out);
}

void attempt_part_over(struct scheduler *s, struct job *job, struct part *part, bool lost) {
    struct attempt *a = job->attempt;
    const bool keeps = a->grows && !lost;
    int freed = 0;
    part->lost |= lost;
    for (int r = 0; r < a->n_ranks; r++) {
        struct rank *rank = &a->ranks[r];
        if (rank->executor != part->executor)
            continue;
        if (!part->over && !keeps) {
            part->executor->used[job->slot]--;
            freed++;
        }
        if (lost)
            rank->stored = true;
    }
    if (freed > 0)
        queue_use(s, job, -freed);
    part->kept |= !part->over && keeps;
    part->over = true;
    executor_recount(s, part->executor);
    s->needs_placing = true;
}

static bool is_of(const struct attempt *a, const struct part *part, const struct rank_end *end) {
    return end->rank >= 0 && end->rank < a->n_ranks && a->ranks[end->rank].executor == part->executor;
}

void attempt_part_ended(struct scheduler *s, struct job *job, struct part *part, const struct rank_end *ends,
                        int n_ends, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    const struct rank_end *cause = NULL;
    if (part->over)
        return;
    for (int i = 0; i < n_ends; i++)
        if (is_of(a, part, &ends[i]) && (!cause || rank_end_prefer(&ends[i], cause)))
            cause = &ends[i];
    if (cause) /* the most likely cause first: its message becomes the job's reason */
        attempt_rank_ended(s, job, cause, out);
    for (int i = 0; i < n_ends; i++)
        if (&ends[i] != cause && is_of(a, part, &ends[i]))
            attempt_rank_ended(s, job, &ends[i], out);
    for (int r = 0; r < a->n_ranks; r++) {
        struct rank *rank = &a->ranks[r];
        if (rank->executor != part->executor)
            continue;
        if (!rank->ended) {
            struct rank_end end = { .rank = r, .cause = a->ending ? RANK_END_STOPPED : RANK_END_INTERNAL };
            snprintf(end.message, sizeof end.message, "never started on executor %s", part->executor->id);
            attempt_rank_ended(s, job, &end, out);
        }
        struct scheduler_action *await = action_add(out, ACT_AWAIT_STORED, job);
        await->rank = r;
        await->sequence = rank->end.last_sequence;
    }
    attempt_part_over(s, job, part, false);
}

void attempt_part_lost(struct scheduler *s, struct job *job, struct part *part, enum rank_end_cause cause,
                       const char *why, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    for (int r = 0; r < a->n_ranks; r++) {
        struct rank *rank = &a->ranks[r];
        /* A rank that finished, but whose last records are lost, has not done its part. */
        if (rank->executor != part->executor || (rank->ended && rank->stored))
            continue;
        struct rank_end end = { .rank = r, .cause = cause };
        snprintf(end.message, sizeof end.message, "%s", why);
        attempt_rank_ended(s, job, &end, out);
        rank->end = end;
    }
    attempt_part_over(s, job, part, true);
}
