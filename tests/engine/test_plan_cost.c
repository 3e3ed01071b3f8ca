/* The cost of plans: device profiles, the work and bytes of instructions, the simulated step against the schedules'
 * formulas, its drawings, and a report of 1,024 ranks within a time limit. */
#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/cost/bucket_choice.h"
#include "engine/plan/cost/plan_report.h"
#include "engine/plan/cost/timeline_svg.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/verify/verify.h"
#include "tests/engine/gpt_graph.h"
#include "tests/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { STAGES_MOST = 16 };

struct column {
    struct graph *graph;
    struct plan *plans[STAGES_MOST];
    int n;
};

static struct column make_column(const struct gpt_shape *shape, int micro_batch, struct plan_layout layout) {
    struct column c = { .n = layout.stages > 1 ? layout.stages : 1 };
    struct err e = { "" };
    assert_int_equal(gpt_graph(shape, micro_batch, &c.graph, &e), ST_OK);
    layout.kind = PLAN_TRAIN;
    layout.bucket_bytes = 4 << 20;
    layout.optimizer = &optimizer_adamw;
    for (int s = 0; s < c.n; s++) {
        layout.rank = s * (layout.data > 1 ? layout.data : 1);
        if (plan_build(c.graph, &layout, &c.plans[s], &e) != ST_OK)
            fail_msg("%s", e.msg);
    }
    if (plan_verify((const struct plan *const *)c.plans, c.n, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return c;
}

static void free_column(struct column *c) {
    for (int s = 0; s < c->n; s++)
        plan_free(c->plans[s]);
    graph_free(c->graph);
}

static const struct gpt_shape SMALL = { .layers = 14, .heads = 2, .width = 16, .context = 8, .vocabulary = 65 };

/* --- profiles ---*/

static void every_profile_can_be_read(void **state) {
    (void)state;
    assert_true(N_PROFILE_TEXTS >= 4);
    for (int i = 0; i < N_PROFILE_TEXTS; i++) {
        struct plan_profile p;
        struct err e = { "" };
        if (plan_profile_find(PROFILE_TEXTS[i].name, &p, &e) != ST_OK)
            fail_msg("%s", e.msg);
        assert_string_equal(p.name, PROFILE_TEXTS[i].name);
        assert_string_equal(p.accelerator, "cuda");
        assert_true(p.product_flops[DTYPE_F32] > 0 && p.product_flops[DTYPE_F16] > 0 && p.memory_bytes > 0);
        assert_false(p.measured);
    }
}

static void a_profile_that_is_missing_or_wrong_is_refused_with_the_reason(void **state) {
    (void)state;
    struct plan_profile p;
    struct err e;
    assert_int_equal(plan_profile_find("h300", &p, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "cpu, v100, a100, h100, h200"));
    assert_int_equal(plan_profile_find("/nowhere/x.json", &p, &e), ST_NOT_FOUND);
    static const struct {
        const char *from, *to, *says;
    } WRONG[] = {
        { "\"name\"", "\"nome\"", "name is missing" },
        { "\"fp32\"", "\"fp31\"", "fp32 is missing" },
        { "\"product_reach\": 0", "\"product_reach\": 7", "product_reach is missing or no number in (0, 1]" },
        { "\"sources\"", "\"hearsay\"", "sources is missing" },
        { "\"cuda\"", "\"tpu\"", "accelerator tpu is neither cpu nor cuda" },
        { "\"near\"", "\"neat\"", "bytes_per_second is missing" },
        { "{", "[", "line " },
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        char text[4096];
        const char *json = PROFILE_TEXTS[0].json, *at = strstr(json, WRONG[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - json), json, WRONG[i].to, at + strlen(WRONG[i].from));
        assert_int_equal(plan_profile_parse("file", text, strlen(text), &p, &e), ST_INVALID_ARGUMENT);
        if (!strstr(e.msg, WRONG[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.msg, WRONG[i].says);
    }
}

static void this_machine_can_be_measured(void **state) {
    (void)state;
    struct plan_profile p;
    struct err e = { "" };
    if (plan_profile_measure(1, &p, &e) != ST_OK)
        fail_msg("%s", e.msg);
    assert_true(p.measured);
    assert_true(p.product_flops[DTYPE_F32] > 1e8 && p.product_flops[DTYPE_F32] < 1e14);
    assert_true(p.memory_bytes_per_second > 1e8 && p.intra_node.bytes_per_second > 1e7 && p.intra_node.seconds < 0.1);
    assert_true(p.product_flops[DTYPE_BF16] > 1e8 && p.product_flops[DTYPE_F16] > 1e8);
    print_message("%.0f GFLOP/s (bf16 %.0f, fp16 %.0f), %.0f GB/s, loopback %.1f GB/s after %.0f us\n",
                  p.product_flops[DTYPE_F32] / 1e9, p.product_flops[DTYPE_BF16] / 1e9, p.product_flops[DTYPE_F16] / 1e9,
                  p.memory_bytes_per_second / 1e9, p.intra_node.bytes_per_second / 1e9, p.intra_node.seconds * 1e6);
}

static void work_takes_the_longer_of_compute_and_memory(void **state) {
    (void)state;
    struct plan_profile p = { .product_flops = { [DTYPE_F32] = 1e12, [DTYPE_BF16] = 4e12 },
                              .product_reach = 0.5,
                              .memory_bytes_per_second = 1e9,
                              .memory_reach = 1,
                              .launch_seconds = 0.25 };
    assert_true(fabs(plan_profile_seconds(&p, DTYPE_F32, 1e12, 1e9) - 2.25) < 1e-12);
    assert_true(fabs(plan_profile_seconds(&p, DTYPE_BF16, 1e12, 1e9) - 1.25) < 1e-12);
    assert_true(fabs(plan_profile_seconds(&p, DTYPE_F16, 1e12, 1e9) - 2.25) <
                1e-12); /* no peak for fp16: that of fp32 */
}

/* --- work and wire ---*/

static void the_flops_of_a_plan_are_the_models(void **state) {
    (void)state;
    struct column c = make_column(&SMALL, 3, (struct plan_layout){ .stages = 2, .lanes = 2, .micro_batches = 4 });
    double sum = 0;
    for (int s = 0; s < c.n; s++)
        for (int i = 0; i < c.plans[s]->queue[QUEUE_COMPUTE].n; i++)
            sum += step_cost_work(c.plans[s], &c.plans[s]->queue[QUEUE_COMPUTE].items[i]).flops;
    assert_true(fabs(sum / (4 * graph_flops(c.graph)) - 1) < 1e-9);
    free_column(&c);
}

/* The ring's bytes: 2 (D-1)/D of the gradients for ZeRO 0; ZeRO 1 sends half of it, and as many weights back. */
static void ranks_send_the_bytes_of_the_theory(void **state) {
    (void)state;
    struct plan_profile f;
    struct err e;
    assert_int_equal(plan_profile_find("h200", &f, &e), ST_OK);
    for (int zero = 0; zero < 2; zero++) {
        struct column c = make_column(&SMALL, 3,
                                      (struct plan_layout){ .data = 4, .zero = zero, .lanes = 4, .micro_batches = 4 });
        struct wire_bytes w = step_cost_wire(c.plans[0], &f);
        double gradients = 4.0 * (double)c.plans[0]->gradient_elements;
        assert_true(fabs(w.intra_node[WIRE_REDUCE] / gradients - (zero ? 0.75 : 1.5)) < 1e-9);
        double use = 4.0 * 2 * PLAN_CHUNK; /* the embedding's second use has no weight to gather */
        assert_true(zero ? fabs(w.intra_node[WIRE_GATHER] / (gradients - use) - 0.75) < 1e-9
                         : !w.intra_node[WIRE_GATHER]);
        assert_true(w.inter_node[WIRE_REDUCE] == 0);
        free_column(&c);
    }
    struct column c = make_column(&SMALL, 3, (struct plan_layout){ .stages = 2, .lanes = 2, .micro_batches = 4 });
    struct wire_bytes first = step_cost_wire(c.plans[0], &f), last = step_cost_wire(c.plans[1], &f);
    double boundary = 3.0 * 8 * 16 * 4 * 4; /* samples, tokens, width, bytes, micro-batches */
    assert_true(first.intra_node[WIRE_ACTIVATIONS] == boundary && last.intra_node[WIRE_GRADIENTS] == boundary);
    assert_true(first.intra_node[WIRE_GRADIENTS] == 0 && last.intra_node[WIRE_ACTIVATIONS] == 0);
    double embedding = 4.0 * 65 * 16; /* its gradient one way, the new weight the other */
    assert_true(first.intra_node[WIRE_SHARED] == embedding && last.intra_node[WIRE_SHARED] == embedding);
    free_column(&c);
}

/* --- the simulated step ---*/

/* All stages take the same time: one op of each virtual stage takes all of a phase's time. */
struct fixed {
    double forward, input, weight; /* seconds per stage and micro-batch */
};

static bool is_first_op(const struct plan *p, const struct instruction *i, bool reverse) {
    const struct graph *g = p->graph;
    const struct op *op = &g->ops[reverse ? g->reverse[i->op].op : i->op];
    for (int o = 0; o < (int)(op - g->ops); o++) {
        if (p->block_virtual_stage[g->ops[o].block] != p->block_virtual_stage[op->block])
            continue;
        bool has = i->kind == INSTRUCTION_BACKWARD_WEIGHT ? g->ops[o].kind->backward_weight != NULL
                                                          : g->ops[o].kind->backward_input != NULL;
        if (has)
            return false;
    }
    return true;
}

static double fixed_seconds(void *ctx, const struct plan *p, enum plan_queue queue, const struct instruction *i) {
    const struct fixed *f = ctx;
    double share = 1.0 / p->layout.virtual_stages;
    if (queue != QUEUE_COMPUTE)
        return 0;
    switch (i->kind) {
    case INSTRUCTION_FORWARD: return is_first_op(p, i, false) ? f->forward * share : 0;
    case INSTRUCTION_BACKWARD_INPUT: return is_first_op(p, i, true) ? f->input * share : 0;
    case INSTRUCTION_BACKWARD_WEIGHT: return is_first_op(p, i, true) ? f->weight * share : 0;
    default: return 0;
    }
}

static double step_of(const struct schedule_kind *schedule, int stages, int virtual_stages, int micro_batches,
                      struct fixed *f) {
    struct column c = make_column(&SMALL, 1,
                                  (struct plan_layout){ .stages = stages,
                                                        .virtual_stages = virtual_stages,
                                                        .schedule = schedule,
                                                        .lanes = 1,
                                                        .micro_batches = micro_batches });
    struct timeline t;
    struct err e = { "" };
    struct timeline_costs costs = { .seconds = fixed_seconds, .ctx = f };
    if (timeline_simulate((const struct plan *const *)c.plans, c.n, &costs, &t, &e) != ST_OK)
        fail_msg("%s", e.msg);
    double seconds = t.seconds, busy = micro_batches * (f->forward + f->input + f->weight);
    for (int s = 0; s < t.n; s++) {
        assert_true(fabs(t.ranks[s].busy - busy) < 1e-9);
        assert_true(fabs(t.ranks[s].bubble - (1 - busy / seconds)) < 1e-9);
    }
    timeline_done(&t);
    free_column(&c);
    return seconds;
}

static void steps_take_the_time_of_the_schedules_formulas(void **state) {
    (void)state;
    static const struct {
        const struct schedule_kind *schedule;
        int virtual_stages;
    } SCHEDULES_OF_TEST[] = {
        { &schedule_gpipe, 1 }, { &schedule_1f1b, 1 }, { &schedule_interleaved, 2 }, { &schedule_zero_bubble, 1 }
    };
    for (int stages = 2; stages <= 4; stages *= 2)
        for (int m = stages; m <= 16; m *= 2)
            for (size_t k = 0; k < sizeof SCHEDULES_OF_TEST / sizeof *SCHEDULES_OF_TEST; k++) {
                struct fixed f = { .forward = 1, .input = 1, .weight = 1 };
                const struct schedule_kind *schedule = SCHEDULES_OF_TEST[k].schedule;
                int v = SCHEDULES_OF_TEST[k].virtual_stages;
                double step = step_of(schedule, stages, v, m, &f);
                double formula = 3.0 * m + schedule_bubble(schedule, stages, v, &(struct phase_seconds){ 1, 1, 1 });
                assert_true(fabs(step / formula - 1) < 1e-9);
            }
}

static void zero_bubble_is_below_1f1b_and_interleaved_below_both_halves(void **state) {
    (void)state;
    struct fixed f = { .forward = 1, .input = 1, .weight = 1 };
    double plain = step_of(&schedule_1f1b, 4, 1, 16, &f);
    assert_true(step_of(&schedule_zero_bubble, 4, 1, 16, &f) < plain * 0.9);
    assert_true(step_of(&schedule_interleaved, 4, 2, 16, &f) < plain * 0.95);
}

/* --- drawings ---*/

static int count(const char *text, const char *what) {
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static void a_step_can_be_drawn(void **state) {
    (void)state;
    struct column c = make_column(&SMALL, 1, (struct plan_layout){ .stages = 4, .lanes = 1, .micro_batches = 8 });
    struct fixed f = { .forward = 1, .input = 1, .weight = 1 };
    struct timeline t;
    struct bytes b;
    struct err e = { "" };
    bytes_init(&b, 1 << 22);
    assert_int_equal(timeline_simulate((const struct plan *const *)c.plans, c.n,
                                       &(struct timeline_costs){ .seconds = fixed_seconds, .ctx = &f }, &t, &e),
                     ST_OK);
    assert_int_equal(timeline_svg(&t, "a < b & c", &b, &e), ST_OK);
    assert_non_null(strstr(b.data, "a &lt; b &amp; c"));
    assert_int_equal(count(b.data, "forward, micro-batch"), 4 * 8);
    assert_int_equal(count(b.data, "<rect"), count(b.data, "</rect>") + 1 + count(b.data, "height=\"12\""));
    assert_int_equal(count(b.data, "<text"), count(b.data, "</text>"));
    assert_string_equal(b.data + b.len - 7, "</svg>\n");
    bytes_clear(&b);
    /* 33 seconds in 33 columns: one letter a second. */
    assert_int_equal(timeline_text(&t, 33, &b, &e), ST_OK);
    assert_non_null(strstr(b.data, "stage 3   ...FBBFBBFBBFBBFBBFBBFBBFBB......  idle 27.3 %\n"
                                   "             000111222333444555666777      \n"));
    assert_int_equal(count(b.data, "stage "), 4);
    timeline_done(&t);
    bytes_done(&b);
    free_column(&c);
}

/* --- the report ---*/

/* In processor time, so that other programs on the machine do not count. A sanitizer takes more. */
static const double SECONDS_MOST = SANITIZED ? 10 : 2;

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void a_thousand_ranks_are_reported_in_two_seconds(void **state) {
    (void)state;
    static const struct gpt_shape GPT = {
        .layers = 48, .heads = 25, .width = 1600, .context = 1024, .vocabulary = 50257
    };
    static const struct {
        int data, stages, zero;
        const struct schedule_kind *schedule;
    } MIXES[] = {
        { 1024, 1, 1, &schedule_1f1b }, { 1024, 1, 3, &schedule_1f1b },       { 256, 4, 0, &schedule_1f1b },
        { 64, 16, 1, &schedule_1f1b },  { 64, 16, 1, &schedule_zero_bubble },
    };
    struct plan_profile f;
    struct err e = { "" };
    assert_int_equal(plan_profile_find("h200", &f, &e), ST_OK);
    for (size_t i = 0; i < sizeof MIXES / sizeof *MIXES; i++) {
        double from = processor_seconds();
        CLEANUP(graph_freep) struct graph *g = NULL;
        assert_int_equal(gpt_graph(&GPT, 1, &g, &e), ST_OK);
        struct plan_layout layout = { .kind = PLAN_TRAIN,
                                      .data = MIXES[i].data,
                                      .stages = MIXES[i].stages,
                                      .zero = MIXES[i].zero,
                                      .schedule = MIXES[i].schedule,
                                      .lanes = MIXES[i].data,
                                      .micro_batches = MIXES[i].data * 4 * MIXES[i].stages,
                                      .reduce = MIXES[i].zero > 1 ? PLAN_REDUCE_MICRO_BATCH : PLAN_REDUCE_STEP,
                                      .bucket_bytes = 25 << 20,
                                      .optimizer = &optimizer_adamw };
        struct plan_report r;
        if (plan_report_make(g, &layout, NULL, &f, &r, &e) != ST_OK)
            fail_msg("%s", e.msg);
        double seconds = processor_seconds() - from;
        print_message("data %d x pipeline %d, zero %d: %.3f s\n", MIXES[i].data, MIXES[i].stages, MIXES[i].zero,
                      seconds);
        assert_true(seconds < SECONDS_MOST);
        assert_true(r.utilization > 0.01 && r.utilization < 1 && r.bubble >= 0 && r.bubble < 1);
        assert_int_equal(r.layout.world_size, 1024);
        assert_true(fabs((double)r.parameters / 1.5577e9 - 1) < 0.001); /* GPT-2 XL */
        plan_report_done(&r);
    }
}

/* --- the size of buckets ---*/

static struct bucket_choice choose(const struct graph *g, struct plan_layout layout, double link_seconds,
                                   bool may_grow) {
    struct plan_profile f;
    struct bucket_choice ret;
    struct err e = { "" };
    assert_int_equal(plan_profile_find("h200", &f, &e), ST_OK);
    f.intra_node.seconds = f.inter_node.seconds = link_seconds;
    layout.kind = PLAN_TRAIN;
    layout.micro_batches = layout.lanes = 8;
    layout.reduce = PLAN_REDUCE_STEP;
    layout.optimizer = &optimizer_adamw;
    if (bucket_choose(g, &layout, &f, may_grow, NULL, NULL, &ret, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return ret;
}

/* 28M parameters: 25 buckets of the default size. */
static void buckets_are_larger_where_messages_are_slow(void **state) {
    (void)state;
    static const struct gpt_shape GPT = { .layers = 8, .heads = 8, .width = 512, .context = 64, .vocabulary = 4096 };
    CLEANUP(graph_freep) struct graph *g = NULL;
    struct err e = { "" };
    assert_int_equal(gpt_graph(&GPT, 1, &g, &e), ST_OK);
    const struct bucket_choice slow = choose(g, (struct plan_layout){ .data = 8 }, 1e-3, true),
                               alone = choose(g, (struct plan_layout){ .data = 1 }, 1e-3, true),
                               quick = choose(g, (struct plan_layout){ .data = 8 }, 0, true);
    assert_true(slow.bytes > BUCKET_BYTES_DEFAULT && slow.seconds < 0.99 * slow.default_seconds);
    assert_int_equal(alone.bytes, BUCKET_BYTES_DEFAULT);
    assert_true(quick.bytes <= BUCKET_BYTES_DEFAULT && quick.seconds <= quick.default_seconds);
    /* With ZeRO 2 a larger bucket takes more memory, which a limit may not allow. */
    const struct bucket_choice limited = choose(g, (struct plan_layout){ .data = 8, .zero = 2 }, 1e-3, false);
    assert_true(limited.bytes >= BUCKET_BYTES_MIN && limited.seconds <= limited.default_seconds);
}

/* Rajbhandari et al. 2020, "ZeRO": bytes of a parameter's weight, gradient and optimizer state at D ranks. */
static void sharding_divides_the_bytes_of_states(void **state) {
    (void)state;
    struct plan_profile f;
    struct err e = { "" };
    assert_int_equal(plan_profile_find("h200", &f, &e), ST_OK);
    static const struct gpt_shape GPT = { .layers = 8, .heads = 4, .width = 256, .context = 64, .vocabulary = 2048 };
    for (int zero = 0; zero <= 3; zero++) {
        CLEANUP(graph_freep) struct graph *g = NULL;
        assert_int_equal(gpt_graph(&GPT, 1, &g, &e), ST_OK);
        struct plan_layout layout = { .kind = PLAN_TRAIN,
                                      .data = 4,
                                      .zero = zero,
                                      .lanes = 4,
                                      .micro_batches = 4,
                                      .reduce = PLAN_REDUCE_MICRO_BATCH,
                                      .bucket_bytes = 1 << 20,
                                      .optimizer = &optimizer_adamw };
        struct plan_report r;
        if (plan_report_make(g, &layout, NULL, &f, &r, &e) != ST_OK)
            fail_msg("%s", e.msg);
        double n = (double)r.parameters, part = zero >= 1 ? 0.25 : 1;
        assert_true(fabs((double)r.stages[0].family_bytes[FAMILY_OPTIMIZER] / (8 * n * part) - 1) < 0.02);
        assert_true(fabs((double)r.stages[0].family_bytes[FAMILY_PARAMETERS] / (4 * n * (zero == 3 ? 0.25 : 1)) - 1) <
                    0.02);
        assert_true(r.optimizer_bytes == 8 && r.weight_bytes == 4 && r.gradient_bytes == 4);
        plan_report_done(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_profile_can_be_read),
        cmocka_unit_test(a_profile_that_is_missing_or_wrong_is_refused_with_the_reason),
        cmocka_unit_test(this_machine_can_be_measured),
        cmocka_unit_test(work_takes_the_longer_of_compute_and_memory),
        cmocka_unit_test(the_flops_of_a_plan_are_the_models),
        cmocka_unit_test(ranks_send_the_bytes_of_the_theory),
        cmocka_unit_test(steps_take_the_time_of_the_schedules_formulas),
        cmocka_unit_test(zero_bubble_is_below_1f1b_and_interleaved_below_both_halves),
        cmocka_unit_test(a_step_can_be_drawn),
        cmocka_unit_test(a_thousand_ranks_are_reported_in_two_seconds),
        cmocka_unit_test(buckets_are_larger_where_messages_are_slow),
        cmocka_unit_test(sharding_divides_the_bytes_of_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
