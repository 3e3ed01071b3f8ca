/* Plans: the plan that the compiler makes of a GPT for each layout, and the layouts that it refuses. test_verify.c
 * tests broken plans, test_plan_memory.c the bytes, and test_plan_schedules.c the orders. */
#include "engine/graph/op.h"
#include "engine/model/model.h"
#include "engine/plan/build/plan_build.h"
#include "tests/engine/gpt_graph.h"
#include "tests/engine/plans.h"

#include <stdio.h>
#include <time.h>

static const struct gpt_shape SMALL = {
    .layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 65, .dropout = 0.1
};
static const struct gpt_shape DEEP = {
    .layers = 13, .heads = 2, .width = 16, .context = 8, .vocabulary = 65, .dropout = 0.1
};

static struct plan_layout layout_of(int data, int lanes, int micro_batches, enum plan_reduce reduce) {
    return (struct plan_layout){ .data = data,
                                 .lanes = lanes,
                                 .micro_batches = micro_batches,
                                 .reduce = reduce,
                                 .bucket_bytes = 8192,
                                 .workspace_bytes = 100,
                                 .optimizer = &optimizer_adamw };
}

/* --- everything that can be is accepted ---*/

static void every_data_parallel_layout_of_a_gpt_is_accepted(void **state) {
    (void)state;
    for (int reduce = PLAN_REDUCE_STEP; reduce <= PLAN_REDUCE_MICRO_BATCH; reduce++)
        for (int lanes = 1; lanes <= 8; lanes *= 2)
            for (int data = 1; data <= lanes; data *= 2)
                for (int rounds = 1; rounds <= 3; rounds++)
                    for (int kind = PLAN_TRAIN; kind <= PLAN_AVERAGE; kind++) {
                        struct plan_layout l = layout_of(data, lanes, lanes * rounds, (enum plan_reduce)reduce);
                        l.ema = kind == PLAN_AVERAGE;
                        l.kind = (enum plan_kind)kind;
                        struct plans p = plans_build(plans_graph(SMALL, 3), l);
                        assert_accepted(&p);
                        plans_free(&p);
                    }
}

static unsigned draw(unsigned *state, unsigned n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % n;
}

