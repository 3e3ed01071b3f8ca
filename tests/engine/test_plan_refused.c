/* Planning on a machine without memory. Whichever allocation is refused, plan_build, plan_verify, the timeline, its
 * drawings, the print and the report return RESOURCE_EXHAUSTED, keep no memory and return no result. */
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/cost/plan_report.h"
#include "engine/plan/cost/timeline_svg.h"
#include "tests/engine/broken_plans.h"
#include "tests/refused_memory.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A sanitizer takes twenty times as long. The build without a sanitizer also counts memory that is not freed. */
enum { EACH = SANITIZED ? 3 : 1 };

struct subject {
    const struct graph *graph;
    struct plan_layout layout;
    const struct gang *gang;
    struct plan_profile profile;
    const struct timeline *timeline;
};

static status_t build(void *ctx, struct err *e) {
    const struct subject *s = ctx;
    struct plan *p = NULL;
    status_t st = plan_build(s->graph, &s->layout, &p, e);
    assert_true(!p == (st != ST_OK));
    plan_free(p);
    return st;
}

static status_t verify(void *ctx, struct err *e) { return verify_gang(((const struct subject *)ctx)->gang, e); }

static status_t simulate(void *ctx, struct err *e) {
    struct subject *s = ctx;
    struct timeline t = { .n = -1 };
    status_t st = timeline_simulate((const struct plan *const *)s->gang->plans, s->gang->n,
                                    &(struct timeline_costs){ timeline_profile_seconds, &s->profile }, &t, e);
    assert_true((t.n < 0) == (st != ST_OK));
    if (st == ST_OK)
        timeline_done(&t);
    return st;
}

static status_t report(void *ctx, struct err *e) {
    struct subject *s = ctx;
    struct plan_report r = { .n_stages = -1 };
    status_t st = plan_report_make(s->graph, &s->layout, NULL, &s->profile, &r, e);
    assert_true((r.n_stages < 0) == (st != ST_OK));
    if (st == ST_OK)
        plan_report_done(&r);
    return st;
}

static status_t draw(void *ctx, struct err *e) {
    const struct subject *s = ctx;
    struct bytes b;
    bytes_init(&b, 1 << 24);
    status_t st = timeline_svg(s->timeline, "none", &b, e);
    if (st == ST_OK)
        st = timeline_text(s->timeline, 80, &b, e);
    if (st == ST_OK)
        st = plan_print(s->gang->plans[0], true, &b, e);
    bytes_done(&b);
    return st;
}

static struct subject subject_of(const struct setting *s, const struct gang *g, int rank) {
    struct subject ret = { .graph = g->graph, .layout = g->plans[rank]->layout, .gang = g };
    struct err e = { "" };
    if (plan_profile_find("h200", &ret.profile, &e) != ST_OK)
        fail_msg("%s: %s", s->name, e.msg);
    return ret;
}

static void every_layout_is_planned_without_memory(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s += EACH) {
        struct gang g = make_gang(&SETTINGS[s]);
        for (int rank = 0; rank < g.n; rank++) {
            struct subject x = subject_of(&SETTINGS[s], &g, rank);
            x.layout = SETTINGS[s].layout;
            x.layout.rank = rank;
            x.layout.optimizer = x.layout.optimizer ? x.layout.optimizer : &optimizer_adamw;
            int n = refuse_each_allocation(SETTINGS[s].name, build, &x);
            assert_true(n > 50); /* it is planned with the allocations that are refused here */
            x.layout.kind = PLAN_EVALUATE;
            (void)refuse_each_allocation(SETTINGS[s].name, build, &x);
        }
        free_gang(&g);
    }
}

static void every_layout_is_verified_without_memory(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s += EACH) {
        struct gang g = make_gang(&SETTINGS[s]);
        struct subject x = subject_of(&SETTINGS[s], &g, 0);
        assert_true(refuse_each_allocation(SETTINGS[s].name, verify, &x) > 20 * g.n);
        free_gang(&g);
    }
}

static void every_layout_is_simulated_drawn_and_reported_without_memory(void **state) {
    (void)state;
    for (int s = 0; s < N_SETTINGS; s += EACH) {
        struct gang g = make_gang(&SETTINGS[s]);
        struct subject x = subject_of(&SETTINGS[s], &g, 0);
        assert_true(refuse_each_allocation(SETTINGS[s].name, simulate, &x) > 10 * g.n);
        assert_true(refuse_each_allocation(SETTINGS[s].name, report, &x) > 50);
        struct timeline t;
        struct err e = { "" };
        assert_int_equal(timeline_simulate((const struct plan *const *)g.plans, g.n,
                                           &(struct timeline_costs){ timeline_profile_seconds, &x.profile }, &t, &e),
                         ST_OK);
        x.timeline = &t;
        assert_true(refuse_each_allocation(SETTINGS[s].name, draw, &x) > 5);
        timeline_done(&t);
        free_gang(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_is_planned_without_memory),
        cmocka_unit_test(every_layout_is_verified_without_memory),
        cmocka_unit_test(every_layout_is_simulated_drawn_and_reported_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
