/* The engine accesses its device's memory only through the table of kernels, and waits for its calls only at the places
 * that it documents. On the fake device (fake_device.h), where any other access ends the process and calls run as late
 * as possible, it trains to the same bits. Each step is captured once and launched again. */
#include "engine/data/loader.h"
#include "engine/run/execute.h"
#include "engine/run/staging_buffers.h"
#include "tests/engine/fake_device.h"
#include "tests/engine/trainee.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char *run(struct trainee *t, const char *name) {
    trainee_fresh_directory(t, name);
    if (trainee_run(t) != 0)
        fail_msg("%s: the rank died", name);
    if (t->results[0].status != ST_OK || t->results[0].outcome != ENGINE_FINISHED)
        fail_msg("%s: %s", name, t->results[0].message);
    return t->results[0].weights_sha256;
}

/* Four steps in host memory; the same in device memory; and there again, resumed after the second. */
static void trains_alike(struct trainee *t) {
    struct trainee_result host;
    t->every_other = true;
    t->config.gradients_every = 1;
    run(t, "host");
    host = t->results[0];
    t->config.device = FAKE_DEVICE_DEVICE;
    assert_string_equal(run(t, "device"), host.weights_sha256);
    for (int step = 1; step <= 4; step++) {
        assert_true(t->results[0].loss[step] == host.loss[step]);
        assert_true(t->results[0].grad_norm[step] == host.grad_norm[step]);
        assert_true(t->results[0].squares[step] == host.squares[step]);
    }
    assert_true(t->results[0].validation_loss == host.validation_loss);
    assert_true(t->results[0].accuracy == host.accuracy);
    snprintf(t->resume, sizeof t->resume, "%.200s/step-2", t->directory);
    assert_string_equal(run(t, "resumed"), host.weights_sha256);
    assert_int_equal(t->results[0].from_step, 2);
    trainee_free(t);
}

static void a_gpt_in_bf16_by_muon_with_an_average_trains_on_memory_that_the_host_cannot_touch(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.train.precision = ENGINE_BF16;
    t->config.train.ema.decay = 0.75;
    t->config.train.optimizer = (struct optimizer_config){
        .kind = &optimizer_muon,
        .muon = { .lr = 1e-2,
                  .momentum = 0.95,
                  .iterations = 3,
                  .adamw = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1 } }
    };
    trains_alike(t);
}

static void a_resnet_with_its_statistics_trains_on_memory_that_the_host_cannot_touch(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.model = (struct model_config){ .kind = &model_resnet, .resnet = { .layers = 18, .width = 8 } };
    trainee_images(t);
    trains_alike(t);
}

/* The first step ends after the second has begun, so the time of a step is known from the third on. The instructions
 * after each LOAD are launched separately. */
enum { MANY = 20, WALKED = 2, LOADS = 8 };

/* Twenty steps without a boundary between them, so that each begins before the previous result is known. Each has new
 * batches, dropout masks, rates and gradients. */
static struct trainee *trainee_of_many(void) {
    struct trainee *t = trainee_new();
    t->config.train.steps = MANY;
    t->config.train.eval.every = 0;
    return t;
}

/* After an overflow the norm is not a number. */
static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void runs_alike(struct trainee *t, int launches) {
    run(t, "host");
    const struct trainee_result host = t->results[0];
    t->config.device = FAKE_DEVICE_DEVICE;
    assert_string_equal(run(t, "device"), host.weights_sha256);
    for (int step = 1; step <= t->config.train.steps; step++) {
        assert_int_equal(t->results[0].rows[step], 1);
        assert_true(t->results[0].loss[step] == host.loss[step]);
        assert_true(same(t->results[0].grad_norm[step], host.grad_norm[step]));
        assert_true(t->results[0].loss_scale[step] == host.loss_scale[step]);
        assert_true(t->results[0].skipped[step] == host.skipped[step]);
    }
    assert_true(t->results[0].validation_loss == host.validation_loss);
    assert_int_equal(fake_device_launches(), launches);
}

static void a_step_that_is_launched_again_has_the_bits_of_one_that_is_called(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    runs_alike(t, (MANY - WALKED) * LOADS);
    assert_int_equal(t->results[0].notices, 0);
    trainee_free(t);
}

