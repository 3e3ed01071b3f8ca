/* The engine end to end, in real processes: the same bits in every layout, through a resume, and every way to end a
 * run. */
#include "tests/engine/trainee.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

static void assert_finished(const struct trainee *t) {
    for (int r = 0; r < t->ranks; r++) {
        if (t->results[r].status != ST_OK)
            fail_msg("rank %d of %d: %s", r, t->ranks, t->results[r].message);
        assert_int_equal(t->results[r].outcome, ENGINE_FINISHED);
        assert_int_equal(strlen(t->results[r].weights_sha256), 64);
        assert_string_equal(t->results[r].weights_sha256, t->results[0].weights_sha256);
    }
}

/* The result of one layout, with which the others are compared. */
struct expected {
    char sha256[ENGINE_SHA256_HEX];
    double loss[TRAINEE_STEPS], grad_norm[TRAINEE_STEPS], validation_loss;
};

static void keep(const struct trainee *t, struct expected *ret) {
    memcpy(ret->sha256, t->results[0].weights_sha256, sizeof ret->sha256);
    memcpy(ret->loss, t->results[0].loss, sizeof ret->loss);
    memcpy(ret->grad_norm, t->results[0].grad_norm, sizeof ret->grad_norm);
    ret->validation_loss = t->results[0].validation_loss;
}

static void assert_same(const struct trainee *t, const struct expected *want) {
    assert_string_equal(t->results[0].weights_sha256, want->sha256);
    assert_memory_equal(t->results[0].loss, want->loss, sizeof want->loss);
    assert_memory_equal(t->results[0].grad_norm, want->grad_norm, sizeof want->grad_norm);
    assert_memory_equal(&t->results[0].validation_loss, &want->validation_loss, sizeof want->validation_loss);
}

static void run_in_layout(struct trainee *t, int ranks, int threads) {
    char name[64];
    t->ranks = ranks;
    t->threads = threads;
    snprintf(name, sizeof name, "reduce-%d-ranks-%d-threads-%d-bucket-%d", (int)t->config.train.reduce, ranks, threads,
             (int)t->config.bucket_bytes);
    trainee_fresh_directory(t, name);
    assert_int_equal(trainee_run(t), 0);
    assert_finished(t);
}

static void the_bits_do_not_depend_on_ranks_or_threads(enum plan_reduce reduce) {
    static const int layouts[][2] = { { 1, 2 }, { 1, 4 }, { 2, 1 }, { 2, 2 }, { 4, 1 }, { 4, 4 } };
    struct trainee *t = trainee_new();
    struct expected want;
    t->config.train.reduce = reduce;
    run_in_layout(t, 1, 1);
    keep(t, &want);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        run_in_layout(t, layouts[i][0], layouts[i][1]);
        assert_same(t, &want);
    }
    t->config.bucket_bytes = 1 << 20;
    run_in_layout(t, 2, 1);
    assert_same(t, &want);
    trainee_free(t);
}

static void the_bits_do_not_depend_on_the_layout_with_reduce_step(void **state) {
    (void)state;
    the_bits_do_not_depend_on_ranks_or_threads(PLAN_REDUCE_STEP);
}

static void the_bits_do_not_depend_on_the_layout_with_reduce_micro_batch(void **state) {
    (void)state;
    the_bits_do_not_depend_on_ranks_or_threads(PLAN_REDUCE_MICRO_BATCH);
}

static void another_seed_gives_other_bits(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    struct expected first;
    run_in_layout(t, 1, 1);
    keep(t, &first);
    t->config.train.seed++;
    run_in_layout(t, 1, 2);
    assert_string_not_equal(t->results[0].weights_sha256, first.sha256);
    trainee_free(t);
}

static void a_resume_in_another_layout_ends_in_the_same_bits(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    struct expected want;
    t->config.train.steps = 6;
    t->config.checkpoint.every = 3;
    run_in_layout(t, 2, 1);
    keep(t, &want);
    assert_int_equal(t->results[1].shards, 2);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-3", t->directory);
    run_in_layout(t, 4, 1);
    assert_int_equal(t->results[3].from_step, 3);
    assert_int_equal(t->results[0].rows[3], 0);
    assert_string_equal(t->results[0].weights_sha256, want.sha256);
    assert_true(t->results[0].loss[6] == want.loss[6]);
    run_in_layout(t, 1, 2);
    assert_string_equal(t->results[0].weights_sha256, want.sha256);
    assert_true(t->results[0].validation_loss == want.validation_loss);
    trainee_free(t);
}

