/* Features of a run besides its steps: skipped overflows and spikes, profiles, inspected gradients, weights
 * from another source, and refused layouts. Each one runs in one rank and in several, with the same numbers. */
#include "tests/engine/trainee.h"

#include "engine/checkpoint/reader.h"
#include "engine/plan/build/plan_build.h"
#include "engine/run/job_model.h"
#include "engine/run/learning_rate.h"
#include "engine/run/thread_count.h"
#include "kernels/step_decision.h"
#include "tests/engine/gpt_graph.h"

#include <jansson.h>
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

static const struct engine_layout ALONE = { .data = 1, .pipeline = 1 };
static const struct engine_layout HALVES = { .data = 2, .pipeline = 1 };
static const struct engine_layout SHARDED = { .data = 2, .pipeline = 1, .zero = 3 };
static const struct engine_layout STAGED = { .data = 2, .pipeline = 2, .zero = 1 };

static int notices_of(const struct trainee_result *r, const char *kind) {
    int n = 0;
    for (int i = 0; i < r->notices; i++)
        n += strcmp(r->notice[i], kind) == 0;
    return n;
}

/* A scale with which every fp16 gradient overflows is halved until none does. Skipped steps are counted, and a resume
 * between them gives the same numbers. */
static void fp16_skips_overflowed_steps_and_halves_the_scale(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.precision = ENGINE_FP16;
    t->config.train.loss_scale.initial = 0x1p24;
    t->config.train.loss_scale.growth_interval = 4;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->config.train.steps = 24;
    t->every_other = true;
    run(t, "alone", ALONE);
    struct trainee_result want = t->results[0];
    char middle[300];
    snprintf(middle, sizeof middle, "%.200s/step-4", t->directory);
    assert_true(want.skipped[24] >= 2 && want.skipped[24] < 20);
    assert_int_equal(notices_of(&want, "step_skipped"),
                     (int)want.skipped[24] < TRAINEE_NOTICES ? (int)want.skipped[24] : TRAINEE_NOTICES);
    assert_true(want.loss_scale[1] == 0x1p23 || want.skipped[1] == 0);
    bool grew = false;
    for (int s = 2; s <= 24; s++)
        grew |= want.loss_scale[s] == 2 * want.loss_scale[s - 1];
    assert_true(grew);
    assert_true(want.loss[24] < want.loss[1]);
    snprintf(t->resume, sizeof t->resume, "%.255s", middle);
    run(t, "resumed", SHARDED);
    assert_string_equal(t->results[0].step_sha256[24], want.step_sha256[24]);
    assert_true(t->results[0].loss_scale[24] == want.loss_scale[24]);
    assert_true(t->results[0].skipped[24] == want.skipped[24]);
    trainee_free(t);
}

/* The attempt ends instead of skipping every step. No allowed scale makes this model overflow in every step, so the
 * test sets one that a spec may not contain. */
static void fp16_that_overflows_at_any_scale_ends_the_run(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    *t->directory = 0;
    t->config.train.precision = ENGINE_FP16;
    t->config.train.loss_scale.initial = -INFINITY;
    t->config.layout = SHARDED;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->ranks = 2;
    trainee_run(t);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(t->results[r].outcome, ENGINE_NUMERIC);
        assert_non_null(strstr(t->results[r].message, "step 1: the gradient overflows fp16 even at a loss scale of "));
    }
    trainee_free(t);
}

static void a_step_whose_norm_stands_out_is_skipped_alike_in_every_layout(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.skip_spikes.z_score = 0.5;
    t->config.train.skip_spikes.window = 10;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->config.train.steps = 30;
    t->config.train.optimizer.adamw.lr = 3e-2;
    t->every_other = true;
    run(t, "alone", ALONE);
    struct trainee_result want = t->results[0];
    assert_true(want.skipped[30] >= 1 && want.skipped[30] < 25);
    char middle[300];
    snprintf(middle, sizeof middle, "%.200s/step-16", t->directory);
    run(t, "staged", STAGED);
    assert_memory_equal(t->results[0].loss, want.loss, sizeof want.loss);
    snprintf(t->resume, sizeof t->resume, "%.255s", middle);
    run(t, "resumed", SHARDED); /* with the window of norms */
    assert_string_equal(t->results[0].step_sha256[30], want.step_sha256[30]);
    trainee_free(t);
}

