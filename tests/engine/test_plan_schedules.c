/* The orders of schedules: each schedule against its published bubble and its published maximum of micro-batches in
 * flight, and the division of blocks into stages. */
#include "engine/plan/build/schedule.h"
#include "engine/plan/build/stage_cut.h"
#include "engine/plan/op_cost.h"
#include "tests/engine/plans.h"

#include <math.h>

enum { STAGES_MOST = 8, CHUNKS_MOST = 32, BATCHES_MOST = 64 };

/* Time of one phase of a whole stage: forward, and the two parts of backward. */
struct times {
    double forward, input, weight;
};

struct orders {
    struct schedule_shape shape;
    bool split;
    struct phase_list of[STAGES_MOST];
};

static struct orders make_orders(const struct schedule_kind *kind, int stages, int virtual_stages, int micro_batches) {
    struct orders o = { .split = kind->splits_weight,
                        .shape = {
                            .stages = stages, .virtual_stages = virtual_stages, .micro_batches = micro_batches } };
    struct err e = { "" };
    for (int s = 0; s < stages; s++) {
        o.shape.stage = s;
        if (kind->order(&o.shape, &o.of[s], &e) != ST_OK)
            fail_msg("%s", e.msg);
    }
    return o;
}

static void free_orders(struct orders *o) {
    for (int s = 0; s < o->shape.stages; s++)
        phase_list_done(&o->of[s]);
}

static double duration(const struct orders *o, enum phase_kind kind, const struct times *t) {
    double whole = kind == PHASE_FORWARD ? t->forward : kind == PHASE_WEIGHT ? t->weight : t->input;
    if (kind == PHASE_BACKWARD && !o->split)
        whole += t->weight;
    return whole / o->shape.virtual_stages;
}

/* The earliest start of a phase, or -1 if an input is not ready. ended[kind][virtual_stage of the model][q]. */
static double may_start(const struct orders *o, const struct phase *p, int stage,
                        double ended[2][CHUNKS_MOST][BATCHES_MOST]) {
    int virtual_stage = p->virtual_stage * o->shape.stages + stage,
        last = o->shape.stages * o->shape.virtual_stages - 1;
    if (p->kind == PHASE_WEIGHT)
        return 0;
    if (p->kind == PHASE_FORWARD)
        return virtual_stage == 0 ? 0 : ended[PHASE_FORWARD][virtual_stage - 1][p->q];
    return virtual_stage == last ? ended[PHASE_FORWARD][virtual_stage][p->q]
                                 : ended[PHASE_BACKWARD][virtual_stage + 1][p->q];
}

/* The time of a step: every stage runs its order, and each phase starts as soon as its inputs are ready. */
static double makespan(const struct orders *o, const struct times *t) {
    static double ended[2][CHUNKS_MOST][BATCHES_MOST];
    double now[STAGES_MOST] = { 0 }, end = 0;
    int at[STAGES_MOST] = { 0 };
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < CHUNKS_MOST; c++)
            for (int q = 0; q < BATCHES_MOST; q++)
                ended[k][c][q] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < o->shape.stages; s++)
            for (; at[s] < o->of[s].n; at[s]++, moved = true) {
                const struct phase *p = &o->of[s].items[at[s]];
                double start = may_start(o, p, s, ended);
                if (start < 0)
                    break;
                now[s] = (start > now[s] ? start : now[s]) + duration(o, p->kind, t);
                if (p->kind != PHASE_WEIGHT)
                    ended[p->kind][p->virtual_stage * o->shape.stages + s][p->q] = now[s];
                end = now[s] > end ? now[s] : end;
            }
    }
    for (int s = 0; s < o->shape.stages; s++)
        assert_int_equal(at[s], o->of[s].n); /* no deadlock */
    return end;
}

static double bubble(const struct schedule_kind *kind, int stages, int virtual_stages, int micro_batches,
                     struct times t) {
    struct orders o = make_orders(kind, stages, virtual_stages, micro_batches);
    double end = makespan(&o, &t);
    free_orders(&o);
    return end - micro_batches * (t.forward + t.input + t.weight);
}

