/* Explains why one job waits. scheduler_explain chooses by the job's state:
 *
 *   with an attempt   STARTING: the ranks that have not joined. RUNNING or ending: the parts that have not ended
 *   RESTARTING        the time of the next attempt, then as for QUEUED
 *   QUEUED            explain_waiting: missing slots, jobs that are before it, used slots
 *   PAUSED            the user's pause
 *
 * explain_waiting computes the capacity that the job may use with the same functions as queue_place, and counts the
 * jobs before it that block it. It adds a reason for each part of the capacity that is missing: detached, drained,
 * avoided, quarantined and single-rank hosts, and fenced ones.
 *
 * Each reason has a message and a remedy. The lists of hosts and of jobs that use slots are sorted by insertion and
 * keep the first SCHEDULER_LISTED; the rest is counted. */
#include "service/scheduler/explain.h"

#include "base/limits.h"
#include "service/scheduler/state.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[SCHEDULER_SLOT_KINDS] = { "cpu", "cuda" };

static const char *s_of(long long n) { return n == 1 ? "" : "s"; }
static const char *is_of(long long n) { return n == 1 ? "is" : "are"; }
static long long seconds(int64_t ms) { return ms <= 0 ? 0 : (ms + 999) / 1000; }

static struct scheduler_reason *add(struct scheduler_explanation *x, enum scheduler_wait kind) {
    struct scheduler_reason *r = &x->reasons[x->n_reasons++];
    r->kind = kind;
    return r;
}

#define MESSAGE(r, ...) snprintf((r)->message, sizeof(r)->message, __VA_ARGS__)
#define REMEDY(r, ...)  snprintf((r)->remedy, sizeof(r)->remedy, __VA_ARGS__)

/* ---- lists ---- */

static int slots_used(const struct job *job, const struct job *by) {
    int used = 0;
    for (int r = 0; r < by->attempt->n_ranks; r++) {
        const struct executor *ex = by->attempt->ranks[r].executor;
        const enum scheduler_host availability = executor_availability_for(ex, job);
        used += !attempt_part(by->attempt, ex)->over &&
                (availability == SCHEDULER_HOST_FULL || availability == SCHEDULER_HOST_TAKES);
    }
    return used;
}

static void list_holder(struct scheduler_explanation *x, struct scheduler_holder h) {
    int at = x->n_holders;
    while (at > 0 && (x->holders[at - 1].slots < h.slots ||
                      (x->holders[at - 1].slots == h.slots && x->holders[at - 1].job > h.job)))
        at--;
    const bool full = x->n_holders == SCHEDULER_LISTED;
    x->more_holders += full;
    if (at == SCHEDULER_LISTED)
        return;
    memmove(&x->holders[at + 1], &x->holders[at], (size_t)(x->n_holders - at - full) * sizeof h);
    x->holders[at] = h;
    x->n_holders += !full;
}

static void list_holders(const struct scheduler *s, const struct job *job, struct scheduler_explanation *x) {
    for (const struct job *by = s->active; by; by = by->next) {
        const int slots = by != job && by->attempt && by->slot == job->slot ? slots_used(job, by) : 0;
        if (slots > 0)
            list_holder(x, (struct scheduler_holder){ .job = by->id, .attempt = by->number, .slots = slots });
    }
}

static bool more_use(const struct scheduler_host_view *a, const struct scheduler_host_view *b) {
    return a->availability != b->availability ? a->availability < b->availability : a->free > b->free;
}

static void list_host(struct scheduler_explanation *x, const struct scheduler_host_view *h) {
    int at = x->n_hosts;
    while (at > 0 && more_use(h, &x->hosts[at - 1]))
        at--;
    const bool full = x->n_hosts == SCHEDULER_LISTED;
    x->more_hosts += full;
    if (at == SCHEDULER_LISTED)
        return;
    memmove(&x->hosts[at + 1], &x->hosts[at], (size_t)(x->n_hosts - at - full) * sizeof *h);
    x->hosts[at] = *h;
    x->n_hosts += !full;
}