static void a_spike_is_what_lies_z_deviations_above_the_mean_of_the_window(void **state) {
    (void)state;
    const struct decision_rules o = { .z_score = 3, .window = 10 };
    struct decision d = { .scale = 1 };
    for (int i = 0; i < DECISION_MIN_NORMS - 1; i++) {
        decide_norm_add(&d, 1 + 0.1 * (i % 2), o.window);
        assert_false(decide_is_spike(&d, 100, &o)); /* too few norms to decide */
    }
    for (int i = 0; i < 40; i++)
        decide_norm_add(&d, 1 + 0.1 * (i % 2), o.window); /* mean 1.05, deviation 0.05 */
    assert_int_equal(d.n_norms, 10);
    assert_false(decide_is_spike(&d, 1.19, &o));
    assert_true(decide_is_spike(&d, 1.21, &o));
    assert_false(decide_is_spike(&d, 0.01, &o));
}

/* Two parents with the same weights, because their rate is 0, and different states of the same name. */
static void states_of_another_optimizer_start_from_zero_with_a_notice(void **state) {
    (void)state;
    static const struct optimizer_config parents[] = { { .kind = &optimizer_adamw,
                                                         .adamw = { .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8 } },
                                                       { .kind = &optimizer_sgd, .sgd = { .momentum = 0.9 } } };
    static const struct optimizer_config lion = { .kind = &optimizer_lion,
                                                  .lion = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99 } };
    char went_on[2][ENGINE_SHA256_HEX];
    for (int p = 0; p < 2; p++) {
        struct trainee *t = trainee_new();
        t->config.train.optimizer = parents[p];
        t->config.train.schedule.min_lr = 0;
        t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
        run(t, "parent", ALONE);
        snprintf(t->resume, sizeof t->resume, "%.200s/step-4", t->directory);
        t->config.train.optimizer = lion;
        t->config.train.steps = 8;
        run(t, "fork", SHARDED);
        assert_int_equal(notices_of(&t->results[0], "optimizer_started"), 1);
        assert_int_equal(notices_of(&t->results[1], "optimizer_started"), 0);
        snprintf(went_on[p], sizeof went_on[p], "%s", t->results[0].weights_sha256);
        struct checkpoint_reader *reader;
        struct err e;
        snprintf(t->resume, sizeof t->resume, "%.200s/step-8", t->directory);
        assert_int_equal(checkpoint_reader_open(t->resume, NULL, &reader, &e), ST_OK);
        assert_int_equal(checkpoint_reader_info(reader)->updates, 4); /* lion's, of eight steps */
        assert_int_equal(checkpoint_reader_info(reader)->skipped, 0);
        checkpoint_reader_close(reader);
        t->config.train.steps = 9;
        run(t, "resumed", ALONE);
        assert_int_equal(notices_of(&t->results[0], "optimizer_started"), 0); /* the state is now its own */
        trainee_free(t);
    }
    assert_string_equal(went_on[0], went_on[1]);
}

static void a_checkpoint_fits_any_dropout_and_no_other_model(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    run(t, "parent", ALONE);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-4", t->directory);
    t->config.train.steps = 5;
    t->config.model.gpt.dropout = 0.25;
    run(t, "fork", ALONE);
    assert_int_equal(t->results[0].step, 5);
    t->config.model.gpt.heads = 4; /* of the same shapes */
    trainee_fresh_directory(t, "heads");
    trainee_run(t);
    assert_int_equal(t->results[0].outcome, ENGINE_BAD_SPEC);
    assert_string_equal(t->results[0].message, "model.gpt.heads: 4, but the weights are of a model with 2");
    trainee_free(t);
}

