/* The queue of waiting jobs, sorted by priority and then id, and the placing of jobs on hosts.
 *
 * queue_place walks the queue in order. A job starts if its whole gang fits (placement.c). Otherwise it keeps its
 * place, and it blocks the jobs of the same kind of slots behind it: there is no backfill, so that narrow jobs do not
 * starve a wide gang. Two exceptions:
 *
 *   - A job that is wider than all executors blocks no other job, because it may wait for ever.
 *   - Jobs behind a blocking job may use hosts that the blocking job avoids (struct detour).
 *
 * The walk ends when both kinds of slots are blocked. Its results (capacity, blocker, detour) stay valid until
 * needs_placing. queue_insert uses them to decide whether a new job could start at all, so that a flood of submitted
 * jobs does not cause a walk for each.
 *
 * An elastic job takes part in the walk with the slots that it needs. It gets more of them after the walk, if no job of
 * its kind of slots waits: slots that a job needs come before those that another one can use in addition.
 *
 * A RESTARTING job that does not start becomes QUEUED. */
#include "base/alloc.h"
#include "service/scheduler/placement.h"
#include "service/scheduler/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool queue_before(const struct job *a, const struct job *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

/* Returns the index of the job, or the index at which it must be inserted. */
static size_t place_of(const struct scheduler *s, const struct job *job) {
    size_t low = 0, high = s->n_queue;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (queue_before(s->queue[middle], job))
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

/* Whether placing again could start the new job. A long queue is not walked for each job that joins its end. */
static bool may_start(const struct scheduler *s, const struct job *job, size_t at) {
    const struct job *blocker = s->blocker[job->slot];
    if (at == 0)
        return true;
    const bool blocked = blocker && queue_before(blocker, job) && s->detour[job->slot].n == 0;
    return !blocked && queue_blocks(s, job, s->capacity[job->slot]);
}

void queue_insert(struct scheduler *s, struct job *job) {
    assert(!job->in_queue);
    size_t at = place_of(s, job);
    memmove(s->queue + at + 1, s->queue + at, (s->n_queue - at) * sizeof *s->queue);
    s->queue[at] = job;
    s->n_queue++;
    job->in_queue = true;
    job->waiting_reported = false;
    s->needs_placing = s->needs_placing || may_start(s, job, at);
}

void queue_remove(struct scheduler *s, struct job *job) {
    if (!job->in_queue)
        return;
    size_t at = place_of(s, job);
    assert(at < s->n_queue && s->queue[at] == job);
    s->n_queue--;
    memmove(s->queue + at, s->queue + at + 1, (s->n_queue - at) * sizeof *s->queue);
    job->in_queue = false;
    s->needs_placing = true;
}

struct capacity queue_capacity(const struct scheduler *s, enum scheduler_slot slot) {
    struct capacity capacity = { .features = UINT32_MAX };
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        const int free_slots = executor_free(ex, slot, 1);
        const bool alone = executor_availability(ex, slot, 2) == SCHEDULER_HOST_SINGLE_RANK;
        capacity.features &= ex->features;
        if (executor_detachment(ex) == SCHEDULER_DETACHED_STREAM_ENDED && !ex->drained) {
            capacity.detached += ex->slots[slot];
            capacity.single_rank_detached += slot == SCHEDULER_SLOT_CUDA && ex->single_rank ? ex->slots[slot] : 0;
        }
        if (!ex->attached || ex->leaving)
            continue;
        capacity.attached++;
        if (ex->drained) { /* no capacity: a job that needs it waits for a person, and must not block others */
            executor_count_drained(ex, slot, &capacity);
            continue;
        }
        capacity.slots += ex->slots[slot];
        capacity.quarantined += slot == SCHEDULER_SLOT_CUDA ? ex->quarantined : 0;
        capacity.free += free_slots;
        capacity.single_rank_slots += alone ? ex->slots[slot] : 0;
        capacity.single_rank_free += alone ? free_slots : 0;
    }
    return capacity;
}

/* Gives the job slots on the chosen hosts. */
static void take_slots(struct scheduler *s, struct job *job, const int *host, int ranks, int64_t now_ms) {
    struct attempt *attempt = attempt_new(job->number + 1, ranks);
    for (int r = 0; r < ranks; r++)
        attempt->ranks[r].executor = s->all[host[r]];
    attempt->start_deadline_ms = now_ms + attempt_start_limit_ms(job);
    attempt_begin(job, attempt);
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

/* The hosts with free slots that the job may use, and the number of these slots. A gang uses no host that takes no
 * gangs. */
static int list_hosts(const struct scheduler *s, const struct job *job, bool gang, bool faulty,
                      const struct detour *detour, int64_t now_ms, struct placement_host *hosts, int *ret_free) {
    int n = 0;
    *ret_free = 0;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        const int free_slots = executor_free_for(ex, job);
        if (free_slots <= 0 || (!faulty && executor_faulty(ex, now_ms)) || (detour && !is_open(detour, ex)) ||
            (gang && job->slot == SCHEDULER_SLOT_CUDA && ex->single_rank))
            continue;
        hosts[n++] = (struct placement_host){ .host = i, .free = free_slots, .order = ex->order };
        *ret_free += free_slots;
    }
    return n;
}