static void list_hosts(const struct scheduler *s, const struct job *job, struct scheduler_explanation *x) {
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        if (ex->lost)
            continue;
        if (x->n_hosts == SCHEDULER_LISTED &&
            executor_availability_for(ex, job) > x->hosts[SCHEDULER_LISTED - 1].availability) {
            x->more_hosts++;
            continue;
        }
        struct scheduler_host_view h = { .availability = executor_availability_for(ex, job),
                                         .slots = ex->slots[job->slot],
                                         .free = executor_free_for(ex, job),
                                         .detachment = executor_detachment(ex),
                                         .quarantined = job->slot == SCHEDULER_SLOT_CUDA ? ex->quarantined : 0 };
        memcpy(h.id, ex->id, sizeof h.id);
        const struct avoided *avoided = job_avoided_on(job, ex);
        const char *feature = scheduler_feature_name(job_lacks(job, ex));
        snprintf(h.reason, sizeof h.reason, "%s",
                 h.availability == SCHEDULER_HOST_AVOIDED ? avoided->why
                 : h.availability == SCHEDULER_HOST_LACKS ? feature
                                                          : ex->drain_reason);
        if (ex->n_fenced > 0) {
            h.fenced_job = ex->fenced[0].job;
            h.fenced_attempt = ex->fenced[0].attempt;
        }
        list_host(x, &h);
    }
}

/* ---- why a job waits for slots ---- */

static void add_lacking(const struct job *job, struct capacity capacity, struct scheduler_explanation *x) {
    const int lacking = job->world_size - capacity.slots;
    const char *kind = kinds[job->slot];
    struct scheduler_reason *r = add(x, capacity.attached == 0 ? SCHEDULER_WAIT_NO_EXECUTOR
                                        : capacity.slots == 0  ? SCHEDULER_WAIT_NO_SLOTS
                                                               : SCHEDULER_WAIT_TOO_WIDE);
    queue_capacity_text(job, capacity, r->message, sizeof r->message);
    if (capacity.drained >= lacking)
        REMEDY(r, "take drained executors into use again (trainyard undrain), or attach others with %d more %s slot%s",
               lacking, kind, s_of(lacking));
    else if (capacity.attached == 0)
        REMEDY(r, "start trainyard-executor on a host with %d %s slot%s or more, or on several", lacking, kind,
               s_of(lacking));
    else if (job->slot == SCHEDULER_SLOT_CUDA)
        REMEDY(r, "attach executors with %d more CUDA device%s, or submit it again with %s", lacking, s_of(lacking),
               capacity.slots ? "fewer ranks (parallel)" : "resources.accelerator: cpu");
    else
        REMEDY(r, "attach executors with %d more cpu slot%s (trainyard-executor --slots)%s", lacking, s_of(lacking),
               job->world_size > 1 ? ", or submit it again with fewer ranks (parallel)" : "");
}

static void describe_detached(const struct executor *ex, int64_t now_ms, struct scheduler_reason *r) {
    const long long left = seconds(ex->lease_until_ms - now_ms);
    switch (executor_detachment(ex)) {
    case SCHEDULER_DETACHED_LEAVING:
        MESSAGE(r, "executor %s takes no more ranks: its agent is stopping", ex->id);
        REMEDY(r, "start its agent again");
        return;
    case SCHEDULER_DETACHED_STREAM_ENDED:
        MESSAGE(r, "executor %s is disconnected: its agent has ended, or the network has failed", ex->id);
        break;
    default: MESSAGE(r, "executor %s has not attached since this controller leads", ex->id);
    }
    REMEDY(r, "none is needed: it attaches again, or becomes LOST in %lld s", left);
}

