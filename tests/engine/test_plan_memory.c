/* The memory of a plan, against theory. */
#include "engine/model/model.h"
#include "engine/plan/build/choose.h"
#include "tests/engine/gpt_graph.h"
#include "tests/engine/plans.h"

#include <math.h>

/* The character GPT of the examples: 10.8M parameters. */
static const struct gpt_shape CHAR_GPT = {
    .layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = 65, .dropout = 0.2
};

static struct plan_layout layout_of(int data, int zero, int rounds) {
    return (struct plan_layout){ .data = data,
                                 .zero = zero,
                                 .lanes = data,
                                 .micro_batches = data * rounds,
                                 .reduce = PLAN_REDUCE_MICRO_BATCH,
                                 .bucket_bytes = 4 << 20,
                                 .workspace_bytes = 1 << 20,
                                 .optimizer = &optimizer_adamw };
}

static void assert_within(const char *what, double bytes, double theory, double percent) {
    if (fabs(bytes - theory) > theory * percent / 100)
        fail_msg("%s: %.0f bytes, theory says %.0f", what, bytes, theory);
}

static double largest_block(const struct graph *g) {
    int64_t most = 0;
    for (int b = 0; b < g->n_blocks; b++) {
        int64_t sum = 0;
        for (int i = g->blocks[b].first_op; i < g->blocks[b].first_op + g->blocks[b].n_ops; i++)
            for (int k = 0; k < OP_PARAMETERS; k++)
                if (g->ops[i].use[k] >= 0)
                    sum += shape_elements(&g->parameters[g->uses[g->ops[i].use[k]].parameter].shape);
        most = sum > most ? sum : most;
    }
    return (double)most;
}

/* Rajbhandari et al. 2020, "ZeRO", figure 1, with fp32 weights: 4 bytes a weight, 4 its gradient, 8 its two moments;
 * each stage divides one more of them by the ranks. The tied embedding has two gradients. */
static void zero_divides_state_then_gradients_then_weights(void **state) {
    (void)state;
    enum { D = 4 };
    for (int zero = 0; zero <= 3; zero++) {
        struct plans p = plans_build(plans_graph(CHAR_GPT, 2), layout_of(D, zero, zero >= 2 ? 2 : 1));
        double weights = (double)graph_parameter_elements(p.graph);
        double gradients = weights + (double)CHAR_GPT.vocabulary * CHAR_GPT.width;
        for (int r = 0; r < D; r++) {
            const size_t *bytes = p.of[r]->family_bytes;
            assert_within("weights", (double)bytes[FAMILY_PARAMETERS], 4 * weights / (zero >= 3 ? D : 1), 2);
            assert_within("gradients", (double)bytes[FAMILY_GRADIENTS], 4 * gradients / (zero >= 2 ? D : 1), 2);
            assert_within("moments", (double)bytes[FAMILY_OPTIMIZER], 8 * weights / (zero >= 1 ? D : 1), 2);
            /* Communication buffers: two reductions and the bucket that is being written, none larger than its largest
             * use and a bucket; with ZeRO-3 also two blocks. */
            double bucket = 2.0 * (4 << 20), most = (zero >= 2 ? 3 * bucket : 0);
            most += zero == 3 ? 2 * 4 * largest_block(p.graph) * 1.02 : 0;
            assert_true((double)bytes[FAMILY_COMMUNICATION] <= most);
        }
        plans_free(&p);
    }
}

static void rounds_cost_an_accumulator_of_own_parts(void **state) {
    (void)state;
    struct plans once = plans_build(plans_graph(CHAR_GPT, 1), layout_of(4, 1, 1)),
                 twice = plans_build(plans_graph(CHAR_GPT, 1), layout_of(4, 1, 2));
    size_t one = once.of[0]->family_bytes[FAMILY_GRADIENTS], two = twice.of[0]->family_bytes[FAMILY_GRADIENTS];
    assert_within("gradients", (double)two, (double)one * 1.25, 2);
    plans_free(&once);
    plans_free(&twice);
}

