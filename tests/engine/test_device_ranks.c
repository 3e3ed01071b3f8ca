/* The whole engine over ranks on stand-in devices: threads of this process, with the CPU's kernels on streams that are
 * threads too (nccl/device.c), and NCCL between them (nccl/threads.c). Every layout has the bits of one rank on the
 * host, also if the device does nothing before the host waits for it, which happens once a step. The end of one rank
 * ends all, and no rank reports a step that was cut short. */
#include "engine/collective/internal.h"
#include "engine/collective/plugin.h"
#include "tests/engine/fake_device.h"
#include "tests/engine/nccl/device.h"
#include "tests/engine/trainee.h"
#include "tests/sanitized.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { STEPS = 4 };
#define DEVICE "cuda:3"

extern const struct collective_plugin collective_plugin;
status_t __wrap_kernels_plugin_cuda_symbol(const char *name, const void **ret, struct err *e);

status_t __wrap_kernels_plugin_cuda_symbol(const char *name, const void **ret, struct err *e) {
    *ret = &collective_plugin;
    return strcmp(name, COLLECTIVE_PLUGIN_NAME) == 0 ? ST_OK : err_set(e, ST_FAILED_PRECONDITION, "no %s here", name);
}

static_assert(sizeof(struct cuda) <= FAKE_DEVICE_TABLE_BYTES, "a device's own table fits");

static void feed(cudaStream_t stream, void *table) {
    void *calls = fake_device_take_calls(table);
    if (calls)
        device_queue(stream, fake_device_run_calls, calls);
}

/* The device has the clock of the host. */
static void look_at_clock(void *timer) { *(int64_t *)timer = clock_mono_ns(); }

static status_t timer_record(const struct kernels *k, void *timer, struct err *e) {
    (void)e;
    device_queue(cuda_of(k)->stream, look_at_clock, timer);
    return ST_OK;
}

/* cuBLASLt loads kernels at the first call of a product, cuDNN at the first run of a plan, and loading waits until the
 * device is idle. Here, the three directions of linear layers load, and a gradient of weights that is added to a buffer
 * counts as another product. */
enum { LOAD_FORWARD, LOAD_INPUT, LOAD_WEIGHT, LOAD_WEIGHT_ADDED, LOADS };
static bool loads;                       /* from now on */
static _Thread_local bool loaded[LOADS]; /* by this rank */
static struct kernels products;          /* the functions of the stand-in */

static void load(int which) {
    if (loads && !loaded[which])
        device_settle(device_mine());
    loaded[which] = true;
}

static status_t forward(const struct kernels *k, element_t *y, element_t *pre, const element_t *x, const element_t *w,
                        const element_t *bias, const struct linear_dims *d, struct err *e) {
    load(LOAD_FORWARD);
    return products.linear_forward(k, y, pre, x, w, bias, d, e);
}

static status_t backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                               const struct linear_dims *d, bool accumulate, struct err *e) {
    load(LOAD_INPUT);
    return products.linear_backward_input(k, dx, dy, w, d, accumulate, e);
}

static status_t backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    load(accumulate ? LOAD_WEIGHT_ADDED : LOAD_WEIGHT);
    return products.linear_backward_weight(k, dw, x, dy, d, accumulate, workspace, e);
}

static void products_take(struct kernels *k) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!products.linear_forward)
        products = *k;
    pthread_mutex_unlock(&lock);
    memset(loaded, 0, sizeof loaded);
    k->linear_forward = forward;
    k->linear_backward_input = backward_input;
    k->linear_backward_weight = backward_weight;
}

static void stand_in_open(struct kernels *k) {
    products_take(k);
    k->timer_record = timer_record;
    k->range_begin = NULL; /* they are of one rank */
    k->range_end = NULL;
    device_open((struct cuda *)k);
    device_feed(cuda_of(k)->stream, feed, k);
}

static void stand_in_close(struct kernels *k) { device_close((struct cuda *)k); }

static const struct fake_device_device STAND_IN = { .open = stand_in_open, .close = stand_in_close };

static int rank_main(struct gang *gang, int rank, struct collective *collective) {
    const int result = trainee_main(gang, rank, collective);
    gang_reach(gang, rank, INT64_MAX);
    return result;
}

