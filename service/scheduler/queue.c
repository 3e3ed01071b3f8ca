/* The waiting jobs of all queues, and the placing of jobs on hosts. The jobs of a queue for one kind of slots are a
 * line, sorted by priority and then id.
 *
 * queue_place walks the lines of each kind of slots together: it takes the first job of all lines, again and again.
 * Jobs that would need slots beyond their queue's quota come last; else the higher priority is first, then the queue
 * with the lower share, then the lower id. A job starts if the limits of its queue allow it (quota.c) and its whole
 * gang fits (placement.c). Otherwise it keeps its place:
 *
 *   - A job that does not fit blocks the jobs behind it: there is no backfill, so that narrow jobs do not starve a
 *     wide gang. Jobs behind it may use hosts that it avoids (struct detour).
 *   - A job that is wider than all executors, or than the queue can ever have slots, blocks no job: it may wait for
 *     ever.
 *   - A job whose user has too many slots blocks the jobs of that user behind it in its queue. A line goes no further
 *     when this holds for all users that have jobs in it, so that a walk does not look at all jobs of such a user.
 *   - A job that its queue's quota or its cohort keeps back blocks the jobs behind it in its queue. If it waits for
 *     slots of the cohort, the jobs behind it in all queues of the cohort borrow nothing meanwhile.
 *
 * A walk ends when its kind of slots is blocked. Its results (blocker, detour) stay valid until needs_placing.
 * queue_insert uses them to decide whether a new job could start at all, so that a flood of submitted jobs does not
 * cause a walk for each. A walk that has started many jobs is cut off, and the next event or tick continues: the
 * order stays the same, and no event takes long.
 *
 * An elastic job takes part in the walk with the slots that it needs. It gets more of them after the walk, if no job
 * of its kind of slots waits for hosts: slots that a job needs come before those that another one can use in addition.
 *
 * A RESTARTING job that does not start becomes QUEUED. */
#include "base/alloc.h"
#include "service/scheduler/placement.h"
#include "service/scheduler/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool queue_before(const struct scheduler *s, const struct job *a, const struct job *b) {
    const bool queues = a->queue != b->queue && a->slot == b->slot;
    if (queues && !a->attempt && !b->attempt) {
        const bool x = queue_borrows(a->queue, a->slot, a->world_size),
                   y = queue_borrows(b->queue, b->slot, b->world_size);
        if (x != y)
            return y;
    }
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (queues) {
        const double x = queue_share(s, a->queue, a->slot), y = queue_share(s, b->queue, b->slot);
        if (x != y)
            return x < y;
    }
    return a->id < b->id;
}

