/* A run that begins with the weights of an exported model begins at that model's loss, in every precision and layout.
 */
#include "engine/pretrained/export.h"
#include "tests/engine/trainee.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void run(struct trainee *t, const char *name, struct engine_layout layout) {
    t->config.layout = layout;
    t->ranks = engine_ranks(&layout);
    trainee_fresh_directory(t, name);
    assert_int_equal(trainee_run(t), 0);
    for (int r = 0; r < t->ranks; r++)
        if (t->results[r].status != ST_OK)
            fail_msg("%s, rank %d: %s", name, r, t->results[r].message);
}

static void use_llama(struct engine_config *c) {
    c->model = (struct model_config){ .kind = &model_llama,
                                      .llama = { .layers = 2,
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .width = 32,
                                                 .context = 16,
                                                 .hidden = 96,
                                                 .rope_theta = 1e4,
                                                 .norm_eps = 1e-5 } };
}

static void a_fine_tune_starts_at_the_loss_of_the_model_that_it_came_from(void **state) {
    (void)state;
    static const struct engine_layout alone = { .data = 1, .pipeline = 1 }, sharded = { .data = 2, .zero = 3 },
                                      staged = { .data = 1, .pipeline = 2 };
    for (int llama = 0; llama < 2; llama++) {
        struct trainee *t = trainee_new();
        if (llama)
            use_llama(&t->config);
        t->config.train.steps = 20;
        t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
        run(t, "first", alone);
        const double reached = t->results[0].validation_loss;
        char step[400], folder[400];
        snprintf(step, sizeof step, "%.200s/step-20", t->directory);
        snprintf(folder, sizeof folder, "%.200s-exported", t->directory);
        struct export_result done;
        struct err e = { "" };
        if (pretrained_export(step, folder, &(struct export_options){ 0 }, &done, &e) != ST_OK)
            fail_msg("%s", e.msg);

        /* One step with rate 0 changes nothing, so the evaluation after it is that of the imported weights. */
        t->config.train.init_from = folder;
        t->config.train.steps = 1;
        t->config.train.optimizer.adamw.lr = 0;
        t->config.train.schedule.min_lr = 0;
        t->config.train.schedule.warmup_steps = 0;
        run(t, "alone", alone);
        assert_true(reached > 0 && t->results[0].validation_loss == reached);
        run(t, "sharded", sharded);
        assert_true(t->results[0].validation_loss == reached);
        run(t, "staged", staged);
        assert_true(t->results[0].validation_loss == reached);
        t->config.train.precision = ENGINE_BF16;
        run(t, "bf16", alone);
        assert_true(fabs(t->results[0].validation_loss / reached - 1) < 0.01);
        trainee_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fine_tune_starts_at_the_loss_of_the_model_that_it_came_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