static struct graph *graph_in(enum dtype element) {
    struct err e = { "" };
    struct graph *g = graph_new(element);
    g->micro_batch = 2;
    if (model_gpt.build(&CHAR_GPT, &(struct model_data){ 0 }, g, &e) != ST_OK || graph_differentiate(g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return g;
}

/* bf16: 2 bytes a weight, 4 its gradient, 12 its master and moments; 16 more with a moving average over fp32. */
static void half_precision_halves_weights_and_activations_and_adds_masters(void **state) {
    (void)state;
    struct plan_layout l = layout_of(1, 0, 1);
    struct plans full = plans_build(graph_in(DTYPE_F32), l), half = plans_build(graph_in(DTYPE_BF16), l);
    l.ema = true;
    struct plans ema = plans_build(graph_in(DTYPE_BF16), l);
    double weights = (double)graph_parameter_elements(full.graph);
    assert_within("weights", (double)half.of[0]->family_bytes[FAMILY_PARAMETERS], 2 * weights, 2);
    assert_within("state", (double)half.of[0]->family_bytes[FAMILY_OPTIMIZER], 12 * weights, 2);
    assert_within("state with an average", (double)ema.of[0]->family_bytes[FAMILY_OPTIMIZER], 16 * weights, 2);
    assert_within("activations", (double)half.of[0]->family_bytes[FAMILY_ACTIVATIONS],
                  (double)full.of[0]->family_bytes[FAMILY_ACTIVATIONS] / 2, 2);
    plans_free(&full);
    plans_free(&half);
    plans_free(&ema);
}

static size_t activations(int layers, enum plan_recompute recompute, enum plan_kind kind) {
    struct gpt_shape shape = CHAR_GPT;
    shape.layers = layers;
    struct plan_layout l = layout_of(1, 0, 2);
    l.recompute = recompute;
    l.kind = kind;
    struct plans p = plans_build(plans_graph(shape, 2), l);
    size_t bytes = p.of[0]->family_bytes[FAMILY_ACTIVATIONS];
    plans_free(&p);
    return bytes;
}

/* Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", with a block a segment. */
static void block_recompute_keeps_one_block_and_the_boundaries(void **state) {
    (void)state;
    const double boundary = 2.0 * CHAR_GPT.context * CHAR_GPT.width * 4;
    size_t one = activations(1, RECOMPUTE_NONE, PLAN_TRAIN);
    for (int layers = 2; layers <= 24; layers *= 2)
        assert_within("activations", (double)activations(layers, RECOMPUTE_BLOCK, PLAN_TRAIN),
                      (double)one + (layers - 1) * boundary, 2);
    assert_true(activations(24, RECOMPUTE_BLOCK, PLAN_TRAIN) * 5 < activations(24, RECOMPUTE_NONE, PLAN_TRAIN));
}

static size_t unrolled_activations(int iterations, bool shared, enum plan_recompute recompute) {
    struct model_config c = { .kind = &model_unrolled,
                              .unrolled = {
                                  .iterations = iterations, .channels = 32, .layers = 5, .shared_weights = shared } };
    struct model_data data = { .channels = 1, .height = 64, .width = 64 };
    struct graph *g = NULL;
    struct err e = { "" };
    if (model_resolve(&c, &data, &e) != ST_OK || model_build(&c, &data, 4, DTYPE_F32, &g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    struct plan_layout l = layout_of(1, 0, 2);
    l.recompute = recompute;
    struct plans p = plans_build(g, l);
    size_t bytes = p.of[0]->family_bytes[FAMILY_ACTIVATIONS];
    plans_free(&p);
    return bytes;
}

/* The memory of an unrolled network grows by only one image per iteration. */
static void iterations_cost_an_image_each_under_block_recompute(void **state) {
    (void)state;
    const double image = 4.0 * 64 * 64 * 4;
    for (int shared = 0; shared <= 1; shared++) {
        size_t few = unrolled_activations(2, shared, RECOMPUTE_BLOCK),
               many = unrolled_activations(32, shared, RECOMPUTE_BLOCK);
        assert_int_equal(many - few, (size_t)(30 * image));
        assert_true(many * 8 < unrolled_activations(32, shared, RECOMPUTE_NONE));
    }
}

/* Attention's outputs and log-sum-exps are not kept. At the peak none of them is alive. */
static void selective_recompute_does_not_keep_what_attention_gives(void **state) {
    (void)state;
    const double out = 2.0 * CHAR_GPT.context * CHAR_GPT.width * 4, lse = 2.0 * CHAR_GPT.heads * CHAR_GPT.context * 4;
    double saved = (double)activations(24, RECOMPUTE_NONE, PLAN_TRAIN) -
                   (double)activations(24, RECOMPUTE_SELECTIVE, PLAN_TRAIN);
    assert_within("saved", saved, 24 * (out + lse), 2);
}

static void evaluation_needs_no_more_for_more_layers(void **state) {
    (void)state;
    assert_int_equal(activations(2, RECOMPUTE_NONE, PLAN_EVALUATE), activations(24, RECOMPUTE_NONE, PLAN_EVALUATE));
}

static void activations_share_bytes(void **state) {
    (void)state;
    struct plans p = plans_build(plans_graph(CHAR_GPT, 2), layout_of(1, 0, 1));
    size_t sum = 0;
    for (int t = 0; t < p.graph->n_tensors; t++)
        if (p.graph->tensors[t].alias_of < 0 && p.graph->tensors[t].role != TENSOR_BATCH)
            sum += graph_tensor_bytes(p.graph, t);
    assert_true(p.of[0]->family_bytes[FAMILY_ACTIVATIONS] < sum * 3 / 4);
    plans_free(&p);
}

/* The memory of stage s grows with its micro-batches in flight: P - s under 1F1B, all under gpipe. */
static void a_stage_keeps_what_its_micro_batches_in_flight_need(void **state) {
    (void)state;
    enum { P = 4 };
    struct gpt_shape shape = CHAR_GPT;
    shape.layers = 16;
    struct plan_layout l = layout_of(1, 0, 8);
    l.stages = P;
    struct plans few = plans_build(plans_graph(shape, 2), l);
    l.schedule = &schedule_gpipe;
    struct plans all = plans_build(plans_graph(shape, 2), l);
    double one_block = ((double)activations(8, RECOMPUTE_NONE, PLAN_TRAIN) -
                        (double)activations(4, RECOMPUTE_NONE, PLAN_TRAIN)) /
                       4;
    for (int s = 1; s < P - 1; s++) { /* stages of blocks alone */
        double blocks = few.of[s]->virtual_stages[0].n_blocks;
        assert_within("1f1b", (double)few.of[s]->family_bytes[FAMILY_ACTIVATIONS],
                      (P - s) * blocks * one_block + one_block, 12);
        assert_within("gpipe", (double)all.of[s]->family_bytes[FAMILY_ACTIVATIONS], 8 * blocks * one_block + one_block,
                      12);
    }
    plans_free(&few);
    plans_free(&all);
}

/* --- choices ---*/

static status_t build_char_gpt(void *ctx, int micro_batch, struct graph **ret, size_t *ret_workspace, struct err *e) {
    (void)ctx;
    *ret_workspace = 1 << 20;
    return gpt_graph(&CHAR_GPT, micro_batch, ret, e);
}

static struct choose_request request_of(int global_batch, int micro_batch, size_t limit) {
    return (struct choose_request){
        .layout = { .bucket_bytes = 4 << 20, .optimizer = &optimizer_adamw },
        .global_batch = global_batch,
        .micro_batch = micro_batch,
        .recompute = micro_batch == 0 ? RECOMPUTE_AUTO : RECOMPUTE_NONE,
        .memory_bytes = limit,
        .build = build_char_gpt,
    };
}

static size_t bytes_of(int micro_batch, int global_batch, int lanes, enum plan_recompute recompute) {
    struct graph *g = plans_graph(CHAR_GPT, micro_batch);
    struct plan_layout l = { .bucket_bytes = 4 << 20,
                             .optimizer = &optimizer_adamw,
                             .lanes = lanes,
                             .micro_batches = global_batch / micro_batch,
                             .recompute = recompute,
                             .workspace_bytes = 1 << 20 };
    size_t bytes = 0;
    int rank;
    struct err e = { "" };
    assert_int_equal(plan_max_bytes(g, &l, NULL, &bytes, &rank, &e), ST_OK);
    graph_free(g);
    return bytes;
}

/* Computed from two plans per stage, not from all plans. */
static void the_fullest_rank_is_found(void **state) {
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        struct plan_layout l = layout_of(16, zero, 2);
        l.bucket_bytes = 40 << 10;
        struct plans p = plans_build(plans_graph(CHAR_GPT, 1), l);
        size_t most = 0, found = 0;
        for (int r = 0; r < p.n; r++)
            most = plan_bytes(p.of[r]) > most ? plan_bytes(p.of[r]) : most;
        int rank;
        struct err e = { "" };
        assert_int_equal(plan_max_bytes(p.graph, &l, NULL, &found, &rank, &e), ST_OK);
        assert_int_equal(found, plan_bytes(p.of[rank]));
        assert_within("the fullest", (double)found, (double)most, 0.1);
        plans_free(&p);
    }
}

static void the_largest_micro_batch_that_fits_is_chosen(void **state) {
    (void)state;
    const size_t limits[] = { (size_t)2 << 30, (size_t)1 << 30, 768u << 20, 600u << 20 };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct choose_request r = request_of(64, 0, limits[i]);
        struct choice c;
        struct err e = { "" };
        if (plan_choose(&r, &c, &e) != ST_OK)
            fail_msg("%s", e.msg);
        assert_true(bytes_of(c.micro_batch, 64, c.lanes, c.recompute) <= limits[i]);
        assert_int_equal(bytes_of(c.micro_batch, 64, c.lanes, c.recompute), c.bytes);
        int next = c.micro_batch * 2;
        if (next <= 64) {
            int n = 64 / next;
            assert_true(bytes_of(next, 64, n < 8 ? n : 8, c.recompute) > limits[i]);
        }
    }
}

static void recompute_is_chosen_where_nothing_fits_without(void **state) {
    (void)state;
    size_t none = bytes_of(8, 8, 1, RECOMPUTE_NONE), block = bytes_of(8, 8, 1, RECOMPUTE_BLOCK);
    struct choose_request r = request_of(8, 8, none - 1);
    r.recompute = RECOMPUTE_AUTO;
    struct choice c;
    struct err e = { "" };
    assert_int_equal(plan_choose(&r, &c, &e), ST_OK);
    assert_int_equal(c.recompute, RECOMPUTE_SELECTIVE);
    r.memory_bytes = block;
    assert_int_equal(plan_choose(&r, &c, &e), ST_OK);
    assert_int_equal(c.recompute, RECOMPUTE_BLOCK);
    r.memory_bytes = none;
    assert_int_equal(plan_choose(&r, &c, &e), ST_OK);
    assert_int_equal(c.recompute, RECOMPUTE_NONE);
}

static void a_micro_batch_that_cannot_fit_is_refused_with_the_largest_that_can(void **state) {
    (void)state;
    size_t limit = bytes_of(4, 64, 8, RECOMPUTE_NONE);
    struct choose_request r = request_of(64, 16, limit);
    struct choice c;
    struct err e = { "" };
    assert_int_equal(plan_choose(&r, &c, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "train.micro_batch: 16 needs "));
    assert_non_null(strstr(e.msg, "the largest that fits is 4 with train.recompute: none"));
    r = request_of(64, 0, 1 << 20);
    assert_int_equal(plan_choose(&r, &c, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "the smallest needs "));
    r.memory_bytes = 1000;
    assert_int_equal(plan_choose(&r, &c, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "auto finds none that fits 1000 B (resources.memory_bytes)"));
    r = request_of(64, 16, 4096);
    assert_int_equal(plan_choose(&r, &c, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "over the limit of 4.0 KiB (resources.memory_bytes)"));
    r = request_of(64, 0, 0);
    assert_int_equal(plan_choose(&r, &c, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "train.micro_batch: auto needs resources.memory_bytes to fill");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_divides_state_then_gradients_then_weights),
        cmocka_unit_test(rounds_cost_an_accumulator_of_own_parts),
        cmocka_unit_test(half_precision_halves_weights_and_activations_and_adds_masters),
        cmocka_unit_test(block_recompute_keeps_one_block_and_the_boundaries),
        cmocka_unit_test(iterations_cost_an_image_each_under_block_recompute),
        cmocka_unit_test(selective_recompute_does_not_keep_what_attention_gives),
        cmocka_unit_test(evaluation_needs_no_more_for_more_layers),
        cmocka_unit_test(activations_share_bytes),
        cmocka_unit_test(a_stage_keeps_what_its_micro_batches_in_flight_need),
        cmocka_unit_test(the_fullest_rank_is_found),
        cmocka_unit_test(the_largest_micro_batch_that_fits_is_chosen),
        cmocka_unit_test(recompute_is_chosen_where_nothing_fits_without),
        cmocka_unit_test(a_micro_batch_that_cannot_fit_is_refused_with_the_largest_that_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
