/* An executor attaches: what it says is compared with what is known, and each difference has one answer. */
#include "base/array.h"
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

/* Over for us: it ends there too, and until it has ended the host gets nothing. */
static void refuse(struct executor *ex, const struct scheduler_part_report *report, struct scheduler_actions *out) {
    struct job named = { .id = report->job, .number = report->attempt };
    if (report->ended) {
        action_send(out, ACT_SEND_ACKNOWLEDGE, &named, ex);
        return;
    }
    ex->held[ex->n_held++] = (struct held){ .job = report->job, .attempt = report->attempt };
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
    /* Lost with a stream may be the word that a checkpoint is committed, without which its ranks would hold back the
     * next ones. */
    if (a->committed_step >= 0) {
        action_send(out, ACT_SEND_COMMITTED, job, part->executor);
        out->items[out->n - 1].step = a->committed_step;
    }
    /* And the addresses. */
    if (a->rendezvous_sent && !a->all_joined)
        action_send(out, ACT_SEND_RENDEZVOUS, job, part->executor);
    attempt_gather(s, job, out);
}

static bool part_started(const struct attempt *a, const struct executor *ex) {
    for (int r = 0; r < a->n_ranks; r++)
        if (a->ranks[r].executor == ex && a->ranks[r].started)
            return true;
    return false;
}

/* The executor does not know a part that we placed there. */
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

status_t executor_attach(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                         struct scheduler_actions *out, struct err *e) {
    CLEANUP(freep) struct held *held = NULL; /* room for all that it names */
    struct executor *ex;
    TRY(array_new(&held, ev->attach.n_parts, e));
    TRY(executor_add(s, ev->executor, now_ms, &ex, e));
    if (ev->attach.incarnation < ex->incarnation)
        return ST_OK; /* a half-open stream of an older start */
    free(ex->held);
    ex->held = take_ptr(&held);
    ex->incarnation = ev->attach.incarnation;
    ex->attached = true;
    ex->lost = false;
    ex->n_held = 0;
    if (ex->lease_until_ms < now_ms + LEASE_TTL_MS)
        ex->lease_until_ms = now_ms + LEASE_TTL_MS;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        ex->slots[k] = ev->attach.slots[k];
    ex->quarantined = ev->attach.quarantined;
    ex->lone = ev->attach.lone;
    s->dirty = true;

    for (struct job *job = s->active, *next; job; job = next) {
        next = job->next;
        struct part *part = job->attempt ? attempt_part(job->attempt, ex) : NULL;
        if (part && !reported(ev, job))
            missing(s, job, part, now_ms, out);
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
    return ST_OK;
}
