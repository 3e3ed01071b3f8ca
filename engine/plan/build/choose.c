/* Chooses what a spec leaves to `auto`.
 *
 * With an open micro-batch, each recompute of the ladder is tried in its order, since more recompute needs less memory
 * and more time, and for each the micro-batches from the largest down; the first choice that fits is taken. With a
 * pipeline, micro-batches that are small enough to hide the bubble are tried first. With a given micro-batch the first
 * recompute that fits is taken. If nothing fits, the error names the need and the largest micro-batch that would fit.
 *
 * A choice fits if its largest plan does. plan_max_bytes builds for each stage the plan of one data rank, and that of
 * the rank with the most bytes if it is another one. */
#include "engine/plan/build/choose.h"

#include "base/limits.h"
#include "engine/plan/build/plan_build.h"

#include <stdio.h>

enum { PER_STAGE = 4 };

status_t plan_max_bytes(const struct graph *graph, const struct plan_layout *layout,
                        const struct host_memory_rule *host, size_t *ret, int *ret_rank, struct err *e) {
    struct plan_layout l = *layout;
    const int data = l.data ? l.data : 1, stages = l.stages ? l.stages : 1;
    *ret = 0;
    for (int stage = 0; stage < stages; stage++)
        for (int d = 0, tried = 0, next; tried < 2; tried++, d = next) {
            CLEANUP(plan_freep) struct plan *p = NULL;
            l.rank = stage * data + d;
            TRY(plan_build(graph, &l, &p, e));
            const size_t bytes = host_memory_limited(host, p);
            if (bytes > *ret) {
                *ret = bytes;
                *ret_rank = l.rank;
            }
            double balance;
            next = plan_fullest(p, &balance);
            if (next == d)
                break;
        }
    return ST_OK;
}

static int lanes_of(const struct plan_layout *l, int global_batch, int micro_batch) {
    int n = global_batch / micro_batch, lanes = l->lanes;
    if (lanes)
        return n % lanes == 0 ? lanes : 0;
    for (lanes = LIMIT_DEFAULT_LANES; n % lanes; lanes /= 2)
        ;
    return lanes;
}

static int positive(int n) { return n > 1 ? n : 1; }

int plan_lanes(const struct plan_layout *l, int global_batch, int micro_batch) {
    const int data = positive(l->data), stages = positive(l->stages);
    if (global_batch % micro_batch)
        return 0;
    const int own = global_batch / micro_batch / data, lanes = lanes_of(l, global_batch, micro_batch);
    if (lanes % data || (schedule_of(l->schedule)->interleaves && own % stages))
        return 0;
    return lanes;
}

/* Whether a stage has so many micro-batches that the bubble is negligible. */
static bool fills(const struct choose_request *r, int micro_batch) {
    const struct plan_layout *l = &r->layout;
    const int all = positive(l->stages) * positive(l->virtual_stages);
    return r->global_batch / micro_batch / positive(l->data) >= PER_STAGE * all;
}

static status_t weigh(const struct choose_request *r, int micro_batch, int lanes, enum plan_recompute recompute,
                      struct choice *ret, struct err *e) {
    CLEANUP(graph_freep) struct graph *g = NULL;
    struct plan_layout l = r->layout;
    TRY(r->build(r->ctx, micro_batch, &g, &l.workspace_bytes, e));
    *ret = (struct choice){ .micro_batch = micro_batch, .lanes = lanes, .recompute = recompute };
    l.lanes = lanes;
    l.recompute = recompute;
    l.micro_batches = r->global_batch / micro_batch;
    return plan_max_bytes(g, &l, r->host, &ret->bytes, &ret->rank, e);
}

/* The largest micro-batch of at most `most` samples that fits; micro_batch 0 = none, and then `ret->bytes` is what the
 * smallest needs. */
static status_t largest(const struct choose_request *r, int max, bool patient, enum plan_recompute recompute,
                        struct choice *ret, struct err *e) {
    struct choice last = { .micro_batch = 0 };
    for (int n = max; n >= 1; n--) {
        int lanes = plan_lanes(&r->layout, r->global_batch, n);
        if (!lanes || (patient && !fills(r, n)))
            continue;
        TRY(weigh(r, n, lanes, recompute, &last, e));
        if (last.bytes <= r->memory_bytes)
            break;
        last.micro_batch = 0;
    }
    *ret = last;
    return ST_OK;
}