static void run(struct trainee *t, const char *name, const struct engine_layout *layout) {
    t->config.layout = *layout;
    t->ranks = engine_ranks(layout);
    trainee_fresh_directory(t, name);
    t->config.checkpoint.directory = t->directory;
    memset(t->results, 0, GANG_RANKS * sizeof *t->results);
    assert_int_equal(gang_end(gang_start_threads(t->ranks, t->timeout_ms, rank_main, t)), 0);
}

static const struct engine_layout ALONE = { .data = 1, .pipeline = 1 };

static const struct engine_layout LAYOUTS[] = {
    { .data = 2, .pipeline = 1 },
    { .data = 4, .pipeline = 1, .zero = 1 },
    { .data = 2, .pipeline = 1, .zero = 2 },
    { .data = 2, .pipeline = 1, .zero = 3 },
    { .data = 4, .pipeline = 1, .zero = 3 },
    { .data = 1, .pipeline = 2, .schedule = &schedule_1f1b },
    { .data = 2, .pipeline = 2, .schedule = &schedule_gpipe, .zero = 1 },
    { .data = 2, .pipeline = 2, .schedule = &schedule_zero_bubble },
    { .data = 1, .pipeline = 2, .schedule = &schedule_interleaved, .virtual_stages = 2 },
    { .data = 1, .pipeline = 3, .schedule = &schedule_1f1b },
};
enum { STRIDE = SANITIZED ? 3 : 1 }; /* odd, so that one of two adjacent instructions is late */

/* One of STRIDE adjacent instructions, so that over time each is chosen. */
static size_t first_layout(void) {
    const char *given = getenv("TRAINYARD_SEED");
    const unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)clock_mono_ns();
    if (STRIDE > 1)
        print_message("TRAINYARD_SEED=%u\n", seed);
    return seed % STRIDE;
}

static struct trainee *trainee_of(int steps) {
    struct trainee *t = trainee_new();
    t->config.model.gpt.layers = 4;
    t->config.train.reduce = PLAN_REDUCE_MICRO_BATCH;
    t->config.train.steps = steps;
    return t;
}

static void assert_well(const struct trainee *t, const char *name) {
    for (int r = 0; r < t->ranks; r++)
        if (t->results[r].status != ST_OK)
            fail_msg("%s, rank %d: %s", name, r, t->results[r].message);
}

static int waits[GANG_RANKS][TRAINEE_STEPS]; /* of a rank until a step's end */

/* Pretends that each step was short, also on a busy machine. */
static void note_waits(struct trainee_child *c, int64_t step) {
    waits[c->rank][step] = device_waits();
    if (step > 0) /* earlier, no engine exists */
        c->engine->execution.step_ns = 1;
}

/* The first two steps begin before the time of a step is known, so there the host waits for the device. */
static void assert_few_waits(const struct trainee *t) {
    enum { KNOWN = 2 };
    for (int r = 0; r < t->ranks; r++) {
        assert_true(waits[r][1] - waits[r][0] > 2 * KNOWN);
        for (int step = KNOWN; step < t->config.train.steps; step++)
            assert_int_equal(waits[r][step] - waits[r][step - 1], 1);
    }
}

/* The last step is evaluated; if the device is late, earlier steps are evaluated too. */
static void train_alike(bool late) {
    enum { MANY = 6 };
    struct trainee *t = trainee_of(MANY);
    if (!late)
        t->config.train.eval.every = 0;
    run(t, "alone", &ALONE);
    assert_well(t, "alone");
    const struct trainee_result want = t->results[0];
    t->config.device = DEVICE;
    t->ended = note_waits;
    device_lazy(late);
    for (size_t i = first_layout(); i < sizeof LAYOUTS / sizeof *LAYOUTS; i += STRIDE) {
        char name[32];
        snprintf(name, sizeof name, "layout-%zu", i);
        run(t, name, &LAYOUTS[i]);
        assert_well(t, name);
        const struct trainee_result *got = &t->results[0];
        if (strcmp(got->weights_sha256, want.weights_sha256) != 0 ||
            memcmp(got->loss, want.loss, sizeof want.loss) != 0 ||
            memcmp(got->grad_norm, want.grad_norm, sizeof want.grad_norm) != 0 ||
            got->validation_loss != want.validation_loss)
            fail_msg("%s: weights %.12s, not %.12s; loss %.17g, not %.17g", name, got->weights_sha256,
                     want.weights_sha256, got->loss[MANY], want.loss[MANY]);
        if (!late)
            assert_few_waits(t);
    }
    device_lazy(false);
    trainee_free(t);
}

