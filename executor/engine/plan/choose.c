#include "executor/engine/plan/choose.h"

#include <stdio.h>

enum { LANES_MOST = 8, PER_STAGE = 4 };

size_t plan_bytes(const struct plan *p) {
    size_t total = 0;
    for (int f = 0; f < FAMILIES; f++)
        total += p->family_bytes[f];
    return total;
}

int plan_fullest(const struct plan *p, double *ret_balance) {
    int64_t most = -1, all = 0;
    int ret = 0;
    for (int d = 0; d < p->layout.data; d++) {
        int64_t own = 0;
        for (int b = 0; b < p->n_buckets; b++) {
            int64_t begin, end;
            plan_own_range(p, b, d, &begin, &end);
            own += end - begin;
        }
        all += own;
        if (own > most) {
            most = own;
            ret = d;
        }
    }
    *ret_balance = all > 0 ? (double)most * p->layout.data / (double)all : 1;
    return ret;
}

status_t plan_most_bytes(const struct graph *graph, const struct plan_layout *layout, size_t *ret, int *ret_rank,
                         struct err *e) {
    struct plan_layout l = *layout;
    const int data = l.data ? l.data : 1, stages = l.stages ? l.stages : 1;
    *ret = 0;
    for (int stage = 0; stage < stages; stage++)
        for (int d = 0, tried = 0, next; tried < 2; tried++, d = next) {
            CLEANUP(plan_freep) struct plan *p = NULL;
            l.rank = stage * data + d;
            TRY(plan_build(graph, &l, &p, e));
            if (plan_bytes(p) > *ret) {
                *ret = plan_bytes(p);
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
    for (lanes = LANES_MOST; n % lanes; lanes /= 2)
        ;
    return lanes;
}

static int at_least_one(int n) { return n > 1 ? n : 1; }

int plan_lanes(const struct plan_layout *l, int global_batch, int micro_batch) {
    const int data = at_least_one(l->data), stages = at_least_one(l->stages);
    if (global_batch % micro_batch)
        return 0;
    const int own = global_batch / micro_batch / data, lanes = lanes_of(l, global_batch, micro_batch);
    if (lanes % data || (l->schedule == SCHEDULE_INTERLEAVED && own % stages))
        return 0;
    return lanes;
}

/* Whether a stage has so many micro-batches that the bubble is negligible. */
static bool fills(const struct choose_request *r, int micro_batch) {
    const struct plan_layout *l = &r->layout;
    const int chunks = at_least_one(l->stages) * at_least_one(l->virtual_stages);
    return r->global_batch / micro_batch / at_least_one(l->data) >= PER_STAGE * chunks;
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
    return plan_most_bytes(g, &l, &ret->bytes, &ret->rank, e);
}

/* The largest micro-batch of at most `most` samples that fits; micro_batch 0 = none, and then `ret->bytes` is what the
 * smallest needs. */
static status_t largest(const struct choose_request *r, int most, bool patient, enum plan_recompute recompute,
                        struct choice *ret, struct err *e) {
    struct choice last = { .micro_batch = 0 };
    for (int n = most; n >= 1; n--) {
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

/* "1.50 GiB", or "12.3 MiB" where that says more. */
struct amount {
    char text[32];
};

static struct amount amount_of(size_t bytes) {
    struct amount a;
    const bool large = bytes >= (size_t)1 << 30;
    snprintf(a.text, sizeof a.text, large ? "%.2f GiB" : "%.1f MiB", (double)bytes / (large ? 1 << 30 : 1 << 20));
    return a;
}

/* The largest choice with this recompute or, if it is left open, with any. */
static status_t find(const struct choose_request *r, int most, struct choice *ret, struct err *e) {
    for (enum plan_recompute k = 0; k < RECOMPUTES; k++) {
        if (!may_be(r, k))
            continue;
        for (int patient = r->layout.stages > 1; patient >= 0; patient--) {
            TRY(largest(r, most, patient, k, ret, e));
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
