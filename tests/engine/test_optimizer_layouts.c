/* Every optimizer in every kind of layout: the same bits in each, also after checkpoints from which any layout resumes,
 * and with averages. Optimizers that need whole tensors are refused if a layout cuts a parameter. */
#include "tests/engine/trainee.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct optimizer_config KINDS[] = {
    { &optimizer_sgd, .sgd = { .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true } },
    { &optimizer_adamw, .adamw = { 1e-2, 0.9, 0.99, 1e-8, 0.1 } },
    { &optimizer_lion, .lion = { 1e-3, 0.9, 0.99, 1 } },
    { &optimizer_adafactor, .adafactor = { 0.05, 0.8, 1e-30, 1e-3, 1, 0.1 } },
    { &optimizer_muon, .muon = { .lr = 0.02,
                                 .momentum = 0.95,
                                 .weight_decay = 0.1,
                                 .iterations = 5,
                                 .nesterov = true,
                                 .adamw = { 3e-3, 0.9, 0.95, 1e-8, 0.1 } } },
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS, STEPS = 8, HALF = 4 };

static const struct engine_layout LAYOUTS[] = {
    { .data = 2, .pipeline = 1, .zero = 1 },
    { .data = 1, .pipeline = 2 },
    { .data = 2, .pipeline = 1, .zero = 2 },
    { .data = 2, .pipeline = 1, .zero = 3 }, /* elementwise kinds only */
};
enum { N_LAYOUTS = sizeof LAYOUTS / sizeof *LAYOUTS };

static void run(struct trainee *t, const char *name, struct engine_layout layout) {
    t->config.layout = layout;
    t->ranks = engine_ranks(&layout);
    trainee_fresh_directory(t, name);
    assert_int_equal(trainee_run(t), 0);
    for (int r = 0; r < t->ranks; r++)
        if (t->results[r].status != ST_OK)
            fail_msg("%s by %s, rank %d: %s", name, t->config.train.optimizer.kind->name, r, t->results[r].message);
}

static struct trainee *trainee_of(const struct optimizer_config *optimizer, enum engine_precision precision) {
    struct trainee *t = trainee_new();
    t->config.train.optimizer = *optimizer;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->config.train.precision = precision;
    t->config.train.ema.decay = 0.9;
    t->config.train.clip_value = 0.05;
    t->config.train.schedule.min_lr = 0;
    t->config.train.steps = STEPS;
    t->config.train.eval.batches = 0;
    t->every_other = true;
    return t;
}

/* Every second layout resumes from the checkpoint that one rank wrote in the middle. */
static void same_bits(const struct optimizer_config *optimizer, enum engine_precision precision) {
    const bool whole = optimizer->kind->whole_tensor;
    struct trainee *t = trainee_of(optimizer, precision);
    run(t, "alone", (struct engine_layout){ .data = 1, .pipeline = 1 });
    const struct trainee_result want = t->results[0];
    assert_true(want.loss[STEPS] < want.loss[1]);
    char middle[400];
    snprintf(middle, sizeof middle, "%.200s/step-%d", t->directory, HALF);
    for (int i = 0; i < N_LAYOUTS; i++) {
        if (whole && LAYOUTS[i].zero == 3)
            continue;
        snprintf(t->resume, sizeof t->resume, "%.250s", i % 2 ? middle : "");
        char name[32];
        snprintf(name, sizeof name, "layout-%d", i);
        run(t, name, LAYOUTS[i]);
        if (strcmp(t->results[0].weights_sha256, want.weights_sha256) != 0)
            fail_msg("%s: layout %d has other weights after step %d", optimizer->kind->name, i, STEPS);
    }
    trainee_free(t);
}

static void every_optimizer_gives_the_same_bits_in_every_layout(void **state) {
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        same_bits(&KINDS[k], ENGINE_FP32);
}

static void and_with_masters_of_bf16_weights(void **state) {
    (void)state;
    for (int k = 2; k < N_KINDS; k++)
        same_bits(&KINDS[k], ENGINE_BF16);
}

static void what_steps_whole_tensors_is_refused_where_they_are_cut(void **state) {
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        if (!KINDS[k].kind->whole_tensor)
            continue;
        struct trainee *t = trainee_of(&KINDS[k], ENGINE_FP32);
        t->config.layout = (struct engine_layout){ .data = 2, .pipeline = 1, .zero = 3 };
        t->ranks = 2;
        trainee_run(t);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(t->results[r].outcome, ENGINE_BAD_SPEC);
            assert_non_null(strstr(t->results[r].message, "steps whole tensors"));
        }
        trainee_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_gives_the_same_bits_in_every_layout),
        cmocka_unit_test(and_with_masters_of_bf16_weights),
        cmocka_unit_test(what_steps_whole_tensors_is_refused_where_they_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
