/* Memory decreases as documented: ZeRO divides what it shards by the number of ranks, block recompute keeps only
 * boundary tensors, the arena has the plan's size to the byte, and a process does not grow after its first step. */
#include "tests/engine/trainee.h"

#include "engine/plan/build/plan_build.h"
#include "engine/plan/verify/verify.h"
#include "engine/run/arena.h"
#include "tests/engine/gpt_graph.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct gpt_shape LARGER = { .layers = 6, .heads = 4, .width = 256, .context = 32, .vocabulary = 1000 };

static struct plan *plan_of(const struct graph *g, struct plan_layout layout) {
    struct plan *plan;
    struct err e;
    layout.kind = PLAN_TRAIN;
    layout.optimizer = &optimizer_adamw;
    layout.bucket_bytes = layout.bucket_bytes ? layout.bucket_bytes : 1 << 18;
    if (plan_build(g, &layout, &plan, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return plan;
}

static void assert_within(const char *what, double have, double want) {
    if (fabs(have - want) > 0.02 * want)
        fail_msg("%s: %.0f bytes, %.1f %% off the theory's %.0f", what, have, 100 * (have - want) / want, want);
}

/* Rajbhandari et al. 2020, in fp32 with one micro-batch a lane: P parameters take 4 P bytes, their gradients 4 P,
 * AdamW's states 8 P; each stage of ZeRO divides one more of them by the ranks. With several rounds of micro-batches an
 * accumulator of the rank's own part is added to a whole gradient buffer (ZeRO 1); ZeRO 2 and 3 have only the
 * accumulator. */
static void zero_divides_states_then_gradients_then_parameters(void **state) {
    (void)state;
    enum { D = 4 };
    struct graph *g = NULL;
    struct err e;
    assert_int_equal(gpt_graph(&LARGER, 2, &g, &e), ST_OK);
    const double P = (double)graph_parameter_elements(g);
    for (int rounds = 1; rounds <= 2; rounds++)
        for (int zero = 0; zero <= 3; zero++)
            for (int rank = 0; rank < D; rank++) {
                struct plan *p = plan_of(g, (struct plan_layout){ .rank = rank,
                                                                  .data = D,
                                                                  .zero = zero,
                                                                  .lanes = D,
                                                                  .micro_batches = D * rounds,
                                                                  .reduce = PLAN_REDUCE_MICRO_BATCH });
                const double head = (double)(LARGER.vocabulary * LARGER.width); /* the tied weight's second gradient */
                double gradients = 4 * (P + head), more = rounds > 1 ? gradients : 0;
                assert_within("parameters", (double)p->family_bytes[FAMILY_PARAMETERS], zero == 3 ? 4 * P / D : 4 * P);
                assert_within("optimizer", (double)p->family_bytes[FAMILY_OPTIMIZER], zero ? 8 * P / D : 8 * P);
                assert_within("gradients", (double)p->family_bytes[FAMILY_GRADIENTS],
                              zero >= 2   ? gradients / D
                              : zero == 1 ? gradients + more / D
                                          : gradients + more);
                plan_free(p);
            }
    graph_free(g);
}

static size_t activations(int layers, enum plan_recompute recompute) {
    struct gpt_shape shape = LARGER;
    struct graph *g = NULL;
    shape.layers = layers;
    assert_int_equal(gpt_graph(&shape, 2, &g, NULL), ST_OK);
    struct plan *p = plan_of(g, (struct plan_layout){ .lanes = 1, .micro_batches = 1, .recompute = recompute });
    size_t bytes = p->family_bytes[FAMILY_ACTIVATIONS];
    plan_free(p);
    graph_free(g);
    return bytes;
}

/* Each layer adds one boundary tensor; everything else is needed for one block at any depth. */
static void under_block_recompute_a_layer_costs_its_boundary_alone(void **state) {
    (void)state;
    const size_t boundary = 2 * (size_t)LARGER.context * (size_t)LARGER.width * sizeof(float);
    const size_t four = activations(4, RECOMPUTE_BLOCK), five = activations(5, RECOMPUTE_BLOCK),
                 nine = activations(9, RECOMPUTE_BLOCK);
    assert_int_equal(five - four, boundary);
    assert_int_equal(nine - five, 4 * boundary);
    const size_t layer = activations(5, RECOMPUTE_NONE) - activations(4, RECOMPUTE_NONE);
    assert_true(layer > 8 * boundary);
    assert_true(nine < 9 * boundary + 2 * layer + activations(1, RECOMPUTE_NONE));
}

static void selective_recompute_lies_between(void **state) {
    (void)state;
    size_t none = activations(6, RECOMPUTE_NONE), selective = activations(6, RECOMPUTE_SELECTIVE),
           block = activations(6, RECOMPUTE_BLOCK);
    assert_true(block < selective && selective < none);
}

/* In every layout the mapped memory is that of the plan, to the byte, with each family on a 64-byte boundary. */
static void the_arena_is_the_plan_to_the_byte(void **state) {
    (void)state;
    struct graph *g = NULL;
    struct kernels *k = NULL;
    int n = 0;
    assert_int_equal(gpt_graph(&LARGER, 2, &g, NULL), ST_OK);
    assert_int_equal(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = 1 }, &k, NULL), ST_OK);
    for (int D = 1; D <= 4; D *= 2)
        for (int P = 1; P <= 4; P *= 2)
            for (int zero = 0; zero <= 3; zero++)
                for (int recompute = 0; recompute < RECOMPUTES; recompute++) {
                    if ((P > 1 && zero > 1) || (D == 1 && zero > 0))
                        continue;
                    struct plan *p = plan_of(
                        g, (struct plan_layout){ .rank = D * P - 1,
                                                 .data = D,
                                                 .stages = P,
                                                 .zero = zero,
                                                 .schedule = schedule_kinds[n % SCHEDULES] == &schedule_interleaved
                                                                 ? &schedule_gpipe
                                                                 : schedule_kinds[n % SCHEDULES],
                                                 .recompute = (enum plan_recompute)recompute,
                                                 .lanes = 4,
                                                 .micro_batches = 8,
                                                 .reduce = PLAN_REDUCE_MICRO_BATCH });
                    struct arena a;
                    const struct plan *plans[] = { p };
                    size_t sum = 0;
                    assert_int_equal(arena_open(&a, k, plans, 1, NULL), ST_OK);
                    for (int f = 0; f < FAMILIES; f++) {
                        assert_int_equal(a.family[f] - a.base, sum);
                        sum += (p->family_bytes[f] + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
                    }
                    assert_int_equal(a.bytes, sum);
                    arena_close(&a);
                    plan_free(p);
                    n++;
                }
    assert_true(n > 30);
    kernels_close(k);
    graph_free(g);
}

/* Measured: one page at most. A leak of 2 KiB a step would be noticed. */
static void a_process_does_not_grow_after_its_first_step(void **state) {
    (void)state;
    static const struct engine_layout layouts[] = {
        { .data = 1, .pipeline = 1 },
        { .data = 2, .pipeline = 1 },
        { .data = 2, .pipeline = 1, .zero = 3 },
        { .data = 1, .pipeline = 2, .schedule = &schedule_zero_bubble },
        { .data = 2, .pipeline = 2, .zero = 1, .schedule = &schedule_interleaved, .virtual_stages = 2 },
    };
    enum { STEPS = 40, SETTLED = 1, SLACK = 64 << 10 };
#ifdef __SANITIZE_ADDRESS__
    skip(); /* it keeps freed memory for a while, to detect its use */
#endif
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct trainee *t = trainee_new();
        t->config.model.gpt.layers = 4;
        t->config.layout = layouts[i];
        t->ranks = engine_ranks(&layouts[i]);
        t->config.train.steps = STEPS;
        t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
        t->config.train.eval.every = 4;
        *t->directory = 0;
        assert_int_equal(trainee_run(t), 0);
        for (int r = 0; r < t->ranks; r++) {
            const struct trainee_result *result = &t->results[r];
            if (result->status != ST_OK)
                fail_msg("layout %zu, rank %d: %s", i, r, result->message);
            double grown = result->memory_bytes[STEPS] - result->memory_bytes[SETTLED];
            assert_true(result->memory_bytes[SETTLED] > 1e6);
            if (grown > SLACK)
                fail_msg("layout %zu, rank %d: %.0f KiB more after step %d than after step %d", i, r, grown / 1024,
                         STEPS, SETTLED);
        }
        trainee_free(t);
    }
}

