/* An executor attaches: compares the attempts that it reports with those that the scheduler has placed on it.
 *
 *   placed and reported       adopt: takes over its ranks and ends, and sends again messages that may be lost
 *   placed, not reported      missing: sends the start order again if no rank has started there; otherwise the part is
 *                             lost, because the agent came back without it
 *   reported, not placed      refuse: acknowledges it if it has ended; otherwise stops it and fences the executor,
 *                             which gets no ranks until the old attempt has ended there */
#include "base/alloc.h"
#include "base/limits.h"
#include "service/scheduler/state.h"

#include <stdio.h>

static struct part *current_part(const struct scheduler *s, const struct executor *ex, int64_t id, int attempt,
                                 struct job **ret_job) {
    struct job *job = job_find(s, id);
    if (!job || !job->attempt || job->attempt->number != attempt)
        return NULL;
    struct part *part = attempt_part(job->attempt, ex);
    if (!part || part->lost)
        return NULL;
    *ret_job = job;
    return part;
}

/* The attempt is over for the scheduler. It must end on the host too; until then the host gets no ranks. */
static void refuse(struct executor *ex, const struct scheduler_part_report *report, struct scheduler_actions *out) {
    struct job named = { .id = report->job, .number = report->attempt };
    if (report->ended) {
        action_send(out, ACT_SEND_ACKNOWLEDGE, &named, ex);
        return;
    }
    ex->fenced = alloc_grow(ex->fenced, (size_t)ex->n_fenced, sizeof *ex->fenced);
    ex->fenced[ex->n_fenced++] = (struct fenced_attempt){ .job = report->job, .attempt = report->attempt };
    action_send(out, ACT_SEND_STOP, &named, ex);
    action_text(&out->items[out->n - 1], "attempt %d of job %lld is over", report->attempt, (long long)report->job);
}

static void adopt(struct scheduler *s, struct job *job, struct part *part, const struct scheduler_part_report *report,
                  int64_t now_ms, struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    if (report->ended) {
        attempt_part_ended(s, job, part, report->ends, report->n_ends, out);
        attempt_try_close(s, job, now_ms, out);
        return;
    }
    for (int i = 0; i < report->n_ranks; i++) {
        const struct scheduler_rank_report *r = &report->ranks[i];
        if (r->rank < 0 || r->rank >= a->n_ranks || a->ranks[r->rank].executor != part->executor)
            continue;
        a->ranks[r->rank].started = true;
        a->ranks[r->rank].offered |= r->offered;
        a->ranks[r->rank].joined |= r->joined;
    }
    if (a->ending) {
        attempt_order_end(job, part, "the attempt is ending", out);
        return;
    }
    /* The message that a checkpoint is committed may be lost with a stream. Without the message, the ranks would hold
     * back the next checkpoints. */
    if (a->committed_step >= 0) {
        action_send(out, ACT_SEND_COMMITTED, job, part->executor);
        out->items[out->n - 1].step = a->committed_step;
    }
    /* The addresses may be lost in the same way. */
    if (a->rendezvous_sent && !a->all_joined)
        action_send(out, ACT_SEND_RENDEZVOUS, job, part->executor);
    attempt_gather(s, job, now_ms, out);
}

static bool part_started(const struct attempt *a, const struct executor *ex) {
    for (int r = 0; r < a->n_ranks; r++)
        if (a->ranks[r].executor == ex && a->ranks[r].started)
            return true;
    return false;
}

/* The executor does not report a part that the scheduler has placed there. */
static void missing(struct scheduler *s, struct job *job, struct part *part, int64_t now_ms,
                    struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    if (!a->ending && !part_started(a, part->executor)) {
        action_send(out, ACT_SEND_START, job, part->executor); /* the order was lost with a stream or a controller */
        return;
    }
    char why[160];
    snprintf(why, sizeof why, "executor %s came back without it", part->executor->id);
    attempt_part_lost(s, job, part, RANK_END_AGENT_LOST, why, out);
    attempt_try_close(s, job, now_ms, out);
}

static bool reported(const struct scheduler_event *ev, const struct job *job) {
    for (int i = 0; i < ev->attach.n_parts; i++)
        if (ev->attach.parts[i].job == job->id && ev->attach.parts[i].attempt == job->attempt->number)
            return true;
    return false;
}

void executor_attach(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                     struct scheduler_actions *out) {
    struct executor *ex = executor_add(s, ev->executor, now_ms);
    if (ev->attach.incarnation < ex->incarnation)
        return; /* a half-open stream of an older incarnation */
    ex->incarnation = ev->attach.incarnation;
    ex->attached = true;
    ex->leaving = false;
    ex->lost = false;
    ex->n_fenced = 0;
    if (ex->lease_until_ms < now_ms + LEASE_TTL_MS)
        ex->lease_until_ms = now_ms + LEASE_TTL_MS;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        ex->slots[k] = ev->attach.slots[k];
    ex->quarantined = ev->attach.quarantined;
    ex->single_rank = ev->attach.single_rank;
    ex->features = ev->attach.features;
    executor_recount(s, ex);
    s->needs_placing = true;

    for (struct part *part = ex->first_part, *next; part; part = next) {
        next = part->next;
        if (!reported(ev, part->job))
            missing(s, part->job, part, now_ms, out);
    }
    for (int i = 0; i < ev->attach.n_parts; i++) {
        const struct scheduler_part_report *report = &ev->attach.parts[i];
        struct job *job = NULL;
        struct part *part = current_part(s, ex, report->job, report->attempt, &job);
        if (part)
            adopt(s, job, part, report, now_ms, out);
        else
            refuse(ex, report, out);
    }
    executor_recount(s, ex); /* a refused attempt fences it */
}
