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

static int slots_held(const struct job *job, const struct job *by) {
    int held = 0;
    for (int r = 0; r < by->attempt->n_ranks; r++) {
        const struct executor *ex = by->attempt->ranks[r].executor;
        const enum scheduler_host verdict = executor_judge(ex, job->slot, job->world_size);
        held += !attempt_part(by->attempt, ex)->over &&
                (verdict == SCHEDULER_HOST_FULL || verdict == SCHEDULER_HOST_TAKES);
    }
    return held;
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
        const int slots = by != job && by->attempt && by->slot == job->slot ? slots_held(job, by) : 0;
        if (slots > 0)
            list_holder(x, (struct scheduler_holder){ .job = by->id, .attempt = by->number, .slots = slots });
    }
}

static bool more_use(const struct scheduler_host_view *a, const struct scheduler_host_view *b) {
    return a->verdict != b->verdict ? a->verdict < b->verdict : a->free > b->free;
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
        struct scheduler_host_view h = { .verdict = executor_judge(ex, job->slot, job->world_size),
                                         .slots = ex->slots[job->slot],
                                         .free = executor_free(ex, job->slot, job->world_size),
                                         .quarantined = job->slot == SCHEDULER_SLOT_CUDA ? ex->quarantined : 0 };
        memcpy(h.id, ex->id, sizeof h.id);
        memcpy(h.drain_reason, ex->drain_reason, sizeof h.drain_reason);
        if (ex->n_held > 0) {
            h.held_job = ex->held[0].job;
            h.held_attempt = ex->held[0].attempt;
        }
        list_host(x, &h);
    }
}

/* ---- why it waits for slots ---- */

static void say_lacking(const struct job *job, struct room room, struct scheduler_explanation *x) {
    const int lacking = job->world_size - room.slots;
    const char *kind = kinds[job->slot];
    struct scheduler_reason *r = add(x, room.attached == 0 ? SCHEDULER_WAIT_NO_EXECUTOR
                                        : room.slots == 0  ? SCHEDULER_WAIT_NO_SLOTS
                                                           : SCHEDULER_WAIT_TOO_WIDE);
    queue_room_text(job, room, r->message, sizeof r->message);
    if (room.drained >= lacking)
        REMEDY(r, "take drained executors into use again (trainyard undrain), or attach others with %d more %s slot%s",
               lacking, kind, s_of(lacking));
    else if (room.attached == 0)
        REMEDY(r, "start trainyard-executor on a host with %d %s slot%s or more, or on several", lacking, kind,
               s_of(lacking));
    else if (job->slot == SCHEDULER_SLOT_CUDA)
        REMEDY(r, "attach executors with %d more CUDA device%s, or submit it again with %s", lacking, s_of(lacking),
               room.slots ? "fewer ranks (parallel)" : "resources.accelerator: cpu");
    else
        REMEDY(r, "attach executors with %d more cpu slot%s (trainyard-executor --slots)%s", lacking, s_of(lacking),
               job->world_size > 1 ? ", or submit it again with fewer ranks (parallel)" : "");
}

static void say_away(const struct scheduler *s, int64_t now_ms, struct scheduler_explanation *x) {
    const struct executor *first = NULL;
    int n = 0;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        if (ex->attached || ex->lost)
            continue;
        n++;
        first = first && first->lease_until_ms <= ex->lease_until_ms ? first : ex;
    }
    if (n == 0)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_AWAY);
    if (n == 1)
        MESSAGE(r, "executor %s has not come back since this controller leads", first->id);
    else
        MESSAGE(r, "%d executors have not come back since this controller leads, executor %s among them", n, first->id);
    REMEDY(r, "they attach again by themselves; who has not within %lld s counts as lost",
           seconds(first->lease_until_ms - now_ms));
}

/* Slots in use on a drained executor come free no sooner where it is given back. */
static bool drained_unused(const struct scheduler *s, const struct job *job) {
    for (int i = 0; i < s->n_all; i++)
        if (executor_judge(s->all[i], job->slot, job->world_size) == SCHEDULER_HOST_DRAINED &&
            s->all[i]->used[job->slot] < s->all[i]->slots[job->slot])
            return true;
    return false;
}

static void say_drained(const struct job *job, struct room room, struct scheduler_explanation *x) {
    if (!room.drained)
        return;
    char hosts[DRAINED_BYTES];
    executor_drained_text(room, hosts);
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_DRAINED);
    MESSAGE(r, "%d %s slot%s %s drained: %s", room.drained, kinds[job->slot], s_of(room.drained), is_of(room.drained),
            hosts);
    REMEDY(r, "trainyard undrain %s", room.drained_at->id);
}

