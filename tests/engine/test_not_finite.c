/* Steps whose gradient is not finite, which are skipped up to a limit, and the op or the parameter to blame; and the
 * samples that a run has consumed. */
#include "tests/engine/trainee.h"

#include "engine/checkpoint/reader.h"
#include "kernels/step_decision.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct engine_layout ALONE = { .data = 1, .pipeline = 1 };
static const struct engine_layout SHARDED = { .data = 2, .pipeline = 1, .zero = 3 };
static const struct engine_layout STAGED = { .data = 2, .pipeline = 2, .zero = 1 };

enum { STEPS = 24 };

/* Steps 7, 8 and 20 get a gradient that is not finite; their losses are finite. */
static bool is_spoiled(int64_t step) { return step == 7 || step == 8 || step == 20; }

static void spoil_next(struct trainee_child *c, int64_t step) {
    if (!c->engine) /* it is being opened */
        return;
    struct decision *d = &c->engine->execution.control.device->decision;
    const int64_t targets = (int64_t)c->engine->config.train.global_batch * c->engine->graph->targets_per_sample;
    d->loss_gradient = is_spoiled(step + 1) ? INFINITY : decide_loss_gradient(d->scale, targets);
}

static struct trainee *spoiled(int max_not_finite) {
    struct trainee *t = trainee_new();
    t->config.train.max_not_finite = max_not_finite;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->config.train.steps = STEPS;
    t->every_other = true;
    t->ended = spoil_next;
    return t;
}

static void run(struct trainee *t, const char *name, struct engine_layout layout) {
    t->config.layout = layout;
    t->ranks = engine_ranks(&layout);
    trainee_fresh_directory(t, name);
    assert_int_equal(trainee_run(t), 0);
}

static void finish(struct trainee *t, const char *name, struct engine_layout layout) {
    run(t, name, layout);
    for (int r = 0; r < t->ranks; r++)
        if (t->results[r].status != ST_OK || t->results[r].outcome != ENGINE_FINISHED)
            fail_msg("%s, rank %d: %s", name, r, t->results[r].message);
}

static void steps_that_are_not_finite_are_skipped_alike_in_every_layout(void **state) {
    (void)state;
    struct trainee *t = spoiled(2);
    finish(t, "alone", ALONE);
    struct trainee_result want = t->results[0];
    char middle[300];
    snprintf(middle, sizeof middle, "%.200s/step-8", t->directory);
    assert_true(want.skipped[8] == 2 && want.skipped[STEPS] == 3);
    for (int step = 1; step <= STEPS; step++) {
        assert_true(isfinite(want.loss[step]));
        assert_int_equal(isfinite(want.grad_norm[step]), !is_spoiled(step));
    }
    int notices = 0;
    for (int i = 0; i < want.notices; i++)
        notices += strcmp(want.notice[i], "step_skipped") == 0;
    assert_int_equal(notices, 3);
    finish(t, "staged", STAGED);
    assert_memory_equal(t->results[0].loss, want.loss, sizeof want.loss);
    assert_string_equal(t->results[0].step_sha256[STEPS], want.step_sha256[STEPS]);
    snprintf(t->resume, sizeof t->resume, "%.255s", middle);
    finish(t, "resumed", SHARDED);
    assert_string_equal(t->results[0].step_sha256[STEPS], want.step_sha256[STEPS]);
    trainee_free(t);
}

static void one_step_more_than_the_limit_ends_the_run(void **state) {
    (void)state;
    struct trainee *t = spoiled(1);
    run(t, "alone", ALONE);
    assert_int_equal(t->results[0].outcome, ENGINE_NUMERIC);
    if (!strstr(t->results[0].message, "step 8: the gradient norm is ") ||
        !strstr(t->results[0].message, "the first op to blame is the backward pass of "))
        fail_msg("%s", t->results[0].message);
    trainee_free(t);
}

/* The first update makes the weights so large that each later loss is no number: three steps are skipped, and the next
 * one ends the run, whether or not it is resumed between them. */
static void the_steps_before_a_resume_count(void **state) {
    (void)state;
    struct trainee *t = spoiled(3);
    t->ended = NULL;
    t->config.train.schedule.min_lr = 1e30;
    t->config.train.optimizer.adamw.lr = 1e30;
    for (int resumed = 0; resumed < 2; resumed++) {
        run(t, resumed ? "resumed" : "alone", resumed ? SHARDED : ALONE);
        for (int r = 0; r < t->ranks; r++) {
            if (t->results[r].outcome != ENGINE_NUMERIC ||
                !strstr(t->results[r].message, "step 5: the loss of micro-batch 0 on rank 0 is not finite"))
                fail_msg("%s", t->results[r].message);
        }
        assert_int_equal(t->results[0].from_step, resumed ? 2 : 0);
        char at[300];
        snprintf(at, sizeof at, "%.200s/step-2", t->directory);
        snprintf(t->resume, sizeof t->resume, "%.255s", at);
    }
    trainee_free(t);
}

