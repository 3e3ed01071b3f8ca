/* Plans: what the compiler makes of a GPT, and that the verifier refuses every plan that is not right. */
#include "executor/engine/graph/op.h"
#include "executor/engine/model/gpt.h"
#include "executor/engine/plan/plan.h"
#include "executor/engine/plan/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 8 };

struct gang {
    struct graph *graph;
    struct plan *plans[RANKS_MOST];
    int n;
};

static const struct gpt_shape SHAPE_OF_TEST = {
    .layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 65, .dropout = 0.1
};

static struct gang make_gang(int ranks, int lanes, int micro_batches, enum plan_reduce reduce, enum plan_kind kind) {
    struct gang g = { .n = ranks };
    struct err e;
    assert_int_equal(gpt_build(&SHAPE_OF_TEST, 3, &g.graph, &e), ST_OK);
    for (int r = 0; r < ranks; r++) {
        struct plan_layout layout = { .kind = kind,
                                      .rank = r,
                                      .world_size = ranks,
                                      .lanes = lanes,
                                      .micro_batches = micro_batches,
                                      .reduce = reduce,
                                      .bucket_bytes = 8192,
                                      .workspace_bytes = 100 };
        assert_int_equal(plan_build(g.graph, &layout, &g.plans[r], &e), ST_OK);
    }
    return g;
}

static void free_gang(struct gang *g) {
    for (int r = 0; r < g->n; r++)
        plan_free(g->plans[r]);
    graph_free(g->graph);
}

static status_t verify(const struct gang *g, struct err *e) {
    return plan_verify((const struct plan *const *)g->plans, g->n, e);
}

