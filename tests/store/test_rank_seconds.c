/* The causes of a rank's time, exactly, and that they add up to the wall time, whatever ended or was sent again. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/rank_seconds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREATED_US INT64_C(1000000000000000)

enum { FINISHED = 1, RANKS = 2 };

/* A job whose attempts were created at second 0. Times of the tests are seconds behind that. */
struct history {
    struct fixture *f;
    struct store_report *r;
    int64_t job, sequence[RANKS];
    int attempt;
};

static void run(const struct history *h, const char *format, double s) {
    char sql[400], time[80];
    snprintf(time, sizeof time, "to_timestamp(%.6f)", (double)CREATED_US / 1e6 + s);
    snprintf(sql, sizeof sql, format, time, (long long)h->job, h->attempt);
    pg_run(h->f->conninfo, sql);
}

static void created(struct history *h) {
    run(h, "UPDATE attempt SET create_time = %s WHERE job = %lld AND number = %d", 0);
    memset(h->sequence, 0, sizeof h->sequence);
}

static struct history begin(struct fixture *f) {
    struct history h = { .f = f, .r = store_report_new(f->store, f->epoch), .attempt = 1 };
    h.job = fixture_running(f, RANKS);
    created(&h);
    return h;
}

static void done(struct history *h) { store_report_free(h->r); }

static void report(struct history *h, int rank, double s, struct store_record record) {
    record.time_us = CREATED_US + (int64_t)(s * 1e6);
    assert_false(fixture_report(h->r, h->job, h->attempt, rank, ++h->sequence[rank], &record, 1).gap);
}

static void joined(struct history *h, int rank, double s) {
    report(h, rank, s, (struct store_record){ .kind = STORE_RECORD_JOINED });
}

/* A step of a model: the seconds of its row. */
static void step(struct history *h, int rank, double s, int64_t number, double data, double waiting, double stall) {
    static char *const names[] = { "memory_bytes", "data_wait_seconds", "communication_wait_seconds",
                                   "checkpoint_stall_seconds" };
    const double values[] = { 1e9, data, waiting, stall };
    struct store_record record = record_metrics(number, 4, names, values);
    record.metrics.per_rank = true;
    report(h, rank, s, record);
}

/* A sample of a device, which the agent adds to the reports of a rank. */
static void sample(struct history *h, int rank, double s, int64_t number) {
    static char *const names[] = { "device_utilization" };
    const double value = 1;
    struct store_record record = record_metrics(number, 1, names, &value);
    record.metrics.per_rank = true;
    report(h, rank, s, record);
}

/* Of the whole gang. */
static void row(struct history *h, int rank, double s, int64_t number) {
    static char *const names[] = { "loss" };
    const double value = 1;
    report(h, rank, s, record_metrics(number, 1, names, &value));
}

static void final_report(struct history *h, int rank, double s, bool as_asked) {
    report(h, rank, s,
           (struct store_record){ .kind = STORE_RECORD_END, .end = { FINISHED, "", 0, "", .as_asked = as_asked } });
}

static void rank_ended(const struct history *h, int rank, double s) {
    const struct store_rank_end end = {
        .rank = rank, .signal = 9, .message = "killed", .time_us = CREATED_US + (int64_t)(s * 1e6)
    };
    OK(store_rank_ended(h->f->store, h->f->epoch, "host", h->job, h->attempt, &end, 1, &e));
}

static void attempt_ended(const struct history *h, double s) {
    OK(store_attempt_end(h->f->store, h->f->epoch, h->job, h->attempt, 0, "a rank died", &e));
    run(h, "UPDATE attempt SET end_time = %s WHERE job = %lld AND number = %d", s);
}