static void add_detached(const struct scheduler *s, int64_t now_ms, struct scheduler_explanation *x) {
    const struct executor *first = NULL;
    int n = 0;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        if (executor_detachment(ex) == SCHEDULER_NOT_DETACHED)
            continue;
        n++;
        first = first && first->lease_until_ms <= ex->lease_until_ms ? first : ex;
    }
    if (n == 0)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_DETACHED);
    if (n == 1) {
        describe_detached(first, now_ms, r);
        return;
    }
    MESSAGE(r, "%d executors are not attached, executor %s among them", n, first->id);
    REMEDY(r,
           "none is needed unless they were stopped: they attach again; one that has not attached within %lld s "
           "becomes LOST",
           seconds(first->lease_until_ms - now_ms));
}

/* Whether a drained executor has free slots. Only then does it help to undrain it now. */
static bool drained_unused(const struct scheduler *s, const struct job *job) {
    for (int i = 0; i < s->n_all; i++)
        if (executor_availability(s->all[i], job->slot, job->world_size) == SCHEDULER_HOST_DRAINED &&
            s->all[i]->used[job->slot] < s->all[i]->slots[job->slot])
            return true;
    return false;
}

static void add_drained(const struct job *job, struct capacity capacity, struct scheduler_explanation *x) {
    if (!capacity.drained)
        return;
    char hosts[DRAINED_BYTES];
    executor_drained_text(capacity, hosts);
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_DRAINED);
    MESSAGE(r, "%d %s slot%s %s drained: %s", capacity.drained, kinds[job->slot], s_of(capacity.drained),
            is_of(capacity.drained), hosts);
    REMEDY(r, "trainyard undrain %s", capacity.drained_at->id);
}

static void add_avoided(const struct job *job, struct capacity capacity, int64_t now_ms,
                        struct scheduler_explanation *x) {
    const struct avoided *first = capacity.avoided_at;
    if (!first)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_AVOIDED);
    MESSAGE(r, "%d %s slot%s %s on executors that have failed it, executor %s among them: %s", capacity.avoided,
            kinds[job->slot], s_of(capacity.avoided), is_of(capacity.avoided), first->executor, first->why);
    REMEDY(r, "give executor %s what it lacks; the job avoids it for another %lld s", first->executor,
           seconds(first->until_ms - now_ms));
}

static void add_lacking_feature(const struct job *job, struct capacity capacity, struct scheduler_explanation *x) {
    const struct executor *first = capacity.lacking_at;
    if (!first)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_LACKING);
    const char *host_event = scheduler_feature_host_event(job_lacks(job, first));
    MESSAGE(r, "%d %s slot%s %s on executors %s '%s', executor %s among them", capacity.lacking, kinds[job->slot],
            s_of(capacity.lacking), is_of(capacity.lacking),
            host_event ? "that do not offer" : "of an older release, which lacks",
            scheduler_feature_name(job_lacks(job, first)), first->id);
    if (host_event)
        REMEDY(r, "the log of executor %s says why (%s); an agent of an older release must be upgraded", first->id,
               host_event);
    else
        REMEDY(r, "upgrade Trainyard on the host of executor %s and restart its agent", first->id);
}

static void add_out_of_use(const struct job *job, struct capacity all, struct scheduler_explanation *x) {
    if (all.quarantined) {
        struct scheduler_reason *r = add(x, SCHEDULER_WAIT_QUARANTINED);
        MESSAGE(r, "%d CUDA device%s of attached executors %s quarantined", all.quarantined, s_of(all.quarantined),
                is_of(all.quarantined));
        REMEDY(r, "check the device, remove its line from DIR/quarantine of its executor, and restart that executor");
    }
    if (job->world_size > 1 && all.single_rank_slots) {
        struct scheduler_reason *r = add(x, SCHEDULER_WAIT_SINGLE_RANK);
        MESSAGE(
            r,
            "%d cuda slot%s %s on executors that take only jobs with one rank, because their ranks cannot communicate",
            all.single_rank_slots, s_of(all.single_rank_slots), is_of(all.single_rank_slots));
        REMEDY(r, "give these executors what they report as missing, or submit it again with one rank (parallel)");
    }
}

/* The jobs before a job that block it. */
struct ahead {
    const struct job *first;
    int n;
};