static void assert_refused(const struct gang *g, const char *because) {
    struct err e = { "" };
    assert_int_equal(verify(g, &e), ST_FAILED_PRECONDITION);
    if (!strstr(e.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, because);
}

/* The n-th instruction of a kind; fails the test when there is none. */
static struct instruction *find(struct plan *p, enum instruction_kind kind, int n) {
    for (int i = 0; i < p->compute.n; i++)
        if (p->compute.items[i].kind == kind && n-- == 0)
            return &p->compute.items[i];
    fail_msg("the plan has no such %s", instruction_name(kind));
    return NULL;
}

static void drop(struct plan *p, struct instruction *i) {
    int at = (int)(i - p->compute.items);
    memmove(i, i + 1, (size_t)(p->compute.n - at - 1) * sizeof *i);
    p->compute.n--;
    for (int c = 0; c < p->channel.n; c++)
        if (p->channel.items[c].after > at)
            p->channel.items[c].after--;
}

static void swap(struct instruction *a, struct instruction *b) {
    struct instruction t = *a;
    *a = *b;
    *b = t;
}

/* --- what is right ---*/

static void every_layout_of_a_gpt_is_accepted(void **state) {
    (void)state;
    for (int reduce = PLAN_REDUCE_STEP; reduce <= PLAN_REDUCE_MICRO_BATCH; reduce++)
        for (int lanes = 1; lanes <= 8; lanes *= 2)
            for (int ranks = 1; ranks <= lanes; ranks *= 2)
                for (int rounds = 1; rounds <= 3; rounds++)
                    for (int kind = PLAN_TRAIN; kind <= PLAN_EVALUATE; kind++) {
                        struct gang g = make_gang(ranks, lanes, lanes * rounds, (enum plan_reduce)reduce,
                                                  (enum plan_kind)kind);
                        struct err e = { "" };
                        if (verify(&g, &e) != ST_OK)
                            fail_msg("%d ranks, %d lanes, %d rounds: %s", ranks, lanes, rounds, e.msg);
                        free_gang(&g);
                    }
}

static void a_rank_with_n_lanes_has_1_plus_log2_n_gradient_buffers(void **state) {
    (void)state;
    for (int lanes = 1, log2 = 0; lanes <= 8; lanes *= 2, log2++) {
        struct gang g = make_gang(1, lanes, lanes * 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
        assert_int_equal(g.plans[0]->gradient_buffers, 1 + log2);
        free_gang(&g);
        g = make_gang(1, lanes, lanes * 2, PLAN_REDUCE_MICRO_BATCH, PLAN_TRAIN);
        assert_int_equal(g.plans[0]->gradient_buffers, 2 + log2); /* and an accumulator */
        free_gang(&g);
    }
}

static void nothing_is_sent_on_other_than_the_last_accumulation_step(void **state) {
    (void)state;
    struct gang g = make_gang(2, 2, 8, PLAN_REDUCE_STEP, PLAN_TRAIN);
    const struct plan *p = g.plans[0];
    int last_load = 0;
    for (int i = 0; i < p->compute.n; i++)
        if (p->compute.items[i].kind == INSTRUCTION_LOAD)
            last_load = i;
    assert_int_equal(p->channel.n, p->n_buckets + 1);
    for (int c = 0; c < p->channel.n; c++)
        assert_true(p->channel.items[c].after > last_load);
    free_gang(&g);
}

static void buckets_leave_while_the_backward_pass_goes_on(void **state) {
    (void)state;
    struct gang g = make_gang(2, 2, 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
    const struct plan *p = g.plans[0];
    int last_backward = 0;
    for (int i = 0; i < p->compute.n; i++)
        if (p->compute.items[i].kind == INSTRUCTION_BACKWARD_WEIGHT)
            last_backward = i;
    int early = 0;
    for (int c = 0; c < p->channel.n; c++)
        early += p->channel.items[c].after <= last_backward;
    assert_true(p->n_buckets > 4);
    assert_true(early >= p->n_buckets * 3 / 4);
    free_gang(&g);
}

static void activations_share_bytes(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    size_t sum = 0;
    for (int t = 0; t < g.graph->n_tensors; t++)
        if (g.graph->tensors[t].alias_of < 0 && g.graph->tensors[t].role != TENSOR_BATCH)
            sum += (size_t)shape_elements(&g.graph->tensors[t].shape) * 4;
    assert_true(g.plans[0]->family_bytes[FAMILY_ACTIVATIONS] < sum * 3 / 4);
    struct gang evaluation = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_EVALUATE);
    assert_true(evaluation.plans[0]->family_bytes[FAMILY_ACTIVATIONS] <
                g.plans[0]->family_bytes[FAMILY_ACTIVATIONS] / 2);
    free_gang(&evaluation);
    free_gang(&g);
}

static void a_plan_can_be_printed(void **state) {
    (void)state;
    struct gang g = make_gang(2, 4, 4, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct bytes text;
    struct err e;
    bytes_init(&text, 1 << 20);
    assert_int_equal(plan_print(g.plans[1], true, &text, &e), ST_OK);
    assert_non_null(strstr(text.data, "rank 1 of 2"));
    assert_non_null(strstr(text.data, "BACKWARD_WEIGHT h.1.mlp.c_fc micro-batch 2"));
    assert_non_null(strstr(text.data, "REDUCE bucket 0"));
    bytes_done(&text);
    free_gang(&g);
}

static void the_tied_embedding_has_two_gradients_that_are_added(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct instruction *add = find(g.plans[0], INSTRUCTION_ADD_SLOT, 0);
    assert_string_equal(g.graph->parameters[g.graph->slots[add->op].parameter].name, "transformer.wte.weight");
    assert_int_equal(g.graph->slots[add->source].parameter, g.graph->slots[add->op].parameter);
    assert_int_not_equal(g.graph->slots[add->source].group, g.graph->slots[add->op].group);
    free_gang(&g);
}

/* --- what is wrong ---*/

static void a_layout_that_cannot_be_is_refused_with_the_field(void **state) {
    (void)state;
    struct graph *graph = NULL;
    struct plan *plan = NULL;
    struct err e;
    assert_int_equal(gpt_build(&SHAPE_OF_TEST, 1, &graph, &e), ST_OK);
    struct plan_layout layout = { .world_size = 1, .lanes = 3, .micro_batches = 6, .bucket_bytes = 1024 };
    assert_int_equal(plan_build(graph, &layout, &plan, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "train.lanes: 3 "));
    layout.lanes = 2;
    layout.world_size = 4;
    assert_int_equal(plan_build(graph, &layout, &plan, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "parallel.data: 4 "));
    graph_free(graph);
}

static void a_model_that_cannot_be_is_refused_with_the_field(void **state) {
    (void)state;
    struct graph *graph = NULL;
    struct err e;
    struct gpt_shape shape = SHAPE_OF_TEST;
    shape.heads = 5;
    assert_int_equal(gpt_build(&shape, 1, &graph, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "model.gpt.heads: 5 does not divide width 16");
}

static void a_read_before_the_write_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct instruction *i = find(g.plans[0], INSTRUCTION_FORWARD, 3);
    swap(i, i + 1);
    assert_refused(&g, "is not live when it is read");
    free_gang(&g);
}

static void two_live_tensors_in_one_place_are_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    const struct op *first = &g.graph->ops[0];
    for (int i = 1; i < g.graph->n_ops; i++)
        if (g.graph->ops[i].kind == &op_attention)
            g.plans[0]->tensor_offset[g.graph->ops[i].in[0]] =
                g.plans[0]->tensor_offset[graph_storage(g.graph, first->out[0])];
    assert_refused(&g, "is not live when it is read");
    free_gang(&g);
}

static void a_tensor_outside_its_family_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    g.plans[0]->family_bytes[FAMILY_ACTIVATIONS] -= PLAN_ALIGN * 2;
    assert_refused(&g, "ends outside its family");
    free_gang(&g);
}

static void micro_batches_of_a_lane_out_of_order_are_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 3, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct plan *p = g.plans[0];
    for (int i = 0; i < p->compute.n; i++) {
        int *k = &p->compute.items[i].micro_batch;
        *k = *k == 1 ? 2 : *k == 2 ? 1 : *k;
    }
    assert_refused(&g, "does not follow the one before it in lane 0");
    free_gang(&g);
}