static void next_attempt(struct history *h) {
    fixture_move(h->f, h->job, h->attempt, STORE_JOB_RUNNING, STORE_JOB_RESTARTING);
    h->attempt = fixture_attempt(h->f, h->job, STORE_JOB_RESTARTING, RANKS);
    fixture_move(h->f, h->job, h->attempt, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    created(h);
}

static double total(const struct store_rank_seconds *s) {
    return s->start + s->data + s->compute + s->waiting + s->checkpoint + s->repeated + s->idle;
}

static struct store_rank_seconds rank_of(const struct history *h, int rank) {
    struct store_one_rank_seconds *rows;
    size_t n;
    OK(store_rank_seconds(h->f->store, h->f->m, h->job, h->attempt, &rows, &n, &e));
    assert_int_equal(n, RANKS);
    assert_int_equal(rows[rank].rank, rank);
    return rows[rank].sum;
}

static void equals(const char *cause, double is, double should) {
    if (fabs(is - should) > 2e-6)
        fail_msg("%s is %.6f, not %.6f", cause, is, should);
}

static void rank_is(const struct history *h, int rank, struct store_rank_seconds should) {
    const struct store_rank_seconds is = rank_of(h, rank);
    equals("start", is.start, should.start);
    equals("data", is.data, should.data);
    equals("compute", is.compute, should.compute);
    equals("waiting", is.waiting, should.waiting);
    equals("checkpoint", is.checkpoint, should.checkpoint);
    equals("repeated", is.repeated, should.repeated);
    equals("idle", is.idle, should.idle);
}

/* ---- models ---- */

static void three_steps(struct history *h, int rank) {
    joined(h, rank, 10);
    step(h, rank, 12, 1, 0.5, 0.25, 0);
    step(h, rank, 14, 2, 0.5, 0.25, 0);
    step(h, rank, 17, 3, 0.25, 0.25, 1);
}

static void a_rank_that_finishes_has_each_second_under_its_cause(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    for (int rank = 0; rank < RANKS; rank++) {
        sample(&h, rank, 5, 0);
        joined(&h, rank, 10);
        row(&h, rank, 11, 1);
        step(&h, rank, 12, 1, 0.5, 0.25, 0);
        sample(&h, rank, 13, 1);
        step(&h, rank, 14, 2, 0.5, 0.25, 0);
        step(&h, rank, 17, 3, 0.25, 0.25, 1);
        final_report(&h, rank, 19, true);
        rank_ended(&h, rank, 19.5);
    }
    attempt_ended(&h, 20);
    const struct store_rank_seconds should = {
        .start = 10, .data = 1.25, .waiting = 0.75, .checkpoint = 1 + 2, .compute = 4, .idle = 1
    };
    rank_is(&h, 0, should);
    rank_is(&h, 1, should);
    struct store_attempt_seconds *rows;
    size_t n;
    OK(store_attempt_seconds(h.f->store, h.f->m, h.job, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_int_equal(rows[0].attempt, 1);
    assert_int_equal(rows[0].ranks, RANKS);
    equals("wall", rows[0].wall, 20);
    equals("total", total(&rows[0].sum), RANKS * 20);
    equals("compute", rows[0].sum.compute, RANKS * 4);
}

static void the_step_in_which_a_rank_is_killed_is_compute_and_then_it_is_idle(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    three_steps(&h, 0);
    three_steps(&h, 1);
    final_report(&h, 0, 19, false); /* its peer was lost */
    rank_ended(&h, 0, 19.5);
    rank_ended(&h, 1, 18);
    attempt_ended(&h, 20);
    rank_is(&h, 0, (struct store_rank_seconds){ 10, 1.25, 4 + 2, 0.75, 1, 0, 1 });
    rank_is(&h, 1, (struct store_rank_seconds){ 10, 1.25, 4 + 1, 0.75, 1, 0, 2 });
}

static void a_rank_of_a_lost_host_is_idle_after_its_last_report(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    three_steps(&h, 0);
    attempt_ended(&h, 60);
    rank_is(&h, 0, (struct store_rank_seconds){ 10, 1.25, 4, 0.75, 1, 0, 43 });
    rank_is(&h, 1, (struct store_rank_seconds){ .start = 60 }); /* it has reported nothing at all */
}

static void a_rank_that_dies_before_it_joins_was_only_starting(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    rank_ended(&h, 0, 7);
    attempt_ended(&h, 9);
    rank_is(&h, 0, (struct store_rank_seconds){ .start = 7, .idle = 2 });
}

static void steps_that_an_earlier_attempt_had_are_repeated(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    three_steps(&h, 0);
    three_steps(&h, 1);
    attempt_ended(&h, 20);
    next_attempt(&h); /* without a checkpoint: from step 0 */
    joined(&h, 0, 1);
    step(&h, 0, 2, 1, 0.5, 0.25, 0);
    rank_ended(&h, 0, 2);
    attempt_ended(&h, 3);
    rank_is(&h, 0, (struct store_rank_seconds){ .start = 1, .repeated = 1, .idle = 1 });
    next_attempt(&h); /* the last attempt had only step 1; the first one had 3 */
    joined(&h, 0, 1);
    step(&h, 0, 2, 1, 0.5, 0, 0);
    step(&h, 0, 4, 3, 0.5, 0, 0);
    step(&h, 0, 7, 4, 0.5, 0, 0);
    rank_ended(&h, 0, 7);
    attempt_ended(&h, 7);
    rank_is(&h, 0, (struct store_rank_seconds){ .start = 1, .repeated = 3, .data = 0.5, .compute = 2.5 });
    struct store_attempt_seconds *rows;
    size_t n;
    OK(store_attempt_seconds(h.f->store, h.f->m, h.job, &rows, &n, &e));
    assert_int_equal(n, 3);
    equals("of the first attempt", rows[0].sum.repeated, 0);
}

static void reports_that_are_sent_again_change_nothing(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    static char *const names[] = { "data_wait_seconds" };
    const double value = 0.5;
    struct store_record records[4] = { { .kind = STORE_RECORD_JOINED } };
    for (int i = 1; i < 4; i++)
        records[i] = record_metrics(i, 1, names, &value);
    for (int i = 1; i < 4; i++)
        records[i].metrics.per_rank = true;
    for (int i = 0; i < 4; i++)
        records[i].time_us = CREATED_US + (1 + i) * 1000000;
    fixture_report(h.r, h.job, 1, 0, 1, records, 2);
    for (int again = 0; again < 3; again++) {
        if (again == 2) { /* another controller: it reads the sums from the row */
            store_report_free(h.r);
            h.r = store_report_new(h.f->store, h.f->epoch);
        }
        fixture_report(h.r, h.job, 1, 0, 1, records, again == 2 ? 4 : 3);
        fixture_report(h.r, h.job, 1, 0, 2, records + 1, 2);
    }
    rank_ended(&h, 0, 4);
    attempt_ended(&h, 5);
    rank_is(&h, 0, (struct store_rank_seconds){ .start = 1, .data = 1.5, .compute = 1.5, .idle = 1 });
    assert_int_equal(pg_number(h.f->conninfo, "SELECT count(*) FROM rank_sequence"), 1);
}

/* ---- programs ---- */

static void a_program_starts_until_its_first_metric_and_then_computes(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    pg_run(h.f->conninfo, "UPDATE job SET steps = 0");
    joined(&h, 0, 1);
    joined(&h, 1, 1);
    sample(&h, 0, 2, 0);
    row(&h, 0, 5, 10);
    row(&h, 0, 8, 20);
    final_report(&h, 0, 11, true);
    rank_ended(&h, 0, 11);
    rank_ended(&h, 1, 10); /* it reports nothing, and ends earlier */
    attempt_ended(&h, 12);
    rank_is(&h, 0, (struct store_rank_seconds){ .start = 5, .compute = 6, .idle = 1 });
    rank_is(&h, 1, (struct store_rank_seconds){ .start = 5, .compute = 5, .idle = 2 });
    next_attempt(&h);
    row(&h, 0, 2, 0);
    row(&h, 0, 3, 20);
    row(&h, 0, 5, 30);
    rank_ended(&h, 0, 6);
    attempt_ended(&h, 6);
    rank_is(&h, 0, (struct store_rank_seconds){ .start = 2, .repeated = 1, .compute = 3 });
}

static void a_program_without_metrics_computes_since_it_joined_once_it_has_ended(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    pg_run(h.f->conninfo, "UPDATE job SET steps = 0");
    joined(&h, 0, 3);
    assert_true(rank_of(&h, 0).compute == 0);
    final_report(&h, 0, 9, true);
    rank_ended(&h, 0, 9);
    attempt_ended(&h, 10);
    rank_is(&h, 0, (struct store_rank_seconds){ .start = 3, .compute = 6, .idle = 1 });
}

/* ---- always ---- */

static void a_running_attempt_adds_up_to_now(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    struct store_attempt_seconds *rows;
    size_t n;
    three_steps(&h, 0);
    OK(store_attempt_seconds(h.f->store, h.f->m, h.job, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_true(rows[0].wall > 1e8); /* it was created in 2001 */
    assert_true(fabs(total(&rows[0].sum) - RANKS * rows[0].wall) < 1e-6 * rows[0].wall);
    assert_true(fabs(rows[0].sum.compute - (rows[0].wall - 13)) < 1e-3); /* the step in progress */
}

static double live_compute(const struct history *h) {
    struct store_job_seconds *jobs;
    size_t n;
    OK(store_job_seconds(h->f->store, h->f->m, &h->job, 1, &jobs, &n, &e));
    assert_int_equal(n, 1);
    assert_int_equal(jobs[0].job, h->job);
    return jobs[0].sum.compute;
}

static void counters_of_live_jobs_leave_out_what_the_next_report_divides(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    struct store_job_seconds *jobs;
    size_t n;
    three_steps(&h, 0);
    equals("three steps", live_compute(&h), 4);
    rank_ended(&h, 0, 18);
    equals("the step of a rank that was killed", live_compute(&h), 5);
    pg_run(h.f->conninfo, "UPDATE job SET steps = 0"); /* from here on as of a program, whose reports divide nothing */
    assert_true(live_compute(&h) > 1e8);
    attempt_ended(&h, 18);
    const double before = live_compute(&h);
    next_attempt(&h);
    row(&h, 0, 1, 1);
    row(&h, 0, 2, 2);
    equals("a step that may be repeated", live_compute(&h), before);
    row(&h, 0, 3, 4);
    assert_true(live_compute(&h) > before + 1e8);
    const int64_t others[] = { fixture_running(h.f, 1), fixture_job(h.f, 1) };
    OK(store_job_seconds(h.f->store, h.f->m, others, 2, &jobs, &n, &e));
    assert_int_equal(n, 1); /* not h.job, and no job without an attempt */
    assert_int_equal(jobs[0].job, others[0]);
}

static void clocks_that_jump_move_seconds_but_never_the_sum(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    joined(&h, 0, -50); /* its clock is behind that of the database */
    step(&h, 0, -40, 1, 1, 1, 1);
    step(&h, 0, 100000, 2, 1, 1, 1);
    step(&h, 0, 5, 3, NAN, -1, INFINITY);
    rank_ended(&h, 0, 6);
    joined(&h, 1, 9e9);
    step(&h, 1, -9e8, 1, 1e300, 1e300, 1e300);
    step(&h, 1, 9e9, 2, 0, 0, 0);
    attempt_ended(&h, 10);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct store_rank_seconds s = rank_of(&h, rank);
        equals("total", total(&s), 10);
        assert_true(s.start >= 0 && s.data >= 0 && s.compute >= 0 && s.waiting >= 0 && s.checkpoint >= 0 &&
                    s.repeated >= 0 && s.idle >= 0);
    }
}

static double some(double max) { return max * rand() / RAND_MAX; }

/* Attempts of any length whose ranks join, report, end and are killed at any time, or do none of it. */
static void the_causes_of_any_history_add_up(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    const char *given = getenv("TRAINYARD_SEED");
    const unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)(clock_wall_us() & 0xffff);
    printf("# TRAINYARD_SEED=%u\n", seed);
    srand(seed);
    for (int i = 0; i < 12; i++) {
        const double wall = some(100);
        for (int rank = 0; rank < RANKS; rank++) {
            double s = some(50) - 5;
            if (rand() % 4)
                joined(&h, rank, s);
            for (int64_t number = 1, steps = rand() % 4; number <= steps; number++)
                step(&h, rank, s += some(20) - 1, number, some(3), some(3), some(3));
            if (rand() % 3 == 0)
                final_report(&h, rank, s += some(5), rand() % 2);
            if (rand() % 3)
                rank_ended(&h, rank, s + some(30));
        }
        attempt_ended(&h, wall);
        for (int rank = 0; rank < RANKS; rank++) {
            const struct store_rank_seconds s = rank_of(&h, rank);
            equals("total", total(&s), wall);
            assert_true(fmin(fmin(fmin(s.start, s.data), fmin(s.compute, s.waiting)),
                             fmin(fmin(s.checkpoint, s.repeated), s.idle)) >= 0);
        }
        next_attempt(&h);
    }
}

/* Numbers from outside, at their limits, are stored. */
static void times_at_the_limits_of_their_type_are_no_failure(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    struct store_record records[400] = { { .kind = STORE_RECORD_JOINED } };
    for (int i = 0; i < 400; i++) {
        if (i > 0)
            records[i] = (struct store_record){ .kind = STORE_RECORD_END,
                                                .end = { .message = "", .weights_sha256 = "" } };
        records[i].time_us = i == 0 ? 1 : i % 2 ? INT64_MAX : INT64_MIN;
    }
    assert_int_equal(fixture_report(h.r, h.job, 1, 0, 1, records, 400).sequence, 400);
    const struct store_rank_seconds s = rank_of(&h, 0);
    assert_true(s.compute > 1e8);
    assert_int_equal(pg_number(h.f->conninfo, "SELECT compute_us FROM rank_sequence"), 1000000000000000);
}

static void a_deleted_job_and_an_imported_run_have_none(void **state) {
    CLEANUP(done) struct history h = begin(*state);
    struct store_attempt_seconds *rows;
    size_t n;
    three_steps(&h, 0);
    pg_run(h.f->conninfo, "INSERT INTO imported_run (job, source, id) SELECT id, 'mlflow', 'x' FROM job");
    OK(store_attempt_seconds(h.f->store, h.f->m, h.job, &rows, &n, &e));
    assert_int_equal(n, 0);
    OK(store_attempt_seconds(h.f->store, h.f->m, h.job + 1, &rows, &n, &e));
    assert_int_equal(n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_rank_that_finishes_has_each_second_under_its_cause),
        TEST(the_step_in_which_a_rank_is_killed_is_compute_and_then_it_is_idle),
        TEST(a_rank_of_a_lost_host_is_idle_after_its_last_report),
        TEST(a_rank_that_dies_before_it_joins_was_only_starting),
        TEST(steps_that_an_earlier_attempt_had_are_repeated),
        TEST(reports_that_are_sent_again_change_nothing),
        TEST(a_program_starts_until_its_first_metric_and_then_computes),
        TEST(a_program_without_metrics_computes_since_it_joined_once_it_has_ended),
        TEST(a_running_attempt_adds_up_to_now),
        TEST(counters_of_live_jobs_leave_out_what_the_next_report_divides),
        TEST(clocks_that_jump_move_seconds_but_never_the_sum),
        TEST(the_causes_of_any_history_add_up),
        TEST(times_at_the_limits_of_their_type_are_no_failure),
        TEST(a_deleted_job_and_an_imported_run_have_none),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