static struct ahead count_ahead(const struct scheduler *s, const struct job *job) {
    struct ahead ahead = { 0 };
    for (int q = 0; q < s->n_queues; q++) {
        const struct line *line = &s->queues[q]->lines[job->slot];
        for (size_t i = 0; i < line->n && queue_is_ahead(s, s->queues[q], &line->items[i], job); i++) {
            const struct waiting *other = &line->items[i];
            const enum queue_limit limit = queue_limit(s, s->queues[q], other->user, job->slot, other->world_size,
                                                       other->id);
            if (other->world_size > capacity_sum(s, job->slot, other).width || limit == QUEUE_LIMIT_NEVER ||
                limit == QUEUE_LIMIT_USER_NEVER || limit == QUEUE_LIMIT_USER || limit == QUEUE_LIMIT_USER_TURN)
                continue;
            if (limit != QUEUE_LIMIT_NONE && s->queues[q] != job->queue)
                break; /* the line goes no further */
            if (ahead.n++ == 0 || (i == 0 && queue_before(s, other->job, ahead.first)))
                ahead.first = other->job;
        }
    }
    return ahead;
}

/* Why the first job is before the other one. */
static void order_text(const struct scheduler *s, const struct job *first, const struct job *job, char *ret, size_t n) {
    const int slot = (int)job->slot;
    if (first->queue == job->queue)
        snprintf(ret, n, "%s jobs start strictly in order, without backfill", kinds[slot]);
    else if (queue_borrows(job->queue, job->slot, job->world_size) &&
             !queue_borrows(first->queue, job->slot, first->world_size))
        snprintf(ret, n, "it is within the quota of its queue '%s', and queue '%s' would use more than its own",
                 first->queue->name, job->queue->name);
    else if (first->priority != job->priority)
        snprintf(ret, n, "it is in queue '%s', and the higher priority is first", first->queue->name);
    else
        snprintf(ret, n,
                 "its queue '%s' has the lower share: %.1f %s slots by weight, in use and in the past; queue '%s' has "
                 "%.1f",
                 first->queue->name, queue_share(s, first->queue, job->slot), kinds[slot], job->queue->name,
                 queue_share(s, job->queue, job->slot));
}

static void add_order(const struct scheduler *s, const struct job *job, struct ahead ahead, struct capacity all,
                      struct scheduler_explanation *x) {
    const struct job *first = ahead.first;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_ORDER);
    char needs[180], why[400];
    queue_capacity_text(first, queue_capacity_for(s, all, first), needs, sizeof needs);
    order_text(s, first, job, why, sizeof why);
    MESSAGE(r, "waits behind job %lld (priority %d), which %s; %s", (long long)first->id, first->priority, needs, why);
    if (ahead.n == 1)
        REMEDY(r, "its turn comes when job %lld has started or is cancelled", (long long)first->id);
    else
        REMEDY(r, "its turn comes when the %d jobs before it, job %lld first, have started or are cancelled", ahead.n,
               (long long)first->id);
}