/* With one micro-batch, uploads ahead run during the whole previous step. */
static struct trainee *trainee_of_one_load(void) {
    struct trainee *t = trainee_of_many();
    t->config.train.micro_batch = t->config.train.global_batch;
    t->config.train.lanes = 1;
    return t;
}

static void a_step_of_one_micro_batch_has_the_same_bits_too(void **state) {
    (void)state;
    struct trainee *t = trainee_of_one_load();
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    runs_alike(t, MANY - WALKED);
    trainee_free(t);
}

/* Tokens and targets are in pinned memory in each place of the loader's ring. The rounds of an evaluation alone copy
 * them; as many rounds are in flight as steps. */
static void batches_are_uploaded_from_where_the_loader_makes_them(void **state) {
    (void)state;
    for (int one = 0; one < 2; one++) {
        struct trainee *t = one ? trainee_of_one_load() : trainee_of_many();
        const int ring = LOADER_AHEAD + CONTROL_STEPS * (one ? 1 : LOADS);
        const int copies = CONTROL_STEPS * (one ? 1 : CONTROL_STAGED);
        t->config.device = FAKE_DEVICE_DEVICE;
        fake_device_reset(FAKE_DEVICE_CAPTURES);
        run(t, "device");
        assert_int_equal(fake_device_sources(), 2 * (ring + copies));
        trainee_free(t);
    }
}

/* No transfer of a run uses memory that the driver would have to copy first. */
static void checkpoints_come_into_memory_that_the_device_writes_by_itself(void **state) {
    (void)state;
    struct trainee *t = trainee_of_one_load();
    t->every_other = true;
    t->config.device = FAKE_DEVICE_DEVICE;
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    run(t, "device");
    assert_int_equal(fake_device_downloaded_elsewhere(), 0);
    trainee_free(t);
}

/* A device that pins no memory gives the same checkpoints; it is reported once. */
static void a_system_that_pins_little_memory_has_slow_checkpoints_and_reports_it(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->every_other = true;
    run(t, "host");
    const struct trainee_result host = t->results[0];
    t->config.device = FAKE_DEVICE_DEVICE;
    fake_device_reset(FAKE_DEVICE_PINS_LITTLE);
    assert_string_equal(run(t, "device"), host.weights_sha256);
    assert_true(fake_device_downloaded_elsewhere() > FAKE_DEVICE_MAX_PINNED);
    assert_int_equal(t->results[0].notices, 1);
    assert_string_equal(t->results[0].notice[0], "snapshot_slow");
    trainee_free(t);
}

/* A failed snapshot leaves downloads that no caller has waited for. */
static void a_run_that_ends_in_a_snapshot_keeps_its_memory_until_the_device_has_written_it(void **state) {
    (void)state;
    struct trainee *t = trainee_of_one_load();
    t->every_other = true;
    t->config.device = FAKE_DEVICE_DEVICE;
    fake_device_reset(FAKE_DEVICE_LOSES_ONE);
    trainee_fresh_directory(t, "lost");
    assert_int_equal(trainee_run(t), 0);
    assert_int_equal(t->results[0].status, ST_INTERNAL);
    assert_non_null(strstr(t->results[0].message, "this device lost a download"));
    trainee_free(t);
}

static void count(void *ctx) { (*(int *)ctx)++; }

static void pinned_memory_is_allocated_in_parts_with_progress_after_each(void **state) {
    (void)state;
    enum { ROOM = FAKE_DEVICE_MAX_PINNED, N = 6 };
    static const size_t BYTES[N] = { ROOM / 2, ROOM / 2, 4, 2 * ROOM, 0, ROOM };
    const struct kernels_config config = { .device = "cuda", .ordinal = FAKE_DEVICE_ORDINAL, .threads = 1 };
    struct kernels *k = NULL;
    assert_int_equal(kernels_open(&config, &k, NULL), ST_OK);
    for (int little = 0; little < 2; little++) {
        struct staging_buffers *rooms = NULL;
        struct err e;
        void *data[N];
        int signs = 0;
        fake_device_reset(little ? FAKE_DEVICE_PINS_LITTLE : FAKE_DEVICE_CAPTURES);
        assert_int_equal(staging_buffers_new(k, BYTES, N, ROOM, count, &signs, data, &rooms, &e), ST_OK);
        assert_int_equal(signs, 4);
        assert_int_equal(staging_buffers_bytes(rooms), 4 * ROOM + 64);
        assert_int_equal(staging_buffers_unpinned_bytes(rooms), little ? 3 * ROOM : 0);
        for (int i = 0; i < N; i++) {
            assert_int_equal((uintptr_t)data[i] % 64, 0);
            for (size_t b = 0; b < BYTES[i]; b++)
                assert_int_equal(((const char *)data[i])[b], 0);
        }
        rooms = staging_buffers_free(rooms);
        assert_null(rooms);
    }
    kernels_close(k);
}

