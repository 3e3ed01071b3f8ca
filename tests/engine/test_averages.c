/* Averages of weights (train.ema): how they follow the weights, that they are evaluated and sampled in their place, and
 * what has none. Evaluations in 16 bits read running moments, which are averages themselves, in fp32. */
#include "engine/checkpoint/reader.h"
#include "engine/plan/build/plan_build.h"
#include "engine/pretrained/export.h"
#include "engine/run/evaluate.h"
#include "engine/run/execution.h"
#include "engine/run/state_tensors.h"
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

static const struct engine_layout ALONE = { .data = 1, .pipeline = 1 };
static const struct engine_layout SHARDED = { .data = 2, .pipeline = 1, .zero = 3 };

static int notices_of(const struct trainee_result *r, const char *kind) {
    int n = 0;
    for (int i = 0; i < r->notices; i++)
        n += strcmp(r->notice[i], kind) == 0;
    return n;
}

/* A tensor of a checkpoint, whole. */
static float *tensor_of(const char *directory, int step, const char *name, int64_t n) {
    char path[400];
    struct checkpoint_reader *reader;
    struct err e;
    snprintf(path, sizeof path, "%s/step-%d", directory, step);
    if (checkpoint_reader_open(path, NULL, &reader, &e) != ST_OK)
        fail_msg("%s", e.msg);
    float *data = malloc((size_t)n * sizeof *data);
    if (checkpoint_reader_read(reader, name, 0, n, data, &e) != ST_OK)
        fail_msg("%s", e.msg);
    checkpoint_reader_close(reader);
    return data;
}

/* average = decay average + (1 - decay) weights: recomputed here from the last checkpoints of runs of 1, 2, ... steps,
 * which have their steps in common; alike in one rank and in shards, and through bf16's masters. */
static void averages_follow_the_weights(void **state) {
    (void)state;
    enum { N = 32 * 96, STEPS = 4 };
    static const char NAME[] = "transformer.h.0.attn.c_attn.weight",
                      AVERAGE[] = "ema.transformer.h.0.attn.c_attn.weight";
    const double decay = 0.75;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct trainee *t = trainee_new();
        float *weights[STEPS + 1], *average[STEPS + 1];
        char middle[sizeof t->resume];
        t->config.train.precision = bf16 ? ENGINE_BF16 : ENGINE_FP32;
        t->config.train.ema.decay = decay;
        t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
        t->config.train.schedule.kind = &rate_constant;
        t->config.train.schedule.warmup_steps = 0;
        for (int s = 1; s <= STEPS; s++) {
            char name[32];
            snprintf(name, sizeof name, "alone-%d", s);
            t->config.train.steps = s;
            run(t, name, ALONE);
            weights[s] = tensor_of(t->directory, s, NAME, N);
            average[s] = tensor_of(t->directory, s, AVERAGE, N);
            for (int i = 0; s > 1 && i < N; i++) {
                double want = decay * (double)average[s - 1][i] + (1 - decay) * (double)weights[s][i];
                assert_true(fabs((double)average[s][i] - want) <= 1e-6 * fabs(want) + 1e-9);
            }
            if (s == 2)
                snprintf(middle, sizeof middle, "%.200s/step-2", t->directory);
        }
        memcpy(t->resume, middle, sizeof middle);
        run(t, "sharded", SHARDED);
        float *sharded = tensor_of(t->directory, STEPS, AVERAGE, N);
        assert_memory_equal(sharded, average[STEPS], N * sizeof *sharded);
        free(sharded);
        for (int s = 1; s <= STEPS; s++)
            free(weights[s]), free(average[s]);
        trainee_free(t);
    }
}

/* With constant weights, the average equals the weights. */
static void an_average_begins_as_the_weights(void **state) {
    (void)state;
    enum { N = 40 };
    struct trainee *t = trainee_new();
    t->config.train.ema.decay = 0.9;
    t->config.train.optimizer.adamw.lr = 0;
    t->config.train.schedule.min_lr = 0;
    run(t, "alone", ALONE);
    float *weights = tensor_of(t->directory, 4, "transformer.wte.weight", N),
          *average = tensor_of(t->directory, 4, "ema.transformer.wte.weight", N);
    for (int i = 0; i < N; i++)
        assert_true(fabs((double)weights[i] - (double)average[i]) <= 1e-6 * fabs((double)weights[i]));
    free(weights), free(average);
    trainee_free(t);
}

