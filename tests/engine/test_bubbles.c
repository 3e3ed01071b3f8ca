/* The bubble of each schedule, measured with real ranks and real transfers; an op that sleeps replaces computation. A
 * step takes the time of the schedule's formula, including the wait for the norm, and zero-bubble takes less time than
 * 1F1B. */
#include "tests/engine/gang.h"
#include "tests/sanitized.h"

#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/cost/timeline.h"
#include "engine/plan/verify/verify.h"
#include "engine/run/data_queue.h"
#include "engine/run/execute.h"
#include "engine/run/transfers.h"
#include "engine/run/weights.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { STAGES = 4, MICRO_BATCHES = 8, STEPS = 4, TRIES = 5, WIDTH = 256 };

/* The time of one stage and one micro-batch; a virtual stage takes this divided by the virtual stages of a rank. */
static const double FORWARD_MS = 14, INPUT_MS = 15, WEIGHT_MS = 12;

struct setting {
    const struct schedule_kind *schedule;
    int virtual_stages;
    double step_ms[STEPS]; /* shared with the children: rank 0's measurement */
};

/* --- an op that sleeps ---*/

static int chunks_of_a_stage = 1; /* in each process */

static void sleep_ms(double ms) {
    int64_t until = clock_mono_ns() + (int64_t)(ms * 1e6 / chunks_of_a_stage);
    struct timespec t = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

static status_t shape_of_delay(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    graph_add_output(g, op, 0, "", SHAPE(1, WIDTH), -1);
    return ST_OK;
}

static status_t forward_delay(const struct op_call *c, struct err *e) {
    (void)e;
    memset(c->out[0], 0, WIDTH * sizeof(float));
    sleep_ms(FORWARD_MS);
    return ST_OK;
}

static status_t backward_input_delay(const struct op_call *c, struct err *e) {
    (void)e;
    if (c->d_in[0])
        memset(c->d_in[0], 0, WIDTH * sizeof(float));
    sleep_ms(INPUT_MS);
    return ST_OK;
}

static status_t backward_weight_delay(const struct op_call *c, struct err *e) {
    (void)e;
    if (!c->accumulate_param)
        memset(c->d_param[0], 0, WIDTH * sizeof(float));
    sleep_ms(WEIGHT_MS);
    return ST_OK;
}

static const struct op_kind delay = {
    .name = "delay",
    .n_in = 1,
    .n_uses_min = 1,
    .saved_in = IN(0),
    .differentiable = IN(0),
    .shape = shape_of_delay,
    .forward = forward_delay,
    .backward_input = backward_input_delay,
    .backward_weight = backward_weight_delay,
};

static status_t shape_of_loss(struct graph *g, struct op *op, struct err *e) {
    (void)e;
    graph_add_statistic(g, op, 0, "", SHAPE(1));
    return ST_OK;
}

static status_t forward_loss(const struct op_call *c, struct err *e) {
    (void)e;
    *(float *)c->out[0] = 1;
    return ST_OK;
}

static const struct op_kind loss = {
    .name = "loss",
    .n_in = 1,
    .differentiable = IN(0),
    .gradient_in_forward = true,
    .shape = shape_of_loss,
    .forward = forward_loss,
};

/* --- one rank ---*/

static status_t delays(int blocks, struct graph **ret, struct err *e) {
    CLEANUP(graph_freep) struct graph *g = graph_new(DTYPE_F32);
    int out[OP_OUTPUTS], x = graph_add_batch(g, "images", BATCH_IMAGES, DTYPE_F32, SHAPE(1, WIDTH));
    for (int b = 0; b < blocks; b++) {
        struct parameter p = { .kind = PARAMETER_WEIGHT, .shape = SHAPE(WIDTH) };
        snprintf(p.name, sizeof p.name, "w.%d", b);
        char name[GRAPH_NAME];
        snprintf(name, sizeof name, "delay.%d", b);
        graph_begin_block(g, name);
        struct op_arguments args = {
            .name = name, .in = { x }, .n_in = 1, .use = { graph_use(g, graph_add_parameter(g, &p), 0) }, .n_uses = 1
        };
        TRY(graph_add_op(g, &delay, &args, out, e));
        x = out[0];
        if (b == blocks - 1) {
            TRY(graph_add_op(g, &loss, &(struct op_arguments){ .name = "loss", .in = { x }, .n_in = 1 }, out, e));
            g->losses = out[0];
        }
        graph_end_block(g, b == blocks - 1 ? -1 : x);
    }
    g->micro_batch = 1;
    g->targets_per_sample = 1;
    TRY(graph_differentiate(g, e));
    *ret = take_ptr(&g);
    return ST_OK;
}

static status_t load_nothing(void *ctx, int k, struct batch *ret, struct err *e) {
    static float zeros[WIDTH];
    (void)ctx, (void)k, (void)e;
    ret->of[BATCH_IMAGES] = zeros;
    return ST_OK;
}

static status_t zeros(void *ctx, int parameter, int64_t first, int64_t count, float *data, struct err *e) {
    (void)ctx, (void)parameter, (void)first, (void)e;
    memset(data, 0, (size_t)count * sizeof *data);
    return ST_OK;
}

static status_t steps(struct execution *x, const struct plan *plan, struct collective *c, double *ms, struct err *e) {
    for (int i = 0; i < STEPS; i++) {
        TRY(collective_barrier(c, COLLECTIVE_CONTROL, e));
        int64_t start = clock_mono_ns();
        const struct step_control *ignored;
        TRY(execute_now(x, plan, &ignored, e));
        TRY(collective_barrier(c, COLLECTIVE_CONTROL, e)); /* the step is over when its last rank is done */
        ms[i] = (double)(clock_mono_ns() - start) * 1e-6;
    }
    return ST_OK;
}

static status_t run_rank(struct setting *s, int rank, struct collective *c, struct err *e) {
    CLEANUP(graph_freep) struct graph *g = NULL;
    CLEANUP(kernels_closep) struct kernels *k = NULL;
    CLEANUP(data_queue_closep) struct data_queue *queue = NULL;
    CLEANUP(transfers_closep) struct transfers *transfers = NULL;
    struct plan *plans[STAGES];
    struct arena arena;
    double ms[STEPS];
    const struct optimizer_config optimizer = { .kind = &optimizer_adamw,
                                                .adamw = { .lr = 0.1, .beta1 = 0.9, .beta2 = 0.9 } };
    TRY(delays(STAGES * s->virtual_stages, &g, e));
    TRY(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = 1 }, &k, e));
    struct plan_layout layout = { .kind = PLAN_TRAIN,
                                  .stages = STAGES,
                                  .virtual_stages = s->virtual_stages,
                                  .schedule = s->schedule,
                                  .lanes = 1,
                                  .micro_batches = MICRO_BATCHES,
                                  .bucket_bytes = 1 << 20,
                                  .optimizer = optimizer.kind };
    for (layout.rank = 0; layout.rank < STAGES; layout.rank++)
        TRY(plan_build(g, &layout, &plans[layout.rank], e));
    TRY(plan_verify((const struct plan *const *)plans, STAGES, e));
    const struct plan *plan = plans[rank];
    TRY(arena_open(&arena, k, &plan, 1, e));
    TRY(data_queue_open(c, &plan, 1, &queue, e));
    TRY(transfers_open(c, &plan, 1, &transfers, e));
    struct execution x = {
        .data_queue = queue, .transfers = transfers, .optimizer = &optimizer, .learning_rate = 0.1, .load = load_nothing
    };
    TRY(execution_open(&x, k, &arena, &plan, 1, e));
    TRY(weights_fill(&x, plan, zeros, NULL, e));
    TRY(steps(&x, plan, c, ms, e));
    if (rank == 0)
        memcpy(s->step_ms, ms, sizeof ms);
    queue = data_queue_close(queue);
    execution_close(&x);
    arena_close(&arena);
    for (int r = 0; r < STAGES; r++)
        plan_free(plans[r]);
    return ST_OK;
}