/* A step is under way, and its batches are not all uploaded. */
static void a_run_that_ends_in_its_data_keeps_batches_until_the_device_has_them(void **state) {
    (void)state;
    enum { TOKENS = 20000, VOCABULARY = 50, WRONG_EACH = 2000 };
    struct trainee *t = trainee_of_one_load();
    static uint16_t tokens[TOKENS];
    const char *files[] = { t->text };
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = i % WRONG_EACH == WRONG_EACH / 2 ? VOCABULARY : (uint16_t)(i % VOCABULARY);
    FILE *f = fopen(t->text, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(tokens, sizeof *tokens, TOKENS, f), TOKENS);
    assert_int_equal(fclose(f), 0);
    t->config.model.gpt.vocabulary = VOCABULARY;
    t->config.data = (struct data_config){ .kind = &data_tokens, .tokens = { .train = files, .n_train = 1 } };
    t->config.device = FAKE_DEVICE_DEVICE;
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    trainee_fresh_directory(t, "wrong");
    assert_int_equal(trainee_run(t), 0);
    assert_int_equal(t->results[0].status, ST_INVALID_ARGUMENT);
    assert_non_null(strstr(t->results[0].message, "has the token 50 at byte"));
    assert_true(t->results[0].step >= WALKED);
    trainee_free(t);
}

/* Proves that the tests above can fail: a device without one of the waits computes other bits. */
static void calls_and_what_is_uploaded_ahead_wait_for_each_other(void **state) {
    (void)state;
    static const enum fake_device_capture WITHOUT[] = { FAKE_DEVICE_AWAITS_NOTHING, FAKE_DEVICE_RELEASES_AT_ONCE };
    for (int one = 0; one < 2; one++) {
        struct trainee *t = one ? trainee_of_one_load() : trainee_of_many();
        run(t, "host");
        const struct trainee_result host = t->results[0];
        t->config.device = FAKE_DEVICE_DEVICE;
        for (int i = 0; i < 2; i++) {
            fake_device_reset(WITHOUT[i]);
            assert_string_not_equal(run(t, "device"), host.weights_sha256);
        }
        trainee_free(t);
    }
}

static void a_device_without_capture_runs_the_calls_and_reports_it_once(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    fake_device_reset(FAKE_DEVICE_REFUSES);
    runs_alike(t, 0);
    assert_int_equal(t->results[0].notices, 1);
    assert_string_equal(t->results[0].notice[0], "graph_refused");
    trainee_free(t);
}

/* A launch of half a minute would look like a hang, because it reports no progress. */
static void only_a_step_that_is_known_to_be_short_is_launched(void **state) {
    (void)state;
    static const struct kernels DEFERRED = { .deferred = true };
    static const struct plan TRAIN = { .layout = { .kind = PLAN_TRAIN } };
    struct execution x = { .kernels = &DEFERRED, .capture.shapes_known = true };
    assert_false(execute_can_launch(&x, &TRAIN));
    x.step_ns = 1000000000;
    assert_true(execute_can_launch(&x, &TRAIN));
    x.step_ns = 10000000000;
    assert_false(execute_can_launch(&x, &TRAIN));
}

static void overflows_are_skipped_and_the_scale_follows_on_the_device_alone(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    t->config.train.precision = ENGINE_FP16;
    t->config.train.loss_scale.initial = 0x1p24;
    t->config.train.loss_scale.growth_interval = 4;
    runs_alike(t, (MANY - WALKED) * LOADS);
    assert_true(t->results[0].skipped[MANY] >= 1 && t->results[0].skipped[MANY] < MANY / 2);
    trainee_free(t);
}