static const struct times TIMES[] = { { 1, 1, 1 }, { 1, 1.25, 0.75 }, { 2, 3, 2 } };
enum { N_TIMES = sizeof TIMES / sizeof *TIMES };

static void bubbles_are_the_published_ones(void **state) {
    (void)state;
    for (int p = 2; p <= STAGES_MOST; p *= 2)
        for (int m = p; m <= 4 * p; m += p)
            for (int i = 0; i < N_TIMES; i++) {
                struct times t = TIMES[i];
                double all = t.forward + t.input + t.weight;
                assert_true(fabs(bubble(&schedule_gpipe, p, 1, m, t) - (p - 1) * all) < 1e-9);
                assert_true(fabs(bubble(&schedule_1f1b, p, 1, m, t) - (p - 1) * all) < 1e-9);
                for (int v = 1; v <= 4; v++)
                    assert_true(fabs(bubble(&schedule_interleaved, p, v, m, t) - (p - 1) * all / v) < 1e-9);
                double least = (p - 1) * (t.forward + t.input - t.weight);
                assert_true(fabs(bubble(&schedule_zero_bubble, p, 1, m, t) - least) < 1e-9);
            }
}

static void peaks_are_the_published_ones(void **state) {
    (void)state;
    for (int p = 2; p <= STAGES_MOST; p *= 2) {
        const int m = 3 * p;
        struct orders gpipe = make_orders(&schedule_gpipe, p, 1, m), one = make_orders(&schedule_1f1b, p, 1, m),
                      zero = make_orders(&schedule_zero_bubble, p, 1, m);
        for (int s = 0; s < p; s++) {
            assert_int_equal(schedule_max_in_flight(&gpipe.of[s], 0, PHASE_FORWARD, PHASE_BACKWARD), m);
            assert_int_equal(schedule_max_in_flight(&one.of[s], 0, PHASE_FORWARD, PHASE_BACKWARD), p - s);
            assert_int_equal(schedule_max_in_flight(&zero.of[s], 0, PHASE_FORWARD, PHASE_WEIGHT), p);
            assert_int_equal(schedule_max_in_flight(&zero.of[s], 0, PHASE_FORWARD, PHASE_BACKWARD), p - s);
        }
        free_orders(&gpipe);
        free_orders(&one);
        free_orders(&zero);
    }
}

/* Megatron-LM's interleaved schedule: 2 (P - s - 1) + (V - 1) P virtual stages ahead. */
static void interleaving_runs_as_far_ahead_as_published(void **state) {
    (void)state;
    enum { P = 4, V = 3, M = 12 };
    struct orders o = make_orders(&schedule_interleaved, P, V, M);
    for (int s = 0; s < P; s++) {
        int now = 0, most = 0;
        for (int i = 0; i < o.of[s].n; i++) {
            now += o.of[s].items[i].kind == PHASE_FORWARD ? 1 : -1;
            most = now > most ? now : most;
        }
        assert_int_equal(most, 2 * (P - s - 1) + (V - 1) * P + 1);
    }
    free_orders(&o);
}

/* Every schedule adds gradients in ascending order. */
static void every_phase_happens_once_and_in_ascending_order(void **state) {
    (void)state;
    for (int kind = 0; kind < SCHEDULES; kind++) {
        const struct schedule_kind *schedule = schedule_kinds[kind];
        const int v = schedule->interleaves ? 2 : 1, m = 8;
        struct orders o = make_orders(schedule, 4, v, m);
        for (int s = 0; s < 4; s++) {
            int next[PHASE_KINDS][2] = { { 0 } };
            for (int i = 0; i < o.of[s].n; i++) {
                const struct phase *p = &o.of[s].items[i];
                assert_int_equal(p->q, next[p->kind][p->virtual_stage]++);
                if (p->kind != PHASE_FORWARD)
                    assert_true(p->q < next[p->kind - 1][p->virtual_stage]);
            }
            for (int c = 0; c < v; c++)
                for (int k = 0; k < (schedule->splits_weight ? PHASE_KINDS : PHASE_WEIGHT); k++)
                    assert_int_equal(next[k][c], m);
        }
        free_orders(&o);
    }
}

