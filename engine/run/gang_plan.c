#include "engine/run/gang_plan.h"

#include "base/array.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/verify/verify.h"

#include <stdlib.h>

/* Plans of whole columns, in ascending order of ranks, as plan_verify takes them. */
struct columns {
    struct plan **plans; /* [stages * n] */
    int stages, first, n;
    int own; /* the rank's column, counted from the first */
};

static int or_one(int degree) { return degree > 0 ? degree : 1; }

static status_t build(const struct graph *graph, struct plan_layout layout, const struct gang_plan_progress *progress,
                      struct columns *c, struct err *e) {
    const int data = or_one(layout.data);
    TRY(array_new(&c->plans, c->stages * c->n, e));
    for (int i = 0; i < c->stages * c->n; i++) {
        layout.rank = i / c->n * data + c->first + i % c->n;
        TRY(plan_build(graph, &layout, &c->plans[i], e));
        if (progress->report)
            progress->report(progress->ctx);
    }
    return ST_OK;
}

static status_t digest_own(const struct columns *c, uint8_t ret[SHA256_BYTES], struct err *e) {
    CLEANUP(freep) const struct plan **own = NULL;
    TRY(array_new(&own, c->stages, e));
    for (int s = 0; s < c->stages; s++)
        own[s] = c->plans[s * c->n + c->own];
    plan_digest(own, c->stages, ret);
    return ST_OK;
}

static status_t prove(const struct columns *c, const struct gang_plan_progress *progress, uint8_t ret[SHA256_BYTES],
                      struct err *e) {
    if (plan_verify((const struct plan *const *)c->plans, c->stages * c->n, e) != ST_OK)
        return ST_INTERNAL;
    if (progress->report)
        progress->report(progress->ctx);
    return digest_own(c, ret, e);
}

status_t gang_plan_make(const struct graph *graph, const struct plan_layout *layout,
                        const struct gang_plan_progress *progress, struct plan **ret, uint8_t ret_digest[SHA256_BYTES],
                        struct err *e) {
    const int data = or_one(layout->data), stages = or_one(layout->stages);
    const bool whole = data * stages <= GANG_PLAN_WHOLE;
    struct columns c = { .stages = stages,
                         .first = whole ? 0 : layout->rank % data,
                         .n = whole ? data : 1,
                         .own = whole ? layout->rank % data : 0 };
    status_t st = build(graph, *layout, progress, &c, e);
    if (st == ST_OK)
        st = prove(&c, progress, ret_digest, e);
    if (st == ST_OK)
        *ret = take_ptr(&c.plans[layout->rank / data * c.n + c.own]);
    for (int i = 0; c.plans && i < stages * c.n; i++)
        plan_free(c.plans[i]);
    free(c.plans);
    return st;
}