static json_t *json_of(const char *directory, int rank) {
    char path[400];
    snprintf(path, sizeof path, "%s/rank-%d.json", directory, rank);
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why);
    if (!root)
        fail_msg("%s: %s", path, why.text);
    return root;
}

static void a_profile_has_the_operations_and_tracks_of_each_rank(void **state) {
    (void)state;
    static char folder[300];
    struct trainee *t = trainee_new();
    snprintf(folder, sizeof folder, "%s.profile", t->text);
    t->config.profile = (struct engine_profile){ .from = 2, .to = 3, .directory = folder };
    run(t, "staged", STAGED);
    for (int r = 0; r < t->ranks; r++) {
        char path[400];
        struct bytes text;
        snprintf(path, sizeof path, "%s/rank-%d.txt", folder, r);
        bytes_init(&text, 1 << 20);
        assert_int_equal(file_read(path, &text, NULL), ST_OK);
        assert_non_null(strstr(text.data, ": 2 steps,"));
        assert_non_null(strstr(text.data, "FORWARD linear"));
        assert_non_null(strstr(text.data, "BACKWARD_WEIGHT linear"));
        assert_null(strstr(text.data, "not recorded"));
        bytes_done(&text);
        json_t *root = json_of(folder, r), *event;
        size_t i, steps = 0, lanes[8] = { 0 }, gaps = 0;
        double end = 0;
        json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
            const char *phase = json_string_value(json_object_get(event, "ph"));
            steps += *phase == 'i';
            if (*phase == 'X') {
                const long lane = (long)json_integer_value(json_object_get(event, "tid"));
                const double at = json_number_value(json_object_get(event, "ts"));
                const double us = json_number_value(json_object_get(event, "dur"));
                lanes[lane & 7]++;
                assert_true(us >= 0);
                gaps += lane == 0 && fabs(at - end) > 1e-2;
                end = lane == 0 ? at + us : end;
            }
        }
        assert_int_equal(steps, 2);
        assert_int_equal(gaps, 2); /* where they begin */
        assert_int_equal(lanes[6], 0);
        assert_true(lanes[0] > 100 && lanes[1] > 0 && lanes[2] > 0 && lanes[3] > 0); /* compute, data, both ways */
        json_decref(root);
    }
    trainee_free(t);
}

static void inspected_norms_make_up_the_norm(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.gradients_every = 2;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    run(t, "alone", ALONE);
    double want = t->results[0].squares[2];
    assert_int_equal(t->results[0].inspected[1], 0);
    assert_int_equal(t->results[0].inspected[2], 28); /* every parameter of two layers */
    assert_true(fabs(sqrt(want) / t->results[0].grad_norm[2] - 1) < 1e-9);
    run(t, "staged", STAGED);
    assert_true(t->results[0].squares[2] == want);
    trainee_free(t);
}

static void a_run_begins_with_anothers_weights(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    static char from[300];
    t->config.train.steps = 40;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    run(t, "first", ALONE);
    double first = t->results[0].loss[1], last = t->results[0].loss[40];
    snprintf(from, sizeof from, "%.200s/step-40", t->directory);
    t->config.train.init_from = from;
    t->config.train.steps = 4;
    run(t, "second", SHARDED);
    double began = t->results[0].loss[1];
    assert_int_equal(t->results[0].from_step, 0);
    assert_true(fabs(began - last) < 0.3 * fabs(first - last));
    struct trainee_result sharded = t->results[0];
    run(t, "third", STAGED);
    assert_string_equal(t->results[0].weights_sha256, sharded.weights_sha256);
    t->config.model.gpt.width = 64;
    t->config.layout = ALONE;
    t->ranks = 1;
    trainee_run(t);
    assert_int_equal(t->results[0].outcome, ENGINE_BAD_SPEC);
    assert_non_null(strstr(t->results[0].message, "train.init_from: "));
    trainee_free(t);
}

static void assert_refused(struct trainee *t, struct engine_layout layout, const char *because) {
    t->config.layout = layout;
    t->ranks = engine_ranks(&layout);
    trainee_run(t);
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(t->results[r].outcome, ENGINE_BAD_SPEC);
        if (!strstr(t->results[r].message, because))
            fail_msg("\"%s\" does not say \"%s\"", t->results[r].message, because);
    }
}

