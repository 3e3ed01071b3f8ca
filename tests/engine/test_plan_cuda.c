/* The memory of a plan for CUDA against theory, on any host: GPT-2's 124M parameters in bf16 with the workspace of
 * cuDNN's attention, and the images of ResNet-50. */
#include "engine/model/model.h"
#include "engine/run/job_model.h"
#include "tests/engine/plans.h"

#include <math.h>

enum { BATCH = 8, RANKS = 4, ROUNDS = 2, ALIGNMENT = 64 };

static const struct gpt_shape GPT2 = { .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257 };

static struct graph *graph_of(struct gpt_shape shape, enum dtype element) {
    struct err e = { "" };
    struct graph *g = graph_new(element);
    g->micro_batch = BATCH;
    if (model_gpt.build(&shape, &(struct model_data){ 0 }, g, &e) != ST_OK || graph_differentiate(g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return g;
}

static size_t room_of(const struct graph *g, enum kernels_precision precision, bool fast) {
    const struct kernels *k = kernels_shape_only(
        &(struct kernels_config){ .device = "cuda", .precision = precision, .fast = fast });
    assert_non_null(k);
    return job_model_workspace(k, g, &optimizer_adamw);
}

static struct plan_layout layout_of(int data, int stages, int zero, enum plan_recompute recompute) {
    return (struct plan_layout){ .data = data,
                                 .stages = stages,
                                 .zero = zero,
                                 .recompute = recompute,
                                 .lanes = data,
                                 .micro_batches = data * ROUNDS,
                                 .reduce = PLAN_REDUCE_MICRO_BATCH,
                                 .bucket_bytes = 4 << 20,
                                 .optimizer = &optimizer_adamw };
}

static struct plans build(struct gpt_shape shape, struct plan_layout layout) {
    struct graph *g = graph_of(shape, DTYPE_BF16);
    layout.workspace_bytes = room_of(g, KERNELS_BF16, false);
    struct plans p = plans_build(g, layout);
    assert_accepted(&p);
    return p;
}

static void assert_within(const char *what, double bytes, double theory, double percent) {
    if (fabs(bytes - theory) > theory * percent / 100)
        fail_msg("%s: %.0f bytes, theory says %.0f", what, bytes, theory);
}

static size_t multiple(size_t n, size_t of) { return (n + of - 1) / of * of; }

/* Of one attention, by its shape: the row sums of dout out; then in a fixed order a number of 2 bytes for each score,
 * or for atomic additions dQ's sums twice, in fp32; and what an engine takes besides. */
static size_t attention_room(const struct gpt_shape *s, bool fast) {
    const size_t rows = (size_t)BATCH * (size_t)(s->heads * s->context),
                 sums = 4 * rows * (size_t)(s->width / s->heads);
    return multiple(4 * rows, 256) + (fast ? 2 * sums : 2 * rows * (size_t)s->context) + 4096;
}

static void attention_by_cudnn_decides_the_workspace(void **state) {
    (void)state;
    struct graph *g = graph_of(GPT2, DTYPE_BF16);
    assert_int_equal(room_of(g, KERNELS_BF16, false), attention_room(&GPT2, false));
    assert_int_equal(room_of(g, KERNELS_FP16, false), attention_room(&GPT2, false));
    assert_int_equal(room_of(g, KERNELS_BF16, true), attention_room(&GPT2, true));
    graph_free(g);
    struct gpt_shape padded = GPT2; /* sides of a score matrix are cut into tiles of 128 */
    padded.context = 700;
    struct graph *h = graph_of(padded, DTYPE_BF16);
    const size_t rows = (size_t)BATCH * 12;
    assert_int_equal(room_of(h, KERNELS_BF16, false), multiple(4 * rows * 700, 256) + 2 * rows * 768 * 768 + 4096);
    graph_free(h);
}

/* cuDNN has no attention in fp32. Its engines get at most 4 GiB for a fixed order of additions. Its dropout masks
 * differ from ours. */
static void without_cudnn_the_workspace_is_what_rows_take(void **state) {
    (void)state;
    struct gpt_shape longer = GPT2;
    longer.context = 8192;
    longer.vocabulary = 512;
    struct gpt_shape masked = GPT2;
    masked.dropout = 0.1;
    struct graph *g = graph_of(GPT2, DTYPE_F32), *h = graph_of(longer, DTYPE_BF16), *m = graph_of(masked, DTYPE_BF16);
    assert_true(room_of(m, KERNELS_BF16, false) < 16 << 20);
    graph_free(m);
    assert_true(room_of(g, KERNELS_FP32, false) < 16 << 20);
    assert_true(room_of(h, KERNELS_BF16, false) < 16 << 20);
    assert_int_equal(room_of(h, KERNELS_BF16, true), attention_room(&longer, true));
    graph_free(g);
    graph_free(h);
}

/* A rank allocates its families, each aligned. A rank's workspace is the largest workspace of an op, after the sums
 * for norms. */
static void assert_sums(const struct plans *p) {
    for (int r = 0; r < p->n; r++) {
        size_t sum = 0;
        for (int f = 0; f < FAMILIES; f++)
            sum += multiple(p->of[r]->family_bytes[f], ALIGNMENT);
        assert_int_equal(plan_bytes(p->of[r]), sum);
        assert_int_equal(p->of[r]->family_bytes[FAMILY_WORKSPACE] - plan_chunk_sum_bytes(p->of[r]),
                         multiple(attention_room(&GPT2, false), ALIGNMENT));
    }
}

/* Rajbhandari et al. 2020, "ZeRO", in mixed precision: 2 bytes a weight, 12 its master and moments, and here 4 its
 * gradient, which the rounds add up in fp32; each stage divides one more of them by the ranks. */
static void zero_divides_state_then_gradients_then_weights(void **state) {
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        struct plans p = build(GPT2, layout_of(RANKS, 1, zero, RECOMPUTE_NONE));
        const double weights = (double)graph_parameter_elements(p.graph),
                     gradients = weights + (double)GPT2.vocabulary * GPT2.width;
        for (int r = 0; r < RANKS; r++) {
            const size_t *bytes = p.of[r]->family_bytes;
            assert_within("weights", (double)bytes[FAMILY_PARAMETERS], 2 * weights / (zero >= 3 ? RANKS : 1), 2);
            assert_within("states", (double)bytes[FAMILY_OPTIMIZER], 12 * weights / (zero >= 1 ? RANKS : 1), 2);
            assert_within("gradients", (double)bytes[FAMILY_GRADIENTS],
                          4 * gradients *
                              (zero >= 2   ? 1.0 / RANKS
                               : zero == 1 ? 1 + 1.0 / RANKS
                                           : 2),
                          2);
        }
        assert_sums(&p);
        plans_free(&p);
    }
}

/* The blocks are divided over the stages; each stage has the weights, states and gradients of its own blocks. */
static void a_pipeline_divides_all_three_by_its_stages(void **state) {
    (void)state;
    struct plans p = build(GPT2, layout_of(1, RANKS, 0, RECOMPUTE_NONE));
    const double head = (double)GPT2.vocabulary * GPT2.width, weights = (double)graph_parameter_elements(p.graph);
    double of_all[FAMILIES] = { 0 };
    for (int r = 0; r < RANKS; r++)
        for (int f = 0; f < FAMILIES; f++)
            of_all[f] += (double)p.of[r]->family_bytes[f];
    /* The first and the last stage have the tied embedding; one of them steps it. */
    assert_within("weights", of_all[FAMILY_PARAMETERS], 2 * (weights + head), 2);
    assert_within("states", of_all[FAMILY_OPTIMIZER], 12 * weights, 2);
    for (int s = 1; s < RANKS - 1; s++) {
        const double blocks = p.of[s]->virtual_stages[0].n_blocks, block = 12.0 * GPT2.width * GPT2.width;
        assert_within("a stage's weights", (double)p.of[s]->family_bytes[FAMILY_PARAMETERS], 2 * blocks * block, 2);
        assert_within("a stage's states", (double)p.of[s]->family_bytes[FAMILY_OPTIMIZER], 12 * blocks * block, 2);
    }
    assert_sums(&p);
    plans_free(&p);
}

static size_t activations(int layers, enum plan_recompute recompute) {
    struct gpt_shape shape = GPT2;
    shape.layers = layers;
    struct plans p = build(shape, layout_of(1, 1, 0, recompute));
    const size_t bytes = p.of[0]->family_bytes[FAMILY_ACTIVATIONS];
    assert_sums(&p);
    plans_free(&p);
    return bytes;
}

/* Of a layer, in numbers of 2 bytes: two norms' outputs, queries, keys and values, attention's output, a sum after each
 * branch, and fc's 4 widths before and after GELU; and in fp32 the norms' means and rstds and the log-sum-exps. */
static void a_layer_keeps_what_its_gradients_read(void **state) {
    (void)state;
    const double tokens = (double)BATCH * GPT2.context, width = GPT2.width;
    const double layer = tokens * (2 * width * (2 + 3 + 1 + 2 + 8) + 4.0 * (4 + GPT2.heads));
    const size_t eight = activations(8, RECOMPUTE_NONE), twelve = activations(12, RECOMPUTE_NONE);
    assert_within("a layer", (double)(twelve - eight) / 4, layer, 1);
}

/* Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", with a block a segment. */
static void under_block_recompute_a_layer_costs_its_boundary_alone(void **state) {
    (void)state;
    const size_t boundary = 2 * (size_t)BATCH * (size_t)(GPT2.context * GPT2.width);
    assert_int_equal(activations(12, RECOMPUTE_BLOCK) - activations(8, RECOMPUTE_BLOCK), 4 * boundary);
    const size_t out_and_lse = boundary + 4 * (size_t)BATCH * (size_t)(GPT2.heads * GPT2.context);
    assert_within("what selective recompute saves",
                  (double)(activations(12, RECOMPUTE_NONE) - activations(12, RECOMPUTE_SELECTIVE)),
                  12 * (double)out_and_lse, 2);
}

static struct plans resnet(int images, bool uploads_ahead) {
    struct model_config config = { .kind = &model_resnet, .resnet = { .layers = 50, .width = 64 } };
    const struct model_data data = { .classes = 1000, .channels = 3, .height = 224, .width = 224 };
    struct plan_layout layout = layout_of(1, 1, 0, RECOMPUTE_NONE);
    struct graph *g = NULL;
    struct err e = { "" };
    layout.uploads_ahead = uploads_ahead;
    if (model_resolve(&config, &data, &e) != ST_OK || model_build(&config, &data, images, DTYPE_BF16, &g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    struct plans p = plans_build(g, layout);
    assert_accepted(&p);
    return p;
}

/* Images in bf16, 2 bytes a number, and labels; ahead of them the next ones, in 4 as the host has them. */
static void a_batch_that_is_uploaded_ahead_has_an_upload_buffer(void **state) {
    (void)state;
    enum { IMAGES = 256 };
    const size_t numbers = (size_t)IMAGES * 3 * 224 * 224, labels = (size_t)IMAGES * 4;
    struct plans now = resnet(IMAGES, false), ahead = resnet(IMAGES, true);
    assert_int_equal(now.of[0]->family_bytes[FAMILY_BATCH], 2 * numbers + labels);
    assert_int_equal(ahead.of[0]->family_bytes[FAMILY_BATCH], (2 + 4) * numbers + 2 * labels);
    assert_int_equal(plan_bytes(ahead.of[0]) - plan_bytes(now.of[0]), 4 * numbers + labels);
    plans_free(&now);
    plans_free(&ahead);
}

static bool goes_ahead(const char *device) {
    const struct engine_config config = { .device = device, .train = { .global_batch = 1, .micro_batch = 1 } };
    return job_model_layout(&config, 0).uploads_ahead;
}

static void only_a_device_beside_the_host_is_uploaded_to_ahead(void **state) {
    (void)state;
    assert_true(goes_ahead("cuda"));
    assert_true(goes_ahead("cuda:1"));
    assert_false(goes_ahead("cpu"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_by_cudnn_decides_the_workspace),
        cmocka_unit_test(without_cudnn_the_workspace_is_what_rows_take),
        cmocka_unit_test(zero_divides_state_then_gradients_then_weights),
        cmocka_unit_test(a_pipeline_divides_all_three_by_its_stages),
        cmocka_unit_test(a_layer_keeps_what_its_gradients_read),
        cmocka_unit_test(a_batch_that_is_uploaded_ahead_has_an_upload_buffer),
        cmocka_unit_test(only_a_device_beside_the_host_is_uploaded_to_ahead),
        cmocka_unit_test(under_block_recompute_a_layer_costs_its_boundary_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