static void the_device_detects_spikes_from_its_own_window(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    t->config.train.steps = 30;
    t->config.train.skip_spikes.z_score = 0.5;
    t->config.train.skip_spikes.window = 10;
    t->config.train.optimizer.adamw.lr = 3e-2;
    runs_alike(t, (30 - WALKED) * LOADS);
    assert_true(t->results[0].skipped[30] >= 1);
    trainee_free(t);
}

/* A stop is noticed after the next step has begun: that step is the last one, and it is complete. */
static void a_run_that_was_stopped_on_a_device_resumes_to_the_same_bits(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    run(t, "host");
    const struct trainee_result host = t->results[0];
    t->config.device = FAKE_DEVICE_DEVICE;
    t->stop_step = 7;
    trainee_fresh_directory(t, "stopped");
    assert_int_equal(trainee_run(t), 0);
    assert_int_equal(t->results[0].outcome, ENGINE_STOPPED);
    const int64_t step = t->results[0].step;
    assert_true(step > 7 && step <= 10);
    for (int s = 1; s <= step; s++)
        assert_true(t->results[0].rows[s] == 1 && t->results[0].loss[s] == host.loss[s]);
    t->stop_step = 0;
    snprintf(t->resume, sizeof t->resume, "%.200s/step-%d", t->directory, (int)step);
    assert_string_equal(run(t, "resumed"), host.weights_sha256);
    assert_int_equal(t->results[0].from_step, step);
    trainee_free(t);
}

/* --- profiles and tools --- */

static json_t *trace_of(const char *directory) {
    char path[400];
    json_error_t why;
    snprintf(path, sizeof path, "%s/rank-0.json", directory);
    json_t *root = json_load_file(path, 0, &why);
    if (!root)
        fail_msg("%s: %s", path, why.text);
    return root;
}

static double number_of(const json_t *event, const char *key) { return json_number_value(json_object_get(event, key)); }

/* The device's times of the steps: they follow each other without a gap, and each is as long as its calls. */
static void check_device_times(const json_t *events, int steps) {
    double end = 0, begin = 0;
    int begun = 0, compute = 0, calls = 0, products = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        const double at = number_of(event, "ts"), us = number_of(event, "dur"), call = FAKE_DEVICE_CALL_NS / 1e3;
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        const long lane = (long)json_integer_value(json_object_get(event, "tid"));
        if (*phase == 'i')
            begin = at;
        if (*phase != 'X' || (lane != 0 && lane != 6))
            continue;
        calls += lane == 6;
        compute += lane == 0;
        if (lane != 0)
            continue;
        assert_true(fabs(us / call - round(us / call)) < 1e-9);
        if (strstr(name, "FORWARD") && strstr(name, "mlp.c_fc"))
            products += fabs(us - call) < 1e-9;
        if (fabs(at - end) > 1e-2) {
            begun++;
            assert_true(at >= begin);
        }
        end = at + us;
    }
    assert_int_equal(begun, steps);
    assert_true(calls > 100);
    assert_int_equal(calls, compute);
    assert_true(products >= 2 * steps);
}

/* Each call is a kernel of one millisecond, so an instruction's time is that of its kernels. */
static void check_kernels(const json_t *events) {
    double compute = 0, kernels = 0;
    int unknown = 0, products = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *operation = json_string_value(json_object_get(json_object_get(event, "args"), "operation"));
        const long lane = (long)json_integer_value(json_object_get(event, "tid"));
        if (*phase != 'X')
            continue;
        compute += lane == 0 ? number_of(event, "dur") : 0;
        if (lane != 107)
            continue;
        kernels += operation ? number_of(event, "dur") : 0;
        unknown += !operation;
        products += operation && strcmp(operation, "FORWARD h.1.mlp.c_fc") == 0 &&
                    strcmp(name, "linear_forward\"\\\t") == 0;
    }
    assert_true(fabs(kernels - compute) < 1e-3 && compute > 0);
    assert_true(products >= 3 && unknown >= 3); /* uploads at the start of a step belong to no instruction */
}

/* The rows contain all of the device time. */
static void check_kernel_columns(const char *text) {
    char operation[64];
    double share, device, kernels;
    int rows = 0;
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (sscanf(line, " %lf%% %lf %lf %*f %*d %*f %*f %63s", &share, &device, &kernels, operation) == 4) {
            assert_true(device == kernels);
            rows++;
        }
    assert_true(rows > 10);
    assert_non_null(strstr(text, "kernels ms"));
    assert_non_null(strstr(text, "linear_forward\"\\\t: FORWARD linear "));
    assert_non_null(strstr(text, "upload\"\\\t: unknown\n"));
    assert_non_null(strstr(text, "3 more were lost\n"));
}