/* Bytes of the fullest rank with micro-batches of so many samples and this maximum of threads. */
static size_t bytes_of(struct trainee *t, struct engine_layout layout, int micro_batch, int threads) {
    CLEANUP(source_closep) struct source *source = NULL;
    CLEANUP(job_model_closep) struct job_model *model = NULL;
    CLEANUP(graph_freep) struct graph *graph = NULL;
    struct engine_config c = t->config;
    size_t workspace, bytes;
    int rank;
    c.layout = layout;
    c.threads = 1;
    c.max_threads = threads;
    c.train.micro_batch = micro_batch;
    c.train.lanes = c.train.lanes ? c.train.lanes : c.train.global_batch / micro_batch;
    c.checkpoint.directory = t->directory;
    assert_int_equal(job_model_source(&c, NULL, NULL, &source, NULL), ST_OK);
    assert_int_equal(job_model_open(&c, source, NULL, &model, NULL), ST_OK);
    assert_int_equal(job_model_build(model, micro_batch, &graph, &workspace, NULL), ST_OK);
    const struct plan_layout l = job_model_layout(&c, workspace);
    assert_int_equal(plan_max_bytes(graph, &l, job_model_host(model), &bytes, &rank, NULL), ST_OK);
    return bytes;
}

static size_t bytes_with(struct trainee *t, int threads) { return bytes_of(t, HALVES, 8, threads); }

static void what_cannot_be_laid_out_is_one_sentence(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    *t->directory = 0;
    assert_refused(t, (struct engine_layout){ .data = 2, .pipeline = 2, .zero = 2 }, "parallel.zero");
    assert_refused(t, (struct engine_layout){ .data = 2, .pipeline = 2, .zero = 3 }, "parallel.zero");
    assert_refused(t, (struct engine_layout){ .data = 1, .pipeline = 6 }, "parallel.pipeline");
    t->config.train.lanes = 2;
    assert_refused(t, (struct engine_layout){ .data = 4, .pipeline = 1 }, "parallel.data: 4");
    t->config.memory_bytes = 1 << 18;
    assert_refused(t, ALONE, "resources.memory_bytes");
    t->config.train.micro_batch = 16;
    t->config.train.lanes = 1;
    t->config.memory_bytes = (int64_t)bytes_of(t, ALONE, 8, 1);
    assert_refused(t, ALONE, "the largest that fits is ");
    trainee_free(t);
}

static void auto_takes_the_largest_micro_batch_that_fits(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.micro_batch = 0;
    t->config.train.lanes = 0;
    assert_refused(t, ALONE, "train.micro_batch: auto needs resources.memory_bytes"); /* else there is no largest */
    t->config.memory_bytes = (int64_t)1 << 30;
    run(t, "all", ALONE);
    assert_int_equal(t->results[0].micro_batch, 16);
    t->config.memory_bytes = (int64_t)bytes_of(t, ALONE, 8, 1);
    run(t, "auto", ALONE);
    assert_in_range(t->results[0].micro_batch, 1, 8);
    trainee_free(t);
}

/* The plan fits the rank with the least memory, and a refusal ends all ranks. All ranks read the data meanwhile and
 * report progress. */
static void rank_0_chooses_for_all(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.micro_batch = 0;
    t->config.train.lanes = 0;
    t->config.memory_bytes = (int64_t)1 << 30;
    t->odd_memory = -1; /* no limit */
    run(t, "told", HALVES);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(t->results[r].micro_batch, 8);
        assert_true(t->results[r].progress_calls_resolving > 0);
    }
    t->odd_memory = (int64_t)bytes_with(t, 1) - 1;
    run(t, "less", HALVES);
    const int fits = t->results[0].micro_batch;
    assert_in_range(fits, 1, 7);
    assert_int_equal(t->results[1].micro_batch, fits);
    t->config.memory_bytes = -1;
    run(t, "limited", HALVES);
    assert_int_equal(t->results[0].micro_batch, fits);
    t->odd_memory = 1000;
    assert_refused(t, HALVES, "resources.memory_bytes");
    trainee_free(t);
}

