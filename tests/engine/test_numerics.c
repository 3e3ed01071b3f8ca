/* `numerics: fast` has its own plan with fewer buffers and passes, losses within a thousandth of those of
 * `reproducible`, and its own numerics id, so that a resume under the other setting is reported or refused. */
#include "tests/engine/plans.h"
#include "tests/engine/trainee.h"

static const struct gpt_shape SHAPE = { .layers = 4, .heads = 4, .width = 64, .context = 16, .vocabulary = 200 };

struct setting {
    int data, stages, zero;
    enum plan_reduce reduce;
};
static const struct setting SETTINGS[] = {
    { 1, 1, 0, PLAN_REDUCE_STEP },        { 2, 1, 0, PLAN_REDUCE_STEP },        { 4, 1, 0, PLAN_REDUCE_MICRO_BATCH },
    { 2, 1, 1, PLAN_REDUCE_STEP },        { 4, 1, 1, PLAN_REDUCE_MICRO_BATCH }, { 2, 1, 2, PLAN_REDUCE_MICRO_BATCH },
    { 4, 1, 3, PLAN_REDUCE_MICRO_BATCH }, { 1, 2, 0, PLAN_REDUCE_STEP },        { 2, 2, 1, PLAN_REDUCE_MICRO_BATCH },
};
enum { N_SETTINGS = sizeof SETTINGS / sizeof *SETTINGS };

static struct plans plans_of(const struct setting *s, int lanes, bool fast) {
    return plans_build(plans_graph(SHAPE, 2), (struct plan_layout){ .kind = PLAN_TRAIN,
                                                                    .data = s->data,
                                                                    .stages = s->stages,
                                                                    .zero = s->zero,
                                                                    .lanes = lanes,
                                                                    .micro_batches = 16,
                                                                    .reduce = s->reduce,
                                                                    .fast = fast,
                                                                    .optimizer = &optimizer_adamw,
                                                                    .bucket_bytes = 1 << 16 });
}

/* No rank adds lanes: one buffer, each bucket reduced once a step, less memory; and every rank's plan is verified. */
static void fast_folds_all_of_a_ranks_micro_batches_in_one_buffer(void **state) {
    (void)state;
    for (int i = 0; i < N_SETTINGS; i++) {
        struct plans exact = plans_of(&SETTINGS[i], 8, false), fast = plans_of(&SETTINGS[i], 8, true);
        assert_accepted(&fast);
        for (int r = 0; r < fast.n; r++) {
            const struct plan *e = exact.of[r], *f = fast.of[r];
            assert_true(e->lane_buffers > 1 && plans_count(e, QUEUE_COMPUTE, INSTRUCTION_ADD) > 0);
            assert_int_equal(f->lane_buffers, 1);
            assert_int_equal(f->accumulator, -1);
            assert_int_equal(plans_count(f, QUEUE_COMPUTE, INSTRUCTION_ADD), 0);
            assert_int_equal(plans_count(f, QUEUE_DATA, INSTRUCTION_REDUCE), f->layout.data > 1 ? f->n_buckets : 0);
            assert_true(2 * f->family_bytes[FAMILY_GRADIENTS] <= e->family_bytes[FAMILY_GRADIENTS]);
        }
        plans_free(&exact);
        plans_free(&fast);
    }
}

/* With one lane a rank and a reduction a micro-batch, ZeRO-2 and 3 hold a few buckets; a whole buffer would be more. */
static void fast_leaves_staged_gradients_alone(void **state) {
    (void)state;
    for (int zero = 2; zero <= 3; zero++) {
        const struct setting s = { 4, 1, zero, PLAN_REDUCE_MICRO_BATCH };
        struct plans exact = plans_of(&s, 4, false), fast = plans_of(&s, 4, true);
        for (int r = 0; r < fast.n; r++) {
            assert_true(fast.of[r]->staged);
            assert_memory_equal(fast.of[r]->family_bytes, exact.of[r]->family_bytes, sizeof exact.of[r]->family_bytes);
        }
        plans_free(&exact);
        plans_free(&fast);
    }
}