/* With a learning rate of 0 the weights stay those of the start, so the same samples have the same loss, however many
 * of them are in one batch. One batch of all samples is one round of the evaluation plan. */
static void the_validation_loss_has_the_same_bits_in_one_round_and_in_many(void **state) {
    (void)state;
    static const struct engine_layout layouts[] = {
        { .data = 1, .pipeline = 1 },
        { .data = 2, .pipeline = 1, .zero = 3 },
        { .data = 1, .pipeline = 2, .schedule = &schedule_1f1b },
    };
    enum { SAMPLES = 128 };
    struct trainee *t = trainee_new();
    double want = 0;
    t->config.train.optimizer.adamw.lr = 0;
    t->config.train.schedule = (struct rate_schedule){ .kind = &rate_constant };
    t->config.train.steps = 1;
    t->config.model.gpt.dropout = 0;
    for (int batch = SAMPLES; batch >= 8; batch /= 4)
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            t->config.layout = layouts[i];
            t->ranks = engine_ranks(&layouts[i]);
            t->config.train.global_batch = batch;
            t->config.train.eval.batches = SAMPLES / batch;
            *t->directory = 0;
            assert_int_equal(trainee_run(t), 0);
            assert_int_equal(t->results[0].status, ST_OK);
            want = want == 0 ? t->results[0].validation_loss : want;
            assert_true(want > 0 && t->results[0].validation_loss == want);
        }
    trainee_free(t);
}

/* oneDNN's products add along k in blocks whose size depends on the number of rows, except with AVX-512. */
static bool is_same_loss(double a, double b) {
    return __builtin_cpu_supports("avx512f") ? a == b : fabs(a - b) <= 1e-8 * fabs(b);
}

/* The validation set is evaluated whole and each sample once, also if a batch does not divide it. */
static void the_loss_of_the_whole_validation_set_does_not_depend_on_the_batch(void **state) {
    (void)state;
    static const struct {
        int global, micro;
    } batches[] = { { 16, 8 }, { 16, 2 }, { 8, 1 }, { 24, 12 }, { 20, 5 }, { 14, 7 } };
    struct trainee *t = trainee_new();
    double want = 0;
    t->config.train.optimizer.adamw.lr = 0;
    t->config.train.schedule = (struct rate_schedule){ .kind = &rate_constant };
    t->config.train.steps = 1;
    t->config.train.lanes = 1;
    t->config.train.eval.batches = 0;
    t->config.model.gpt.dropout = 0;
    t->config.layout = (struct engine_layout){ .data = 1, .pipeline = 1 };
    t->ranks = 1;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        t->config.train.global_batch = batches[i].global;
        t->config.train.micro_batch = batches[i].micro;
        *t->directory = 0;
        assert_int_equal(trainee_run(t), 0);
        if (t->results[0].status != ST_OK)
            fail_msg("%d in %d: %s", batches[i].global, batches[i].micro, t->results[0].message);
        want = want == 0 ? t->results[0].validation_loss : want;
        if (!(want > 0 && is_same_loss(t->results[0].validation_loss, want)))
            fail_msg("%d in %d: %.17g, not %.17g", batches[i].global, batches[i].micro, t->results[0].validation_loss,
                     want);
    }
    trainee_free(t);
}

static void every_steps_row_is_there_once_and_the_loss_falls(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.steps = 60;
    t->config.train.schedule.warmup_steps = 5;
    t->config.model.gpt.dropout = 0;
    run_in_layout(t, 1, 2);
    for (int s = 1; s <= 60; s++)
        assert_int_equal(t->results[0].rows[s], 1);
    assert_true(t->results[0].loss[60] < 0.7 * t->results[0].loss[1]);
    trainee_free(t);
}