static void every_layout_has_the_bits_of_one_rank_and_its_host_waits_once_a_step(void **state) {
    (void)state;
    train_alike(false);
}

static void and_where_the_device_runs_as_late_as_it_may(void **state) {
    (void)state;
    train_alike(true);
}

/* Expects the bits of one rank on the host. */
static void train_loading(struct trainee *t, const struct engine_layout *layouts, size_t n) {
    t->config.device = "cpu";
    run(t, "alone", &ALONE);
    assert_well(t, "alone");
    const struct trainee_result want = t->results[0];
    t->config.device = DEVICE;
    loads = true;
    for (size_t i = 0; i < n; i++) {
        run(t, "loads", &layouts[i]);
        assert_well(t, "loads");
        assert_string_equal(t->results[0].weights_sha256, want.weights_sha256);
    }
    loads = false;
}

/* With one micro-batch, the first receive of gradients of a stage waits for the result of the stage's own first call.
 * With several, for each schedule, a product that adds is first called for a later micro-batch, when receives are
 * already posted. */
static void a_library_that_loads_at_its_first_call_waits_for_no_receive(void **state) {
    (void)state;
    const struct engine_layout one[] = { LAYOUTS[5], LAYOUTS[9] },
                               several[] = { LAYOUTS[5], LAYOUTS[6], LAYOUTS[7], LAYOUTS[8], LAYOUTS[9] };
    struct trainee *t = trainee_of(STEPS);
    t->config.train.eval.every = 0;
    t->config.train.reduce = PLAN_REDUCE_STEP;
    t->config.train.micro_batch = 1;
    t->config.train.lanes = 2; /* of several micro-batches each */
    train_loading(t, several, sizeof several / sizeof *several);
    t->config.train.micro_batch = t->config.train.global_batch;
    t->config.train.lanes = 1;
    train_loading(t, one, sizeof one / sizeof *one);
    trainee_free(t);
}

/* --- the host ---*/

/* Per rank: the progress calls until the end of a step, and the number of instructions and places of a step. */
static int progress_calls[GANG_RANKS][TRAINEE_STEPS], instructions[GANG_RANKS], places[GANG_RANKS];

/* Pretends that each step is too long for the device alone. */
static void note_pace(struct trainee_child *c, int64_t step) {
    note_waits(c, step);
    progress_calls[c->rank][step] = c->result->progress_calls;
    if (step == 0)
        return;
    const struct instruction_list *compute = &c->engine->train->queue[QUEUE_COMPUTE];
    instructions[c->rank] = compute->n;
    places[c->rank] = 0;
    for (int i = 0; i < compute->n; i++)
        places[c->rank] += compute->items[i].kind == INSTRUCTION_LOAD || compute->items[i].kind == INSTRUCTION_WAIT;
    c->engine->execution.step_ns = 1000000001;
}

static void a_long_step_reports_progress_while_the_device_computes(void **state) {
    (void)state;
    struct trainee *t = trainee_of(STEPS);
    t->config.train.eval.every = 0;
    t->config.device = DEVICE;
    t->ended = note_pace;
    run(t, "pace", &LAYOUTS[5]);
    assert_well(t, "pace");
    for (int r = 0; r < t->ranks; r++)
        for (int step = 2; step < STEPS; step++) {
            assert_true(places[r] > THROTTLE_AHEAD);
            assert_int_equal(waits[r][step] - waits[r][step - 1], places[r] + 1);
            assert_int_equal(progress_calls[r][step] - progress_calls[r][step - 1], places[r] + instructions[r]);
        }
    trainee_free(t);
}

static void each_step_reports_how_long_its_kernels_waited(void **state) {
    (void)state;
    const struct engine_layout layouts[] = { LAYOUTS[0], LAYOUTS[5] };
    struct trainee *t = trainee_of(STEPS);
    t->config.device = DEVICE;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        run(t, "clock", &layouts[i]);
        assert_well(t, "clock");
        for (int r = 0; r < t->ranks; r++)
            for (int step = 1; step <= STEPS; step++)
                assert_true(t->results[r].communication_wait[step] > 0);
    }
    trainee_free(t);
}

static int exchanges[GANG_RANKS]; /* that a rank's step waits for */