static void a_profiled_step_waits_once_and_each_instruction_has_its_own_time(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    static char folder[300];
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    t->config.device = FAKE_DEVICE_DEVICE;
    run(t, "device");
    const struct trainee_result plain = t->results[0];
    const int finishes = fake_device_finishes();
    snprintf(folder, sizeof folder, "%s.profile", t->text);
    t->config.profile = (struct engine_profile){ .from = 4, .to = 6, .directory = folder };
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    assert_string_equal(run(t, "profiled"), plain.weights_sha256);
    assert_int_equal(fake_device_finishes(), finishes + 3);
    assert_int_equal(t->results[0].notices, 0);
    json_t *root = trace_of(folder);
    check_device_times(json_object_get(root, "traceEvents"), 3);
    check_kernels(json_object_get(root, "traceEvents"));
    json_decref(root);
    char path[400];
    struct bytes text;
    snprintf(path, sizeof path, "%s/rank-0.txt", folder);
    bytes_init(&text, 1 << 20);
    assert_int_equal(file_read(path, &text, NULL), ST_OK);
    assert_non_null(strstr(text.data, "rank 0: 3 steps, "));
    assert_non_null(strstr(text.data, "the trace relates the device's clock to the host's with an error of at most "));
    check_kernel_columns(text.data);
    bytes_done(&text);
    trainee_free(t);
}