/* --- a gradient of a parameter --- */

static KERNEL_OP(*real_backward_weight, linear_backward_weight);
static KERNEL_OP(*real_accumulate, accumulate);

/* The gradient of each weight of 4 x 32 outputs, which is h.N.mlp.c_fc, gets a value that is no number. */
static status_t spoil_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                      const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    TRY(real_backward_weight(k, dw, x, dy, d, accumulate, workspace, e));
    if (d->out == 4 * 32)
        dw[5] = NAN;
    return ST_OK;
}

static status_t spoil_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e) {
    TRY(real_accumulate(k, a, b, n, e));
    a[0] = INFINITY;
    return ST_OK;
}

static void spoil_weights(struct trainee_child *c, int64_t step) {
    if (step != 2 || !c->engine)
        return;
    real_backward_weight = c->engine->kernels->linear_backward_weight;
    c->engine->kernels->linear_backward_weight = spoil_backward_weight;
}

static void spoil_sums(struct trainee_child *c, int64_t step) {
    if (step != 2 || !c->engine)
        return;
    real_accumulate = c->engine->kernels->accumulate;
    c->engine->kernels->accumulate = spoil_accumulate;
}

/* Block 1 comes before block 0 in the backward pass. */
static void a_gradient_of_a_weight_that_is_no_number_is_traced_to_its_op(void **state) {
    (void)state;
    static const struct engine_layout layouts[] = { ALONE, SHARDED, STAGED };
    struct trainee *t = spoiled(0);
    t->ended = spoil_weights;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        run(t, "weights", layouts[i]);
        for (int r = 0; r < t->ranks; r++)
            if (t->results[r].outcome != ENGINE_NUMERIC ||
                !strstr(t->results[r].message, "step 3: the gradient norm is nan") ||
                !strstr(t->results[r].message,
                        "the first op to blame is the parameter gradients of h.1.mlp.c_fc, of micro-batch 0 on rank "))
                fail_msg("layout %zu, rank %d: %s", i, r, t->results[r].message);
    }
    trainee_free(t);
}

static void a_sum_of_gradients_that_overflows_names_the_parameter(void **state) {
    (void)state;
    struct trainee *t = spoiled(0);
    t->ended = spoil_sums;
    run(t, "sums", ALONE);
    assert_int_equal(t->results[0].outcome, ENGINE_NUMERIC);
    if (!strstr(t->results[0].message, "step 3: the gradient norm is inf") ||
        !strstr(t->results[0].message, " is finite in every micro-batch, and its sum is not"))
        fail_msg("%s", t->results[0].message);
    trainee_free(t);
}

static void without_a_limit_the_first_step_that_is_not_finite_ends_the_run(void **state) {
    (void)state;
    struct trainee *t = spoiled(0);
    run(t, "alone", ALONE);
    assert_int_equal(t->results[0].outcome, ENGINE_NUMERIC);
    assert_non_null(strstr(t->results[0].message, "step 7: the gradient norm is "));
    trainee_free(t);
}

static int64_t samples_of(const char *directory) {
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *reader = NULL;
    struct err e;
    if (checkpoint_reader_open(directory, NULL, &reader, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return checkpoint_reader_info(reader)->samples;
}

static void a_run_with_another_batch_goes_on_at_the_next_sample(void **state) {
    (void)state;
    struct trainee *t = spoiled(0);
    t->ended = NULL;
    const int batch = t->config.train.global_batch;
    char at[300];
    t->config.train.steps = 10;
    finish(t, "first", ALONE);
    snprintf(at, sizeof at, "%.200s/step-10", t->directory);
    assert_int_equal(samples_of(at), 10 * batch);
    snprintf(t->resume, sizeof t->resume, "%.255s", at);
    t->config.train.global_batch = 2 * batch;
    t->config.train.steps = 14;
    finish(t, "doubled", ALONE);
    snprintf(at, sizeof at, "%.200s/step-14", t->directory);
    assert_int_equal(samples_of(at), 10 * batch + 4 * 2 * batch);
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_are_not_finite_are_skipped_alike_in_every_layout),
        cmocka_unit_test(one_step_more_than_the_limit_ends_the_run),
        cmocka_unit_test(the_steps_before_a_resume_count),
        cmocka_unit_test(a_gradient_of_a_weight_that_is_no_number_is_traced_to_its_op),
        cmocka_unit_test(a_sum_of_gradients_that_overflows_names_the_parameter),
        cmocka_unit_test(without_a_limit_the_first_step_that_is_not_finite_ends_the_run),
        cmocka_unit_test(a_run_with_another_batch_goes_on_at_the_next_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
