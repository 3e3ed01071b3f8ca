/* A later attempt that repeats steps: one event if a value differs in any bit, and none otherwise. */
#include "tests/store/store_fixture.h"

#include "service/store/metric_repeatable.h"
#include "service/store/report_repeat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *const NAMES[] = { "loss", "step_ms" };

struct history {
    struct fixture *f;
    struct store_report *r;
    int64_t job, sequence;
    int attempt;
};

static struct history begin(struct fixture *f) {
    return (struct history){ f, store_report_new(f->store, f->epoch), fixture_running(f, 2), 1, 1 };
}

static void next_attempt(struct history *h) {
    h->attempt = fixture_next_attempt(h->f, h->job, h->attempt, 2);
    h->sequence = 1;
}

/* A point of loss; the time of the step always differs. */
static void report(struct history *h, int rank, int64_t step, double loss) {
    static double time = 0;
    double values[] = { loss, ++time };
    struct store_record record = record_metrics(step, 2, NAMES, values);
    assert_false(fixture_report(h->r, h->job, h->attempt, rank, h->sequence++, &record, 1).gap);
}

static void report_many(struct history *h, int64_t from, int64_t to, double (*loss)(int64_t)) {
    const size_t n = (size_t)(to - from);
    struct store_record *records = calloc(n, sizeof *records);
    double *values = calloc(n, sizeof *values);
    assert_true(records && values);
    for (size_t i = 0; i < n; i++) {
        values[i] = loss(from + (int64_t)i);
        records[i] = record_metrics(from + (int64_t)i, 1, NAMES, &values[i]);
    }
    fixture_report(h->r, h->job, h->attempt, 0, h->sequence, records, n);
    h->sequence += (int64_t)n;
    free(records);
    free(values);
}

static int64_t count_events(const struct history *h, const char *like) {
    char query[400];
    snprintf(query, sizeof query,
             "SELECT count(*) FROM event WHERE kind = 'not_repeatable' AND job = %lld AND message LIKE '%%%s%%'",
             (long long)h->job, like);
    return pg_number(h->f->conninfo, query);
}

static void done(struct history *h) { store_report_free(h->r); }

static double half(int64_t step) { return (double)step / 2; }
static double half_but_700(int64_t step) { return step == 700 ? 0.25 : half(step); }

static void equal_bits_are_no_event_over_many_chunks(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    report_many(&h, 0, 1000, half);
    next_attempt(&h);
    report_many(&h, 300, 1500, half);
    next_attempt(&h);
    report_many(&h, 0, 2000, half);
    assert_int_equal(count_events(&h, ""), 0);
}

static void one_other_value_among_many_is_an_event_with_step_and_values(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    report_many(&h, 0, 1000, half);
    next_attempt(&h);
    report_many(&h, 0, 2000, half_but_700);
    assert_int_equal(count_events(&h, "''loss'' of rank 0 at step 700 was 350 in attempt 1 and is 0.25 in attempt 2"),
                     1);
    assert_int_equal(count_events(&h, ""), 1);
}

static void an_attempt_has_one_event_and_the_next_attempt_its_own(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    for (int step = 1; step < 5; step++)
        report(&h, 0, step, 1);
    h.sequence = 1;
    for (int step = 1; step < 5; step++)
        report(&h, 1, step, 1);
    next_attempt(&h);
    for (int step = 1; step < 5; step++)
        report(&h, 0, step, 2);
    h.sequence = 1;
    store_report_free(h.r); /* another controller */
    h.r = store_report_new(h.f->store, h.f->epoch);
    for (int step = 1; step < 5; step++)
        report(&h, 1, step, 2);
    assert_int_equal(count_events(&h, ""), 1);
    next_attempt(&h);
    report(&h, 0, 3, 3);
    assert_int_equal(count_events(&h, "step 3 was 2 in attempt 2 and is 3 in attempt 3"), 1);
    assert_int_equal(count_events(&h, ""), 2);
}

static void a_step_is_compared_with_the_newest_attempt_that_has_it(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    for (int step = 1; step <= 10; step++)
        report(&h, 0, step, 1);
    next_attempt(&h);
    report(&h, 0, 5, 2);
    assert_int_equal(count_events(&h, ""), 1);
    next_attempt(&h);
    for (int step = 1; step <= 20; step++)
        report(&h, 0, step, step == 5 ? 2 : 1);
    assert_int_equal(count_events(&h, ""), 1);
}

static void the_bits_of_nan_and_zero_count(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    report(&h, 0, 1, NAN);
    report(&h, 0, 2, 0.0);
    next_attempt(&h);
    report(&h, 0, 1, NAN);
    assert_int_equal(count_events(&h, ""), 0);
    report(&h, 0, 2, -0.0);
    assert_int_equal(count_events(&h, "was 0 in attempt 1 and is -0 in attempt 2"), 1);
    next_attempt(&h);
    report(&h, 0, 1, -NAN);
    assert_int_equal(count_events(&h, "bits 0xfff8"), 1);
}