static void note_exchanges(struct trainee_child *c, int64_t step) {
    note_waits(c, step);
    if (step == 0)
        return;
    const struct instruction_list *compute = &c->engine->train->queue[QUEUE_COMPUTE];
    exchanges[c->rank] = 0;
    for (int i = 0; i < compute->n; i++)
        exchanges[c->rank] += compute->items[i].kind == INSTRUCTION_WAIT;
}

/* A profile has the end of each exchange, so the host waits for each, and also at the start and the end of a step. */
static void a_profile_of_ranks_is_written_and_changes_no_bit(void **state) {
    (void)state;
    char profiles[300], path[340];
    struct trainee *t = trainee_of(STEPS);
    t->config.device = DEVICE;
    run(t, "plain", &LAYOUTS[6]);
    assert_well(t, "plain");
    const struct trainee_result want = t->results[0];
    snprintf(profiles, sizeof profiles, "%s-profile", t->directory);
    t->config.profile = (struct engine_profile){ .from = 2, .to = 3, .directory = profiles };
    t->config.train.eval.every = 0;
    t->ended = note_exchanges;
    run(t, "profiled", &LAYOUTS[6]);
    assert_well(t, "profiled");
    for (int r = 0; r < t->ranks; r++) {
        assert_true(exchanges[r] > 2);
        assert_int_equal(waits[r][3] - waits[r][2], exchanges[r] + 2);
    }
    assert_string_equal(t->results[0].weights_sha256, want.weights_sha256);
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(t->results[r].notices, 0);
        snprintf(path, sizeof path, "%s/rank-%d.json", profiles, r);
        assert_int_equal(access(path, R_OK), 0);
    }
    trainee_free(t);
}

/* --- ends ---*/

static void a_run_that_was_stopped_resumes_to_the_same_bits(void **state) {
    (void)state;
    enum { MANY = 10 };
    struct trainee *t = trainee_of(MANY);
    run(t, "alone", &ALONE);
    const struct trainee_result want = t->results[0];
    t->config.device = DEVICE;
    t->stop_step = 4;
    run(t, "stopped", &LAYOUTS[6]);
    assert_well(t, "stopped");
    const int64_t step = t->results[0].step;
    assert_int_equal(t->results[0].outcome, ENGINE_STOPPED);
    assert_true(step > 4 && step < MANY);
    for (int s = 1; s <= step; s++)
        assert_true(t->results[0].rows[s] == 1 && t->results[0].loss[s] == want.loss[s]);
    char resume[300];
    snprintf(resume, sizeof resume, "%.200s/step-%d", t->directory, (int)step);
    t->stop_step = 0;
    t->config.checkpoint.resume_directory = resume;
    run(t, "resumed", &LAYOUTS[3]);
    assert_well(t, "resumed");
    assert_int_equal(t->results[0].from_step, step);
    assert_string_equal(t->results[0].weights_sha256, want.weights_sha256);
    trainee_free(t);
}

static void the_first_op_to_blame_is_the_hosts(void **state) {
    (void)state;
    const struct engine_layout layouts[] = { LAYOUTS[0], LAYOUTS[5] };
    struct trainee *t = trainee_of(STEPS);
    t->config.train.optimizer.adamw.lr = 1e30;
    t->config.train.eval.every = 0;
    t->config.train.schedule.kind = &rate_constant;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char on_host[480];
        t->config.device = "cpu";
        run(t, "host", &layouts[i]);
        assert_int_equal(t->results[0].outcome, ENGINE_NUMERIC);
        assert_null(strstr(t->results[0].message, "unknown"));
        memcpy(on_host, t->results[0].message, sizeof on_host);
        t->config.device = DEVICE;
        run(t, "device", &layouts[i]);
        for (int r = 0; r < t->ranks; r++)
            assert_string_equal(t->results[r].message, on_host);
    }
    trainee_free(t);
}

/* When the second to last step ends, the last step has begun on all ranks: only its report is missing. */
static void give_up(struct trainee_child *c, int64_t step) {
    if (c->rank == 1 && step == STEPS - 1)
        collective_abort(c->engine->collective, "enough");
}

