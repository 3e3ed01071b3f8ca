/* Executors and their leases.
 *
 * An executor is added when it attaches, when it is loaded, or when a loaded placement or a drain names it. It is
 * removed when it is lost, no live attempt names it and it is not drained.
 *
 * executor_availability is the only decision whether a host takes ranks. executor_availability_for adds the hosts that
 * lack a feature that the job needs, and those that the job avoids.
 *
 * Each heartbeat extends the lease to LEASE_TTL_MS after its arrival. When the lease is over, executor_lose ends the
 * executor's parts of all attempts, so that their jobs restart elsewhere. A tick that is late first extends every lease
 * by its delay, because the controller received no heartbeats meanwhile either. */
#include "base/alloc.h"
#include "base/limits.h"
#include "service/scheduler/state.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

struct executor *executor_find(const struct scheduler *s, const char *id) {
    void *const *node = tfind(id, &s->executors, by_name);
    return node ? *node : NULL;
}

struct executor *executor_add(struct scheduler *s, const char *id, int64_t now_ms) {
    struct executor *ex = executor_find(s, id);
    if (ex)
        return ex;
    ex = alloc_zeroed(1, sizeof *ex);
    snprintf(ex->id, sizeof ex->id, "%s", id);
    ex->lease_until_ms = now_ms + LEASE_TTL_MS;
    ex->order = s->next_order++;
    alloc_tree_node(ex, &s->executors, by_name);
    s->all = alloc_grow(s->all, (size_t)s->n_all, sizeof *s->all);
    s->all[s->n_all++] = ex;
    return ex;
}

enum scheduler_host executor_availability(const struct executor *ex, enum scheduler_slot slot, int world_size) {
    if (!ex->attached || ex->leaving)
        return SCHEDULER_HOST_DETACHED;
    if (ex->slots[slot] <= 0)
        return SCHEDULER_HOST_WITHOUT;
    if (world_size > 1 && slot == SCHEDULER_SLOT_CUDA && ex->single_rank)
        return SCHEDULER_HOST_SINGLE_RANK;
    if (ex->drained)
        return SCHEDULER_HOST_DRAINED;
    if (ex->n_fenced > 0)
        return SCHEDULER_HOST_FENCED;
    return ex->used[slot] < ex->slots[slot] ? SCHEDULER_HOST_TAKES : SCHEDULER_HOST_FULL;
}

enum scheduler_host executor_availability_for(const struct executor *ex, const struct job *job) {
    const enum scheduler_host availability = executor_availability(ex, job->slot, job->world_size);
    const bool usable = availability == SCHEDULER_HOST_TAKES || availability == SCHEDULER_HOST_FULL ||
                        availability == SCHEDULER_HOST_FENCED;
    if (usable && job_lacks(job, ex))
        return SCHEDULER_HOST_LACKS;
    return usable && job_avoids(job, ex) ? SCHEDULER_HOST_AVOIDED : availability;
}

enum scheduler_detachment executor_detachment(const struct executor *ex) {
    if (ex->lost || (ex->attached && !ex->leaving))
        return SCHEDULER_NOT_DETACHED;
    if (ex->leaving)
        return SCHEDULER_DETACHED_LEAVING;
    return ex->incarnation ? SCHEDULER_DETACHED_STREAM_ENDED : SCHEDULER_DETACHED_SINCE_START;
}

/* Returns the executor if the event is from its current incarnation. Events of older incarnations are ignored. */
static struct executor *find_current(const struct scheduler *s, const struct scheduler_event *ev) {
    struct executor *ex = executor_find(s, ev->executor);
    return ex && !ex->lost && ev->attach.incarnation >= ex->incarnation ? ex : NULL;
}

void executor_handle_detached(struct scheduler *s, const struct scheduler_event *ev) {
    struct executor *ex = find_current(s, ev);
    if (!ex || !ex->attached)
        return;
    ex->attached = false;
    executor_recount(s, ex);
    s->needs_placing = true;
}