/* The settings of its queue keep the job back. */
static void add_limit(const struct scheduler *s, const struct job *job, enum queue_limit limit,
                      struct scheduler_explanation *x) {
    const bool user = limit == QUEUE_LIMIT_USER || limit == QUEUE_LIMIT_USER_TURN || limit == QUEUE_LIMIT_USER_NEVER;
    const char *kind = kinds[job->slot], *queue = job->queue->name;
    struct scheduler_reason *r = add(x, user ? SCHEDULER_WAIT_USER : SCHEDULER_WAIT_QUOTA);
    queue_limit_text(s, job, limit, r->message, sizeof r->message);
    switch (limit) {
    case QUEUE_LIMIT_NONE: break;
    case QUEUE_LIMIT_NEVER:
        REMEDY(r, "trainyard queue set %s --quota-%s N, or submit it again with fewer ranks", queue, kind);
        break;
    case QUEUE_LIMIT_USER_NEVER:
        REMEDY(r, "trainyard queue set %s --user-%s N, or submit it again with fewer ranks", queue, kind);
        break;
    case QUEUE_LIMIT_USER:
        REMEDY(r, "its turn comes when jobs of user '%s' have ended, or: trainyard queue set %s --user-%s N",
               job->user->name, queue, kind);
        break;
    case QUEUE_LIMIT_USER_TURN:
        REMEDY(r, "its turn comes when job %lld has started or is cancelled",
               (long long)job->user->waits[job->slot].job);
        break;
    case QUEUE_LIMIT_QUOTA:
        REMEDY(r, "its turn comes when jobs of queue '%s' have ended, or: trainyard queue set %s --quota-%s N", queue,
               queue, kind);
        break;
    case QUEUE_LIMIT_COHORT:
        REMEDY(r, "its turn comes when jobs of cohort '%s' have ended", job->queue->cohort->name);
        break;
    case QUEUE_LIMIT_COHORT_TURN:
        REMEDY(r, "its turn comes when job %lld has started or is cancelled",
               (long long)job->queue->cohort->claimed_by[job->slot]);
        break;
    }
}

static void add_busy(const struct job *job, struct capacity capacity, struct scheduler_explanation *x) {
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_BUSY);
    const int lacking = job->world_size - capacity.free;
    queue_capacity_text(job, capacity, r->message, sizeof r->message);
    size_t used = (size_t)REMEDY(r, "%d more must become free", lacking);
    for (int i = 0; i < x->n_holders && i < 3; i++)
        used += (size_t)snprintf(r->remedy + used, sizeof r->remedy - used, "%s job %lld has %d", i ? "," : ":",
                                 (long long)x->holders[i].job, x->holders[i].slots);
    const int more = x->n_holders + x->more_holders - 3;
    if (more > 0)
        snprintf(r->remedy + used, sizeof r->remedy - used, ", and so have %d more job%s", more, s_of(more));
}

static void add_fenced(const struct scheduler *s, const struct job *job, struct scheduler_explanation *x) {
    const struct executor *first = NULL;
    int unused = 0;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        if (executor_availability_for(ex, job) != SCHEDULER_HOST_FENCED)
            continue;
        unused += ex->slots[job->slot] - ex->used[job->slot];
        first = first ? first : ex;
    }
    if (unused <= 0)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_FENCED);
    MESSAGE(r, "%d more slot%s %s fenced: attempt %d of job %lld may still run on executor %s", unused, s_of(unused),
            is_of(unused), first->fenced[0].attempt, (long long)first->fenced[0].job, first->id);
    REMEDY(r,
           "its agent ends the remaining ranks, by force after %d s; an executor without heartbeats is lost after %d s",
           SCHEDULER_STOP_GRACE_MS / 1000, LEASE_TTL_MS / 1000);
}

/* The reasons are in the order in which a person would have to act: first slots that the executors do not have, then
 * the jobs that are before this one, then slots that are in use. */
