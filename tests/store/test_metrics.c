/* The points that count after restarts, and downsampling compared with a naive computation over the reported points. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/metric.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *const LOSS[] = { "loss" };

struct point {
    int64_t step;
    double value;
};

/* Reports all points of one attempt, in batches. */
static void report(struct fixture *f, int64_t job, int attempt, const struct point *points, size_t n) {
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record *records = calloc(n, sizeof *records);
    for (size_t i = 0; i < n; i++)
        records[i] = record_metrics(points[i].step, 1, LOSS, &points[i].value);
    for (size_t at = 0; at < n;) {
        size_t len = n - at < 5000 ? n - at : 5000;
        struct store_batch batch = { job, attempt, 0, (int64_t)at + 1, records + at, len, 0, "host" };
        struct store_batch_result result;
        OK(store_report_write(r, &batch, 1, &result, &e));
        assert_int_equal(result.sequence, at + len);
        at += len;
    }
    free(records);
}

static struct store_series query(struct fixture *f, int64_t job, int64_t after, int max_entries) {
    struct store_series *series;
    size_t n;
    struct store_metric_query q = { .job = job, .after_step = after, .max_points = max_entries, .rank = -1 };
    OK(store_metric_query(f->store, f->m, &q, &series, &n, &e));
    assert_int_equal(n, 1);
    return series[0];
}

static void near(double a, double b) {
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

/* Checks that runs of points have equal length, as metric.h defines. */
static void check_runs(const struct store_series *s, const struct point *points, size_t n, size_t max_entries) {
    size_t per = n <= max_entries ? 1 : (n + max_entries - 1) / max_entries, runs = (n + per - 1) / per;
    assert_int_equal(s->points, n);
    assert_int_equal(s->n, runs);
    assert_int_equal(s->last_step, points[n - 1].step);
    assert_true(s->last_value == points[n - 1].value);
    for (size_t i = 0; i < runs; i++) {
        size_t from = i * per, to = from + per < n ? from + per : n;
        double sum = 0, min = INFINITY, max = -INFINITY;
        for (size_t k = from; k < to; k++) {
            sum += points[k].value;
            min = fmin(min, points[k].value);
            max = fmax(max, points[k].value);
        }
        assert_int_equal(s->step[i], points[to - 1].step);
        near(s->mean[i], sum / (double)(to - from));
        assert_true(s->min[i] == min && s->max[i] == max);
    }
}

static void downsampling_agrees_with_a_naive_computation(void **state) {
    struct fixture *f = *state;
    const char *given = getenv("TRAINYARD_SEED");
    unsigned seed = given ? (unsigned)atoi(given) : (unsigned)clock_wall_us();
    print_message("# TRAINYARD_SEED=%u\n", seed);
    srand(seed);
    for (int round = 0; round < 12; round++) {
        int64_t job = fixture_running(f, 1);
        size_t n = 1 + (size_t)(rand() % 4000);
        struct point *points = calloc(n, sizeof *points);
        int64_t step = 0;
        bool regular = round % 2;
        for (size_t i = 0; i < n; i++) {
            step += regular ? 5 : 1 + rand() % 9;
            points[i] = (struct point){ step, (double)rand() / RAND_MAX - 0.5 };
        }
        report(f, job, 1, points, n);
        static const int limits[] = { 17, 100, 1000, 10000 };
        for (size_t i = 0; i < 4; i++) {
            size_t max_entries = (size_t)limits[i];
            if (n > max_entries * STORE_CHUNK_POINTS / 2)
                continue; /* may be divided at its chunks */
            struct store_series s = query(f, job, 0, limits[i]);
            check_runs(&s, points, n, max_entries);
        }
        size_t skip = (size_t)rand() % n;
        struct store_series rest = query(f, job, points[skip].step - 1, 10000);
        check_runs(&rest, points + skip, n - skip, 10000);
        free(points);
    }
}

/* Long series are reduced from chunks. Then the counts, the extremes and the last value must be exact. */
static void a_long_series_is_folded_from_its_chunks(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    enum { N = 50000 };
    struct point *points = calloc(N, sizeof *points);
    for (int i = 0; i < N; i++)
        points[i] = (struct point){ i + 1, sin(i * 0.01) };
    points[12345].value = 7;
    report(f, job, 1, points, N);
    struct store_series s = query(f, job, 100, 50);
    assert_int_equal(s.points, N - 100);
    assert_true(s.n <= 50 && s.n >= 30);
    assert_int_equal(s.last_step, N);
    assert_true(s.last_value == points[N - 1].value);
    assert_int_equal(s.step[s.n - 1], N);
    size_t from = 100;
    for (size_t i = 0; i < s.n; i++) {
        double sum = 0, max = -INFINITY;
        size_t count = 0;
        for (; from < N && points[from].step <= s.step[i]; from++, count++) {
            sum += points[from].value;
            max = fmax(max, points[from].value);
        }
        near(s.mean[i], sum / (double)count);
        assert_true(s.max[i] == max);
    }
    assert_int_equal(from, N);
    free(points);
}

/* A chunk as an entry has 240 points, which is at most twice as many as an entry of the values would have. Points whose
 * steps lie far apart have chunks of their own: then entries of chunks would be too uneven. */
static void entries_are_chunks_only_if_these_are_fine_enough(void **state) {
    struct fixture *f = *state;
    enum { LONE = 60, N = 24000, CHUNKS = N / STORE_CHUNK_POINTS, ENTRIES = CHUNKS * 3 / 2 };
    static struct point points[LONE + N];
    const int64_t far = 1000L * 1000 * 1000;
    for (int i = 0; i < LONE + N; i++)
        points[i] = (struct point){ i < LONE ? (i + 1) * far : LONE * far + i, sin(i * 0.01) };
    int64_t dense = fixture_running(f, 1), uneven = fixture_running(f, 1);
    report(f, dense, 1, points + LONE, N);
    report(f, uneven, 1, points, LONE + N);

    struct store_series s = query(f, dense, 0, ENTRIES);
    assert_int_equal(s.n, CHUNKS);
    assert_int_equal(s.points, N);
    assert_int_equal(s.step[0], points[LONE + STORE_CHUNK_POINTS - 1].step);
    s = query(f, dense, 0, 2 * CHUNKS);
    check_runs(&s, points + LONE, N, 2 * CHUNKS);
    s = query(f, uneven, 0, ENTRIES);
    check_runs(&s, points, LONE + N, ENTRIES);
}

static void a_later_attempt_hides_the_points_that_it_repeats(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct point first[30], second[40];
    for (int i = 0; i < 30; i++)
        first[i] = (struct point){ i + 1, 100 + i };
    for (int i = 0; i < 40; i++)
        second[i] = (struct point){ i + 21, 200 + i };
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    report(f, job, 1, first, 30);
    struct store_record shard = record_shard(20, 0, 1, false);
    struct store_batch batch = { job, 1, 0, 31, &shard, 1, 0, "host" };
    struct store_batch_result result;
    OK(store_report_write(r, &batch, 1, &result, &e));
    struct store_series before = query(f, job, 0, 1000);
    assert_int_equal(before.points, 30);
    assert_int_equal(fixture_next_attempt(f, job, 1, 1), 2);
    struct store_series hidden = query(f, job, 0, 1000);
    assert_int_equal(hidden.points, 20);
    report(f, job, 2, second, 40);
    struct store_series s = query(f, job, 0, 1000);
    assert_int_equal(s.points, 60);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(s.step[i], i + 1);
        assert_true(s.mean[i] == (i < 20 ? 100 + i : 180 + i));
    }
}