/* Each thread has a workspace: a micro-batch that just fits rank 0 does not fit a rank with more threads. */
static void what_is_chosen_fits_the_rank_with_the_most_threads(void **state) {
    (void)state;
    const int most = trainee_threads(8);
    struct trainee *t = trainee_new();
    t->threads = 1;
    t->config.model.gpt.heads = 1;
    t->config.train.lanes = 2;
    const bool unlike = bytes_with(t, most) > bytes_with(t, 1);
    t->config.memory_bytes = (int64_t)bytes_with(t, most) - (unlike ? 1 : 0);
    assert_true(unlike || most == 1);
    t->config.train.micro_batch = 0;
    run(t, "alike", HALVES);
    assert_int_equal(t->results[0].micro_batch, 8);
    t->odd_threads = most;
    run(t, "unlike", HALVES);
    assert_int_equal(t->results[0].micro_batch == 8, !unlike);
    trainee_free(t);
}

/* The choice determines the bits, so a resume keeps it, also with more memory and on other ranks. If it does not divide
 * the batch of a changed spec, another choice is made. */
/* 1, 2, 3 and again 1, which is the least. */
static void take_turns(struct trainee_child *c, int64_t step) {
    if (step > 0)
        engine_set_threads(c->engine, trainee_threads((int)(step % 4)));
}

/* The number of threads falls and rises again: no number changes, and the arena has workspace for the maximum. */
static void the_threads_of_a_rank_may_change_at_any_step(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.steps = 6;
    t->config.train.lanes = 2;
    run(t, "still", ALONE);
    struct trainee_result still = t->results[0];
    t->config.max_threads = trainee_threads(2);
    t->ended = take_turns;
    for (int ranks = 1; ranks <= 2; ranks++) {
        run(t, "turns", ranks == 1 ? ALONE : HALVES);
        assert_string_equal(t->results[0].weights_sha256, still.weights_sha256);
        for (int s = 1; s <= 6; s++)
            assert_true(t->results[0].loss[s] == still.loss[s]);
        for (int r = 0; r < ranks && trainee_threads(2) == 2; r++) {
            const int *told = t->results[r].threads;
            assert_true(told[1] == 0 && told[2] == 2 && told[3] == 0 && told[4] == 1 && told[5] == 0);
        }
    }
    trainee_free(t);
}

static int team_of(const struct gpt_shape *shape, int micro_batch) {
    CLEANUP(graph_freep) struct graph *g = NULL;
    assert_int_equal(gpt_graph(shape, micro_batch, &g, NULL), ST_OK);
    return thread_count_useful(g);
}

/* Threads that would wait longer than they compute are not woken, even if cores are free. */
static void a_small_model_computes_on_one_thread_where_its_work_decides(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.steps = 6;
    t->config.max_threads = trainee_threads(2);
    t->config.threads_by_work = true;
    t->ended = take_turns;
    run(t, "small", ALONE);
    for (int s = 0; s <= 6; s++)
        assert_int_equal(t->results[0].threads[s], 0);
    trainee_free(t);
    static const struct gpt_shape tiny = { .layers = 2, .heads = 1, .width = 32, .context = 32, .vocabulary = 65 };
    static const struct gpt_shape nano = { .layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = 65 };
    assert_int_equal(team_of(&tiny, 4), 1);
    assert_true(team_of(&nano, 3) > 16 && team_of(&nano, 12) > team_of(&nano, 3));
}