static void say_out_of_use(const struct job *job, struct room all, struct scheduler_explanation *x) {
    if (all.quarantined) {
        struct scheduler_reason *r = add(x, SCHEDULER_WAIT_QUARANTINED);
        MESSAGE(r, "%d CUDA device%s of attached executors %s quarantined", all.quarantined, s_of(all.quarantined),
                is_of(all.quarantined));
        REMEDY(r, "look at the device, take its line out of its executor's DIR/quarantine, start that executor again");
    }
    if (job->world_size > 1 && all.lone_slots) {
        struct scheduler_reason *r = add(x, SCHEDULER_WAIT_LONE);
        MESSAGE(r, "%d cuda slot%s %s on executors that take jobs of one rank only, since ranks there cannot talk",
                all.lone_slots, s_of(all.lone_slots), is_of(all.lone_slots));
        REMEDY(r, "give these executors what they say that they lack, or submit it again with one rank (parallel)");
    }
}

/* Those before it that hold it up. */
struct ahead {
    const struct job *first;
    int n;
};

static struct ahead who_is_ahead(const struct scheduler *s, const struct job *job, struct room all) {
    struct ahead ahead = { 0 };
    for (size_t i = 0; i < s->n_queue && queue_before(s->queue[i], job); i++) {
        const struct job *other = s->queue[i];
        if (other->slot != job->slot || !queue_holds_up(other, all))
            continue;
        ahead.first = ahead.first ? ahead.first : other;
        ahead.n++;
    }
    return ahead;
}

static void say_order(const struct job *job, struct ahead ahead, struct room all, struct scheduler_explanation *x) {
    const struct job *first = ahead.first;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_ORDER);
    char needs[200];
    queue_room_text(first, queue_room_for(all, first), needs, sizeof needs);
    MESSAGE(r, "waits behind job %lld (priority %d), which %s; %s jobs start strictly in order, without backfill",
            (long long)first->id, first->priority, needs, kinds[job->slot]);
    if (ahead.n == 1)
        REMEDY(r, "its turn comes when job %lld has started or is cancelled", (long long)first->id);
    else
        REMEDY(r, "its turn comes when the %d jobs before it, job %lld first, have started or are cancelled", ahead.n,
               (long long)first->id);
}

static void say_busy(const struct job *job, struct room room, struct scheduler_explanation *x) {
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_BUSY);
    const int lacking = job->world_size - room.free;
    queue_room_text(job, room, r->message, sizeof r->message);
    size_t used = (size_t)REMEDY(r, "%d more must come free", lacking);
    for (int i = 0; i < x->n_holders && i < 3; i++)
        used += (size_t)snprintf(r->remedy + used, sizeof r->remedy - used, "%s job %lld has %d", i ? "," : ":",
                                 (long long)x->holders[i].job, x->holders[i].slots);
    const int more = x->n_holders + x->more_holders - 3;
    if (more > 0)
        snprintf(r->remedy + used, sizeof r->remedy - used, ", and so have %d more job%s", more, s_of(more));
}

static void say_held(const struct scheduler *s, const struct job *job, struct scheduler_explanation *x) {
    const struct executor *first = NULL;
    int unused = 0;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        if (executor_judge(ex, job->slot, job->world_size) != SCHEDULER_HOST_HELD)
            continue;
        unused += ex->slots[job->slot] - ex->used[job->slot];
        first = first ? first : ex;
    }
    if (unused <= 0)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_HELD);
    MESSAGE(r, "%d slot%s more %s kept back: attempt %d of job %lld may still run on executor %s", unused, s_of(unused),
            is_of(unused), first->held[0].attempt, (long long)first->held[0].job, first->id);
    REMEDY(r, "its agent ends what is left, by force after %d s; an executor that falls silent is lost after %d s",
           SCHEDULER_STOP_GRACE_MS / 1000, LEASE_TTL_MS / 1000);
}

/* What its executors lack for good comes first, then whose turn it is, then what is busy: in the order in which a
 * person would have to see to it. */
