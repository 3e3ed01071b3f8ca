/* The number of launches at the end of a step, for models with many parameters: NORM, DECIDE and STEP of their plans,
 * run on the CUDA table as the engine runs them. The shim counts; no kernel runs and no memory is touched. */
#include "engine/model/model.h"
#include "engine/plan/build/plan_build.h"
#include "engine/run/instructions.h"
#include "tests/kernels/cuda/pair.h"

#include "kernels/cuda/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { NOWHERE = 4096, MICRO_BATCHES = 4, MIB = 1 << 20 };

struct model {
    struct model_config config;
    struct model_data data;
};

static struct plan *plan_of(const struct model *m, struct plan_layout layout, struct graph **ret_graph) {
    struct model_config config = m->config;
    struct plan *p = NULL;
    layout.lanes = layout.micro_batches = MICRO_BATCHES;
    layout.bucket_bytes = 4 * MIB;
    OK(model_resolve(&config, &m->data, e));
    OK(model_build(&config, &m->data, 1, DTYPE_BF16, ret_graph, e));
    OK(plan_build(*ret_graph, &layout, &p, e));
    return p;
}

struct counts {
    int pieces, norms, decide, steps;
};

static int launches_of(struct execution *x, const struct plan *p, enum instruction_kind kind) {
    const uint64_t before = shim_launches();
    for (int i = 0; i < p->queue[QUEUE_COMPUTE].n; i++) {
        const struct instruction *at = &p->queue[QUEUE_COMPUTE].items[i];
        if (at->kind == kind && kind == INSTRUCTION_STEP)
            OK(execute_step(x, p, at, e));
        else if (at->kind == kind)
            OK(execute_gradient(x, p, at, e));
    }
    return (int)(shim_launches() - before);
}

static struct counts count(const struct model *m, const struct optimizer_config *o, struct plan_layout layout) {
    struct pair tables = { .precision = KERNELS_BF16 };
    struct arena nowhere = { .family = { 0 } };
    struct graph *g = NULL;
    layout.optimizer = o->kind;
    struct plan *p = plan_of(m, layout, &g);
    pair_tables_open(&tables);
    for (int f = 0; f < FAMILIES; f++)
        nowhere.family[f] = (char *)(uintptr_t)NOWHERE;
    struct execution x = { .kernels = tables.k[ONE],
                           .arena = &nowhere,
                           .control = { .device = (struct step_control *)(uintptr_t)NOWHERE },
                           .ema_decay = layout.ema ? 0.999 : 0,
                           .optimizer = o };
    const struct counts c = { .pieces = p->n_shards,
                              .norms = launches_of(&x, p, INSTRUCTION_NORM),
                              .decide = launches_of(&x, p, INSTRUCTION_DECIDE),
                              .steps = launches_of(&x, p, INSTRUCTION_STEP) };
    pair_tables_close(&tables);
    plan_free(p);
    graph_free(g);
    return c;
}

static const struct model GPT2 = { { &model_gpt, { .gpt = { 12, 12, 768, 1024, 0, 0 } } }, { .vocabulary = 50257 } };
static const struct model RESNET50 = { { &model_resnet, { .resnet = { .layers = 50, .width = 64 } } },
                                       { .classes = 1000, .channels = 3, .height = 224, .width = 224 } };
static const struct optimizer_config ADAMW = { &optimizer_adamw, .adamw = { 3e-4, 0.9, 0.95, 1e-8, 0.1 } };
static const struct optimizer_config SGD = { &optimizer_sgd, .sgd = { .lr = 0.1, .momentum = 0.9 } };
static const struct optimizer_config LION = { &optimizer_lion, .lion = { 1e-4, 0.9, 0.99, 0.1 } };

static void a_step_of_gpt2s_148_parameters_is_3_launches(void **state) {
    (void)state;
    const struct counts c = count(&GPT2, &ADAMW, (struct plan_layout){ .kind = PLAN_TRAIN });
    assert_int_equal(c.pieces, 148);
    assert_int_equal(c.steps, 3);
    assert_int_equal(c.decide, 2); /* the parts of the sum, then the sum and the decision */
    assert_int_equal(count(&GPT2, &LION, (struct plan_layout){ .kind = PLAN_TRAIN }).steps, 3);
}

static void averages_are_3_launches_more(void **state) {
    (void)state;
    assert_int_equal(count(&GPT2, &ADAMW, (struct plan_layout){ .kind = PLAN_TRAIN, .ema = true }).steps, 6);
}

/* 475 MiB of gradients, at least 32 MiB at a time. The embedding, which has two uses, is reduced by itself. */
static void gpt2s_norm_is_a_launch_for_each_32_mib_of_gradients(void **state) {
    (void)state;
    assert_in_range(count(&GPT2, &ADAMW, (struct plan_layout){ .kind = PLAN_TRAIN }).norms, 1, 475 / 32 + 1);
    assert_in_range(count(&GPT2, &ADAMW, (struct plan_layout){ .kind = PLAN_TRAIN, .data = 2, .zero = 1 }).norms, 1,
                    475 / 32 + 1);
}

static void a_step_of_resnet50s_161_parameters_and_106_statistics_is_5_launches(void **state) {
    (void)state;
    const struct counts c = count(&RESNET50, &SGD, (struct plan_layout){ .kind = PLAN_TRAIN });
    assert_int_equal(c.pieces, 161 + 106);
    assert_int_equal(c.steps, 3 + 2);
    assert_in_range(c.norms, 1, 98 / 32 + 1);
}

static void a_step_under_zero_3_goes_over_all_buckets_at_once(void **state) {
    (void)state;
    const struct counts c = count(&GPT2, &ADAMW, (struct plan_layout){ .kind = PLAN_TRAIN, .data = 2, .zero = 3 });
    assert_int_equal(c.steps, (c.pieces + 63) / 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_gpt2s_148_parameters_is_3_launches),
        cmocka_unit_test(averages_are_3_launches_more),
        cmocka_unit_test(gpt2s_norm_is_a_launch_for_each_32_mib_of_gradients),
        cmocka_unit_test(a_step_of_resnet50s_161_parameters_and_106_statistics_is_5_launches),
        cmocka_unit_test(a_step_under_zero_3_goes_over_all_buckets_at_once),
    };
    shim_only_grids(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
