/* The whole engine over ranks that are threads of this process: every schedule and every ZeRO stage has the bits of one
 * rank, and the end of one rank ends all. */
#include "tests/engine/trainee.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { STEPS = 3 };

static void run(struct trainee *t, const char *name, const struct engine_layout *layout) {
    t->config.layout = *layout;
    t->ranks = engine_ranks(layout);
    trainee_fresh_directory(t, name);
    t->config.checkpoint.directory = t->directory;
    memset(t->results, 0, GANG_RANKS * sizeof *t->results);
    assert_int_equal(gang_end(gang_start_threads(t->ranks, t->timeout_ms, trainee_main, t)), 0);
}

/* Every schedule with ZeRO 0 and 1; ZeRO 2 and 3, which keep no gradients over micro-batches, without a pipeline. */
static const struct engine_layout LAYOUTS[] = {
    { .data = 2, .pipeline = 1 },
    { .data = 4, .pipeline = 1, .zero = 1 },
    { .data = 2, .pipeline = 1, .zero = 2 },
    { .data = 4, .pipeline = 1, .zero = 2 },
    { .data = 2, .pipeline = 1, .zero = 3 },
    { .data = 4, .pipeline = 1, .zero = 3 },
    { .data = 2, .pipeline = 2, .schedule = &schedule_gpipe },
    { .data = 2, .pipeline = 2, .schedule = &schedule_gpipe, .zero = 1 },
    { .data = 1, .pipeline = 4, .schedule = &schedule_1f1b },
    { .data = 2, .pipeline = 2, .schedule = &schedule_1f1b, .zero = 1 },
    { .data = 1, .pipeline = 2, .schedule = &schedule_interleaved, .virtual_stages = 2 },
    { .data = 2, .pipeline = 2, .schedule = &schedule_interleaved, .virtual_stages = 2, .zero = 1 },
    { .data = 1, .pipeline = 4, .schedule = &schedule_zero_bubble },
    { .data = 2, .pipeline = 2, .schedule = &schedule_zero_bubble, .zero = 1 },
};

static void every_schedule_and_zero_stage_has_the_bits_of_one_rank(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.model.gpt.layers = 6;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->config.train.steps = STEPS;
    run(t, "alone", &(struct engine_layout){ .data = 1, .pipeline = 1 });
    const struct trainee_result want = t->results[0];
    assert_int_equal(want.status, ST_OK);
    assert_int_equal(strlen(want.weights_sha256), ENGINE_SHA256_HEX - 1);
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof *LAYOUTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layout-%zu", i);
        run(t, name, &LAYOUTS[i]);
        for (int r = 0; r < t->ranks; r++)
            if (t->results[r].status != ST_OK)
                fail_msg("%s, rank %d: %s", name, r, t->results[r].message);
        const struct trainee_result *got = &t->results[0];
        if (strcmp(got->weights_sha256, want.weights_sha256) != 0 ||
            memcmp(got->loss, want.loss, sizeof want.loss) != 0 ||
            memcmp(got->grad_norm, want.grad_norm, sizeof want.grad_norm) != 0 ||
            memcmp(&got->validation_loss, &want.validation_loss, sizeof(double)) != 0)
            fail_msg("%s (data %d, pipeline %d, zero %d, schedule %s): weights %.12s, not %.12s; loss %.17g, not %.17g",
                     name, LAYOUTS[i].data, LAYOUTS[i].pipeline, LAYOUTS[i].zero,
                     schedule_of(LAYOUTS[i].schedule)->name, got->weights_sha256, want.weights_sha256, got->loss[STEPS],
                     want.loss[STEPS]);
    }
    trainee_free(t);
}

/* Rank 1 refuses its own configuration while the others wait in their first barrier. */
static void what_one_rank_refuses_ends_all(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->odd_micro_batch = 3;
    run(t, "odd", &(struct engine_layout){ .data = 4, .pipeline = 1 });
    for (int r = 0; r < t->ranks; r++)
        assert_int_not_equal(t->results[r].status, ST_OK);
    trainee_free(t);
}

/* Every rank's own plan is right; only together they are not. */
static void ranks_that_plan_another_step_are_refused(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->odd_bucket = 4096;
    run(t, "odd", &(struct engine_layout){ .data = 4, .pipeline = 1, .zero = 1 });
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(t->results[r].outcome, ENGINE_INTERNAL);
        assert_non_null(strstr(t->results[r].message, "plans another step than rank"));
    }
    trainee_free(t);
}

/* Each rank reads one file of the checkpoint whole; all ranks refuse it for the file that one of them read. */
static void a_damaged_checkpoint_is_refused_by_all_ranks_with_one_sentence(void **state) {
    (void)state;
    const struct engine_layout layout = { .data = 4, .pipeline = 1, .zero = 1 };
    struct trainee *t = trainee_new();
    t->config.train.steps = STEPS;
    run(t, "whole", &layout);
    assert_int_equal(t->results[0].status, ST_OK);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-%d", t->directory, STEPS);
    t->config.checkpoint.resume_directory = t->resume;
    run(t, "resumed", &layout);
    for (int r = 0; r < t->ranks; r++)
        assert_true(t->results[r].status == ST_OK && t->results[r].from_step == STEPS);
    char path[300];
    snprintf(path, sizeof path, "%s/rank-2.safetensors", t->resume);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, -100, SEEK_END);
    const int byte = fgetc(f);
    fseek(f, -100, SEEK_END);
    fputc(byte ^ 1, f);
    fclose(f);
    run(t, "damaged", &layout);
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(t->results[r].outcome, ENGINE_CHECKPOINT_BAD);
        assert_non_null(strstr(t->results[r].message, "rank-2.safetensors': its bytes are not the ones"));
    }
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_and_zero_stage_has_the_bits_of_one_rank),
        cmocka_unit_test(what_one_rank_refuses_ends_all),
        cmocka_unit_test(ranks_that_plan_another_step_are_refused),
        cmocka_unit_test(a_damaged_checkpoint_is_refused_by_all_ranks_with_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