static void use_every_step(struct trainee *t) {
    t->config.train.steps = 8;
    t->config.train.ema.decay = 0.75;
    t->config.train.ema.evaluate = true;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->every_other = true;
}

/* The evaluation of the averages is that of a model that begins with them as its weights, the shards of a checkpoint
 * report it, and it changes nothing. Every layout gives the same bits. */
static void averages_are_evaluated_in_place_of_the_weights(void **state) {
    (void)state;
    static const struct engine_layout layouts[] = { { .data = 2, .zero = 1 },
                                                    { .data = 2, .zero = 2 },
                                                    { .data = 2, .zero = 3 },
                                                    { .pipeline = 2 },
                                                    { .data = 2, .pipeline = 2, .zero = 1 } };
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct trainee *t = trainee_new();
        char step[400], folder[400];
        t->config.train.precision = bf16 ? ENGINE_BF16 : ENGINE_FP32;
        use_every_step(t);
        t->config.train.ema.evaluate = false;
        run(t, "unevaluated", ALONE);
        const struct trainee_result plain = t->results[0];
        assert_true(plain.average_loss[8] == 0 && plain.shard_loss == plain.weights_loss[8]);
        t->config.train.ema.evaluate = true;
        run(t, "alone", ALONE);
        const struct trainee_result want = t->results[0];
        assert_memory_equal(want.step_sha256, plain.step_sha256, sizeof want.step_sha256);
        assert_memory_equal(want.weights_loss, plain.weights_loss, sizeof want.weights_loss);
        assert_true(want.average_loss[8] > 0 && want.average_loss[8] != want.weights_loss[8]);
        assert_true(want.shard_loss == want.average_loss[8]);
        snprintf(step, sizeof step, "%.200s/step-8", t->directory);
        snprintf(folder, sizeof folder, "%.200s-exported", t->directory);
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            run(t, "layout", layouts[i]);
            assert_memory_equal(t->results[0].average_loss, want.average_loss, sizeof want.average_loss);
            assert_memory_equal(t->results[0].step_sha256, want.step_sha256, sizeof want.step_sha256);
        }
        struct export_result done;
        struct err e = { "" };
        if (pretrained_export(step, folder, &(struct export_options){ .average = true }, &done, &e) != ST_OK)
            fail_msg("%s", e.msg);
        t->config.train.init_from = folder;
        t->config.train.steps = 1;
        t->config.train.optimizer.adamw.lr = t->config.train.schedule.min_lr = 0;
        t->config.train.schedule.warmup_steps = 0;
        run(t, "averages", ALONE);
        assert_true(t->results[0].weights_loss[1] == want.average_loss[8]);
        trainee_free(t);
    }
}

/* The running moments of batch norm serve both. */
static void averages_have_the_same_reports_as_the_weights(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    trainee_images(t);
    t->config.model = (struct model_config){ .kind = &model_resnet,
                                             .resnet = { .layers = 18, .classes = 4, .width = 8 } };
    use_every_step(t);
    run(t, "alone", ALONE);
    const struct trainee_result want = t->results[0];
    assert_true(want.average_accuracy > 0 && want.average_loss[8] > 0);
    run(t, "sharded", SHARDED);
    assert_true(t->results[0].average_accuracy == want.average_accuracy);
    assert_memory_equal(t->results[0].average_loss, want.average_loss, sizeof want.average_loss);
    trainee_free(t);
}

/* Fills the 16-bit copies of running moments with what is no number, which only the next STEP would mend, and evaluates
 * again: an evaluation reads the moments in fp32. */
