/* All pages of a job's points, compared with the reported points. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/metric_points.h"
#include "service/store/metric_times.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 60000 };
static const int64_t BEGUN_US = 1795363200123456; /* in November 2026 */

struct point {
    char name[8];
    int rank, attempt;
    int64_t step, time_us;
    double value;
};
struct points {
    struct point *at; /* [MAX_POINTS] */
    size_t n, pages;
};

static void add(struct points *p, const char *name, int rank, int attempt, int64_t step, double value,
                int64_t time_us) {
    assert_true(p->n < MAX_POINTS);
    struct point *x = &p->at[p->n++];
    *x = (struct point){ .rank = rank, .attempt = attempt, .step = step, .time_us = time_us, .value = value };
    snprintf(x->name, sizeof x->name, "%s", name);
}

/* Reports these points as rows of one name each. */
static void report(struct fixture *f, int64_t job, const struct point *points, size_t n, int64_t sequence) {
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record *records = calloc(n, sizeof *records);
    char **names = calloc(n, sizeof *names);
    for (size_t i = 0; i < n; i++) {
        names[i] = (char *)points[i].name;
        records[i] = record_metrics(points[i].step, 1, &names[i], &points[i].value);
        records[i].time_us = points[i].time_us;
    }
    for (size_t at = 0; at < n;) {
        size_t len = n - at < 3000 ? n - at : 3000;
        struct store_batch batch = {
            job, points[0].attempt, points[0].rank, sequence + (int64_t)at, records + at, len, 0, "host"
        };
        struct store_batch_result result;
        OK(store_report_write(r, &batch, 1, &result, &e));
        assert_false(result.gap || result.fenced);
        at += len;
    }
    free(names);
    free(records);
}

/* Appends the points of one page. Returns false after the last page. */
static bool take_page(struct fixture *f, struct store_points_query *q, struct points *p) {
    struct store_points *runs;
    size_t n, before = p->n;
    bool more;
    OK(store_points_list(f->store, f->m, q, &runs, &n, &more, &e));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < runs[i].n; k++)
            add(p, runs[i].name, runs[i].rank, runs[i].attempt, runs[i].step[k], runs[i].value[k], runs[i].time_us[k]);
    assert_true(p->n - before <= (size_t)q->max_points);
    p->pages++;
    return more;
}

static struct points points_new(void) { return (struct points){ .at = calloc(MAX_POINTS, sizeof(struct point)) }; }

static struct points read_all(struct fixture *f, struct store_points_query q) {
    struct points p = points_new();
    while (take_page(f, &q, &p))
        ;
    return p;
}

static void same(const struct points *got, const struct points *want) {
    assert_int_equal(got->n, want->n);
    for (size_t i = 0; i < got->n; i++) {
        const struct point *a = &got->at[i], *b = &want->at[i];
        assert_string_equal(a->name, b->name);
        assert_true(a->rank == b->rank && a->attempt == b->attempt && a->step == b->step && a->value == b->value);
        if (a->time_us > b->time_us || b->time_us - a->time_us >= 1000)
            fail_msg("step %lld at %lld, reported at %lld", (long long)a->step, (long long)a->time_us,
                     (long long)b->time_us);
    }
}

static void free_points(struct points *p) { free(p->at); }