static void what_auto_chose_survives_a_resume_with_other_memory(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.micro_batch = 0;
    t->config.train.lanes = 0;
    t->config.memory_bytes = (int64_t)bytes_of(t, ALONE, 8, 1);
    t->config.train.steps = 2;
    run(t, "small", ALONE);
    const int chosen = t->results[0].micro_batch;
    assert_in_range(chosen, 1, 8);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-2", t->directory);
    t->config.memory_bytes = (int64_t)1 << 30;
    t->config.train.steps = 4;
    run(t, "large", ALONE);
    assert_int_equal(t->results[0].micro_batch, chosen);
    run(t, "two", HALVES);
    assert_int_equal(t->results[1].micro_batch, chosen);
    t->config.train.global_batch = chosen + 1;
    run(t, "forked", ALONE);
    assert_int_equal(t->results[0].micro_batch, chosen + 1);
    trainee_free(t);
}

/* One micro-batch is no round of two interleaved stages. */
static void the_choice_of_auto_changes_if_the_schedule_cannot_use_it(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.model.gpt.layers = 4;
    t->config.train.micro_batch = 0;
    t->config.train.lanes = 0;
    t->config.train.steps = 2;
    t->config.memory_bytes = (int64_t)1 << 30;
    run(t, "whole", ALONE);
    assert_int_equal(t->results[0].micro_batch, 16);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-2", t->directory);
    t->config.train.steps = 4;
    run(t, "interleaved",
        (struct engine_layout){ .data = 1, .pipeline = 2, .virtual_stages = 2, .schedule = &schedule_interleaved });
    assert_int_equal(16 / t->results[0].micro_batch % 2, 0);
    trainee_free(t);
}

/* From one bucket for each chunk to one for all; 0: chosen by the timeline. */
static void the_size_of_buckets_changes_no_bits(void **state) {
    (void)state;
    static const int64_t SIZES[] = { 4096, 16384, 1 << 20, 0 };
    struct trainee *t = trainee_new();
    char expected[ENGINE_SHA256_HEX] = "";
    for (int zero = 0; zero <= 3; zero++)
        for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
            char name[32];
            snprintf(name, sizeof name, "bucket-%d-%zu", zero, i);
            t->config.bucket_bytes = SIZES[i];
            run(t, name, (struct engine_layout){ .data = 2, .pipeline = 1, .zero = zero });
            if (!*expected)
                memcpy(expected, t->results[0].weights_sha256, sizeof expected);
            assert_string_equal(t->results[0].weights_sha256, expected);
        }
    trainee_free(t);
}

/* Other work slowed the measurement down: a step that is faster than the peak raises it, and slower ones are parts of
 * that. */
static void mfu_is_at_most_1_whatever_was_measured(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.peak_flops = 1;
    run(t, "slow", ALONE);
    double max = 0;
    for (int64_t step = 1; step <= t->config.train.steps; step++) {
        assert_true(t->results[0].mfu[step] > 0 && t->results[0].mfu[step] <= 1);
        max = t->results[0].mfu[step] > max ? t->results[0].mfu[step] : max;
    }
    assert_true(t->results[0].mfu[1] == 1 && max == 1);
    /* The fastest step so far is the peak. */
    double fastest = t->results[0].seconds[1];
    for (int64_t step = 2; step <= t->config.train.steps; step++) {
        fastest = t->results[0].seconds[step] < fastest ? t->results[0].seconds[step] : fastest;
        assert_true(fabs(t->results[0].mfu[step] - fastest / t->results[0].seconds[step]) < 1e-9);
    }
    trainee_free(t);
}

/* mfu = the model's FLOPs of a step / (its seconds x what all ranks could do in one): 6 a parameter of a product and a
 * token, and attention's; the same in every layout, and none without a peak. */
static void mfu_is_the_models_flops_over_what_the_ranks_could_do(void **state) {
    (void)state;
    static const double PEAK = 1e12;
    enum { TOKENS = 16 * 16 };
    struct trainee *t = trainee_new();
    t->config.train.recompute = RECOMPUTE_BLOCK; /* recomputed work counts once */
    run(t, "unknown", ALONE);
    assert_true(t->results[0].mfu[2] == 0);
    t->config.peak_flops = PEAK;
    run(t, "one", ALONE);
    const double flops = t->results[0].mfu[2] * t->results[0].seconds[2] * PEAK;
    const double products = 2 * 12 * 32 * 32; /* weights of both layers, without the head's */
    assert_true(flops > 6 * products * TOKENS && flops < 12 * products * TOKENS);
    run(t, "two", HALVES);
    assert_true(fabs(t->results[0].mfu[2] * t->results[0].seconds[2] * PEAK * 2 - flops) < 1e-6 * flops);
    trainee_free(t);
}