/* The last row holds the remaining kernels: shares are of all kernels. */
static void the_profile_lists_fifty_kernels_and_counts_the_rest(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    static char folder[300];
    char path[400];
    struct bytes text;
    t->config.device = FAKE_DEVICE_DEVICE;
    snprintf(folder, sizeof folder, "%s.many", t->text);
    t->config.profile = (struct engine_profile){ .from = 4, .to = 6, .directory = folder };
    fake_device_reset(FAKE_DEVICE_NAMES_MANY);
    run(t, "device");
    snprintf(path, sizeof path, "%s/rank-0.txt", folder);
    bytes_init(&text, 1 << 20);
    assert_int_equal(file_read(path, &text, NULL), ST_OK);
    const char *line = strstr(text.data, "kernel: operation\n");
    double share, ms, all = 0;
    int runs, told = 0, more = 0;
    char word[8];
    for (; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (sscanf(line, " %lf%% %lf %d %7s", &share, &ms, &runs, word) == 4) {
            all += share;
            if (strcmp(word, "more") == 0)
                more = runs;
            else
                told++;
        }
    assert_int_equal(told, 50);
    assert_true(more > 0);
    assert_true(fabs(all - 100) < 0.005 * (told + 1));
    bytes_done(&text);
    trainee_free(t);
}

static void without_a_trace_a_profile_has_no_kernels_and_names_the_reason(void **state) {
    (void)state;
    static const struct {
        enum fake_device_capture how;
        const char *why;
    } WITHOUT[] = { { FAKE_DEVICE_HAS_NO_TRACE, "this device traces nothing" },
                    { FAKE_DEVICE_TRACES_ONCE, "another has the device" } };
    for (int i = 0; i < 2; i++) {
        struct trainee *t = trainee_of_many();
        static char folder[300];
        char want[100], path[400];
        struct bytes text;
        t->config.device = FAKE_DEVICE_DEVICE;
        snprintf(folder, sizeof folder, "%s.untraced", t->text);
        t->config.profile = (struct engine_profile){ .from = 4, .to = 6, .directory = folder };
        fake_device_reset(WITHOUT[i].how);
        run(t, "device");
        assert_int_equal(t->results[0].notices, 1);
        assert_string_equal(t->results[0].notice[0], "profile_without_kernels");
        json_t *root = trace_of(folder);
        check_device_times(json_object_get(root, "traceEvents"), 3);
        json_decref(root);
        snprintf(path, sizeof path, "%s/rank-0.txt", folder);
        snprintf(want, sizeof want, "kernel names are missing: %s\n", WITHOUT[i].why);
        bytes_init(&text, 1 << 20);
        assert_int_equal(file_read(path, &text, NULL), ST_OK);
        assert_non_null(strstr(text.data, want));
        assert_null(strstr(text.data, "kernels and copies"));
        bytes_done(&text);
        trainee_free(t);
    }
}

static void a_device_whose_clock_fails_costs_the_profile_and_no_step(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    static char folder[300];
    run(t, "host");
    const struct trainee_result host = t->results[0];
    snprintf(folder, sizeof folder, "%s.clockless", t->text);
    t->config.device = FAKE_DEVICE_DEVICE;
    t->config.profile = (struct engine_profile){ .from = 4, .to = 6, .directory = folder };
    fake_device_reset(FAKE_DEVICE_HAS_NO_CLOCK);
    assert_string_equal(run(t, "device"), host.weights_sha256);
    assert_int_equal(t->results[0].notices, 1);
    assert_string_equal(t->results[0].notice[0], "profile_failed");
    assert_int_equal(access(folder, F_OK), -1);
    trainee_free(t);
}

static void calls_are_named_after_their_step_and_op_and_launches_after_their_step(void **state) {
    (void)state;
    struct trainee *t = trainee_of_many();
    t->config.device = FAKE_DEVICE_DEVICE;
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    run(t, "device");
    const char *ranges = fake_device_ranges();
    assert_int_equal(strncmp(ranges, "step 1{LOAD{}FORWARD ", 21), 0);
    assert_non_null(strstr(ranges, "}FORWARD h.1.mlp.c_fc{}"));
    assert_non_null(strstr(ranges, "}STEP{}}step 2{LOAD{}"));
    assert_non_null(strstr(ranges, "}step 10{LOAD{}LOAD{}"));
    assert_non_null(strstr(ranges, "}evaluation{LOAD{}"));
    int depth = 0;
    for (const char *c = ranges; *c; c++) {
        depth += (*c == '{') - (*c == '}');
        assert_true(depth >= 0 && depth <= 2);
    }
    assert_int_equal(depth, 0);
    trainee_free(t);
}

/* With an extreme learning rate, the step that overflows is repeated and each of its tensors is checked. The next step
 * had already begun. */
static void the_first_op_to_blame_is_found_on_memory_that_the_host_cannot_touch(void **state) {
    (void)state;
    char on_host[480];
    struct trainee *t = trainee_new();
    t->config.train.optimizer.adamw.lr = 1e30;
    t->config.train.eval.every = 0;
    t->config.train.schedule.kind = &rate_constant;
    trainee_run(t);
    assert_int_equal(t->results[0].outcome, ENGINE_NUMERIC);
    assert_non_null(strstr(t->results[0].message, "the first op to blame is "));
    assert_null(strstr(t->results[0].message, "unknown"));
    memcpy(on_host, t->results[0].message, sizeof on_host);
    t->config.device = FAKE_DEVICE_DEVICE;
    trainee_fresh_directory(t, "device");
    trainee_run(t);
    assert_string_equal(t->results[0].message, on_host);
    trainee_free(t);
}

/* The product of mfu, seconds and peak is the same as if the caller had measured it. */
static void mfu_uses_the_devices_peak_and_is_omitted_without_one(void **state) {
    (void)state;
    struct trainee *t = trainee_new();
    t->config.peak_flops = FAKE_DEVICE_PEAK;
    run(t, "host");
    const double flops = t->results[0].mfu[2] * t->results[0].seconds[2];
    t->config.peak_flops = 0;
    t->config.device = FAKE_DEVICE_DEVICE;
    fake_device_reset(FAKE_DEVICE_CAPTURES);
    run(t, "device");
    assert_true(flops > 0 && fabs(t->results[0].mfu[2] * t->results[0].seconds[2] - flops) < 1e-6 * flops);
    assert_int_equal(t->results[0].notices, 0);
    fake_device_reset(FAKE_DEVICE_HAS_NO_PEAK);
    run(t, "unknown");
    assert_true(t->results[0].mfu[2] == 0);
    assert_int_equal(t->results[0].notices, 1);
    assert_string_equal(t->results[0].notice[0], "mfu_unknown");
    trainee_free(t);
}

static void an_access_to_device_memory_ends_the_process(void **state) {
    (void)state;
    for (int touch = 0; touch <= 1; touch++) {
        const pid_t child = fork();
        if (child == 0) {
            const struct kernels_config config = { .device = "cuda", .ordinal = FAKE_DEVICE_ORDINAL, .threads = 1 };
            struct kernels *k = NULL;
            void *p = NULL;
            float number = 0;
            if (kernels_open(&config, &k, NULL) != ST_OK || k->memory_new(k, sizeof number, &p, NULL) != ST_OK ||
                k->fill(k, p, 2, 1, NULL) != ST_OK || k->download(k, &number, p, sizeof number, NULL) != ST_OK ||
                number != 0 || k->finish(k, NULL) != ST_OK)
                _exit(1);
            if (touch)
                number = *(volatile float *)p;
            _exit(number == 2 ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WIFEXITED(status) && WEXITSTATUS(status) == 0, !touch);
    }
}

/* The settings that CUDA reads once are made before the kernels are opened, although this build has none. */
static const char *loading_of(struct engine_layout layout) {
    struct trainee *t = trainee_new();
    struct collective *gang[2];
    struct engine *engine = NULL;
    struct err e;
    unsetenv("CUDA_MODULE_LOADING");
    t->config.device = "cuda:7";
    t->config.layout = layout;
    assert_int_equal(collective_open_threads(2, 1000, gang, &e), ST_OK);
    assert_int_equal(engine_open(&t->config, gang[0], NULL, &engine, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "device 7 is not the one");
    for (int r = 0; r < 2; r++)
        collective_close(gang[r]);
    trainee_free(t);
    return getenv("CUDA_MODULE_LOADING");
}

static void the_process_of_a_pipelines_rank_is_made_ready_before_its_device(void **state) {
    (void)state;
    assert_null(loading_of((struct engine_layout){ .data = 2, .pipeline = 1 }));
    assert_string_equal(loading_of((struct engine_layout){ .data = 1, .pipeline = 2 }), "EAGER");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_access_to_device_memory_ends_the_process),
        cmocka_unit_test(the_process_of_a_pipelines_rank_is_made_ready_before_its_device),
        cmocka_unit_test(a_gpt_in_bf16_by_muon_with_an_average_trains_on_memory_that_the_host_cannot_touch),
        cmocka_unit_test(a_resnet_with_its_statistics_trains_on_memory_that_the_host_cannot_touch),
        cmocka_unit_test(a_step_that_is_launched_again_has_the_bits_of_one_that_is_called),
        cmocka_unit_test(a_step_of_one_micro_batch_has_the_same_bits_too),
        cmocka_unit_test(batches_are_uploaded_from_where_the_loader_makes_them),
        cmocka_unit_test(checkpoints_come_into_memory_that_the_device_writes_by_itself),
        cmocka_unit_test(a_system_that_pins_little_memory_has_slow_checkpoints_and_reports_it),
        cmocka_unit_test(a_run_that_ends_in_a_snapshot_keeps_its_memory_until_the_device_has_written_it),
        cmocka_unit_test(pinned_memory_is_allocated_in_parts_with_progress_after_each),
        cmocka_unit_test(a_run_that_ends_in_its_data_keeps_batches_until_the_device_has_them),
        cmocka_unit_test(calls_and_what_is_uploaded_ahead_wait_for_each_other),
        cmocka_unit_test(a_device_without_capture_runs_the_calls_and_reports_it_once),
        cmocka_unit_test(only_a_step_that_is_known_to_be_short_is_launched),
        cmocka_unit_test(overflows_are_skipped_and_the_scale_follows_on_the_device_alone),
        cmocka_unit_test(the_device_detects_spikes_from_its_own_window),
        cmocka_unit_test(a_run_that_was_stopped_on_a_device_resumes_to_the_same_bits),
        cmocka_unit_test(a_profiled_step_waits_once_and_each_instruction_has_its_own_time),
        cmocka_unit_test(the_profile_lists_fifty_kernels_and_counts_the_rest),
        cmocka_unit_test(without_a_trace_a_profile_has_no_kernels_and_names_the_reason),
        cmocka_unit_test(a_device_whose_clock_fails_costs_the_profile_and_no_step),
        cmocka_unit_test(calls_are_named_after_their_step_and_op_and_launches_after_their_step),
        cmocka_unit_test(mfu_uses_the_devices_peak_and_is_omitted_without_one),
        cmocka_unit_test(the_first_op_to_blame_is_found_on_memory_that_the_host_cannot_touch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