/* Opens an engine of one rank that evaluates this many batches. Returns the length of its evaluation plan. */
static int evaluation_instructions(int batches) {
    struct trainee *t = trainee_new();
    const struct engine_hooks hooks = { .ctx = NULL };
    struct collective *alone = NULL;
    struct engine *engine = NULL;
    struct err e;
    t->config.train.eval.batches = batches;
    assert_int_equal(collective_open_alone(&alone, &e), ST_OK);
    if (engine_open(&t->config, alone, &hooks, &engine, &e) != ST_OK)
        fail_msg("%s", e.msg);
    const int n = engine->evaluate->queue[QUEUE_COMPUTE].n;
    engine = engine_close(engine);
    collective_close(alone);
    trainee_free(t);
    return n;
}

/* The evaluation plan is executed once for each batch. */
static void the_plan_of_an_evaluation_does_not_grow_with_its_batches(void **state) {
    (void)state;
    const int one = evaluation_instructions(1);
    assert_true(one > 0);
    assert_int_equal(evaluation_instructions(10000), one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_divides_states_then_gradients_then_parameters),
        cmocka_unit_test(under_block_recompute_a_layer_costs_its_boundary_alone),
        cmocka_unit_test(selective_recompute_lies_between),
        cmocka_unit_test(the_arena_is_the_plan_to_the_byte),
        cmocka_unit_test(a_process_does_not_grow_after_its_first_step),
        cmocka_unit_test(the_plan_of_an_evaluation_does_not_grow_with_its_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