static void nan_and_infinity_are_kept(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct point points[] = { { 1, 2 }, { 2, NAN }, { 3, INFINITY }, { 4, 1 } };
    report(f, job, 1, points, 4);
    struct store_series s = query(f, job, 0, 10);
    assert_true(isnan(s.mean[1]) && isinf(s.mean[2]));
    struct store_series one = query(f, job, 0, 1);
    assert_true(isnan(one.mean[0]) && one.min[0] == 1 && isinf(one.max[0]));
}

static void names_and_ranks_choose_the_series(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 2);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    static char *const names[] = { "b", "a" };
    double values[] = { 1, 2 };
    struct store_record record = record_metrics(3, 2, names, values);
    for (int rank = 0; rank < 2; rank++) {
        struct store_batch batch = { job, 1, rank, 1, &record, 1, 0, "host" };
        struct store_batch_result result;
        OK(store_report_write(r, &batch, 1, &result, &e));
    }
    const char *wanted[] = { "a" };
    struct store_series *series;
    size_t n;
    struct store_metric_query q = { .job = job, .max_points = 10, .rank = -1 };
    OK(store_metric_query(f->store, f->m, &q, &series, &n, &e));
    assert_int_equal(n, 4);
    assert_string_equal(series[0].name, "a");
    assert_int_equal(series[1].rank, 1);
    assert_string_equal(series[2].name, "b");
    q.names = wanted;
    q.n_names = 1;
    q.rank = 1;
    OK(store_metric_query(f->store, f->m, &q, &series, &n, &e));
    assert_int_equal(n, 1);
    assert_true(series[0].last_value == 2);
    const char *lasts[] = { "b", "none", "a" };
    double last[3];
    OK(store_metric_last(f->store, job, lasts, 3, last, &e));
    assert_true(last[0] == 1 && isnan(last[1]) && last[2] == 2);
    q.job++;
    FAILS(store_metric_query(f->store, f->m, &q, &series, &n, &e), ST_NOT_FOUND, "does not exist");
    q.max_points = 10001;
    FAILS(store_metric_query(f->store, f->m, &q, &series, &n, &e), ST_INVALID_ARGUMENT, "max_points");
}

