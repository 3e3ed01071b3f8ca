/* All plans of a gang of ranks, for the tests of plan/: either built, or refused with a message. */
#ifndef TESTS_ENGINE_PLANS_H
#define TESTS_ENGINE_PLANS_H

#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/plan.h"
#include "engine/plan/verify/verify.h"
#include "tests/engine/gpt_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PLANS_MOST = 32 };

struct plans {
    struct graph *graph;
    struct plan *of[PLANS_MOST];
    int n;
};

static inline struct graph *plans_graph(struct gpt_shape shape, int micro_batch) {
    struct graph *g = NULL;
    struct err e = { "" };
    if (gpt_graph(&shape, micro_batch, &g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return g;
}

/* Builds every rank's plan of a layout. layout.rank is ignored. Takes ownership of the graph. */
static inline struct plans plans_build(struct graph *graph, struct plan_layout layout) {
    const int data = layout.data ? layout.data : 1, stages = layout.stages ? layout.stages : 1;
    struct plans p = { .graph = graph, .n = data * stages };
    struct err e = { "" };
    assert_true(p.n <= PLANS_MOST);
    for (layout.rank = 0; layout.rank < p.n; layout.rank++)
        if (plan_build(graph, &layout, &p.of[layout.rank], &e) != ST_OK)
            fail_msg("rank %d: %s", layout.rank, e.msg);
    return p;
}

static inline void plans_free(struct plans *p) {
    for (int r = 0; r < p->n; r++)
        plan_free(p->of[r]);
    graph_free(p->graph);
}

static inline void assert_accepted(const struct plans *p) {
    struct err e = { "" };
    if (plan_verify((const struct plan *const *)p->of, p->n, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static inline void assert_refused_layout(const struct graph *graph, struct plan_layout layout, const char *because) {
    struct plan *p = NULL;
    struct err e = { "" };
    assert_int_equal(plan_build(graph, &layout, &p, &e), ST_INVALID_ARGUMENT);
    if (!strstr(e.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, because);
}

/* The n-th instruction of a kind in a queue. The test fails if there is none. */
static inline const struct instruction *plans_find(const struct plan *p, enum plan_queue queue,
                                                   enum instruction_kind kind, int n) {
    for (int i = 0; i < p->queue[queue].n; i++)
        if (p->queue[queue].items[i].kind == kind && n-- == 0)
            return &p->queue[queue].items[i];
    fail_msg("the plan has no such %s", instruction_name(kind));
    return NULL;
}

static inline int plans_count(const struct plan *p, enum plan_queue queue, enum instruction_kind kind) {
    int n = 0;
    for (int i = 0; i < p->queue[queue].n; i++)
        n += p->queue[queue].items[i].kind == kind;
    return n;
}

#endif