static struct graph *llama_graph(bool tied, enum dtype element) {
    const struct llama_shape llama = { .layers = 13,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .width = 32,
                                       .hidden = 80,
                                       .context = 8,
                                       .vocabulary = 65,
                                       .rope_theta = 10000,
                                       .norm_eps = 1e-5,
                                       .tied_embeddings = tied };
    struct err e = { "" };
    struct graph *g = graph_new(element);
    g->micro_batch = 2;
    if (model_llama.build(&llama, &(struct model_data){ 0 }, g, &e) != ST_OK || graph_differentiate(g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return g;
}

/* A graph of any family. Without dropout, a gradient shares bytes with one that a delayed weight pass still reads;
 * batch norms have statistics; an unrolled network shares weights over blocks, and its first block has no weights. */
static struct graph *random_graph(unsigned *seed) {
    const struct model_config families[] = {
        { .kind = &model_gpt, .gpt = DEEP },
        { .kind = &model_resnet, .resnet = { .layers = 18, .width = 8 } },
        { .kind = &model_resnet, .resnet = { .layers = 50, .width = 8 } },
        { .kind = &model_vit, .vit = { .layers = 4, .heads = 2, .width = 32, .patch = 8, .hidden = 128 } },
        { .kind = &model_mlp, .mlp = { .hidden = { 64, 64, 32 }, .n_hidden = 3 } },
        { .kind = &model_unrolled, .unrolled = { .iterations = 4, .channels = 8, .layers = 3 } },
    };
    const int n = sizeof families / sizeof *families, k = (int)draw(seed, (unsigned)n + 1);
    const enum dtype element = draw(seed, 2) ? DTYPE_BF16 : DTYPE_F32;
    if (k == n)
        return llama_graph(draw(seed, 2), element);
    struct model_config c = families[k];
    struct model_data data = { .vocabulary = 65, .classes = 10, .channels = 3, .height = 32, .width = 32 };
    if (c.kind == &model_gpt)
        c.gpt.dropout = draw(seed, 2) ? 0.1 : 0;
    if (c.kind == &model_unrolled) {
        c.unrolled.shared_weights = draw(seed, 2);
        data = (struct model_data){ .channels = 1, .height = 32, .width = 32 };
    }
    struct graph *g = NULL;
    struct err e = { "" };
    if (model_resolve(&c, &data, &e) != ST_OK || model_build(&c, &data, 2, element, &g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return g;
}

static struct plan_layout random_layout(unsigned *seed) {
    int data = 1 << draw(seed, 4), own = 1 << draw(seed, 3), stages = data < 8 ? 1 + (int)draw(seed, 5) : 1;
    int rounds = 1 + (int)draw(seed, 4);
    struct plan_layout l = layout_of(data, data * own, data * own * rounds, (enum plan_reduce)draw(seed, 2));
    l.kind = draw(seed, 5) ? PLAN_TRAIN : draw(seed, 2) ? PLAN_EVALUATE : PLAN_AVERAGE;
    l.stages = stages;
    l.schedule = schedule_kinds[draw(seed, SCHEDULES)];
    l.recompute = (enum plan_recompute)draw(seed, RECOMPUTES);
    l.zero = (int)draw(seed, stages > 1 ? 2 : 4);
    l.virtual_stages = stages > 1 && l.schedule == &schedule_interleaved ? 1 + (int)draw(seed, 3) : 1;
    if (l.schedule == &schedule_interleaved && own * rounds % stages)
        l.schedule = &schedule_1f1b, l.virtual_stages = 1;
    if (l.zero < 3 && draw(seed, 3) == 0)
        l.optimizer = &optimizer_muon;
    l.ema = draw(seed, 2) || l.kind == PLAN_AVERAGE;
    l.bucket_bytes = 4096 << draw(seed, 6);
    return l;
}

static void describe(char *to, size_t n, const struct plan_layout *l) {
    snprintf(to, n, "kind %d data %d stages %d x %d zero %d schedule %s recompute %d lanes %d of %d reduce %d %s",
             l->kind, l->data, l->stages, l->virtual_stages, l->zero, l->schedule->name, l->recompute, l->lanes,
             l->micro_batches, l->reduce, l->optimizer->name);
}

/* Returns false if the model has fewer blocks than the layout has virtual stages. */
static bool random_plans(struct plans *p, struct graph *graph, struct plan_layout l) {
    struct plan *plan = NULL;
    struct err e = { "" };
    status_t st = plan_build(graph, &l, &plan, &e);
    plan_free(plan);
    if (st == ST_INVALID_ARGUMENT && strstr(e.msg, "cannot be cut from a model")) {
        graph_free(graph);
        return false;
    }
    *p = plans_build(graph, l);
    return true;
}

static void random_layouts_are_accepted_and_their_data_ranks_are_translations(void **state) {
    (void)state;
    const char *given = getenv("TRAINYARD_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    print_message("TRAINYARD_SEED=%u\n", seed);
    for (int i = 0; i < 300; i++) {
        struct plan_layout l = random_layout(&seed);
        char name[200];
        describe(name, sizeof name, &l);
        struct plans p;
        struct err e = { "" };
        if (!random_plans(&p, random_graph(&seed), l))
            continue;
        if (plan_verify((const struct plan *const *)p.of, p.n, &e) != ST_OK)
            fail_msg("%s: %s", name, e.msg);
        for (int r = 0; r < p.n; r++)
            if (plan_verify_translation(p.of[r / l.data * l.data], p.of[r], &e) != ST_OK)
                fail_msg("%s, rank %d: %s", name, r, e.msg);
        plans_free(&p);
    }
}

/* Gathered weights must not overlap a staged bucket if the wait for its reduction comes later (wide blocks, buckets of
 * several uses, more than one micro-batch per rank). */
static void gathered_units_and_staged_buckets_never_share_bytes(void **state) {
    (void)state;
    for (int bucket = 16; bucket <= 26; bucket++) {
        struct plan_layout l = layout_of(4, 4, 16, PLAN_REDUCE_MICRO_BATCH);
        l.zero = 3;
        l.bucket_bytes = (int64_t)1 << bucket;
        struct plans p = plans_build(
            plans_graph((struct gpt_shape){ .layers = 4, .heads = 4, .width = 256, .context = 8, .vocabulary = 999 },
                        1),
            l);
        assert_accepted(&p);
        plans_free(&p);
    }
}

static struct graph *model_graph(struct model_config c, struct model_data data) {
    struct graph *g = NULL;
    struct err e = { "" };
    if (model_resolve(&c, &data, &e) != ST_OK || model_build(&c, &data, 2, DTYPE_F32, &g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return g;
}

static const struct model_config UNROLLED = { .kind = &model_unrolled,
                                              .unrolled = { .iterations = 4, .channels = 8, .layers = 3 } };

/* The gradient has the bytes of the tensor that the stage received. It is written in the forward pass and sent in the
 * backward pass, in which no op touches it. */
static void a_stage_of_only_the_loss_keeps_its_gradient_until_it_is_sent(void **state) {
    (void)state;
    for (int recompute = 0; recompute < RECOMPUTES; recompute++) {
        struct plan_layout l = layout_of(1, 4, 4, PLAN_REDUCE_STEP);
        l.stages = 6;
        l.schedule = &schedule_gpipe;
        l.recompute = (enum plan_recompute)recompute;
        struct plans p = plans_build(
            model_graph(UNROLLED, (struct model_data){ .channels = 1, .height = 32, .width = 32 }), l);
        assert_int_equal(p.of[5]->virtual_stages[0].n_blocks, 1);
        assert_accepted(&p);
        plans_free(&p);
    }
}

/* A residual stage ends in an op whose output its own backward pass reads: recompute writes the output again while it
 * may still be sent. */
static void a_boundary_is_gone_before_it_is_computed_again(void **state) {
    (void)state;
    const struct model_config resnet = { .kind = &model_resnet, .resnet = { .layers = 18, .width = 8 } };
    for (int schedule = 0; schedule < SCHEDULES; schedule++) {
        struct plan_layout l = layout_of(1, 1, 6, PLAN_REDUCE_STEP);
        l.stages = 2;
        l.schedule = schedule_kinds[schedule];
        l.recompute = RECOMPUTE_BLOCK;
        struct plans p = plans_build(
            model_graph(resnet, (struct model_data){ .classes = 10, .channels = 3, .height = 32, .width = 32 }), l);
        assert_accepted(&p);
        plans_free(&p);
    }
}

/* Separate weight passes finish the second bucket of such a use before the first. */
static void a_use_in_two_buckets_is_normed_when_both_are_whole(void **state) {
    (void)state;
    for (int bucket = 12; bucket <= 17; bucket++) {
        struct plan_layout l = layout_of(1, 4, 16, PLAN_REDUCE_MICRO_BATCH);
        l.stages = 5;
        l.schedule = &schedule_zero_bubble;
        l.bucket_bytes = (int64_t)1 << bucket;
        struct plans p = plans_build(llama_graph(false, DTYPE_F32), l);
        assert_accepted(&p);
        plans_free(&p);
    }
}

/* --- reductions ---*/

static void nothing_is_sent_on_other_than_the_last_accumulation_step(void **state) {
    (void)state;
    struct plans p = plans_build(plans_graph(SMALL, 3), layout_of(2, 2, 8, PLAN_REDUCE_STEP));
    const struct plan *plan = p.of[0];
    int last_load = 0;
    for (int i = 0; i < plan->queue[QUEUE_COMPUTE].n; i++)
        if (plan->queue[QUEUE_COMPUTE].items[i].kind == INSTRUCTION_LOAD)
            last_load = i;
    assert_int_equal(plan->queue[QUEUE_DATA].n, plan->n_buckets + 1);
    for (int i = 0; i < plan->queue[QUEUE_DATA].n; i++)
        assert_true(plan->queue[QUEUE_DATA].items[i].after > last_load);
    plans_free(&p);
}

static void buckets_are_reduced_during_the_backward_pass(void **state) {
    (void)state;
    struct plans p = plans_build(plans_graph(SMALL, 3), layout_of(2, 2, 2, PLAN_REDUCE_STEP));
    const struct plan *plan = p.of[0];
    int last_backward = 0, early = 0;
    for (int i = 0; i < plan->queue[QUEUE_COMPUTE].n; i++)
        if (plan->queue[QUEUE_COMPUTE].items[i].kind == INSTRUCTION_BACKWARD_WEIGHT)
            last_backward = i;
    for (int i = 0; i < plan->queue[QUEUE_DATA].n; i++)
        early += plan->queue[QUEUE_DATA].items[i].after <= last_backward;
    assert_true(plan->n_buckets > 4);
    assert_true(early >= plan->n_buckets * 3 / 4);
    plans_free(&p);
}

/* A round's reduction is waited for when its bytes are written again, not before the next micro-batch starts. */
static void a_round_is_reduced_during_the_next_forward_pass(void **state) {
    (void)state;
    struct plans p = plans_build(plans_graph(SMALL, 3), layout_of(2, 2, 4, PLAN_REDUCE_MICRO_BATCH));
    const struct instruction_list *compute = &p.of[0]->queue[QUEUE_COMPUTE];
    int second_load = -1, first_wait = -1, loads = 0;
    for (int i = 0; i < compute->n; i++) {
        if (compute->items[i].kind == INSTRUCTION_LOAD && ++loads == 2)
            second_load = i;
        if (compute->items[i].kind == INSTRUCTION_WAIT && first_wait < 0)
            first_wait = i;
    }
    assert_true(second_load > 0 && first_wait > second_load + p.graph->n_ops);
    plans_free(&p);
}

static void a_rank_with_n_lanes_has_1_plus_log2_n_gradient_buffers(void **state) {
    (void)state;
    for (int lanes = 1, log2 = 0; lanes <= 8; lanes *= 2, log2++) {
        struct plans p = plans_build(plans_graph(SMALL, 3), layout_of(1, lanes, lanes * 2, PLAN_REDUCE_STEP));
        assert_int_equal(p.of[0]->lane_buffers, 1 + log2);
        plans_free(&p);
        p = plans_build(plans_graph(SMALL, 3), layout_of(1, lanes, lanes * 2, PLAN_REDUCE_MICRO_BATCH));
        assert_int_equal(p.of[0]->lane_buffers, 2 + log2); /* and the sum of the earlier rounds */
        plans_free(&p);
    }
}

/* --- cuts and shards ---*/

/* Every element of every parameter belongs to the shard of exactly one rank. */
static void assert_shards_cover_the_model(const struct plans *p, int data) {
    const struct graph *g = p->graph;
    for (int i = 0; i < g->n_parameters; i++) {
        int64_t sum = 0;
        for (int r = 0; r < p->n; r++)
            for (int k = 0; k < p->of[r]->n_shards; k++)
                if (p->of[r]->shards[k].parameter == i)
                    sum += p->of[r]->shards[k].count;
        assert_int_equal(sum, shape_elements(&g->parameters[i].shape) * data);
    }
}

static void shards_of_all_ranks_are_the_model_once(void **state) {
    (void)state;
    for (int zero = 0; zero <= 3; zero++)
        for (int stages = 1; stages <= (zero < 2 ? 2 : 1); stages++) {
            struct plan_layout l = layout_of(4, 4, 8, PLAN_REDUCE_MICRO_BATCH);
            l.zero = zero;
            l.stages = stages;
            struct plans p = plans_build(plans_graph(DEEP, 1), l);
            assert_shards_cover_the_model(&p, zero == 0 ? 4 : 1);
            plans_free(&p);
        }
}

/* Recursive halving gives data rank d, level by level, the half that its lowest bits choose. */
static void parts_are_owned_by_the_rank_with_the_bits_reversed(void **state) {
    (void)state;
    struct plan_layout l = { .data = 8 };
    const int part[8] = { 0, 4, 2, 6, 1, 5, 3, 7 };
    for (int d = 0; d < 8; d++)
        assert_int_equal(plan_part_of(&l, d), part[d]);
}

static void whole_tensors_are_never_cut_and_shared_out_to_within_one_of_them(void **state) {
    (void)state;
    struct plan_layout l = layout_of(4, 4, 4, PLAN_REDUCE_STEP);
    l.optimizer = &optimizer_muon;
    l.zero = 1;
    struct plans p = plans_build(
        plans_graph((struct gpt_shape){ .layers = 8, .heads = 2, .width = 256, .context = 8, .vocabulary = 65 }, 1), l);
    int64_t most = 0, least = INT64_MAX;
    for (int r = 0; r < 4; r++) {
        int64_t sum = 0;
        for (int k = 0; k < p.of[r]->n_shards; k++) {
            const struct plan_shard *shard = &p.of[r]->shards[k];
            assert_int_equal(shard->first, 0);
            assert_int_equal(shard->count, shape_elements(&p.graph->parameters[shard->parameter].shape));
            sum += shard->count;
        }
        most = sum > most ? sum : most;
        least = sum < least ? sum : least;
    }
    assert_shards_cover_the_model(&p, 1);
    assert_true(most - least <= 4 * 256 * 256); /* the largest tensor */
    plans_free(&p);
}

/* --- shared weights ---*/

static void the_tied_embedding_has_two_gradients_that_are_added(void **state) {
    (void)state;
    struct plans p = plans_build(plans_graph(SMALL, 3), layout_of(1, 1, 1, PLAN_REDUCE_STEP));
    const struct instruction *add = plans_find(p.of[0], QUEUE_COMPUTE, INSTRUCTION_ADD_USE, 0);
    const struct plan_shard *shard = &p.of[0]->shards[add->begin];
    assert_string_equal(p.graph->parameters[shard->parameter].name, "transformer.wte.weight");
    assert_int_equal(p.graph->uses[add->source].parameter, shard->parameter);
    assert_int_not_equal(p.graph->uses[add->source].number, p.graph->uses[shard->use].number);
    plans_free(&p);
}

static void the_tied_embedding_crosses_the_pipeline_once_each_way(void **state) {
    (void)state;
    struct plan_layout l = layout_of(1, 1, 4, PLAN_REDUCE_STEP);
    l.stages = 2;
    l.bucket_bytes = 1 << 20;
    struct plans p = plans_build(plans_graph(SMALL, 3), l);
    const struct plan *first = p.of[0], *last = p.of[1];
    int gradients = first->queue[QUEUE_GRADIENTS].n, activations = last->queue[QUEUE_ACTIVATIONS].n;
    assert_int_equal(gradients, 4 + 1);
    assert_int_equal(activations, 4 + 1);
    assert_int_equal(first->queue[QUEUE_GRADIENTS].items[4].payload, PAYLOAD_GRADIENT);
    assert_int_equal(last->queue[QUEUE_ACTIVATIONS].items[4].payload, PAYLOAD_WEIGHT);
    assert_int_equal(plans_count(last, QUEUE_COMPUTE, INSTRUCTION_ADD_USE), 0);
    for (int k = 0; k < last->n_shards; k++)
        assert_string_not_equal(p.graph->parameters[last->shards[k].parameter].name, "transformer.wte.weight");
    plans_free(&p);
}

/* --- ZeRO-3 ---*/

static void weights_are_gathered_a_block_ahead_and_dropped_after_use(void **state) {
    (void)state;
    struct plan_layout l = layout_of(2, 2, 2, PLAN_REDUCE_STEP);
    l.zero = 3;
    l.bucket_bytes = 1 << 20;
    struct plans p = plans_build(plans_graph(DEEP, 1), l);
    const struct plan *plan = p.of[0];
    int here = 0, most = 0, gathers = plans_count(plan, QUEUE_DATA, INSTRUCTION_GATHER);
    for (int i = 0, next = 0; i < plan->queue[QUEUE_COMPUTE].n; i++) {
        for (; next < plan->queue[QUEUE_DATA].n && plan->queue[QUEUE_DATA].items[next].after <= i; next++)
            here += plan->queue[QUEUE_DATA].items[next].kind == INSTRUCTION_GATHER;
        most = here > most ? here : most;
        here -= plan->queue[QUEUE_COMPUTE].items[i].kind == INSTRUCTION_DROP;
    }
    assert_int_equal(here, 0);
    assert_true(most <= 4); /* embedding and first block: wte, wpe, h.0; a block and the next: 2 */
    /* Forward 13 blocks, embedding (wte, wpe), head (ln_f, wte); backward all but head, and no weights for embedding.
     */
    assert_int_equal(gathers, 13 + 2 + 2 + 13);
    assert_int_equal(plans_count(plan, QUEUE_COMPUTE, INSTRUCTION_DROP), gathers);
    plans_free(&p);
}

/* --- printing, refusing ---*/

static void a_plan_can_be_printed(void **state) {
    (void)state;
    struct plans p = plans_build(plans_graph(SMALL, 3), layout_of(2, 4, 4, PLAN_REDUCE_STEP));
    struct bytes text;
    struct err e;
    bytes_init(&text, 1 << 20);
    assert_int_equal(plan_print(p.of[1], true, &text, &e), ST_OK);
    assert_non_null(strstr(text.data, "rank 1 of 2"));
    assert_non_null(strstr(text.data, "BACKWARD_WEIGHT h.1.mlp.c_fc micro-batch 2"));
    assert_non_null(strstr(text.data, "REDUCE bucket 0"));
    bytes_done(&text);
    plans_free(&p);
}

static void a_layout_that_cannot_be_is_refused_with_the_field(void **state) {
    (void)state;
    struct graph *g = plans_graph(SMALL, 1);
    struct plan_layout base = layout_of(1, 2, 6, PLAN_REDUCE_STEP), l = base;
    l.lanes = 3;
    assert_refused_layout(g, l, "train.lanes: 3 ");
    l = base;
    l.data = 4;
    assert_refused_layout(g, l, "parallel.data: 4 ");
    l = base;
    l.stages = 5;
    assert_refused_layout(g, l, "parallel.pipeline: 5 stages");
    l = base;
    l.stages = 2;
    l.virtual_stages = 2;
    assert_refused_layout(g, l, "parallel.virtual_stages: 2");
    l = base;
    l.stages = 4;
    l.schedule = &schedule_interleaved;
    assert_refused_layout(g, l, "interleaved needs a rank's 6 micro-batches to be a multiple of its 4 stages");
    for (l = base, l.data = 2, l.stages = 2, l.zero = 2; l.zero <= 3; l.zero++)
        assert_refused_layout(g, l, "with parallel.pipeline 2");
    l = base;
    l.data = 2;
    l.zero = 3;
    l.optimizer = &optimizer_adafactor;
    assert_refused_layout(g, l, "train.optimizer: adafactor steps whole tensors");
    graph_free(g);
}

static void a_model_that_cannot_be_is_refused_with_the_field(void **state) {
    (void)state;
    struct graph *graph = NULL;
    struct err e;
    struct gpt_shape shape = SMALL;
    shape.heads = 5;
    assert_int_equal(gpt_graph(&shape, 1, &graph, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "model.gpt.heads: 5 does not divide width 16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_data_parallel_layout_of_a_gpt_is_accepted),
        cmocka_unit_test(random_layouts_are_accepted_and_their_data_ranks_are_translations),
        cmocka_unit_test(gathered_units_and_staged_buckets_never_share_bytes),
        cmocka_unit_test(a_stage_of_only_the_loss_keeps_its_gradient_until_it_is_sent),
        cmocka_unit_test(a_boundary_is_gone_before_it_is_computed_again),
        cmocka_unit_test(a_use_in_two_buckets_is_normed_when_both_are_whole),
        cmocka_unit_test(nothing_is_sent_on_other_than_the_last_accumulation_step),
        cmocka_unit_test(buckets_are_reduced_during_the_backward_pass),
        cmocka_unit_test(a_round_is_reduced_during_the_next_forward_pass),
        cmocka_unit_test(a_rank_with_n_lanes_has_1_plus_log2_n_gradient_buffers),
        cmocka_unit_test(shards_of_all_ranks_are_the_model_once),
        cmocka_unit_test(parts_are_owned_by_the_rank_with_the_bits_reversed),
        cmocka_unit_test(whole_tensors_are_never_cut_and_shared_out_to_within_one_of_them),
        cmocka_unit_test(the_tied_embedding_has_two_gradients_that_are_added),
        cmocka_unit_test(the_tied_embedding_crosses_the_pipeline_once_each_way),
        cmocka_unit_test(weights_are_gathered_a_block_ahead_and_dropped_after_use),
        cmocka_unit_test(a_plan_can_be_printed),
        cmocka_unit_test(a_layout_that_cannot_be_is_refused_with_the_field),
        cmocka_unit_test(a_model_that_cannot_be_is_refused_with_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