static void an_overwritten_accumulation_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct plan *p = g.plans[0];
    for (int i = 0; i < p->compute.n; i++)
        if (p->compute.items[i].kind == INSTRUCTION_BACKWARD_WEIGHT)
            p->compute.items[i].first = true;
    assert_refused(&g, "after the whole step");
    free_gang(&g);
}

static void lanes_added_in_another_shape_are_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 4, 4, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct instruction *add = find(g.plans[0], INSTRUCTION_ADD, 0);
    int buffer = add->buffer;
    add->buffer = add->source;
    add->source = buffer;
    assert_refused(&g, "which is no node of the tree");
    free_gang(&g);
}

static void a_missing_addition_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 2, 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
    drop(g.plans[0], find(g.plans[0], INSTRUCTION_ADD, 0));
    assert_refused(&g, "before the whole step is in it");
    free_gang(&g);
}

static void a_missing_wait_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(2, 2, 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
    drop(g.plans[1], find(g.plans[1], INSTRUCTION_WAIT, g.plans[1]->n_buckets - 1));
    assert_refused(&g, "while it is being reduced");
    free_gang(&g);
}

static void touching_a_bucket_in_flight_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(2, 2, 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct instruction *norm = find(g.plans[0], INSTRUCTION_NORM, 0);
    assert_int_equal(norm[-1].kind, INSTRUCTION_WAIT);
    swap(norm - 1, norm);
    assert_refused(&g, "while it is being reduced");
    free_gang(&g);
}

static void a_reduction_before_the_last_gradient_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(2, 2, 4, PLAN_REDUCE_STEP, PLAN_TRAIN);
    for (int c = 0; c < g.plans[0]->channel.n; c++)
        if (g.plans[0]->channel.items[c].kind == INSTRUCTION_REDUCE) {
            g.plans[0]->channel.items[c].after -= 2;
            break;
        }
    assert_refused(&g, "before all of the rank's lanes are in");
    free_gang(&g);
}

static void ranks_that_reduce_in_another_order_are_refused(void **state) {
    (void)state;
    struct gang g = make_gang(2, 2, 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct plan *p = g.plans[1];
    struct instruction *a = &p->channel.items[p->channel.n - 1], *b = &p->channel.items[p->channel.n - 2];
    swap(a, b);
    int after = a->after > b->after ? a->after : b->after;
    a->after = b->after = after;
    assert_refused(&g, "of the channel is");
    free_gang(&g);
}

static void a_rank_that_sends_one_bucket_fewer_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(4, 4, 4, PLAN_REDUCE_STEP, PLAN_TRAIN);
    g.plans[2]->channel.n--;
    assert_refused(&g, "waits for ever");
    free_gang(&g);
}

static void a_norm_that_leaves_something_out_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    drop(g.plans[0], find(g.plans[0], INSTRUCTION_NORM, 1));
    assert_refused(&g, "the norm leaves out");
    free_gang(&g);
}

static void a_norm_before_the_slots_are_added_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    drop(g.plans[0], find(g.plans[0], INSTRUCTION_ADD_SLOT, 0));
    assert_refused(&g, "transformer.wte.weight");
    free_gang(&g);
}