/* --- stages ---*/

static double stage_cost(const struct graph *g, const struct plan_layout *l, const int *first, int stage) {
    double sum = 0;
    for (int c = stage; c < l->stages * l->virtual_stages; c += l->stages)
        for (int b = first[c]; b < first[c + 1]; b++)
            sum += stage_block_cost(g, b);
    return sum;
}

static double dearest(const struct graph *g, const struct plan_layout *l) {
    int first[CHUNKS_MOST + 1];
    struct err e = { "" };
    double most = 0;
    assert_int_equal(stage_cut(g, l, first, &e), ST_OK);
    for (int s = 0; s < l->stages; s++) {
        double cost = stage_cost(g, l, first, s);
        most = cost > most ? cost : most;
    }
    return most;
}

/* A head of 50,257 words costs as much as several blocks: its stage gets fewer of them. */
static void stages_are_cut_by_cost_and_not_by_count(void **state) {
    (void)state;
    struct graph *g = plans_graph(
        (struct gpt_shape){ .layers = 12, .heads = 4, .width = 128, .context = 64, .vocabulary = 50257 / 16 }, 2);
    struct plan_layout l = { .stages = 4, .virtual_stages = 1 };
    int first[5];
    struct err e = { "" };
    assert_int_equal(stage_cut(g, &l, first, &e), ST_OK);
    assert_true(first[4] - first[3] < first[2] - first[1]);
    double all = 0, largest = 0;
    for (int b = 0; b < g->n_blocks; b++) {
        all += stage_block_cost(g, b);
        largest = fmax(largest, stage_block_cost(g, b));
    }
    assert_true(dearest(g, &l) <= fmax(all / 4 + largest, largest) * 1.05);
    graph_free(g);
}

/* One expensive virtual stage must not prevent a good division of the others. */
static void virtual_stages_of_a_rank_add_up_evenly(void **state) {
    (void)state;
    struct graph *g = plans_graph(
        (struct gpt_shape){ .layers = 24, .heads = 4, .width = 128, .context = 64, .vocabulary = 50257 / 8 }, 2);
    struct plan_layout l = { .stages = 4, .virtual_stages = 2, .schedule = &schedule_interleaved };
    double all = 0, block = stage_block_cost(g, 1);
    for (int b = 0; b < g->n_blocks; b++)
        all += stage_block_cost(g, b);
    double head = stage_block_cost(g, g->n_blocks - 1) + block;
    assert_true(dearest(g, &l) <= fmax(all / 4 + block, head));
    graph_free(g);
}

static void stages_beyond_the_blocks_are_refused(void **state) {
    (void)state;
    struct graph *g = plans_graph(
        (struct gpt_shape){ .layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 9 }, 1);
    int first[CHUNKS_MOST + 1];
    struct err e = { "" };
    struct plan_layout l = { .stages = 4, .virtual_stages = 1 };
    assert_int_equal(stage_cut(g, &l, first, &e), ST_OK); /* a block each */
    l.stages = 5;
    assert_int_equal(stage_cut(g, &l, first, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "parallel.pipeline: 5 stages of 1 virtual stage cannot be cut from a model of 4 blocks");
    graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_are_the_published_ones),
        cmocka_unit_test(peaks_are_the_published_ones),
        cmocka_unit_test(interleaving_runs_as_far_ahead_as_published),
        cmocka_unit_test(every_phase_happens_once_and_in_ascending_order),
        cmocka_unit_test(stages_are_cut_by_cost_and_not_by_count),
        cmocka_unit_test(virtual_stages_of_a_rank_add_up_evenly),
        cmocka_unit_test(stages_beyond_the_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
