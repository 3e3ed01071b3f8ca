/* The slots of all executors together, kept up to date so that a decision walks no hosts.
 *
 * executor_recount is called after each change of an executor. It computes what the executor adds to the capacity of
 * each kind of slots, replaces what the executor added before (executor.counted), and moves the executor in the index
 * of hosts by free slots (placement.h).
 *
 * A job may need features that some executors lack. The jobs with the same needs are a class. For each class, the
 * capacity of the executors that lack something is counted in the same way, so that a walk of the queue subtracts one
 * number for each job. The classes are bounded: a job beyond the bound has none, and its capacity is computed from all
 * hosts (lacking.c), as for a job that avoids hosts.
 *
 * capacity_sum is the short form of queue_capacity_for. tests/unit/test_scheduler_order.c compares what follows from it
 * with a walk of all hosts. */
#include "base/alloc.h"
#include "service/scheduler/state.h"

#include <stdlib.h>

static struct capacity contribution(const struct executor *ex, enum scheduler_slot slot) {
    struct capacity c = { 0 };
    const int free_slots = executor_free(ex, slot, 1);
    const bool alone = executor_availability(ex, slot, 2) == SCHEDULER_HOST_SINGLE_RANK;
    if (executor_detachment(ex) == SCHEDULER_DETACHED_STREAM_ENDED && !ex->drained) {
        c.detached = ex->slots[slot];
        c.single_rank_detached = slot == SCHEDULER_SLOT_CUDA && ex->single_rank ? ex->slots[slot] : 0;
    }
    if (!ex->attached || ex->leaving)
        return c;
    c.attached = 1;
    if (ex->drained) { /* no capacity: a job that needs it waits for a person, and must not block others */
        executor_count_drained(ex, slot, &c);
        return c;
    }
    c.slots = ex->slots[slot];
    c.quarantined = slot == SCHEDULER_SLOT_CUDA ? ex->quarantined : 0;
    c.free = free_slots;
    c.single_rank_slots = alone ? ex->slots[slot] : 0;
    c.single_rank_free = alone ? free_slots : 0;
    return c;
}

static void add(struct capacity *to, const struct capacity *c, int sign) {
    to->attached += sign * c->attached;
    to->free += sign * c->free;
    to->slots += sign * c->slots;
    to->single_rank_free += sign * c->single_rank_free;
    to->single_rank_slots += sign * c->single_rank_slots;
    to->quarantined += sign * c->quarantined;
    to->drained += sign * c->drained;
    to->single_rank_drained += sign * c->single_rank_drained;
    to->drained_hosts += sign * c->drained_hosts;
    to->detached += sign * c->detached;
    to->single_rank_detached += sign * c->single_rank_detached;
}

/* capacity.drained_at is the drained executor that arrived first. */
static void note_drained(struct scheduler *s, int slot, const struct executor *ex) {
    struct capacity *all = &s->capacity[slot];
    const bool drained = ex->counted[slot].drained_hosts > 0;
    if (drained && (!all->drained_at || ex->order < all->drained_at->order))
        all->drained_at = ex;
    if (drained || all->drained_at != ex)
        return;
    all->drained_at = NULL;
    for (int i = 0; i < s->n_all && !all->drained_at; i++)
        if (s->all[i]->counted[slot].drained_hosts > 0)
            all->drained_at = s->all[i];
}

/* capacity.features: what no executor with capacity lacks. */
static void note_features(struct scheduler *s, struct executor *ex) {
    const bool counts = (ex->attached && !ex->leaving) || executor_detachment(ex) == SCHEDULER_DETACHED_STREAM_ENDED;
    const uint32_t lacks = counts ? ~ex->features : 0, changed = lacks ^ ex->counted_lacks;
    for (int bit = 0; changed && bit < 32; bit++)
        if (changed & UINT32_C(1) << bit)
            s->lacking[bit] += lacks & UINT32_C(1) << bit ? 1 : -1;
    ex->counted_lacks = lacks;
    uint32_t features = UINT32_MAX;
    for (int bit = 0; changed && bit < 32; bit++)
        features &= s->lacking[bit] ? ~(UINT32_C(1) << bit) : UINT32_MAX;
    for (int k = 0; changed && k < SCHEDULER_SLOT_KINDS; k++)
        s->capacity[k].features = features;
}

void executor_recount(struct scheduler *s, struct executor *ex) {
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        const struct capacity before = ex->counted[k], now = contribution(ex, (enum scheduler_slot)k);
        add(&s->capacity[k], &before, -1);
        add(&s->capacity[k], &now, 1);
        for (int c = 0; c < s->n_classes; c++) {
            struct capacity_class *class = &s->classes[c];
            if (class->needs & ~ex->counted_features)
                add(&class->lacking[k], &before, -1);
            if (class->needs & ~ex->features)
                add(&class->lacking[k], &now, 1);
        }
        ex->counted[k] = now;
        placement_index_move(&s->hosts[k], before.free, (struct placement_host){ now.free, ex->order, ex });
        note_drained(s, k, ex);
    }
    ex->counted_features = ex->features;
    note_features(s, ex);
}

int capacity_class(struct scheduler *s, uint32_t needs) {
    for (int c = 0; c < s->n_classes; c++)
        if (s->classes[c].needs == needs)
            return c;
    if (s->n_classes == SCHEDULER_CLASSES)
        return -1;
    struct capacity_class *class = &s->classes[s->n_classes];
    *class = (struct capacity_class){ .needs = needs };
    for (int i = 0; i < s->n_all; i++)
        for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
            if (needs & ~s->all[i]->counted_features)
                add(&class->lacking[k], &s->all[i]->counted[k], 1);
    return s->n_classes++;
}

static struct capacity_sum sum_of(const struct capacity *c, bool gang) {
    struct capacity_sum sum = { .free = c->free, .width = c->slots + c->detached };
    if (gang) {
        sum.free -= c->single_rank_free;
        sum.width -= c->single_rank_slots + c->single_rank_detached;
    }
    return sum;
}

struct capacity_sum capacity_sum(const struct scheduler *s, enum scheduler_slot slot, const struct waiting *w) {
    if (w->exact) {
        const struct capacity c = queue_capacity_for(s, s->capacity[slot], w->job);
        return (struct capacity_sum){ .free = c.free, .width = c.slots + c.detached };
    }
    struct capacity_sum sum = sum_of(&s->capacity[slot], w->world_size > 1);
    if (w->class > 0) {
        const struct capacity_sum lacking = sum_of(&s->classes[w->class].lacking[slot], w->world_size > 1);
        sum.free -= lacking.free;
        sum.width -= lacking.width;
    }
    return sum;
}
