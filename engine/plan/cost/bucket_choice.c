/* The search starts at the default and goes up, four times larger at each step, as long as that makes the step faster;
 * then it tries twice the best size. If the first step up is not faster it tries smaller sizes in the same way. Each
 * size takes the plans of one column of ranks and their timeline; larger buckets are fewer and take less of both. If
 * two sizes cut gradient space into equally many buckets, they are the same. */
#include "engine/plan/cost/bucket_choice.h"

#include "base/array.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/cost/timeline.h"

#include <stdlib.h>

struct search {
    const struct graph *graph;
    struct plan_layout layout;
    const struct plan_profile *profile;
    bool may_grow;
    void (*progress)(void *ctx);
    void *ctx;
};

struct trial {
    int64_t bytes;
    double seconds;
    size_t arena; /* of the largest stage */
    int buckets;  /* of all stages */
};

static int or_one(int degree) { return degree > 1 ? degree : 1; }

static status_t build_column(const struct search *s, struct plan_layout layout, struct plan **plans, struct trial *ret,
                             struct err *e) {
    for (int stage = 0; stage < or_one(layout.stages); stage++) {
        layout.rank = stage * or_one(layout.data);
        TRY(plan_build(s->graph, &layout, &plans[stage], e));
        ret->buckets += plans[stage]->n_buckets;
        ret->arena = plan_bytes(plans[stage]) > ret->arena ? plan_bytes(plans[stage]) : ret->arena;
        if (s->progress)
            s->progress(s->ctx);
    }
    return ST_OK;
}

static status_t simulate(const struct search *s, struct plan *const *plans, int n, struct trial *ret, struct err *e) {
    struct plan_profile profile = *s->profile;
    struct timeline t;
    TRY(timeline_simulate((const struct plan *const *)plans, n,
                          &(struct timeline_costs){ .seconds = timeline_profile_seconds, .ctx = &profile }, &t, e));
    ret->seconds = t.seconds;
    timeline_done(&t);
    if (s->progress)
        s->progress(s->ctx);
    return ST_OK;
}

static status_t try(const struct search *s, int64_t bytes, struct trial *ret, struct err *e) {
    const int n = or_one(s->layout.stages);
    CLEANUP(freep) struct plan **plans = NULL;
    struct plan_layout layout = s->layout;
    layout.bucket_bytes = bytes;
    *ret = (struct trial){ .bytes = bytes };
    TRY(array_new(&plans, n, e));
    status_t st = build_column(s, layout, plans, ret, e);
    if (st == ST_OK)
        st = simulate(s, plans, n, ret, e);
    for (int i = 0; i < n; i++)
        plan_free(plans[i]);
    return st;
}

/* Replaces *best by this size if that is better. */
static status_t improve(const struct search *s, int64_t bytes, const struct trial *first, struct trial *best, bool *ret,
                        struct err *e) {
    struct trial t;
    *ret = false;
    if (bytes < BUCKET_BYTES_MIN || bytes > BUCKET_BYTES_MAX)
        return ST_OK;
    TRY(try(s, bytes, &t, e));
    if (t.buckets == best->buckets || t.arena > first->arena + (s->may_grow ? first->arena / 16 : 0) ||
        t.seconds > 0.99 * best->seconds)
        return ST_OK;
    *best = t;
    *ret = true;
    return ST_OK;
}

/* Goes on from the best size by this factor, up or down, while that helps. */
static status_t climb(const struct search *s, bool up, const struct trial *first, struct trial *best, struct err *e) {
    for (bool better = true; better;)
        TRY(improve(s, up ? best->bytes * 4 : best->bytes / 4, first, best, &better, e));
    return ST_OK;
}

status_t bucket_choose(const struct graph *graph, const struct plan_layout *layout, const struct plan_profile *profile,
                       bool may_grow, void (*progress)(void *ctx), void *ctx, struct bucket_choice *ret,
                       struct err *e) {
    const struct search s = { graph, *layout, profile, may_grow, progress, ctx };
    struct trial first, best;
    bool better;
    *ret = (struct bucket_choice){ .bytes = BUCKET_BYTES_DEFAULT };
    if (layout->data <= 1)
        return ST_OK; /* nothing is reduced */
    TRY(try(&s, BUCKET_BYTES_DEFAULT, &first, e));
    best = first;
    TRY(climb(&s, true, &first, &best, e));
    if (best.bytes == BUCKET_BYTES_DEFAULT)
        TRY(climb(&s, false, &first, &best, e));
    if (best.bytes != BUCKET_BYTES_DEFAULT)
        TRY(improve(&s, best.bytes * 2, &first, &best, &better, e));
    *ret = (struct bucket_choice){ best.bytes, best.seconds, first.seconds };
    return ST_OK;
}