/* Returns the index of the job, or the index at which it must be inserted. */
static size_t place_of(const struct line *line, const struct job *job) {
    size_t low = 0, high = line->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct waiting *w = &line->items[middle];
        if (w->priority != job->priority ? w->priority > job->priority : w->id < job->id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct capacity queue_capacity_for(const struct scheduler *s, struct capacity all, const struct job *job) {
    if (job->world_size > 1) {
        all.free -= all.single_rank_free;
        all.slots -= all.single_rank_slots;
        all.drained -= all.single_rank_drained;
        all.detached -= all.single_rank_detached;
    }
    job_capacity_without_avoided(s, job, &all);
    job_capacity_without_lacking(s, job, &all);
    return all;
}

bool queue_blocks(const struct scheduler *s, const struct job *job, struct capacity all) {
    const struct capacity capacity = queue_capacity_for(s, all, job);
    return job->world_size <= capacity.slots + capacity.detached;
}

bool queue_is_ahead(const struct scheduler *s, struct queue *q, const struct waiting *w, const struct job *job) {
    if (q == job->queue)
        return w->priority != job->priority ? w->priority > job->priority : w->id < job->id;
    const bool x = queue_borrows(q, job->slot, w->world_size),
               y = queue_borrows(job->queue, job->slot, job->world_size);
    if (x != y)
        return y;
    if (w->priority != job->priority)
        return w->priority > job->priority;
    const double a = queue_share(s, q, job->slot), b = queue_share(s, job->queue, job->slot);
    return a != b ? a < b : w->id < job->id;
}

bool queue_others_wait(const struct scheduler *s, enum scheduler_slot slot) {
    for (int q = 0; q < s->n_queues; q++) {
        const struct line *line = &s->queues[q]->lines[slot];
        for (size_t i = 0; i < line->n; i++)
            if (line->items[i].world_size <= capacity_sum(s, slot, &line->items[i]).width &&
                queue_limit(s, s->queues[q], line->items[i].user, slot, line->items[i].world_size, line->items[i].id) ==
                    QUEUE_LIMIT_NONE)
                return true;
    }
    return false;
}

/* Whether placing again could start the new job. A long queue is not walked for each job that joins its end. */
static bool may_start(const struct scheduler *s, const struct job *job, size_t at) {
    const struct job *blocker = s->blocker[job->slot];
    if (at == 0)
        return true;
    const bool blocked = blocker && queue_before(s, blocker, job) && s->detour[job->slot].n == 0;
    return !blocked && queue_blocks(s, job, s->capacity[job->slot]);
}

/* The job joins its line (1), or leaves it (-1). */
static void count_waiting(struct scheduler *s, struct job *job, int sign) {
    int *waiting = &job->user->waiting[job->slot];
    const bool had = *waiting > 0;
    *waiting += sign;
    job->queue->lines[job->slot].users += (*waiting > 0) - had;
    s->n_queue += (size_t)sign;
    job->in_queue = sign > 0;
}

void queue_insert(struct scheduler *s, struct job *job) {
    assert(!job->in_queue);
    struct line *line = &job->queue->lines[job->slot];
    job->priority = queue_priority(job->queue, job->given_priority);
    if (line->n == line->cap) {
        line->cap = line->cap ? 2 * line->cap : 64;
        line->items = alloc_resize(line->items, line->cap, sizeof *line->items);
    }
    const size_t at = place_of(line, job);
    memmove(line->items + at + 1, line->items + at, (line->n - at) * sizeof *line->items);
    const int class = capacity_class(s, job->needs);
    line->items[at] = (struct waiting){ .id = job->id,
                                        .job = job,
                                        .user = job->user,
                                        .priority = job->priority,
                                        .world_size = job->world_size,
                                        .class = class,
                                        .exact = class < 0 || job->avoided };
    line->n++;
    count_waiting(s, job, 1);
    job->waiting_reported = false;
    s->restarts_wait |= job->state == JOB_STATE_RESTARTING;
    s->needs_placing = s->needs_placing || may_start(s, job, at);
}

void queue_remove(struct scheduler *s, struct job *job) {
    if (!job->in_queue)
        return;
    struct line *line = &job->queue->lines[job->slot];
    const size_t at = place_of(line, job);
    assert(at < line->n && line->items[at].job == job);
    line->n--;
    memmove(line->items + at, line->items + at + 1, (line->n - at) * sizeof *line->items);
    count_waiting(s, job, -1);
    s->needs_placing = true;
}

/* Starts the attempt that has its slots. */
static void start(struct scheduler *s, struct job *job, struct scheduler_actions *out) {
    const struct attempt *attempt = job->attempt;
    char(*placement)[SCHEDULER_EXECUTOR_ID_BYTES] = alloc_zeroed((size_t)attempt->n_ranks, sizeof *placement);
    for (int r = 0; r < attempt->n_ranks; r++)
        memcpy(placement[r], attempt->ranks[r].executor->id, sizeof *placement);
    job->number = attempt->number;

    struct scheduler_action *a = action_add(out, ACT_ATTEMPT_CREATE, job);
    a->from = job->state;
    a->to = JOB_STATE_STARTING;
    a->cause = JOB_CAUSE_PLACED;
    a->world_size = attempt->n_ranks;
    a->needs = job->needs;
    a->placement = placement;
    assert(job_state_edge(job->state, JOB_STATE_STARTING, JOB_CAUSE_PLACED));
    job->state = JOB_STATE_STARTING;
    job_activate(s, job, true);
    job_time(s, job);
    elastic_note(job, out);
    for (int p = 0; p < job->attempt->n_parts; p++)
        action_send(out, ACT_SEND_START, job, job->attempt->parts[p].executor);
}

static bool is_open(const struct detour *detour, const struct executor *ex) {
    for (int i = 0; i < detour->n; i++)
        if (detour->open[i] == ex)
            return true;
    return false;
}

/* Which hosts with free slots the job may use: `usable`. A gang uses no host that takes no gangs. */
struct wish {
    const struct job *job;
    bool gang, faulty;           /* faulty: also hosts that have failed jobs */
    const struct detour *detour; /* NULL, or the only hosts */
    int64_t now_ms;
};

static bool usable(const void *ctx, const struct executor *ex) {
    const struct wish *w = ctx;
    return (w->faulty || !executor_faulty(ex, w->now_ms)) && (!w->detour || is_open(w->detour, ex)) &&
           !(w->gang && w->job->slot == SCHEDULER_SLOT_CUDA && ex->single_rank) && executor_free_for(ex, w->job) > 0;
}

/* Gives the job up to max slots, at least those that it needs. detour: NULL, or the only hosts that the job may use.
 * Hosts that have failed jobs are used only if the other hosts do not have enough slots. */
static bool reserve(struct scheduler *s, struct job *job, int max, const struct detour *detour, int64_t now_ms) {
    CLEANUP(freep) struct executor **chosen = alloc_zeroed((size_t)max, sizeof(struct executor *));
    struct wish wish = { job, max > 1, false, detour, now_ms };
    int ranks = placement_choose(&s->hosts[job->slot], job->world_size, max, usable, &wish, chosen);
    wish.faulty = true;
    if (ranks == 0)
        ranks = placement_choose(&s->hosts[job->slot], job->world_size, max, usable, &wish, chosen);
    if (ranks == 0)
        return max > 1 && job->world_size == 1 && reserve(s, job, 1, detour, now_ms);
    struct attempt *attempt = attempt_new(job->number + 1, ranks);
    for (int r = 0; r < ranks; r++)
        attempt->ranks[r].executor = chosen[r];
    attempt->start_deadline_ms = now_ms + attempt_start_limit_ms(job);
    attempt_begin(s, job, attempt);
    return true;
}

bool queue_start_now(struct scheduler *s, struct job *job, int max, int64_t now_ms, struct scheduler_actions *out) {
    if (!reserve(s, job, max, NULL, now_ms))
        return false;
    start(s, job, out);
    s->needs_placing = true;
    return true;
}

void queue_capacity_text(const struct job *job, struct capacity capacity, char *ret, size_t n) {
    const char *slot = slot_name(job->slot), *plural = job->world_size == 1 ? "" : "s";
    const char *bound = job_is_elastic(job) ? "at least " : "";
    const int single_rank = job->world_size > 1 ? capacity.single_rank_slots : 0;
    char quarantined[40] = "", apart[96], drained[800] = "", detached[64] = "";
    if (capacity.quarantined)
        snprintf(quarantined, sizeof quarantined, "; %d more %s quarantined", capacity.quarantined,
                 capacity.quarantined == 1 ? "is" : "are");
    snprintf(apart, sizeof apart, "%s", quarantined);
    if (single_rank)
        snprintf(apart, sizeof apart, "%s; %d more take%s jobs of one rank only", quarantined, single_rank,
                 single_rank == 1 ? "s" : "");
    if (capacity.drained) {
        char hosts[DRAINED_BYTES];
        executor_drained_text(capacity, hosts);
        snprintf(drained, sizeof drained, "; %d more %s drained: %s", capacity.drained,
                 capacity.drained == 1 ? "is" : "are", hosts);
    }
    size_t used = strlen(drained);
    if (capacity.lacking)
        used += (size_t)snprintf(
            drained + used, sizeof drained - used, "; %d more %s on executors %s '%s': executor %s", capacity.lacking,
            capacity.lacking == 1 ? "is" : "are",
            scheduler_feature_is_of_host(job_lacks(job, capacity.lacking_at)) ? "that do not offer"
                                                                              : "of an older release, which lacks",
            scheduler_feature_name(job_lacks(job, capacity.lacking_at)), capacity.lacking_at->id);
    if (capacity.avoided)
        snprintf(drained + used, sizeof drained - used, "; %d more %s avoided: executor %s: %.180s", capacity.avoided,
                 capacity.avoided == 1 ? "is" : "are", capacity.avoided_at->executor, capacity.avoided_at->why);
    if (capacity.detached)
        snprintf(detached, sizeof detached, "; %d more %s on disconnected executors", capacity.detached,
                 capacity.detached == 1 ? "is" : "are");
    if (capacity.attached == 0)
        snprintf(ret, n, "needs %s%d %s slot%s, and no executor is attached%s", bound, job->world_size, slot, plural,
                 detached);
    else if (job->world_size > capacity.slots)
        snprintf(ret, n, "needs %s%d %s slot%s, more than the %d of all attached executors%s%s%s", bound,
                 job->world_size, slot, plural, capacity.slots, apart, drained, detached);
    else
        snprintf(ret, n, "needs %s%d %s slot%s, %d of %d are free%s%s%s", bound, job->world_size, slot, plural,
                 capacity.free, capacity.slots, apart, drained, detached);
}

static void report_waiting(struct job *job, struct capacity capacity, struct scheduler_actions *out) {
    if (job->waiting_reported)
        return;
    job->waiting_reported = true;
    char text[sizeof((struct scheduler_action *)0)->text];
    queue_capacity_text(job, capacity, text, sizeof text);
    action_text(action_add(out, ACT_WAITING, job), "%s", text);
}

void queue_report_again(struct scheduler *s) {
    for (int q = 0; q < s->n_queues; q++)
        for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
            if (s->queues[q]->lines[k].n > 0)
                s->queues[q]->lines[k].items[0].job->waiting_reported = false;
    s->needs_placing = true;
}

/* The job blocks the jobs behind it. These may only use hosts that this job avoids, except hosts that have failed
 * SCHEDULER_FAULTY_JOBS jobs. first: no other job blocks yet. */
static void block(struct scheduler *s, const struct job *job, bool first) {
    struct detour *detour = &s->detour[job->slot];
    struct detour open = { .n = 0 };
    if (first)
        s->blocker[job->slot] = job;
    for (int i = 0; job->avoided && i < job->avoided->n; i++) {
        const struct executor *ex = executor_find(s, job->avoided->of[i].executor);
        if (ex && job_avoids(job, ex) && executor_free(ex, job->slot, 1) > 0 && (first || is_open(detour, ex)) &&
            ex->fault_jobs < SCHEDULER_FAULTY_JOBS)
            open.open[open.n++] = ex;
    }
    *detour = open;
}

static bool is_blocked(const struct scheduler *s, int slot) { return s->blocker[slot] && s->detour[slot].n == 0; }

/* A RESTARTING job that found no free slots waits like any other job. */
static void settle_restart(struct scheduler *s, struct job *job, struct scheduler_actions *out) {
    if (job->in_queue && job->state == JOB_STATE_RESTARTING)
        job_move(s, job, JOB_STATE_QUEUED, JOB_CAUSE_NO_SLOTS, "waits for free slots", out);
}

static void settle_restarts(struct scheduler *s, struct scheduler_actions *out) {
    if (!s->restarts_wait)
        return;
    s->restarts_wait = false;
    for (struct job *job = s->timed, *next; job; job = next) {
        next = job->next_timed;
        settle_restart(s, job, out);
    }
}

/* One run of queue_place. */
struct pass {
    int64_t now_ms;
    struct job *elastic, **last; /* elastic jobs that have their slots, and start after the walk */
    int starts, ranks;
    const struct job *first; /* the first waiting job for which there are too few slots */
    struct capacity first_capacity;
    struct scheduler_actions *out;
};

/* The elastic jobs that the walk has started with the slots that they need get those that no waiting job can use. */
static void start_elastic(struct scheduler *s, const struct pass *p) {
    for (struct job *job = p->elastic; job; job = job->next_started) {
        const int more = queue_spare(job);
        if (!s->blocker[job->slot] && more > 0) {
            const int wanted = job->max_world_size - job->world_size;
            attempt_undo(s, job);
            const bool fits = reserve(s, job, job->world_size + (more < wanted ? more : wanted), NULL, p->now_ms);
            assert(fits);
            (void)fits;
        }
        start(s, job, p->out);
    }
}

/* Starts the job, which has the slots that it needs. An elastic job is added to a list, and starts after the walk. */
static void take_or_start(struct scheduler *s, struct job *job, struct pass *p) {
    count_waiting(s, job, -1);
    p->starts++;
    p->ranks += job->world_size;
    job->next_started = NULL;
    if (job_is_elastic(job)) {
        *p->last = job;
        p->last = &job->next_started;
    } else {
        start(s, job, p->out);
    }
}

static bool may_begin(const struct scheduler *s, enum scheduler_slot slot, const struct waiting *w,
                      struct capacity_sum sum) {
    if (sum.free < w->world_size)
        return false;
    int open = 0; /* on the detour */
    for (int i = 0; s->blocker[slot] && i < s->detour[slot].n; i++)
        open += executor_free(s->detour[slot].open[i], slot, w->world_size);
    return !s->blocker[slot] || open >= w->world_size;
}

static bool is_cut_off(const struct pass *p) {
    return p->starts >= SCHEDULER_STARTS_PER_PLACING || p->ranks >= SCHEDULER_RANKS_PER_PLACING;
}

static void note_first(const struct scheduler *s, const struct job *job, struct pass *p) {
    if (p->first && queue_before(s, p->first, job))
        return;
    p->first = job;
    if (!job->waiting_reported)
        p->first_capacity = queue_capacity_for(s, s->capacity[job->slot], job);
}

/* The settings of the queue keep the first job of a line back: it gets an event. */
static void report_limit(struct scheduler *s, struct job *job, enum queue_limit limit, struct pass *p) {
    if (job->waiting_reported)
        return;
    char text[sizeof((struct scheduler_action *)0)->text];
    settle_restart(s, job, p->out);
    job->waiting_reported = true;
    queue_limit_text(s, job, limit, text, sizeof text);
    action_text(action_add(p->out, ACT_WAITING, job), "%s", text);
}

/* ---- the order of the lines ---- */

static struct head head_of(const struct scheduler *s, struct queue *q, enum scheduler_slot slot, const struct pass *p) {
    const struct waiting *w = &q->lines[slot].items[q->lines[slot].at];
    return (struct head){ .queue = q,
                          .id = w->id,
                          .share = queue_share(s, q, slot),
                          .priority = w->priority,
                          .borrows = queue_borrows(q, slot, w->world_size),
                          .starts = p->starts };
}

static bool head_before(const struct head *a, const struct head *b) {
    if (a->borrows != b->borrows)
        return b->borrows;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->share != b->share ? a->share < b->share : a->id < b->id;
}

/* The heads are a heap. */
static void sift(struct head *heads, int n, int at) {
    for (int child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && head_before(&heads[child + 1], &heads[child]))
            child++;
        if (!head_before(&heads[child], &heads[at]))
            return;
        const struct head moved = heads[at];
        heads[at] = heads[child];
        heads[child] = moved;
        at = child;
    }
}

static int take_heads(struct scheduler *s, enum scheduler_slot slot, const struct pass *p) {
    int n = 0;
    if (s->cap_heads < s->n_queues) {
        s->cap_heads = s->n_queues;
        s->heads = alloc_resize(s->heads, (size_t)s->cap_heads, sizeof *s->heads);
    }
    for (int i = 0; i < s->n_queues; i++) {
        struct queue *q = s->queues[i];
        q->lines[slot].at = q->lines[slot].kept = 0;
        q->lines[slot].blocked = 0;
        if (q->cohort)
            q->cohort->claimed_by[slot] = 0;
        if (q->lines[slot].n > 0)
            s->heads[n++] = head_of(s, q, slot, p);
    }
    for (int i = n / 2 - 1; i >= 0; i--)
        sift(s->heads, n, i);
    return n;
}

/* ---- the walk ---- */

/* What follows from a look at the first job of a line. */
enum step {
    STEP_NEXT,       /* it has started, or blocks no job */
    STEP_LINE_WAITS, /* the line goes no further */
    STEP_CUT_OFF,
};

/* The limit keeps the job back. What it waits for is left to it by the jobs behind it. */
static enum step keep_turn(const struct scheduler *s, struct queue *q, enum scheduler_slot slot,
                           const struct waiting *w, enum queue_limit limit) {
    if (limit == QUEUE_LIMIT_USER && w->user->waits[slot].walk != s->effort.placings) {
        w->user->waits[slot].walk = s->effort.placings;
        w->user->waits[slot].job = w->id;
        q->lines[slot].blocked++;
    }
    if (limit == QUEUE_LIMIT_COHORT && !q->cohort->claimed_by[slot])
        q->cohort->claimed_by[slot] = w->id;
    if (q->lines[slot].blocked == q->lines[slot].users)
        return STEP_LINE_WAITS;
    const bool line = limit == QUEUE_LIMIT_QUOTA || limit == QUEUE_LIMIT_COHORT || limit == QUEUE_LIMIT_COHORT_TURN;
    return line ? STEP_LINE_WAITS : STEP_NEXT;
}

static enum step try_first(struct scheduler *s, struct queue *q, enum scheduler_slot slot, struct pass *p) {
    struct line *line = &q->lines[slot];
    const struct waiting w = line->items[line->at];
    const struct capacity_sum sum = capacity_sum(s, slot, &w);
    const bool first = !s->blocker[slot];
    s->effort.jobs++;
    const enum queue_limit limit = queue_limit(s, q, w.user, slot, w.world_size, w.id);
    if (limit == QUEUE_LIMIT_NONE && is_cut_off(p) && sum.free >= w.world_size) {
        s->needs_placing = true;
        if (first)
            s->blocker[slot] = w.job;
        return STEP_CUT_OFF;
    }
    line->at++;
    if (limit == QUEUE_LIMIT_NONE && may_begin(s, slot, &w, sum) &&
        reserve(s, w.job, w.world_size, first ? NULL : &s->detour[slot], p->now_ms)) {
        take_or_start(s, w.job, p);
        return STEP_NEXT;
    }
    if (limit == QUEUE_LIMIT_NONE && line->kept == 0)
        note_first(s, w.job, p);
    else if (line->kept == 0)
        report_limit(s, w.job, limit, p);
    line->items[line->kept++] = w;
    if (s->capacity[slot].free > 0 && w.world_size > sum.width)
        return STEP_NEXT; /* wider than all executors: it stops no job */
    if (limit != QUEUE_LIMIT_NONE)
        return keep_turn(s, q, slot, &w, limit);
    block(s, w.job, first);
    return STEP_NEXT;
}

/* Closes the gap that started jobs have left in a line. */
static void close_gap(struct line *line) {
    if (line->at > line->kept)
        memmove(line->items + line->kept, line->items + line->at, (line->n - line->at) * sizeof *line->items);
    line->n -= line->at - line->kept;
}

static void place_kind(struct scheduler *s, enum scheduler_slot slot, struct pass *p) {
    int n = take_heads(s, slot, p);
    while (n > 0 && !is_blocked(s, slot)) {
        struct head *top = &s->heads[0];
        struct queue *q = top->queue;
        if (top->starts != p->starts) { /* a start may have changed its share */
            *top = head_of(s, q, slot, p);
            sift(s->heads, n, 0);
            continue;
        }
        const enum step step = try_first(s, q, slot, p);
        if (step == STEP_CUT_OFF)
            break;
        if (step == STEP_NEXT && q->lines[slot].at < q->lines[slot].n)
            *top = head_of(s, q, slot, p);
        else
            *top = s->heads[--n];
        sift(s->heads, n, 0);
    }
    for (int i = 0; i < s->n_queues; i++)
        close_gap(&s->queues[i]->lines[slot]);
}

/* Walks the lines as the top of this file describes. */
void queue_place(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    struct pass p = { .now_ms = now_ms, .out = out };
    p.last = &p.elastic;
    s->needs_placing = false;
    s->effort.placings++;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        s->blocker[k] = NULL;
        s->detour[k].n = 0;
    }
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        place_kind(s, (enum scheduler_slot)k, &p);
    if (p.first) { /* only the first waiting job gets an event; one for each job would be a flood */
        struct job *first = job_find(s, p.first->id);
        settle_restart(s, first, out);
        report_waiting(first, p.first_capacity, out);
    }
    start_elastic(s, &p);
    settle_restarts(s, out);
    elastic_refresh(s, now_ms);
}