/* A chunk ends where 32-bit offsets do not reach. */
static void steps_that_lie_far_apart_are_kept(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct point points[] = { { 1, 1 }, { 5, 2 }, { 3, 3 }, { 1LL << 40, 4 }, { (1LL << 40) + 1, 5 }, { 7, 6 } };
    report(f, job, 1, points, 6);
    struct store_series s = query(f, job, 0, 10);
    assert_int_equal(s.n, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(s.step[i], points[i].step);
        assert_true(s.mean[i] == points[i].value);
    }
}

/* A point a millisecond. */
static void entries_have_the_time_of_their_last_point_and_end_at_until_step(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    enum { N = 24000 };
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    static struct store_record records[N];
    static double values[N];
    for (int i = 0; i < N; i++) {
        values[i] = i;
        records[i] = record_metrics(i + 1, 1, LOSS, &values[i]);
        records[i].time_us = 1000000 + 1000LL * i;
    }
    fixture_report(r, job, 1, 0, 1, records, N);
    struct store_metric_query q = {
        .job = job, .after_step = 100, .until_step = 12345, .max_points = 10000, .rank = -1
    };
    struct store_series *s;
    size_t n;
    OK(store_metric_query(f->store, f->m, &q, &s, &n, &e));
    assert_null(s->time_us);
    q.with_time = true;
    OK(store_metric_query(f->store, f->m, &q, &s, &n, &e));
    assert_int_equal(s->points, 12245);
    assert_int_equal(s->last_step, 12345);
    assert_true(s->last_value == 12344);
    for (size_t i = 0; i < s->n; i++)
        assert_int_equal(s->time_us[i], 1000000 + 1000 * (s->step[i] - 1));
    q.max_points = 20; /* from the chunks: the time of the last point or of the next */
    OK(store_metric_query(f->store, f->m, &q, &s, &n, &e));
    assert_int_equal(s->points, 12245);
    assert_int_equal(s->last_step, 12345);
    assert_int_equal(s->step[s->n - 1], 12345);
    for (size_t i = 0; i < s->n; i++)
        assert_true(labs(s->time_us[i] - 1000000 - 1000 * (s->step[i] - 1)) <= 1000);
    assert_int_equal(s->time_us[s->n - 1], 1000000 + 1000 * 12344);
}

/* Each series has one chunk; one rank has as many chunks as a call reads, and later one more. */
static void a_query_reads_a_bounded_number_of_chunks_and_series(void **state) {
    struct fixture *f = *state;
    const int64_t many = fixture_running(f, 1), wide = fixture_running(f, 1);
    struct store_metric_query query = { .job = many, .max_points = 10, .rank = -1 };
    struct store_series *series;
    size_t n;
    char sql[900];
    static const char chunk[] = "INSERT INTO metric_chunk (job, name, rank, attempt, number, n, stride, first_step, "
                                "last_step, min, max, sum, values) ";
    snprintf(sql, sizeof sql,
             "INSERT INTO metric_name (name) VALUES ('loss'); INSERT INTO job_metric SELECT j.id, m.id FROM job j, "
             "metric_name m; %s SELECT %lld, m.id, 0, 1, i, 1, 1, i, i, 0, 0, 0, '{0}' "
             "FROM metric_name m, generate_series(1, %d) i; %s SELECT %lld, m.id, r, 1, 1, 1, 1, 1, 1, 0, 0, 0, '{0}' "
             "FROM metric_name m, generate_series(0, %d) r",
             chunk, (long long)many, STORE_METRIC_MAX_CHUNKS, chunk, (long long)wide, STORE_METRIC_MAX_SERIES);
    pg_force(f->conninfo, sql);
    OK(store_metric_query(f->store, f->m, &query, &series, &n, &e));
    assert_int_equal(n, 1);
    assert_int_equal(series[0].points, STORE_METRIC_MAX_CHUNKS);
    snprintf(sql, sizeof sql, "%s SELECT %lld, m.id, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, '{0}' FROM metric_name m", chunk,
             (long long)many);
    pg_force(f->conninfo, sql);
    FAILS(store_metric_query(f->store, f->m, &query, &series, &n, &e), ST_RESOURCE_EXHAUSTED, "name fewer metrics");
    query.rank = 1;
    OK(store_metric_query(f->store, f->m, &query, &series, &n, &e));
    assert_int_equal(n, 1);
    query = (struct store_metric_query){ .job = wide, .max_points = 10, .rank = -1 };
    FAILS(store_metric_query(f->store, f->m, &query, &series, &n, &e), ST_RESOURCE_EXHAUSTED, "name fewer metrics");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(downsampling_agrees_with_a_naive_computation),
        TEST(a_long_series_is_folded_from_its_chunks),
        TEST(entries_are_chunks_only_if_these_are_fine_enough),
        TEST(a_later_attempt_hides_the_points_that_it_repeats),
        TEST(nan_and_infinity_are_kept),
        TEST(a_query_reads_a_bounded_number_of_chunks_and_series),
        TEST(names_and_ranks_choose_the_series),
        TEST(steps_that_lie_far_apart_are_kept),
        TEST(entries_have_the_time_of_their_last_point_and_end_at_until_step),
    };
    return cmocka_run_group_tests_name("store metrics", tests, fixture_group_setup, fixture_group_teardown);
}