static void explain_waiting(const struct scheduler *s, const struct job *job, int64_t now_ms,
                            struct scheduler_explanation *x) {
    const struct capacity all = s->capacity[job->slot], capacity = queue_capacity_for(s, all, job);
    const struct ahead ahead = count_ahead(s, job);
    const enum queue_limit limit = queue_limit_of(s, job);
    const bool fits = job->world_size <= capacity.slots, free = job->world_size <= capacity.free;
    x->position = ahead.n + 1;
    x->slots = capacity.slots;
    x->free = capacity.free;
    x->waiting = !job->in_queue;
    for (int q = 0; q < s->n_queues; q++)
        x->waiting += (int)s->queues[q]->lines[job->slot].n;
    list_holders(s, job, x);
    list_hosts(s, job, x);
    if (!fits)
        add_lacking(job, capacity, x);
    if (!free) {
        add_detached(s, now_ms, x);
        if (!fits || drained_unused(s, job))
            add_drained(job, capacity, x);
        add_avoided(job, capacity, now_ms, x);
        add_lacking_feature(job, capacity, x);
        add_out_of_use(job, all, x);
    }
    if (limit != QUEUE_LIMIT_NONE)
        add_limit(s, job, limit, x);
    if (ahead.n)
        add_order(s, job, ahead, all, x);
    if (fits && !free)
        add_busy(job, capacity, x);
    if (!free)
        add_fenced(s, job, x);
    if (fits)
        snprintf(x->summary, sizeof x->summary, "waits for %d %s slot%s, as number %d of %d waiting jobs",
                 job->world_size, kinds[job->slot], s_of(job->world_size), x->position, x->waiting);
    else /* the position does not matter yet */
        snprintf(x->summary, sizeof x->summary, "waits for %d %s slot%s, more than executors offer it", job->world_size,
                 kinds[job->slot], s_of(job->world_size));
    if (x->n_reasons > 0 || job->state == JOB_STATE_RESTARTING)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_NOTHING);
    MESSAGE(r, "nothing delays it");
    REMEDY(r, "the scheduler places it in its next pass; there are %d passes per second", 1000 / SCHEDULER_TICK_MS);
}

/* ---- why an attempt does not proceed ---- */

static void add_backoff(const struct job *job, int64_t now_ms, struct scheduler_explanation *x) {
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_BACKOFF);
    x->next_attempt_ms = job->not_before_ms;
    MESSAGE(r, "attempt %d begins in %lld s, after %d attempt%s in a row that made no checkpoint", job->number + 1,
            seconds(job->not_before_ms - now_ms), job->failures, s_of(job->failures));
    REMEDY(r, "none is needed: it begins then; %d of %d restarts are used", job->restarts, job->max_restarts);
}

/* The last attempt could not read its checkpoint, and the next one reads the same checkpoint. */
static void add_unreadable(const struct scheduler *s, const struct job *job, int64_t now_ms,
                           struct scheduler_explanation *x) {
    const struct avoided *on = NULL;
    for (int i = 0; job->unreadable && job->avoided && i < job->avoided->n; i++)
        if (job->avoided->of[i].cause == RANK_END_CHECKPOINT_UNREADABLE)
            on = &job->avoided->of[i];
    if (!on)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_CHECKPOINT);
    MESSAGE(r, "the checkpoint to resume from could not be read for %lld s, on executor %s: %s",
            seconds(now_ms - job->unreadable_since_ms), on->executor, on->why);
    REMEDY(r, "restore its files; after %lld s in all it becomes MISSING, and an older one is used",
           seconds(job_checkpoint_limit_ms(s, job)));
}

static void add_ending(const struct job *job, struct scheduler_explanation *x) {
    const struct attempt *a = job->attempt;
    const struct executor *where = NULL;
    int parts = 0, rank = -1;
    for (int p = 0; p < a->n_parts; p++)
        if (!a->parts[p].over) {
            parts++;
            where = where ? where : a->parts[p].executor;
        }
    for (int r = 0; r < a->n_ranks && rank < 0; r++)
        rank = a->ranks[r].stored ? -1 : r;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_ENDING);
    if (!where) {
        MESSAGE(r, "the last records of rank %d of attempt %d are not stored yet", rank, job->number);
        REMEDY(r, "its executor sends them, or is lost %d s after its last heartbeat", LEASE_TTL_MS / 1000);
        return;
    }
    MESSAGE(r, "attempt %d has not ended on %d of %d executors: %s%s", job->number, parts, a->n_parts, where->id,
            parts > 1 ? " and others" : "");
    if (a->ending == ATTEMPT_CHECKPOINTS)
        REMEDY(r, "its ranks end their step and write a checkpoint; ranks that remain after %d s are ended by force",
               SCHEDULER_CHECKPOINT_GRACE_MS / 1000);
    else
        REMEDY(r,
               "its agent ends the remaining ranks, by force after %d s; an executor without heartbeats is lost after "
               "%d s",
               SCHEDULER_STOP_GRACE_MS / 1000, LEASE_TTL_MS / 1000);
}