/* Simulates hosts whose different threads make other choices fit. */
static void ranks_that_would_cut_a_step_differently_do_not_start(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    trainee_fresh_directory(t, "unlike");
    t->ranks = 2;
    t->config.layout = (struct engine_layout){ .data = 2, .pipeline = 1 };
    t->odd_micro_batch = 2 * t->config.train.micro_batch;
    assert_int_equal(trainee_run(t), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(t->results[r].status, ST_FAILED_PRECONDITION);
        assert_non_null(strstr(t->results[r].message, "micro_batch 2"));
        assert_non_null(strstr(t->results[r].message, "micro_batch 4"));
    }
    trainee_free(t);
}

static void the_rate_follows_its_schedule(void **state) {
    (void)state;
    struct engine_train t = { .steps = 100,
                              .global_batch = 64,
                              .optimizer = { .kind = &optimizer_adamw, .adamw = { .lr = 1 } },
                              .schedule = { .kind = &rate_wsd, .warmup_steps = 9, .decay_steps = 20, .min_lr = 0.1 } };
    assert_true(fabs(learning_rate(&t, 0) - 0.1) < 1e-12);
    assert_true(learning_rate(&t, 9) == 1 && learning_rate(&t, 79) == 1);
    assert_true(fabs(learning_rate(&t, 89) - 0.55) < 1e-12);
    assert_true(learning_rate(&t, 99) == 0.1);
    t.rate_scaling.kind = ENGINE_RATE_LINEAR;
    t.rate_scaling.reference_batch = 16;
    assert_true(learning_rate(&t, 50) == 4 && fabs(learning_rate(&t, 100) - 0.4) < 1e-12);
    t.rate_scaling.kind = ENGINE_RATE_SQRT;
    assert_true(learning_rate(&t, 50) == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp16_skips_overflowed_steps_and_halves_the_scale),
        cmocka_unit_test(fp16_that_overflows_at_any_scale_ends_the_run),
        cmocka_unit_test(a_step_whose_norm_stands_out_is_skipped_alike_in_every_layout),
        cmocka_unit_test(a_spike_is_what_lies_z_deviations_above_the_mean_of_the_window),
        cmocka_unit_test(states_of_another_optimizer_start_from_zero_with_a_notice),
        cmocka_unit_test(a_checkpoint_fits_any_dropout_and_no_other_model),
        cmocka_unit_test(a_profile_has_the_operations_and_tracks_of_each_rank),
        cmocka_unit_test(inspected_norms_make_up_the_norm),
        cmocka_unit_test(a_run_begins_with_anothers_weights),
        cmocka_unit_test(what_cannot_be_laid_out_is_one_sentence),
        cmocka_unit_test(auto_takes_the_largest_micro_batch_that_fits),
        cmocka_unit_test(rank_0_chooses_for_all),
        cmocka_unit_test(what_is_chosen_fits_the_rank_with_the_most_threads),
        cmocka_unit_test(what_auto_chose_survives_a_resume_with_other_memory),
        cmocka_unit_test(the_choice_of_auto_changes_if_the_schedule_cannot_use_it),
        cmocka_unit_test(the_threads_of_a_rank_may_change_at_any_step),
        cmocka_unit_test(a_small_model_computes_on_one_thread_where_its_work_decides),
        cmocka_unit_test(mfu_is_the_models_flops_over_what_the_ranks_could_do),
        cmocka_unit_test(the_size_of_buckets_changes_no_bits),
        cmocka_unit_test(mfu_is_at_most_1_whatever_was_measured),
        cmocka_unit_test(ranks_that_would_cut_a_step_differently_do_not_start),
        cmocka_unit_test(the_rate_follows_its_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