static int bubble_main(struct gang *gang, int rank, struct collective *c) {
    struct setting *s = gang->arg;
    struct err e = { "" };
    chunks_of_a_stage = s->virtual_stages;
    if (run_rank(s, rank, c, &e) == ST_OK)
        return 0;
    fprintf(stderr, "# rank %d: %s\n", rank, e.msg);
    return 1;
}

/* The fastest step of a gang, in milliseconds: noise can only delay sleeps and messages. */
static double measure(const struct schedule_kind *schedule, int virtual_stages) {
    struct setting *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        abort();
    *s = (struct setting){ .schedule = schedule, .virtual_stages = virtual_stages };
    assert_int_equal(gang_end(gang_start(STAGES, 20000, bubble_main, s)), 0);
    double fastest = s->step_ms[0];
    for (int i = 1; i < STEPS; i++)
        fastest = s->step_ms[i] < fastest ? s->step_ms[i] : fastest;
    munmap(s, sizeof *s);
    return fastest;
}

static double formula(const struct schedule_kind *schedule, int virtual_stages) {
    return MICRO_BATCHES * (FORWARD_MS + INPUT_MS + WEIGHT_MS) +
           schedule_bubble(schedule, STAGES, virtual_stages,
                           &(struct phase_seconds){ FORWARD_MS, INPUT_MS, WEIGHT_MS });
}

/* A busy machine may delay a whole gang, so the best of a few gangs counts. A sanitizer delays each message. */
static const double OFF_MOST = SANITIZED ? 0.25 : 0.08;

static double assert_as_the_formula(const char *name, const struct schedule_kind *schedule, int virtual_stages) {
    double want = formula(schedule, virtual_stages), have = 0;
    for (int i = 0; i < TRIES && (i == 0 || have > (1 + OFF_MOST) * want); i++) {
        double ms = measure(schedule, virtual_stages);
        have = i == 0 || ms < have ? ms : have;
    }
    printf("# %s: %.1f ms, the formula says %.1f\n", name, have, want);
    if (have > (1 + OFF_MOST) * want || have < 0.95 * want)
        fail_msg("%s: a step takes %.1f ms, %.1f %% off the formula's %.1f", name, have, 100 * (have / want - 1), want);
    return have;
}

static void each_schedule_takes_the_time_of_its_formula_and_zero_bubble_less_than_1f1b(void **state) {
    (void)state;
    double gpipe = assert_as_the_formula("gpipe", &schedule_gpipe, 1);
    double one = assert_as_the_formula("1f1b", &schedule_1f1b, 1);
    double interleaved = assert_as_the_formula("interleaved", &schedule_interleaved, 2);
    double zero = assert_as_the_formula("zero_bubble", &schedule_zero_bubble, 1);
    if (SANITIZED)
        return; /* the schedules differ by less than the delay of a sanitizer */
    assert_true(zero < 0.9 * one);
    assert_true(interleaved < 0.95 * one && interleaved < 0.95 * gpipe);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_schedule_takes_the_time_of_its_formula_and_zero_bubble_less_than_1f1b),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