static void add_gathering(const struct job *job, int64_t now_ms, struct scheduler_explanation *x) {
    const struct attempt *a = job->attempt;
    int missing = 0, first = -1;
    for (int r = 0; r < a->n_ranks; r++)
        if (!a->ranks[r].joined) {
            missing++;
            first = first < 0 ? r : first;
        }
    if (missing == 0)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_GATHERING);
    const struct rank *rank = &a->ranks[first];
    const char *is = rank->offered   ? "waits for the others, or connects to them"
                     : rank->started ? "has a process, which loads its data"
                                     : "has no process yet";
    if (missing == 1)
        MESSAGE(r, "1 of %d ranks has not joined: rank %d on executor %s %s", a->n_ranks, first, rank->executor->id,
                is);
    else
        MESSAGE(r, "%d of %d ranks have not joined; the first of them, rank %d on executor %s, %s", missing, a->n_ranks,
                first, rank->executor->id, is);
    REMEDY(r, "the attempt is ended and tried again unless all have joined within %lld s",
           seconds(a->start_deadline_ms - now_ms));
}

static void summarize_attempt(const struct scheduler *s, const struct job *job, const char *what, int64_t now_ms,
                              struct scheduler_explanation *x) {
    const struct attempt *a = job->attempt;
    char elastic[240];
    elastic_describe(s, job, now_ms, elastic, sizeof elastic);
    snprintf(x->summary, sizeof x->summary, "attempt %d %s: %d rank%s on %d executor%s%s", job->number, what,
             a->n_ranks, s_of(a->n_ranks), a->n_parts, s_of(a->n_parts), elastic);
}

static bool all_ended(const struct attempt *a) {
    for (int r = 0; r < a->n_ranks; r++)
        if (!a->ranks[r].ended)
            return false;
    return true;
}

static void explain_attempt(const struct scheduler *s, const struct job *job, int64_t now_ms,
                            struct scheduler_explanation *x) {
    switch (job->state) {
    case JOB_STATE_STARTING:
        summarize_attempt(s, job, "starts", now_ms, x);
        add_gathering(job, now_ms, x);
        return;
    case JOB_STATE_RUNNING:
        summarize_attempt(s, job, all_ended(job->attempt) ? "has ended on its hosts" : "runs", now_ms, x);
        if (all_ended(job->attempt))
            add_ending(job, x);
        return;
    default:
        summarize_attempt(s, job, "is ending", now_ms, x);
        add_ending(job, x);
        return;
    }
}

static void explain_paused(const struct job *job, struct scheduler_explanation *x) {
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_PAUSED);
    snprintf(x->summary, sizeof x->summary, "until its user resumes it");
    MESSAGE(r, "its user has paused it");
    REMEDY(r, "trainyard resume %lld: it waits at its old place in the queue and continues from its newest checkpoint",
           (long long)job->id);
}

void scheduler_explain(const struct scheduler *s, int64_t id, int64_t now_ms, struct scheduler_explanation *ret) {
    const struct job *job = job_find(s, id);
    *ret = (struct scheduler_explanation){ .live = job != NULL };
    if (!job)
        return;
    ret->state = job->state;
    ret->slot = job->slot;
    ret->attempt = job->number;
    ret->world_size = job->world_size;
    if (job->attempt) {
        explain_attempt(s, job, now_ms, ret);
        return;
    }
    switch (job->state) {
    case JOB_STATE_RESTARTING:
        add_unreadable(s, job, now_ms, ret);
        if (!job->in_queue)
            add_backoff(job, now_ms, ret);
        explain_waiting(s, job, now_ms, ret); /* the slots that the next attempt would find now */
        return;
    case JOB_STATE_QUEUED:
        add_unreadable(s, job, now_ms, ret);
        explain_waiting(s, job, now_ms, ret);
        return;
    case JOB_STATE_PAUSED: explain_paused(job, ret); return;
    default: snprintf(ret->summary, sizeof ret->summary, "is about to leave this state"); return;
    }
}