static bool may_be(const struct choose_request *r, enum plan_recompute recompute) {
    return r->recompute == RECOMPUTE_AUTO || r->recompute == recompute;
}

/* "1.50 GiB"; less in the unit that says more: "12.3 MiB", "4.0 KiB", "100 B". */
struct amount {
    char text[32];
};

static struct amount amount_of(size_t bytes) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
    struct amount a;
    double x = (double)bytes;
    int unit = 0;
    for (; x >= 1024 && unit < 3; unit++)
        x /= 1024;
    snprintf(a.text, sizeof a.text, "%.*f %s", unit == 3 ? 2 : unit > 0, x, units[unit]);
    return a;
}

/* The largest choice with this recompute or, if it is left open, with any. */
static status_t find(const struct choose_request *r, int max, struct choice *ret, struct err *e) {
    for (enum plan_recompute k = 0; k < RECOMPUTES; k++) {
        if (!may_be(r, k))
            continue;
        for (int patient = r->layout.stages > 1; patient >= 0; patient--) {
            TRY(largest(r, max, patient, k, ret, e));
            if (ret->micro_batch)
                return ST_OK;
        }
    }
    return ST_OK;
}

static status_t refuse(const struct choose_request *r, const struct choice *wish, struct err *e) {
    char would[96] = "no micro-batch fits, with any recompute";
    struct choice fits;
    for (enum plan_recompute k = 0; k < RECOMPUTES; k++) {
        TRY(largest(r, r->global_batch, false, k, &fits, e));
        if (!fits.micro_batch)
            continue;
        snprintf(would, sizeof would, "the largest that fits is %d with train.recompute: %s", fits.micro_batch,
                 PLAN_RECOMPUTE_WORDS[k]);
        if (may_be(r, k))
            break;
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "train.micro_batch: %d needs %s on rank %d, over the limit of %s (resources.memory_bytes); "
                   "%s",
                   wish->micro_batch, amount_of(wish->bytes).text, wish->rank, amount_of(r->memory_bytes).text, would);
}

/* A given micro-batch: the first recompute of the ladder that fits. */
static status_t settle(const struct choose_request *r, struct choice *ret, struct err *e) {
    if (r->micro_batch < 1 || r->global_batch % r->micro_batch)
        return err_set(e, ST_INVALID_ARGUMENT, "train.global_batch: %d is not a multiple of micro_batch %d",
                       r->global_batch, r->micro_batch);
    int lanes = lanes_of(&r->layout, r->global_batch, r->micro_batch);
    for (enum plan_recompute k = 0; k < RECOMPUTES; k++) {
        if (!may_be(r, k))
            continue;
        /* Lanes that do not divide are plan_build's to refuse. */
        TRY(weigh(r, r->micro_batch, lanes ? lanes : r->layout.lanes, k, ret, e));
        if (r->memory_bytes == 0 || ret->bytes <= r->memory_bytes)
            return ST_OK;
    }
    return refuse(r, ret, e);
}

status_t plan_choose(const struct choose_request *r, struct choice *ret, struct err *e) {
    if (r->micro_batch)
        return settle(r, ret, e);
    if (r->memory_bytes == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "train.micro_batch: auto needs resources.memory_bytes to fill");
    TRY(find(r, r->global_batch, ret, e));
    if (ret->micro_batch)
        return ST_OK;
    if (ret->bytes == 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.global_batch: no micro-batch cuts %d samples into lanes for parallel.data %d",
                       r->global_batch, r->layout.data);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "train.micro_batch: auto finds none that fits %s (resources.memory_bytes): the smallest needs "
                   "%s on rank %d, even with train.recompute: %s",
                   amount_of(r->memory_bytes).text, amount_of(ret->bytes).text, ret->rank,
                   PLAN_RECOMPUTE_WORDS[ret->recompute]);
}