static void every_point_is_in_exactly_one_page_of_any_size(void **state) {
    struct fixture *f = *state;
    const char *given = getenv("TRAINYARD_SEED");
    unsigned seed = given ? (unsigned)atoi(given) : (unsigned)clock_wall_us();
    print_message("# TRAINYARD_SEED=%u\n", seed);
    srand(seed);
    int64_t job = fixture_running(f, 3);
    struct points want = points_new();
    /* In the order of the pages: by name, then rank. A rank's sequence continues from one of its names to the next. */
    int64_t sequence[3] = { 1, 1, 1 };
    static const char *const names[] = { "a", "b", "c" };
    for (int k = 0; k < 3; k++)
        for (int rank = 0; rank < 3; rank++) {
            int64_t step = 0, n = k == 2 ? 1 : 1 + rand() % 900, time_us = BEGUN_US;
            size_t from = want.n;
            for (int64_t i = 0; i < n; i++, time_us += rand() % 90000000)
                add(&want, names[k], rank, 1, step += rank == 1 ? 5 : 1 + rand() % 9, rand() / 1e6, time_us);
            report(f, job, want.at + from, (size_t)n, sequence[rank]);
            sequence[rank] += n;
        }
    static const int sizes[] = { 7, 240, 241, STORE_MAX_POINTS };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct points got = read_all(f, (struct store_points_query){ .job = job, .rank = -1, .max_points = sizes[i] });
        same(&got, &want);
        free_points(&got);
    }
    free_points(&want);
}

static void a_page_reads_no_more_rows_than_it_may(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct points want = points_new();
    for (int i = 0; i < STORE_POINTS_CHUNKS * 3; i++)
        add(&want, "a", 0, 1, (int64_t)i << 40, i, BEGUN_US); /* so distant that each has its own row */
    report(f, job, want.at, want.n, 1);
    struct points got = read_all(f,
                                 (struct store_points_query){ .job = job, .rank = -1, .max_points = STORE_MAX_POINTS });
    same(&got, &want);
    assert_true(got.pages > 3);
    free_points(&got);
    free_points(&want);
}

static void names_and_a_rank_select_the_points_of_the_pages(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 3);
    struct points all = points_new();
    for (int rank = 0; rank < 3; rank++) {
        size_t from = all.n;
        add(&all, "b", rank, 1, 1, rank, BEGUN_US);
        add(&all, "a", rank, 1, 1, 10 + rank, BEGUN_US);
        report(f, job, all.at + from, 2, 1);
    }
    const char *const wanted[] = { "b", "none" };
    struct points got = read_all(f, (struct store_points_query){ job, wanted, 2, 1, 1, { 0 } });
    assert_int_equal(got.n, 1);
    assert_true(strcmp(got.at[0].name, "b") == 0 && got.at[0].rank == 1 && got.at[0].value == 1);
    free_points(&got);
    got = read_all(f, (struct store_points_query){ job, NULL, 0, 2, 1, { 0 } });
    assert_int_equal(got.n, 2);
    assert_true(got.at[0].value == 12 && got.at[1].value == 2);
    free_points(&got);
    free_points(&all);
}

/* Attempt 1 does 30 steps, with a checkpoint at 20; attempt 2 begins there. */
static void pages_show_the_state_at_the_first_page(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct points first = points_new(), second = points_new(), got = points_new();
    for (int i = 0; i < 30; i++)
        add(&first, "a", 0, 1, i + 1, 100 + i, BEGUN_US + i * 1000);
    report(f, job, first.at, 30, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record shard = record_shard(20, 0, 1, false);
    struct store_batch batch = { job, 1, 0, 31, &shard, 1, 0, "host" };
    struct store_batch_result result;
    OK(store_report_write(r, &batch, 1, &result, &e));
    struct store_points_query q = { .job = job, .rank = -1, .max_points = 10 };
    assert_true(take_page(f, &q, &got));
    assert_int_equal(fixture_next_attempt(f, job, 1, 1), 2);
    for (int i = 0; i < 40; i++)
        add(&second, "a", 0, 2, i + 21, 200 + i, BEGUN_US + 60000 + i * 1000);
    report(f, job, second.at, 40, 1);
    while (take_page(f, &q, &got))
        ;
    same(&got, &first);
    free_points(&got);
    got = read_all(f, (struct store_points_query){ .job = job, .rank = -1, .max_points = 7 });
    assert_int_equal(got.n, 60);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(got.at[i].step, i + 1);
        assert_int_equal(got.at[i].attempt, i < 20 ? 1 : 2);
        assert_true(got.at[i].value == (i < 20 ? 100 + i : 180 + i));
    }
    free_points(&got);
    free_points(&first);
    free_points(&second);
}