static void the_initial_loss_is_ln_of_the_vocabulary(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.model.gpt.vocabulary = 1000;
    t->config.model.gpt.dropout = 0;
    t->config.train.steps = 1;
    t->config.train.schedule.warmup_steps = 0;
    run_in_layout(t, 1, 1);
    double want = log(1000.0);
    if (fabs(t->results[0].loss[1] - want) > 0.02 * want)
        fail_msg("the loss is %g, not %g", t->results[0].loss[1], want);
    trainee_free(t);
}

static void one_batch_can_be_overfitted(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    FILE *f = fopen(t->text, "w");
    assert_non_null(f);
    fputs("to be, or not to.", f); /* context + 1 characters: one window */
    fclose(f);
    t->config.data.text.validation_fraction = 0;
    t->config.model.gpt.dropout = 0;
    t->config.train.steps = 60;
    t->config.train.schedule.kind = &rate_constant;
    run_in_layout(t, 1, 1);
    assert_true(t->results[0].loss[60] < 0.05);
    trainee_free(t);
}

static void a_stop_on_one_rank_stops_all_at_one_step_with_a_checkpoint(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.steps = 50;
    t->ranks = 2;
    t->stop_rank = 1;
    t->stop_step = 2;
    assert_int_equal(trainee_run(t), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(t->results[r].status, ST_OK);
        assert_int_equal(t->results[r].outcome, ENGINE_STOPPED);
        assert_int_equal(t->results[r].step, 3);
        assert_int_equal(t->results[r].shards, 1);
    }
    char manifest[320];
    snprintf(manifest, sizeof manifest, "%s/step-3/manifest.json", t->directory);
    assert_int_equal(access(manifest, R_OK), 0);
    trainee_free(t);
}

static void a_killed_rank_ends_all_others_at_once_as_peer_lost(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.steps = 100000;
    t->ranks = 4;
    t->stop_rank = 2;
    t->stop_step = 3;
    t->die = true;
    int64_t start = clock_mono_ms();
    assert_int_equal(trainee_run(t), 1); /* the killed one */
    assert_true(clock_mono_ms() - start < t->timeout_ms / 2);
    for (int r = 0; r < 4; r++) {
        if (r == 2)
            continue;
        assert_int_equal(t->results[r].outcome, ENGINE_PEER_LOST);
        assert_int_not_equal(t->results[r].message[0], 0);
        /* The killed one had done step 3; another may still have been on its last exchange of it. */
        assert_in_range(t->results[r].step, 2, 4);
    }
    trainee_free(t);
}

static void a_loss_that_is_no_number_ends_the_run_and_names_step_and_op(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.optimizer.adamw.lr = 1e30;
    t->config.train.schedule.warmup_steps = 0;
    t->config.train.clip_norm = 0;
    t->ranks = 2;
    assert_int_equal(trainee_run(t), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(t->results[r].outcome, ENGINE_NUMERIC);
        assert_non_null(strstr(t->results[r].message, "step 2: the loss of micro-batch 0"));
        assert_int_equal(t->results[r].step, 1);
    }
    assert_non_null(strstr(t->results[0].message, "the first op to blame is "));
    assert_null(strstr(t->results[0].message, "unknown"));
    trainee_free(t);
}

static void checkpoints_are_skipped_by_all_ranks_while_two_are_not_committed(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.steps = 20;
    t->config.checkpoint.every = 2;
    t->config.train.eval.every = 0;
    t->commit = false;
    t->ranks = 2;
    assert_int_equal(trainee_run(t), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(t->results[r].outcome, ENGINE_FINISHED);
        assert_in_range(t->results[r].shards, 2, 3); /* two (or one, where the disk is slow), and the final one */
        assert_int_equal(t->results[r].shards + t->results[r].notices, 10);
        assert_int_equal(t->results[r].shards, t->results[0].shards);
        assert_string_equal(t->results[r].notice[0], "checkpoint_skipped");
    }
    trainee_free(t);
}