static void a_parameter_that_is_never_stepped_or_stepped_twice_is_refused(void **state) {
    (void)state;
    struct gang g = make_gang(1, 1, 1, PLAN_REDUCE_STEP, PLAN_TRAIN);
    struct instruction *second = find(g.plans[0], INSTRUCTION_STEP, 1);
    int op = second->op;
    second->op = find(g.plans[0], INSTRUCTION_STEP, 0)->op;
    assert_refused(&g, "is not stepped once");
    second->op = op;
    drop(g.plans[0], second);
    assert_refused(&g, "is never stepped");
    free_gang(&g);
}

/* Sends and receives belong to the language of plans, though no schedule here emits them. */
static void give_instructions(struct plan *p, const struct instruction *list, int n) {
    free(p->compute.items);
    p->compute.items = malloc((size_t)n * sizeof *list);
    assert_non_null(p->compute.items);
    memcpy(p->compute.items, list, (size_t)n * sizeof *list);
    p->compute.n = n;
    p->channel.n = 0;
}

static void sends_without_receives_are_refused(void **state) {
    (void)state;
    struct gang g = make_gang(2, 2, 2, PLAN_REDUCE_STEP, PLAN_TRAIN);
    int t = g.graph->tokens;
    struct instruction load = { .kind = INSTRUCTION_LOAD, .micro_batch = 0 };
    struct instruction send = { .kind = INSTRUCTION_SEND, .entry = t, .micro_batch = 0 };
    struct instruction recv = { .kind = INSTRUCTION_RECV, .entry = t, .micro_batch = 0 };
    struct instruction to[2] = { send, send }, from[2] = { recv, recv };
    to[0].peer = from[0].peer = 1;
    to[1].peer = from[1].peer = 0;
    /* Both receive first: a deadlock. */
    give_instructions(g.plans[0], (struct instruction[]){ load, from[0], to[0] }, 3);
    give_instructions(g.plans[1], (struct instruction[]){ load, from[1], to[1] }, 3);
    assert_refused(&g, "instruction 1 (RECV): waits for ever");
    /* Both send first: without buffers a deadlock too. */
    give_instructions(g.plans[0], (struct instruction[]){ load, to[0], from[0] }, 3);
    give_instructions(g.plans[1], (struct instruction[]){ load, to[1], from[1] }, 3);
    assert_refused(&g, "instruction 1 (SEND): waits for ever");
    /* They meet: what is refused then is that the plan computes nothing. */
    give_instructions(g.plans[1], (struct instruction[]){ load, from[1], to[1] }, 3);
    assert_refused(&g, "micro-batches are computed");
    free_gang(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_of_a_gpt_is_accepted),
        cmocka_unit_test(a_rank_with_n_lanes_has_1_plus_log2_n_gradient_buffers),
        cmocka_unit_test(nothing_is_sent_on_other_than_the_last_accumulation_step),
        cmocka_unit_test(buckets_leave_while_the_backward_pass_goes_on),
        cmocka_unit_test(activations_share_bytes),
        cmocka_unit_test(a_plan_can_be_printed),
        cmocka_unit_test(the_tied_embedding_has_two_gradients_that_are_added),
        cmocka_unit_test(a_layout_that_cannot_be_is_refused_with_the_field),
        cmocka_unit_test(a_model_that_cannot_be_is_refused_with_the_field),
        cmocka_unit_test(a_read_before_the_write_is_refused),
        cmocka_unit_test(two_live_tensors_in_one_place_are_refused),
        cmocka_unit_test(a_tensor_outside_its_family_is_refused),
        cmocka_unit_test(micro_batches_of_a_lane_out_of_order_are_refused),
        cmocka_unit_test(an_overwritten_accumulation_is_refused),
        cmocka_unit_test(lanes_added_in_another_shape_are_refused),
        cmocka_unit_test(a_missing_addition_is_refused),
        cmocka_unit_test(a_missing_wait_is_refused),
        cmocka_unit_test(touching_a_bucket_in_flight_is_refused),
        cmocka_unit_test(a_reduction_before_the_last_gradient_is_refused),
        cmocka_unit_test(ranks_that_reduce_in_another_order_are_refused),
        cmocka_unit_test(a_rank_that_sends_one_bucket_fewer_is_refused),
        cmocka_unit_test(a_norm_that_leaves_something_out_is_refused),
        cmocka_unit_test(a_norm_before_the_slots_are_added_is_refused),
        cmocka_unit_test(a_parameter_that_is_never_stepped_or_stepped_twice_is_refused),
        cmocka_unit_test(sends_without_receives_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