static void say_waiting(const struct scheduler *s, const struct job *job, int64_t now_ms,
                        struct scheduler_explanation *x) {
    const struct room all = queue_room(s, job->slot), room = queue_room_for(all, job);
    const struct ahead ahead = who_is_ahead(s, job, all);
    const bool fits = job->world_size <= room.slots, free = job->world_size <= room.free;
    x->position = ahead.n + 1;
    x->slots = room.slots;
    x->free = room.free;
    x->waiting = !job->in_queue;
    for (size_t i = 0; i < s->n_queue; i++)
        x->waiting += s->queue[i]->slot == job->slot;
    list_holders(s, job, x);
    list_hosts(s, job, x);
    if (!fits)
        say_lacking(job, room, x);
    if (!free) {
        say_away(s, now_ms, x);
        if (!fits || drained_unused(s, job))
            say_drained(job, room, x);
        say_out_of_use(job, all, x);
    }
    if (ahead.n)
        say_order(job, ahead, all, x);
    if (fits && !free)
        say_busy(job, room, x);
    if (!free)
        say_held(s, job, x);
    if (fits)
        snprintf(x->summary, sizeof x->summary, "waits for %d %s slot%s, as number %d of %d that wait for such",
                 job->world_size, kinds[job->slot], s_of(job->world_size), x->position, x->waiting);
    else /* whose turn it is does not matter yet */
        snprintf(x->summary, sizeof x->summary, "waits for %d %s slot%s, more than executors offer it", job->world_size,
                 kinds[job->slot], s_of(job->world_size));
    if (x->n_reasons > 0 || job->state == JOB_STATE_RESTARTING)
        return;
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_NOTHING);
    MESSAGE(r, "nothing holds it up");
    REMEDY(r, "it is placed with the scheduler's next look, which comes %d times a second", 1000 / SCHEDULER_TICK_MS);
}

/* ---- why its attempt does not go on ---- */

static void say_backoff(const struct job *job, int64_t now_ms, struct scheduler_explanation *x) {
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_BACKOFF);
    x->next_attempt_ms = job->not_before_ms;
    MESSAGE(r, "attempt %d begins in %lld s, after %d attempt%s in a row that made no checkpoint", job->number + 1,
            seconds(job->not_before_ms - now_ms), job->failures, s_of(job->failures));
    REMEDY(r, "none is needed: it begins by itself; %d of %d restarts are used", job->restarts, job->max_restarts);
}

static void say_ending(const struct job *job, struct scheduler_explanation *x) {
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
        REMEDY(r, "its executor sends them, or is lost %d s after it falls silent", LEASE_TTL_MS / 1000);
        return;
    }
    MESSAGE(r, "attempt %d has not ended on %d of %d executors: %s%s", job->number, parts, a->n_parts, where->id,
            parts > 1 ? " and others" : "");
    if (a->ending == ATTEMPT_CHECKPOINTS)
        REMEDY(r, "its ranks end their step and write a checkpoint; what is left after %d s is ended by force",
               SCHEDULER_CHECKPOINT_GRACE_MS / 1000);
    else
        REMEDY(r, "its agent ends what is left, by force after %d s; an executor that falls silent is lost after %d s",
               SCHEDULER_STOP_GRACE_MS / 1000, LEASE_TTL_MS / 1000);
}

static void say_gathering(const struct job *job, int64_t now_ms, struct scheduler_explanation *x) {
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

static void say_attempt(const struct job *job, const char *what, struct scheduler_explanation *x) {
    const struct attempt *a = job->attempt;
    snprintf(x->summary, sizeof x->summary, "attempt %d %s: %d rank%s on %d executor%s", job->number, what, a->n_ranks,
             s_of(a->n_ranks), a->n_parts, s_of(a->n_parts));
}

static bool all_ended(const struct attempt *a) {
    for (int r = 0; r < a->n_ranks; r++)
        if (!a->ranks[r].ended)
            return false;
    return true;
}

static void explain_attempt(const struct job *job, int64_t now_ms, struct scheduler_explanation *x) {
    switch (job->state) {
    case JOB_STATE_STARTING:
        say_attempt(job, "starts", x);
        say_gathering(job, now_ms, x);
        return;
    case JOB_STATE_RUNNING:
        say_attempt(job, all_ended(job->attempt) ? "has ended on its hosts" : "runs", x);
        if (all_ended(job->attempt))
            say_ending(job, x);
        return;
    default:
        say_attempt(job, "is ending", x);
        say_ending(job, x);
        return;
    }
}

static void say_paused(const struct job *job, struct scheduler_explanation *x) {
    struct scheduler_reason *r = add(x, SCHEDULER_WAIT_PAUSED);
    snprintf(x->summary, sizeof x->summary, "is paused until its user resumes it");
    MESSAGE(r, "its user has paused it");
    REMEDY(r, "trainyard resume %lld: it waits again at its old place, and goes on from its newest checkpoint",
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
        explain_attempt(job, now_ms, ret);
        return;
    }
    switch (job->state) {
    case JOB_STATE_RESTARTING:
        if (!job->in_queue)
            say_backoff(job, now_ms, ret);
        say_waiting(s, job, now_ms, ret); /* what it would find now */
        return;
    case JOB_STATE_QUEUED: say_waiting(s, job, now_ms, ret); return;
    case JOB_STATE_PAUSED: say_paused(job, ret); return;
    default: snprintf(ret->summary, sizeof ret->summary, "is about to leave this state"); return;
    }
}