static void corrupt_and_missing_checkpoints_and_bad_specs_have_different_outcomes(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    char path[320];
    run_in_layout(t, 1, 1);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-4", t->directory);
    snprintf(path, sizeof path, "%s/rank-0.safetensors", t->resume);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 20000), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 20000), 1);
    close(fd);
    trainee_run(t);
    assert_int_equal(t->results[0].outcome, ENGINE_CHECKPOINT_BAD);
    assert_non_null(strstr(t->results[0].message, "rank-0.safetensors"));
    snprintf(t->resume, sizeof t->resume, "%.200s/step-40", t->directory); /* it was removed */
    trainee_run(t);
    assert_int_equal(t->results[0].outcome, ENGINE_CHECKPOINT_UNREADABLE);
    assert_non_null(strstr(t->results[0].message, "step-40': No such file or directory"));
    t->config.model.gpt.width = 33;
    trainee_run(t);
    assert_int_equal(t->results[0].outcome, ENGINE_BAD_SPEC);
    assert_non_null(strstr(t->results[0].message, "model.gpt.heads"));
    trainee_free(t);
}

static void a_final_checkpoint_that_cannot_be_written_fails_the_run(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    char path[320];
    snprintf(path, sizeof path, "%s/step-4", t->directory);
    assert_int_equal(dir_make(t->directory, 0755, NULL), ST_OK);
    int fd = open(path, O_CREAT | O_WRONLY, 0600); /* a file in the place of the step's folder */
    assert_true(fd >= 0);
    close(fd);
    trainee_run(t);
    assert_int_equal(t->results[0].outcome, ENGINE_CHECKPOINT_WRITE);
    assert_non_null(strstr(t->results[0].message, "step-4"));
    trainee_free(t);
}

static bool collect(void *ctx, const char *piece) {
    strncat(ctx, piece, 400 - strlen(ctx));
    return true;
}

static int sample_main(struct gang *gang, int rank, struct collective *c) {
    (void)rank, (void)c;
    struct trainee *t = gang->arg;
    char text[3][512] = { "", "", "" };
    struct engine_sample_request request = {
        .directory = t->resume, .prompt = "seven", .tokens = 40, .temperature = 0.8, .seed = 3, .write = collect
    };
    struct err e;
    for (int i = 0; i < 3; i++) {
        request.ctx = text[i];
        request.threads = trainee_threads(1 + i);
        request.seed = i == 2 ? 4 : 3;
        if (engine_sample(&request, &e) != ST_OK)
            return 1;
    }
    if (strlen(text[0]) != 40 || strcmp(text[0], text[1]) != 0 || strcmp(text[0], text[2]) == 0)
        return 2;
    request.prompt = "\xE2\x82\xAC"; /* not in the text */
    return engine_sample(&request, &e) == ST_INVALID_ARGUMENT ? 0 : 3;
}

static void a_sample_depends_on_its_seed_alone(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    run_in_layout(t, 1, 1);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-4", t->directory);
    struct gang *g = gang_start(1, 1000, sample_main, t);
    int status = gang_await(g, 0);
    gang_free(g);
    assert_int_equal(status, 0);
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_do_not_depend_on_the_layout_with_reduce_step),
        cmocka_unit_test(the_bits_do_not_depend_on_the_layout_with_reduce_micro_batch),
        cmocka_unit_test(another_seed_gives_other_bits),
        cmocka_unit_test(a_resume_in_another_layout_ends_in_the_same_bits),
        cmocka_unit_test(the_validation_loss_has_the_same_bits_in_one_round_and_in_many),
        cmocka_unit_test(the_loss_of_the_whole_validation_set_does_not_depend_on_the_batch),
        cmocka_unit_test(every_steps_row_is_there_once_and_the_loss_falls),
        cmocka_unit_test(the_initial_loss_is_ln_of_the_vocabulary),
        cmocka_unit_test(one_batch_can_be_overfitted),
        cmocka_unit_test(a_stop_on_one_rank_stops_all_at_one_step_with_a_checkpoint),
        cmocka_unit_test(a_killed_rank_ends_all_others_at_once_as_peer_lost),
        cmocka_unit_test(a_loss_that_is_no_number_ends_the_run_and_names_step_and_op),
        cmocka_unit_test(checkpoints_are_skipped_by_all_ranks_while_two_are_not_committed),
        cmocka_unit_test(corrupt_and_missing_checkpoints_and_bad_specs_have_different_outcomes),
        cmocka_unit_test(a_final_checkpoint_that_cannot_be_written_fails_the_run),
        cmocka_unit_test(a_sample_depends_on_its_seed_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