void executor_handle_leaving(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out) {
    struct executor *ex = find_current(s, ev);
    char why[sizeof ex->id + 48];
    if (!ex || ex->leaving)
        return;
    ex->leaving = true;
    executor_recount(s, ex);
    s->needs_placing = true;
    snprintf(why, sizeof why, "the agent of executor %s drains", ex->id);
    if (ev->drain.now)
        executor_preempt_jobs(s, ex, why, out);
}

int executor_free(const struct executor *ex, enum scheduler_slot slot, int world_size) {
    return executor_availability(ex, slot, world_size) == SCHEDULER_HOST_TAKES ? ex->slots[slot] - ex->used[slot] : 0;
}

int executor_free_for(const struct executor *ex, const struct job *job) {
    return executor_availability_for(ex, job) == SCHEDULER_HOST_TAKES ? ex->slots[job->slot] - ex->used[job->slot] : 0;
}

/* The index of the executor in s->all, which is sorted by `order`. */
static int place_of(const struct scheduler *s, const struct executor *ex) {
    int low = 0, high = s->n_all;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (s->all[middle]->order < ex->order)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void executor_forget_if_gone(struct scheduler *s, struct executor *ex) {
    if (!ex->lost || ex->parts > 0 || ex->drained) /* a drain mark is kept for the next attach */
        return;
    const int at = place_of(s, ex);
    s->n_all--;
    memmove(s->all + at, s->all + at + 1, (size_t)(s->n_all - at) * sizeof(struct executor *));
    tdelete(ex, &s->executors, by_name);
    free(ex->fenced);
    free(ex);
}

void executor_unfence(struct scheduler *s, struct executor *ex, int64_t job, int attempt) {
    for (int i = 0; i < ex->n_fenced; i++)
        if (ex->fenced[i].job == job && ex->fenced[i].attempt == attempt) {
            ex->fenced[i] = ex->fenced[--ex->n_fenced];
            executor_recount(s, ex);
            return;
        }
}

static void executor_lose(struct scheduler *s, struct executor *ex, int64_t now_ms, struct scheduler_actions *out) {
    struct scheduler_action *a = action_add(out, ACT_EXECUTOR_LOST, NULL);
    memcpy(a->executor, ex->id, sizeof a->executor);
    if (ex->leaving)
        action_text(a, "its agent was stopped");
    else
        action_text(a, "no heartbeat for %d s", LEASE_TTL_MS / 1000);
    ex->attached = false;
    ex->leaving = false;
    ex->lost = true;
    ex->n_fenced = 0; /* it reports its attempts again if it attaches again */
    executor_recount(s, ex);
    s->needs_placing = true;
    char why[160];
    snprintf(why, sizeof why, "executor %s was lost: %.60s", ex->id, a->text);
    /* Holds the executor until the loop is over: closing the last attempt that names it would free it. */
    ex->parts++;
    for (struct part *part = ex->first_part, *next; part; part = next) {
        struct job *job = part->job; /* closing its attempt frees the part */
        next = part->next;
        attempt_part_lost(s, job, part, RANK_END_HOST_LOST, why, out);
        attempt_try_close(s, job, now_ms, out);
    }
    ex->parts--;
    executor_forget_if_gone(s, ex);
}

/* Whether the executor is lost now: its lease has expired, or it has left and no live attempt needs its lease. */
static bool is_over(const struct executor *ex, int64_t now_ms) {
    return !ex->lost && (now_ms >= ex->lease_until_ms || (ex->leaving && !ex->attached && ex->parts == 0));
}

void executor_expire_leases(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    /* During the delay of a late tick, no heartbeat was received. That is not the fault of the executors. */
    int64_t late = now_ms - s->last_tick_ms - SCHEDULER_TICK_MS;
    s->last_tick_ms = now_ms;
    for (int i = 0; late > 0 && i < s->n_all; i++)
        s->all[i]->lease_until_ms += late;
    for (int i = 0, lost = 0; i < s->n_all && lost < SCHEDULER_LOST_PER_TICK;) {
        struct executor *ex = s->all[i];
        if (is_over(ex, now_ms)) {
            executor_lose(s, ex, now_ms, out);
            lost++;
        }
        if (i < s->n_all && s->all[i] == ex)
            i++;
    }
}