static void a_step_with_several_points_is_repeated_by_any_of_them(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    for (int i = 0; i < 300; i++) /* two chunks have the step */
        report(&h, 0, 7, i);
    next_attempt(&h);
    report(&h, 0, 7, 299);
    report(&h, 0, 7, 3);
    assert_int_equal(count_events(&h, ""), 0);
    report(&h, 0, 7, 300);
    assert_int_equal(count_events(&h, "step 7"), 1);
}

/* A series of a million steps as rows alone: 4,000 chunks with the values `step / 2`. */
static void long_series(struct history *h) {
    char text[800];
    report(h, 0, -1, 0);
    snprintf(text, sizeof text,
             "INSERT INTO metric_chunk (job, name, rank, attempt, number, n, stride, first_step, last_step, min, max, "
             "sum, values) SELECT k.job, k.name, 0, k.attempt, c, 240, 1, c * 240, c * 240 + 239, 0, 0, 0, "
             "(SELECT array_agg((c * 240 + i) / 2.0::float8 ORDER BY i) FROM generate_series(0, 239) i) "
             "FROM metric_chunk k, generate_series(1, 4000) c WHERE k.job = %lld AND k.name = "
             "(SELECT id FROM metric_name WHERE name = 'loss')",
             (long long)h->job);
    pg_run(h->f->conninfo, text);
    pg_run(h->f->conninfo, "ANALYZE metric_chunk");
}

/* Rows of chunks that the server has read. A process of the server adds its count when it ends. */
static int64_t chunk_reads(const struct history *h) {
    pg_run(h->f->conninfo, "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = "
                           "current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'");
    return pg_number(h->f->conninfo, "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables "
                                     "WHERE relname = 'metric_chunk'");
}

static void a_long_series_is_searched_and_not_read(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    long_series(&h);
    next_attempt(&h);
    const int64_t before = chunk_reads(&h);
    report(&h, 0, 500000, 250000);   /* in the middle */
    report(&h, 0, 240, 120);         /* back */
    report(&h, 0, 960239, 480119.5); /* the last one */
    report(&h, 0, 960240, 1);        /* none has it */
    report(&h, 0, 100, 1);           /* before the first one */
    assert_int_equal(count_events(&h, ""), 0);
    const int64_t read = chunk_reads(&h) - before;
    print_message("%lld rows of chunks were read\n", (long long)read);
    assert_true(read > 0 && read < 400);
    report(&h, 0, 700001, 1);
    assert_int_equal(count_events(&h, "step 700001 was 350000.5 in attempt 1 and is 1 in attempt 2"), 1);
}

static void a_metric_that_is_not_compared_needs_no_memory(void **state) {
    struct series series = { .name = "step_ms" }, *all[] = { &series };
    struct rank_memory k = { .attempt = 2, .series = all, .n_series = 1 };
    char *names[] = { series.name };
    double values[] = { 1 };
    const struct store_record record = record_metrics(1, 1, names, values);
    (void)state;
    OK(report_repeat_check(NULL, &k, &record, &e));
    assert_true(series.never_repeated);
    assert_null(series.repeated);
    assert_null(series.repeated_points);
}

static void names_of_times_and_of_the_machine_are_not_compared(void **state) {
    static const char *const other[] = { "step_ms",
                                         "tokens_per_second",
                                         "train/samples_per_second",
                                         "system/gpu.0.power",
                                         "time",
                                         "Epoch Time",
                                         "it/s",
                                         "step_seconds",
                                         "throughput(tps)",
                                         "eval_runtime",
                                         "run-2/data_wait_seconds",
                                         "memory_bytes",
                                         "mfu(%)" };
    static const char *const repeated[] = { "loss",      "learning_rate", "train/loss", "eval_accuracy",
                                            "grad_norm", "timesteps",     "epoch",      "validation_loss" };
    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_false(metric_repeatable(other[i]));
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++)
        assert_true(metric_repeatable(repeated[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(equal_bits_are_no_event_over_many_chunks),
        TEST(one_other_value_among_many_is_an_event_with_step_and_values),
        TEST(an_attempt_has_one_event_and_the_next_attempt_its_own),
        TEST(a_step_is_compared_with_the_newest_attempt_that_has_it),
        TEST(the_bits_of_nan_and_zero_count),
        TEST(a_step_with_several_points_is_repeated_by_any_of_them),
        TEST(a_long_series_is_searched_and_not_read),
        TEST(a_metric_that_is_not_compared_needs_no_memory),
        TEST(names_of_times_and_of_the_machine_are_not_compared),
    };
    return cmocka_run_group_tests_name("repeated steps", tests, fixture_group_setup, fixture_group_teardown);
}