static void evaluate_without_16_bit_moments(struct trainee_child *c, int64_t step) {
    if (step != 8 || !c->engine)
        return;
    struct engine *engine = c->engine;
    const struct plan *plan = engine->evaluate;
    const struct kernels *k = engine->kernels;
    struct err e = { "" };
    for (int i = 0; i < plan->n_shards; i++)
        if (plan->graph->parameters[plan->shards[i].parameter].kind == PARAMETER_STATISTIC)
            memset(execution_at(&engine->execution, plan_weight_place(plan, &plan->shards[i])), 0xff,
                   (size_t)plan->shards[i].count * kernels_element_bytes(k));
    for (int i = 0; i < plan->graph->n_parameters && plan->layout.zero < 3; i++)
        if (plan->graph->parameters[i].kind == PARAMETER_STATISTIC && plan->parameter_begin[i] >= 0)
            memset(execution_at(&engine->execution, plan_parameter_place(plan, i)), 0xff,
                   (size_t)shape_elements(&plan->graph->parameters[i].shape) * kernels_element_bytes(k));
    if (evaluate(engine, &e) != ST_OK)
        abort();
    c->result->average_loss[8] = engine->training.weights.loss;
}

static void an_evaluation_in_16_bits_reads_running_moments_in_fp32(void **state) {
    (void)state;
    static const struct engine_layout layouts[] = { { .data = 1 },
                                                    { .data = 2 },
                                                    { .data = 2, .zero = 1 },
                                                    { .data = 2, .zero = 2 },
                                                    { .data = 2, .zero = 3 },
                                                    { .data = 2, .pipeline = 2, .zero = 1 } };
    struct trainee *t = trainee_new();
    double want = 0;
    trainee_images(t);
    t->config.model = (struct model_config){ .kind = &model_resnet,
                                             .resnet = { .layers = 18, .classes = 4, .width = 8 } };
    use_every_step(t);
    t->config.train.ema.decay = 0;
    t->config.train.precision = ENGINE_BF16;
    t->ended = evaluate_without_16_bit_moments;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        run(t, "layout", layouts[i]);
        const struct trainee_result *r = &t->results[0];
        want = i ? want : r->weights_loss[8];
        assert_true(isfinite(want) && want > 0 && r->weights_loss[8] == want && r->average_loss[8] == want);
    }
    trainee_free(t);
}

static bool collect(void *ctx, const char *piece) {
    strncat(ctx, piece, 400 - strlen(ctx));
    return true;
}

/* directory: a checkpoint with averages; resume: of a model that has them as weights; text: one without averages. */
static int sample_main(struct gang *gang, int rank, struct collective *c) {
    (void)rank, (void)c;
    struct trainee *t = gang->arg;
    char text[3][512] = { "", "", "" };
    const char *from[] = { t->directory, t->directory, t->resume };
    struct engine_sample_request request = {
        .prompt = "seven", .tokens = 40, .temperature = 0, .threads = 1, .write = collect
    };
    struct err e = { "" };
    for (int i = 0; i < 3; i++) {
        request.ctx = text[i];
        request.directory = from[i];
        request.average = i == 1;
        if (engine_sample(&request, &e) != ST_OK)
            return 1;
    }
    if (strlen(text[1]) != 40 || strcmp(text[0], text[1]) == 0 || strcmp(text[1], text[2]) != 0)
        return 2;
    request.average = true;
    return engine_sample(&request, &e) == ST_FAILED_PRECONDITION && strstr(e.msg, "without train.ema") ? 0 : 3;
}

static void a_sample_of_the_averages_is_one_of_a_model_with_these_weights(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    char step[sizeof t->directory], folder[400];
    t->config.train.steps = 30;
    t->config.train.ema.decay = 0.97;
    run(t, "alone", ALONE);
    snprintf(step, sizeof step, "%.200s/step-30", t->directory);
    snprintf(folder, sizeof folder, "%.200s-exported", t->directory);
    struct export_result done;
    struct err e = { "" };
    if (pretrained_export(step, folder, &(struct export_options){ .average = true }, &done, &e) != ST_OK)
        fail_msg("%s", e.msg);
    t->config.train.init_from = folder;
    t->config.train.steps = 1;
    t->config.train.ema.decay = 0;
    t->config.train.optimizer.adamw.lr = t->config.train.schedule.min_lr = 0;
    t->config.train.schedule.warmup_steps = 0;
    run(t, "averages", ALONE);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-1", t->directory);
    memcpy(t->directory, step, sizeof step);
    struct gang *g = gang_start(1, 60000, sample_main, t);
    int status = gang_await(g, 0);
    gang_free(g);
    assert_int_equal(status, 0);
    trainee_free(t);
}