static void a_chunk_from_before_times_were_stored_has_none_and_is_left_alone(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct points p = points_new();
    add(&p, "a", 0, 1, 1, 10, BEGUN_US);
    add(&p, "a", 0, 1, 2, 20, BEGUN_US + 5000);
    report(f, job, p.at, 1, 1);
    pg_run(f->conninfo, "UPDATE metric_chunk SET first_time = NULL, times = NULL");
    report(f, job, p.at + 1, 1, 2); /* by a writer that does not remember the first */
    struct points got = read_all(f, (struct store_points_query){ .job = job, .rank = -1, .max_points = 10 });
    p.at[0].time_us = 0;
    same(&got, &p);
    free_points(&got);
    free_points(&p);
}

/* The clock is set while a rank runs: a chunk ends where 32-bit offsets do not reach. */
static void times_that_lie_far_apart_are_kept(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    static const int64_t times[] = { 1000, BEGUN_US, BEGUN_US - 3000, 2000, INT64_MAX / 2, BEGUN_US };
    struct points p = points_new();
    for (int i = 0; i < 6; i++)
        add(&p, "a", 0, 1, i + 1, i, times[i]);
    report(f, job, p.at, 3, 1);
    report(f, job, p.at + 3, 3, 4); /* by another writer, which reads the last chunk from its row */
    struct points got = read_all(f, (struct store_points_query){ .job = job, .rank = -1, .max_points = 10 });
    same(&got, &p);
    free_points(&got);
    free_points(&p);
}

static void a_query_that_cannot_be_is_refused(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct store_points *runs;
    size_t n;
    bool more;
    struct store_points_query q = { .job = job, .rank = -1, .max_points = 10 };
    OK(store_points_list(f->store, f->m, &q, &runs, &n, &more, &e));
    assert_true(n == 0 && !more);
    q.from.name = 999;
    FAILS(store_points_list(f->store, f->m, &q, &runs, &n, &more, &e), ST_INVALID_ARGUMENT, "no metric of number 999");
    q.max_points = STORE_MAX_POINTS + 1;
    FAILS(store_points_list(f->store, f->m, &q, &runs, &n, &more, &e), ST_INVALID_ARGUMENT, "max_points");
    q = (struct store_points_query){ .job = job + 1, .rank = -1, .max_points = 10 };
    FAILS(store_points_list(f->store, f->m, &q, &runs, &n, &more, &e), ST_NOT_FOUND, "does not exist");
}

static void times_are_packed_and_unpacked(void **state) {
    (void)state;
    static const int32_t ms[] = { 0, 63, -1, 64, 0, INT32_MAX, INT32_MIN, INT32_MAX, 0, -64, 8127, 8127 };
    enum { N = sizeof ms / sizeof *ms };
    uint8_t bytes[N * TIMES_POINT_BYTES + 1];
    int32_t back[N];
    size_t len = times_pack(ms, N, bytes);
    assert_true(len <= N * TIMES_POINT_BYTES);
    times_unpack(bytes, len, N, back);
    assert_memory_equal(back, ms, sizeof ms);
    assert_int_equal(times_pack((const int32_t[]){ 0, 63, -1 }, 3, bytes), 3);
    times_unpack(bytes, 2, 3, back); /* cut short */
    assert_true(back[1] == 63 && back[2] == 63);
    memset(bytes, 0xff, sizeof bytes);
    times_unpack(bytes, sizeof bytes, N, back); /* no varint ends */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_packed_and_unpacked),
        TEST(every_point_is_in_exactly_one_page_of_any_size),
        TEST(a_page_reads_no_more_rows_than_it_may),
        TEST(names_and_a_rank_select_the_points_of_the_pages),
        TEST(pages_show_the_state_at_the_first_page),
        TEST(a_chunk_from_before_times_were_stored_has_none_and_is_left_alone),
        TEST(times_that_lie_far_apart_are_kept),
        TEST(a_query_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name("points", tests, fixture_group_setup, fixture_group_teardown);
}
