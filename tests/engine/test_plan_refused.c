/* Planning on a machine without memory: whichever allocation is refused, the model's graph, plan_build, plan_verify,
 * plan_choose, the timeline, its pictures, the print and the report return RESOURCE_EXHAUSTED, keep nothing and give
 * out nothing. */
#include "executor/engine/model/model.h"
#include "executor/engine/optimizer/optimizer.h"
#include "executor/engine/plan/choose.h"
#include "executor/engine/plan/picture.h"
#include "executor/engine/plan/report.h"
#include "tests/engine/broken_plans.h"
#include "tests/refused_memory.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A sanitizer takes twenty times as long, and what stays is counted without one, too. */
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
    status_t st = plan_report_make(s->graph, &s->layout, &s->profile, &r, e);
    assert_true((r.n_stages < 0) == (st != ST_OK));
    if (st == ST_OK)
        plan_report_done(&r);
    return st;
}

static status_t draw(void *ctx, struct err *e) {
    const struct subject *s = ctx;
    struct bytes b;
    bytes_init(&b, 1 << 24);
    status_t st = picture_svg(s->timeline, "none", &b, e);
    if (st == ST_OK)
        st = picture_text(s->timeline, 80, &b, e);
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

static const struct model_data DATA = { .vocabulary = 65, .classes = 4, .channels = 1, .height = 16, .width = 16 };

static const struct model_config FAMILIES_OF_TEST[] = {
    { .family = MODEL_GPT, .gpt = { .layers = 2, .heads = 2, .width = 16, .context = 8, .dropout = 0.1 } },
    { .family = MODEL_LLAMA,
      .llama = { .layers = 2, .heads = 4, .kv_heads = 2, .width = 16, .context = 8, .tied_embeddings = true } },
    { .family = MODEL_MLP, .mlp = { .hidden = { 24, 24, 24 }, .n_hidden = 3, .dropout = 0.1 } },
    { .family = MODEL_RESNET, .resnet = { .layers = 50, .width = 4 } },
    { .family = MODEL_VIT, .vit = { .layers = 2, .heads = 2, .width = 16, .patch = 4, .dropout = 0.1 } },
    { .family = MODEL_UNROLLED, .unrolled = { .iterations = 4, .channels = 4, .layers = 2, .shared_weights = true } },
};

static status_t build_model(void *ctx, int micro_batch, struct graph **ret, size_t *ret_workspace, struct err *e) {
    const struct model_config *config = ctx;
    *ret_workspace = 100;
    return model_build(config, &DATA, micro_batch, DTYPE_F32, ret, e);
}

static status_t make_graph(void *ctx, struct err *e) {
    struct graph *g = NULL;
    size_t workspace;
    status_t st = build_model(ctx, 2, &g, &workspace, e);
    assert_true(!g == (st != ST_OK));
    graph_free(g);
    return st;
}

static status_t choose(void *ctx, struct err *e) {
    struct choose_request r = { .layout = { .data = 2, .zero = 1, .bucket_bytes = 8192, .optimizer = &optimizer_adamw },
                                .global_batch = 8,
                                .memory_bytes = (size_t)1 << 40,
                                .build = build_model,
                                .ctx = ctx };
    struct choice choice;
    return plan_choose(&r, &choice, e);
}

static void every_family_is_built_and_chosen_for_without_memory(void **state) {
    (void)state;
    for (size_t f = 0; f < sizeof FAMILIES_OF_TEST / sizeof *FAMILIES_OF_TEST; f++) {
        struct model_config config = FAMILIES_OF_TEST[f];
        struct model_data data = DATA;
        struct err e = { "" };
        if (config.family == MODEL_UNROLLED)
            data.classes = 0; /* images without labels */
        if (model_resolve(&config, &data, &e) != ST_OK)
            fail_msg("%s: %s", model_family_name(config.family), e.msg);
        assert_true(refuse_each_allocation(model_family_name(config.family), make_graph, &config) > 15);
        assert_true(refuse_each_allocation(model_family_name(config.family), choose, &config) > 50);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_is_built_and_chosen_for_without_memory),
        cmocka_unit_test(every_layout_is_planned_without_memory),
        cmocka_unit_test(every_layout_is_verified_without_memory),
        cmocka_unit_test(every_layout_is_simulated_drawn_and_reported_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