static void an_average_that_the_checkpoint_has_none_of_begins_as_its_weights(void **state) {
    (void)state;
    enum { N = 40 };
    struct trainee *t = trainee_new();
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    run(t, "parent", ALONE);
    float *begun = tensor_of(t->directory, 4, "transformer.wte.weight", N);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-4", t->directory);
    t->config.train.ema.decay = 0.75;
    t->config.train.steps = 5;
    run(t, "fork", SHARDED);
    assert_int_equal(notices_of(&t->results[0], "average_started"), 1);
    float *weights = tensor_of(t->directory, 5, "transformer.wte.weight", N),
          *average = tensor_of(t->directory, 5, "ema.transformer.wte.weight", N);
    for (int i = 0; i < N; i++)
        assert_true(fabs(0.75 * (double)begun[i] + 0.25 * (double)weights[i] - (double)average[i]) <= 1e-6);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-5", t->directory);
    t->config.train.steps = 6;
    run(t, "resumed", ALONE);
    assert_int_equal(notices_of(&t->results[0], "average_started"), 0);
    free(begun), free(weights), free(average);
    trainee_free(t);
}

/* Batch norm's running moments are averages already, so a checkpoint has no average of them. */
static void only_what_is_trained_is_averaged(void **state) {
    (void)state;
    struct model_config model = { .kind = &model_resnet, .resnet = { .layers = 18, .classes = 4, .width = 16 } };
    const struct model_data data = { .classes = 4, .channels = 1, .height = 16, .width = 16 };
    struct graph *graph = NULL;
    struct plan *plan = NULL;
    struct err e = { "" };
    const struct plan_layout layout = { .kind = PLAN_TRAIN,
                                        .lanes = 1,
                                        .micro_batches = 1,
                                        .bucket_bytes = 1 << 20,
                                        .optimizer = &optimizer_adamw,
                                        .ema = true };
    assert_int_equal(model_resolve(&model, &data, &e), ST_OK);
    assert_int_equal(model_build(&model, &data, 2, DTYPE_F32, &graph, &e), ST_OK);
    assert_int_equal(plan_build(graph, &layout, &plan, &e), ST_OK);
    struct state_tensors *s = state_tensors_new(plan);
    int weights = 0, averages = 0, statistics = 0;
    for (int i = 0; i < graph->n_parameters; i++)
        *(graph->parameters[i].kind == PARAMETER_WEIGHT ? &weights : &statistics) += 1;
    for (int t = 0; t < s->n; t++)
        if (s->of[t].kind == STATE_AVERAGE) {
            averages++;
            for (int k = 0; k < plan->n_shards; k++)
                assert_true(plan->shards[k].parameter != s->of[t].parameter || plan->shards[k].ema != SIZE_MAX);
        }
    assert_true(statistics > 0);
    assert_int_equal(averages, weights);
    state_tensors_free(s);
    plan_free(plan);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_follow_the_weights),
        cmocka_unit_test(an_average_begins_as_the_weights),
        cmocka_unit_test(averages_are_evaluated_in_place_of_the_weights),
        cmocka_unit_test(averages_have_the_same_reports_as_the_weights),
        cmocka_unit_test(an_evaluation_in_16_bits_reads_running_moments_in_fp32),
        cmocka_unit_test(a_sample_of_the_averages_is_one_of_a_model_with_these_weights),
        cmocka_unit_test(an_average_that_the_checkpoint_has_none_of_begins_as_its_weights),
        cmocka_unit_test(only_what_is_trained_is_averaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