enum { STEPS = 20 };

static void train(struct trainee *t, const struct setting *s, enum engine_numerics numerics) {
    t->config.layout = (struct engine_layout){ .data = s->data, .pipeline = s->stages, .zero = s->zero };
    t->config.train.reduce = s->reduce;
    t->config.train.numerics = numerics;
    t->ranks = engine_ranks(&t->config.layout);
    assert_int_equal(trainee_run(t), 0);
    for (int r = 0; r < t->ranks; r++)
        if (t->results[r].status != ST_OK)
            fail_msg("data %d, pipeline %d, zero %d: %s", s->data, s->stages, s->zero, t->results[r].message);
}

static void fast_agrees_in_loss_to_a_thousandth(void **state) {
    (void)state;
    double exact[STEPS + 1];
    int unlike = 0;
    struct trainee *t = trainee_new();
    t->config.train.steps = STEPS;
    t->config.train.eval.every = 0;
    t->config.train.lanes = 8;
    *t->directory = 0;
    train(t, &SETTINGS[0], ENGINE_NUMERICS_REPRODUCIBLE);
    memcpy(exact, t->results[0].loss, sizeof exact);
    for (int i = 0; i < N_SETTINGS; i++) {
        train(t, &SETTINGS[i], ENGINE_NUMERICS_FAST);
        for (int step = 1; step <= STEPS; step++) {
            double loss = t->results[0].loss[step];
            unlike += loss != exact[step];
            if (fabs(loss - exact[step]) > 1e-3 * exact[step])
                fail_msg("setting %d, step %d: loss %.9g, not %.9g", i, step, loss, exact[step]);
        }
    }
    assert_true(unlike > 0); /* the order of additions was another */
    trainee_free(t);
}

static bool noticed(const struct trainee_result *r, const char *kind) {
    bool found = false;
    for (int i = 0; i < r->notices; i++)
        found |= strcmp(r->notice[i], kind) == 0;
    return found;
}

/* A checkpoint of a fast run: a fast resume changes nothing; with other data ranks, or reproducibly, the resume is
 * reported, and `strict` refuses it. */
static void what_a_fast_run_left_is_known_as_such(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    trainee_fresh_directory(t, "fast");
    train(t, &SETTINGS[0], ENGINE_NUMERICS_FAST);
    assert_non_null(strstr(t->results[0].numerics_id, ", fast over 1"));
    snprintf(t->resume, sizeof t->resume, "%.200s/step-4", t->directory);
    t->config.train.steps = 6;
    trainee_fresh_directory(t, "on");
    train(t, &SETTINGS[0], ENGINE_NUMERICS_FAST);
    assert_false(noticed(&t->results[0], "numerics_changed"));
    trainee_fresh_directory(t, "halves");
    train(t, &SETTINGS[1], ENGINE_NUMERICS_FAST);
    assert_true(noticed(&t->results[0], "numerics_changed"));
    assert_non_null(strstr(t->results[0].numerics_id, ", fast over 2"));
    trainee_fresh_directory(t, "reproducible");
    train(t, &SETTINGS[0], ENGINE_NUMERICS_REPRODUCIBLE);
    assert_true(noticed(&t->results[0], "numerics_changed"));
    assert_null(strstr(t->results[0].numerics_id, "fast"));
    t->config.train.numerics = ENGINE_NUMERICS_STRICT;
    trainee_fresh_directory(t, "strict");
    assert_int_equal(trainee_run(t), 0);
    assert_int_equal(t->results[0].outcome, ENGINE_BAD_SPEC);
    assert_non_null(strstr(t->results[0].message, "train.numerics: strict"));
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_folds_all_of_a_ranks_micro_batches_in_one_buffer),
        cmocka_unit_test(fast_leaves_staged_gradients_alone),
        cmocka_unit_test(fast_agrees_in_loss_to_a_thousandth),
        cmocka_unit_test(what_a_fast_run_left_is_known_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
