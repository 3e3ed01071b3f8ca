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
    struct capacity capacity = { 0 };
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        const int free_slots = executor_free(ex, slot, 1);
        const bool alone = executor_availability(ex, slot, 2) == SCHEDULER_HOST_SINGLE_RANK;
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

/* Starts the job on the chosen hosts. */
static void start(struct scheduler *s, struct job *job, const int *host, int64_t now_ms,
                  struct scheduler_actions *out) {
    struct attempt *attempt = attempt_new(job->number + 1, job->world_size);
    char(*placement)[SCHEDULER_EXECUTOR_ID_BYTES] = alloc_zeroed((size_t)job->world_size, sizeof *placement);
    for (int r = 0; r < job->world_size; r++) {
        attempt->ranks[r].executor = s->all[host[r]];
        memcpy(placement[r], s->all[host[r]]->id, sizeof *placement);
    }
    attempt->start_deadline_ms = now_ms + SCHEDULER_START_TIMEOUT_MS;
    job->number++;
    attempt_begin(job, attempt);

    struct scheduler_action *a = action_add(out, ACT_ATTEMPT_CREATE, job);
    a->from = job->state;
    a->to = JOB_STATE_STARTING;
    a->cause = JOB_CAUSE_PLACED;
    a->world_size = job->world_size;
    a->placement = placement;
    assert(job_state_edge(job->state, JOB_STATE_STARTING, JOB_CAUSE_PLACED));
    job->state = JOB_STATE_STARTING;
    job_activate(s, job, true);
    for (int p = 0; p < job->attempt->n_parts; p++)
        action_send(out, ACT_SEND_START, job, job->attempt->parts[p].executor);
}

static bool is_open(const struct detour *detour, const struct executor *ex) {
    for (int i = 0; i < detour->n; i++)
        if (detour->open[i] == ex)
            return true;
    return false;
}

/* detour: NULL, or the only hosts that the job may use. Hosts that have failed jobs are used only if the other hosts do
 * not have enough slots. */
static bool try_start(struct scheduler *s, struct job *job, const struct detour *detour, int64_t now_ms,
                      struct scheduler_actions *out) {
    CLEANUP(freep) struct placement_host *hosts = alloc_zeroed((size_t)s->n_all, sizeof *hosts);
    CLEANUP(freep) int *chosen = alloc_zeroed((size_t)job->world_size, sizeof *chosen);
    bool fits = false;
    for (int faulty = 0; faulty < 2 && !fits; faulty++) {
        int n = 0;
        for (int i = 0; i < s->n_all; i++) {
            const struct executor *ex = s->all[i];
            const int free_slots = executor_free_for(ex, job);
            if (free_slots > 0 && (faulty || !executor_faulty(ex, now_ms)) && (!detour || is_open(detour, ex)))
                hosts[n++] = (struct placement_host){ .host = i, .free = free_slots, .order = ex->order };
        }
        fits = placement_choose(hosts, n, job->world_size, chosen);
    }
    if (fits)
        start(s, job, chosen, now_ms, out);
    return fits;
}

void queue_capacity_text(const struct job *job, struct capacity capacity, char *ret, size_t n) {
    const char *slot = job->slot == SCHEDULER_SLOT_CUDA ? "cuda" : "cpu", *plural = job->world_size == 1 ? "" : "s";
    const int single_rank = job->world_size > 1 ? capacity.single_rank_slots : 0;
    char quarantined[40] = "", apart[96], drained[600] = "", detached[64] = "";
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
    const size_t used = strlen(drained);
    if (capacity.avoided)
        snprintf(drained + used, sizeof drained - used, "; %d more %s avoided: executor %s: %.180s", capacity.avoided,
                 capacity.avoided == 1 ? "is" : "are", capacity.avoided_at->executor, capacity.avoided_at->why);
    if (capacity.detached)
        snprintf(detached, sizeof detached, "; %d more %s on disconnected executors", capacity.detached,
                 capacity.detached == 1 ? "is" : "are");
    if (capacity.attached == 0)
        snprintf(ret, n, "needs %d %s slot%s, and no executor is attached%s", job->world_size, slot, plural, detached);
    else if (job->world_size > capacity.slots)
        snprintf(ret, n, "needs %d %s slot%s, more than the %d of all attached executors%s%s%s", job->world_size, slot,
                 plural, capacity.slots, apart, drained, detached);
    else
        snprintf(ret, n, "needs %d %s slot%s, %d of %d are free%s%s%s", job->world_size, slot, plural, capacity.free,
                 capacity.slots, apart, drained, detached);
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

/* Walks the queue as the top of this file describes. Jobs that do not start move together at the front. */
void queue_place(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    s->needs_placing = false;
    refresh_capacity(s);
    size_t kept = 0, i = 0;
    for (; i < s->n_queue; i++) {
        struct job *job = s->queue[i];
        if (is_blocked(s, SCHEDULER_SLOT_CPU) && is_blocked(s, SCHEDULER_SLOT_CUDA))
            break;
        const struct capacity capacity = queue_capacity_for(s, s->capacity[job->slot], job);
        const bool first = !s->blocker[job->slot];
        if (!is_blocked(s, job->slot) && capacity.free >= job->world_size &&
            try_start(s, job, first ? NULL : &s->detour[job->slot], now_ms, out)) {
            job->in_queue = false;
            s->capacity[job->slot] = queue_capacity(s, job->slot);
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
    settle_restarts(s, out);
}