static void no_rank_counts_a_step_that_another_has_not_come_through(void **state) {
    (void)state;
    struct trainee *t = trainee_of(STEPS);
    t->config.device = DEVICE;
    t->config.train.eval.every = 0;
    t->ended = give_up;
    for (size_t i = first_layout(); i < sizeof LAYOUTS / sizeof *LAYOUTS; i += STRIDE) {
        device_lazy(i % 2);
        const int64_t begun = clock_mono_ms();
        run(t, "given-up", &LAYOUTS[i]);
        assert_true(clock_mono_ms() - begun < t->timeout_ms);
        for (int r = 0; r < t->ranks; r++) {
            assert_int_equal(t->results[r].status, r == 1 ? ST_CANCELLED : ST_UNAVAILABLE);
            assert_int_equal(t->results[r].outcome, ENGINE_PEER_LOST);
            assert_string_equal(t->results[r].message,
                                r == 1 ? "rank 1 gave up: enough" : "rank 1 went away: rank 1 gave up: enough");
            assert_true(t->results[r].step == STEPS - 1 || t->results[r].step == STEPS - 2);
        }
        assert_int_equal(t->results[0].rows[STEPS], 0);
    }
    device_lazy(false);
    trainee_free(t);
}

/* Like a killed process: rank 0's kernels notice it before the sockets of rank 0 do. */
static void lose_rank_1(struct trainee_child *c, int64_t step) {
    static int failed;
    if (step == 0 && c->rank == 0)
        failed = device_failed();
    if (step != STEPS - 1)
        return;
    if (c->rank == 0)
        device_fail("event_wait");
    if (c->rank != 1)
        return;
    device_await_failure(failed + 1);
    c->engine->collective->host->ops->abort(c->engine->collective->host, "killed");
}

static void kernels_that_fail_because_of_a_death_name_the_dead_rank(void **state) {
    (void)state;
    struct trainee *t = trainee_of(STEPS);
    t->config.device = DEVICE;
    t->config.train.eval.every = 0;
    t->ended = lose_rank_1;
    run(t, "lost", &LAYOUTS[6]);
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(t->results[r].outcome, ENGINE_PEER_LOST);
        assert_string_equal(t->results[r].message,
                            r == 1 ? "rank 1 gave up: killed" : "rank 1 went away: rank 1 gave up: killed");
    }
    trainee_free(t);
}

/* Rank 1 has begun a step and does not wait, so its device computes nothing. The clock advances while rank 0 waits. */
static void fall_silent(struct trainee_child *c, int64_t step) {
    const struct timespec tick = { .tv_nsec = 50000000 };
    while (c->rank == 1 && step == STEPS - 1 && !gang_until_most(c->gang, 0, INT64_MAX, &tick))
        device_clocks_forward(c->trainee->timeout_ms, 0);
}

static void a_silent_rank_is_known_by_the_deadline(void **state) {
    (void)state;
    const struct engine_layout layouts[] = { LAYOUTS[0], LAYOUTS[5] };
    struct trainee *t = trainee_of(STEPS);
    t->config.device = DEVICE;
    t->config.train.eval.every = 0;
    t->ended = fall_silent;
    device_lazy(true);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        run(t, "silent", &layouts[i]);
        assert_int_equal(t->results[0].status, ST_DEADLINE_EXCEEDED);
        assert_string_equal(t->results[0].message, "rank 1 did nothing for 60000 ms");
        assert_int_equal(t->results[0].step, STEPS - 1);
        assert_int_equal(t->results[1].status, ST_UNAVAILABLE);
    }
    device_lazy(false);
    trainee_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_has_the_bits_of_one_rank_and_its_host_waits_once_a_step),
        cmocka_unit_test(and_where_the_device_runs_as_late_as_it_may),
        cmocka_unit_test(a_library_that_loads_at_its_first_call_waits_for_no_receive),
        cmocka_unit_test(a_long_step_reports_progress_while_the_device_computes),
        cmocka_unit_test(each_step_reports_how_long_its_kernels_waited),
        cmocka_unit_test(a_profile_of_ranks_is_written_and_changes_no_bit),
        cmocka_unit_test(a_run_that_was_stopped_resumes_to_the_same_bits),
        cmocka_unit_test(the_first_op_to_blame_is_the_hosts),
        cmocka_unit_test(no_rank_counts_a_step_that_another_has_not_come_through),
        cmocka_unit_test(kernels_that_fail_because_of_a_death_name_the_dead_rank),
        cmocka_unit_test(a_silent_rank_is_known_by_the_deadline),
    };
    fake_device_runs_on(&STAND_IN);
    device_clocks_take();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