/* Gives the job up to max slots, at least those that it needs. detour: NULL, or the only hosts that the job may use.
 * Hosts that have failed jobs are used only if the other hosts do not have enough slots. */
static bool reserve(struct scheduler *s, struct job *job, int max, const struct detour *detour, int64_t now_ms) {
    CLEANUP(freep) struct placement_host *hosts = alloc_zeroed((size_t)s->n_all, sizeof *hosts);
    CLEANUP(freep) int *chosen = alloc_zeroed((size_t)max, sizeof *chosen);
    for (int faulty = 0; faulty < 2; faulty++) {
        int free_slots;
        const int n = list_hosts(s, job, max > 1, faulty, detour, now_ms, hosts, &free_slots);
        const int ranks = free_slots < max ? free_slots : max;
        if (ranks < job->world_size || !placement_choose(hosts, n, ranks, chosen))
            continue;
        take_slots(s, job, chosen, ranks, now_ms);
        return true;
    }
    return max > 1 && job->world_size == 1 && reserve(s, job, 1, detour, now_ms);
}

bool queue_start_now(struct scheduler *s, struct job *job, int max, int64_t now_ms, struct scheduler_actions *out) {
    if (!reserve(s, job, max, NULL, now_ms))
        return false;
    start(s, job, out);
    s->needs_placing = true;
    return true;
}

void queue_capacity_text(const struct job *job, struct capacity capacity, char *ret, size_t n) {
    const char *slot = job->slot == SCHEDULER_SLOT_CUDA ? "cuda" : "cpu", *plural = job->world_size == 1 ? "" : "s";
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
    if (s->n_queue > 0)
        s->queue[0]->waiting_reported = false;
    s->needs_placing = true;
}

static void refresh_capacity(struct scheduler *s) {
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        s->capacity[k] = queue_capacity(s, (enum scheduler_slot)k);
        s->blocker[k] = NULL;
        s->detour[k].n = 0;
    }
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
    for (struct job *job = s->active, *next; job; job = next) {
        next = job->next;
        settle_restart(s, job, out);
    }
}

/* The elastic jobs that the walk has started with the slots that they need get those that no waiting job can use. */
static void start_elastic(struct scheduler *s, struct job *first, int64_t now_ms, struct scheduler_actions *out) {
    for (struct job *job = first; job; job = job->next_started) {
        if (!s->blocker[job->slot]) {
            attempt_undo(job);
            const bool fits = reserve(s, job, job->max_world_size, NULL, now_ms);
            assert(fits);
            (void)fits;
        }
        start(s, job, out);
        s->capacity[job->slot] = queue_capacity(s, job->slot);
    }
}

/* Gives the job the slots that it needs. An elastic job is added to a list, and starts after the walk. */
static void take_or_start(struct scheduler *s, struct job *job, struct job ***last, struct scheduler_actions *out) {
    job->in_queue = false;
    job->next_started = NULL;
    if (job_is_elastic(job)) {
        **last = job;
        *last = &job->next_started;
    } else {
        start(s, job, out);
    }
    s->capacity[job->slot] = queue_capacity(s, job->slot);
}

/* Walks the queue as the top of this file describes. Jobs that do not start move together at the front. */
void queue_place(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    s->needs_placing = false;
    refresh_capacity(s);
    struct job *elastic = NULL, **last = &elastic;
    size_t kept = 0, i = 0;
    for (; i < s->n_queue; i++) {
        struct job *job = s->queue[i];
        if (is_blocked(s, SCHEDULER_SLOT_CPU) && is_blocked(s, SCHEDULER_SLOT_CUDA))
            break;
        const struct capacity capacity = queue_capacity_for(s, s->capacity[job->slot], job);
        const bool first = !s->blocker[job->slot];
        if (!is_blocked(s, job->slot) && capacity.free >= job->world_size &&
            reserve(s, job, job->world_size, first ? NULL : &s->detour[job->slot], now_ms)) {
            take_or_start(s, job, &last, out);
            continue;
        }
        if (kept == 0) { /* only the first waiting job gets an event; one for each job would be a flood */
            settle_restart(s, job, out);
            report_waiting(job, capacity, out);
        }
        if (!is_blocked(s, job->slot) &&
            (s->capacity[job->slot].free == 0 || queue_blocks(s, job, s->capacity[job->slot])))
            block(s, job, first);
        s->queue[kept++] = job;
    }
    if (i > kept) {
        memmove(s->queue + kept, s->queue + i, (s->n_queue - i) * sizeof *s->queue);
        s->n_queue -= i - kept;
    }
    start_elastic(s, elastic, now_ms, out);
    settle_restarts(s, out);
    elastic_refresh(s, now_ms);
}
