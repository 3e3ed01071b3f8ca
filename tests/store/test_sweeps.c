/* Sweeps and trials as rows: a trial has at most one job, a cancelled sweep gets no further ones, and ends are counted
 * once. */
#include "tests/store/store_fixture.h"

#include "service/store/job.h"
#include "service/store/job_delete.h"
#include "service/store/metric_at.h"
#include "service/store/sweep.h"
#include "service/store/sweep_rung.h"
#include "service/store/sweep_trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const uint8_t DIGEST[32] = { 1 }, OTHER_DIGEST[32] = { 2 };

static struct store_sweep_new sweep_of(const char *name, const char *request_id, int trials) {
    return (struct store_sweep_new){ .name = name,
                                     .request_id = request_id,
                                     .request_digest = DIGEST,
                                     .spec = "spec",
                                     .spec_bytes = 4,
                                     .trials = trials };
}

static struct store_sweep create(struct fixture *f, const char *name, int trials) {
    const struct store_sweep_new new = sweep_of(name, name, trials);
    struct store_sweep row;
    OK(store_sweep_create(f->store, f->m, f->epoch, &new, &row, &e));
    return row;
}

static struct store_sweep get(struct fixture *f, const char *name) {
    struct store_sweep row;
    OK(store_sweep_get(f->store, f->m, name, &row, &e));
    return row;
}

static status_t create_trial(struct fixture *f, int64_t sweep, int trial, int64_t *ret_job, struct err *e) {
    char id[64];
    bool existed;
    snprintf(id, sizeof id, "sweep-%lld-%d", (long long)sweep, trial);
    const struct store_job_new job = { .request_id = id,
                                       .name = "trial",
                                       .queue = "default",
                                       .world_size = 1,
                                       .accelerator = "cpu",
                                       .spec = "",
                                       .sweep = sweep,
                                       .trial = trial };
    return store_job_create(f->store, f->epoch, &job, ret_job, &existed, NULL, e);
}

static int64_t add_trial(struct fixture *f, int64_t sweep, int trial) {
    int64_t job;
    OK(create_trial(f, sweep, trial, &job, &e));
    return job;
}

static void end_trial(struct fixture *f, int64_t sweep, int trial, enum store_job_state state, double metric) {
    const struct store_trial end = {
        .number = trial, .state = state, .step = 9, .reason = "why", .has_metric = !isnan(metric), .metric = metric
    };
    OK(store_trial_end(f->store, f->epoch, sweep, &end, &e));
}

static void a_request_makes_one_sweep_and_a_name_is_used_once(void **state) {
    struct fixture *f = *state;
    const struct store_sweep first = create(f, "lr", 3);
    struct store_sweep row;
    struct store_sweep_new new = sweep_of("lr", "lr", 3);
    assert_int_equal(first.state, STORE_SWEEP_RUNNING);
    assert_int_equal(first.trials, 3);
    assert_int_equal(first.spec_bytes, 4);
    OK(store_sweep_create(f->store, f->m, f->epoch, &new, &row, &e));
    assert_int_equal(row.id, first.id);
    OK(store_sweep_requested(f->store, f->m, "lr", DIGEST, &row, &e));
    assert_int_equal(row.id, first.id);
    FAILS(store_sweep_requested(f->store, f->m, "lr", OTHER_DIGEST, &row, &e), ST_ALREADY_EXISTS, "another spec");
    FAILS(store_sweep_requested(f->store, f->m, "none", DIGEST, &row, &e), ST_NOT_FOUND, "none");
    new.request_digest = OTHER_DIGEST;
    FAILS(store_sweep_create(f->store, f->m, f->epoch, &new, &row, &e), ST_ALREADY_EXISTS, "request_id");
    new.request_id = "another";
    FAILS(store_sweep_create(f->store, f->m, f->epoch, &new, &row, &e), ST_ALREADY_EXISTS,
          "name: the sweep 'lr' exists already");
    FAILS(store_sweep_get(f->store, f->m, "nope", &row, &e), ST_NOT_FOUND, "sweeps/nope does not exist");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM sweep"), 1);
}

static void trials_are_created_once_in_order_and_only_while_the_sweep_runs(void **state) {
    struct fixture *f = *state;
    const struct store_sweep sweep = create(f, "s", 3);
    struct store_trial *rows;
    size_t n;
    int64_t again;
    const int64_t first = add_trial(f, sweep.id, 1);
    OK(create_trial(f, sweep.id, 1, &again, &e)); /* the answer was lost: the job of the first call */
    assert_int_equal(again, first);
    FAILS(create_trial(f, sweep.id, 3, &again, &e), ST_FAILED_PRECONDITION, "trial 3 cannot be created");
    add_trial(f, sweep.id, 2);
    assert_int_equal(get(f, "s").created, 2);
    OK(store_trial_open(f->store, f->m, sweep.id, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(rows[0].job, first);
    assert_int_equal(rows[0].state, STORE_JOB_QUEUED);
    assert_true(rows[0].open && !rows[0].has_metric);
    /* The request id is gone with the deleted job, but the trial is not created again. */
    OK(store_job_move(
        f->store, f->epoch,
        &(struct store_job_move){
            .request_id = "c", .job = first, .from = STORE_JOB_QUEUED, .to = STORE_JOB_CANCELLED, .reason = "" },
        NULL, &e));
    OK(store_job_delete(f->store, f->epoch, first, &e));
    struct store_delete_at at = { 0 };
    for (bool done = false; !done;)
        OK(store_job_delete_rows(f->store, f->epoch, first, &at, &done, &e));
    FAILS(create_trial(f, sweep.id, 1, &again, &e), ST_FAILED_PRECONDITION, "its next trial is another one");
    OK(store_trial_open(f->store, f->m, sweep.id, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(rows[0].job, 0);
    assert_int_equal(rows[0].state, 0);
    OK(store_sweep_cancel(f->store, f->epoch, "s", &e));
    FAILS(create_trial(f, sweep.id, 3, &again, &e), ST_FAILED_PRECONDITION, "is not RUNNING");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job"), 1);
}

static void ends_are_counted_once_and_the_best_trial_is_kept(void **state) {
    struct fixture *f = *state;
    const struct store_sweep sweep = create(f, "s", 7);
    for (int trial = 1; trial <= 7; trial++)
        add_trial(f, sweep.id, trial);
    end_trial(f, sweep.id, 1, STORE_JOB_FAILED, 0.1); /* FAILED trials are never the best */
    assert_int_equal(get(f, "s").best, 0);
    end_trial(f, sweep.id, 2, STORE_JOB_SUCCEEDED, NAN);
    end_trial(f, sweep.id, 3, STORE_JOB_SUCCEEDED, INFINITY);
    assert_int_equal(get(f, "s").best, 0);
    end_trial(f, sweep.id, 5, STORE_JOB_SUCCEEDED, 2);
    end_trial(f, sweep.id, 5, STORE_JOB_SUCCEEDED, 1); /* stored already */
    assert_int_equal(get(f, "s").best, 5);
    end_trial(f, sweep.id, 4, STORE_JOB_SUCCEEDED, 2); /* as good, and the lower number */
    assert_int_equal(get(f, "s").best, 4);
    end_trial(f, sweep.id, 6, STORE_JOB_CANCELLED, 0.5);
    const struct store_sweep row = get(f, "s");
    assert_int_equal(row.best, 4);
    assert_int_equal(row.ended, 6);
    assert_int_equal(row.succeeded, 4);
    assert_int_equal(row.failed, 1);
    struct store_trial *rows;
    size_t n;
    OK(store_trial_list(f->store, f->m, sweep.id, 3, 2, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(rows[0].number, 4);
    assert_true(rows[1].has_metric && rows[1].metric == 2);
    assert_false(rows[1].open);
}

static void a_result_at_a_rung_is_stored_once_with_what_follows(void **state) {
    struct fixture *f = *state;
    const struct store_sweep sweep = create(f, "s", 2);
    struct store_trial *rows;
    double *scores;
    size_t n;
    add_trial(f, sweep.id, 1);
    add_trial(f, sweep.id, 2);
    struct store_rung_result r = { .trial = 1, .rung = 1, .step = 20, .score = 0.5, .stop_reason = "" };
    OK(store_rung_write(f->store, f->epoch, sweep.id, &r, &e));
    r.score = 0.1; /* the answer was lost: the first result stays */
    OK(store_rung_write(f->store, f->epoch, sweep.id, &r, &e));
    OK(store_rung_scores(f->store, f->m, sweep.id, 1, &scores, &n, &e));
    assert_int_equal(n, 1);
    assert_true(scores[0] == 0.5);
    r = (struct store_rung_result){ .trial = 2, .rung = 1, .step = 21, .score = INFINITY, .stop_reason = "rank 2" };
    OK(store_rung_write(f->store, f->epoch, sweep.id, &r, &e));
    OK(store_rung_write(f->store, f->epoch, sweep.id, &r, &e));
    assert_int_equal(get(f, "s").stopped, 1);
    OK(store_trial_open(f->store, f->m, sweep.id, &rows, &n, &e));
    assert_int_equal(rows[0].rungs, 1);
    assert_string_equal(rows[0].stop_reason, "");
    assert_int_equal(rows[1].stop_step, 21);
    assert_string_equal(rows[1].stop_reason, "rank 2");
    end_trial(f, sweep.id, 1, STORE_JOB_SUCCEEDED, 1);
    r = (struct store_rung_result){ .trial = 1, .rung = 2, .step = 60, .score = 1, .stop_reason = "late" };
    OK(store_rung_write(f->store, f->epoch, sweep.id, &r, &e)); /* its end is stored: nothing changes */
    assert_int_equal(get(f, "s").stopped, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM sweep_rung"), 2);
}

/* Points of rank 0 at the steps from, from + stride, ... to; the value is the step plus `plus`. */
static void report(struct fixture *f, int64_t job, int attempt, int64_t first, int from, int to, int stride,
                   double plus) {
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    static char *const name = "loss";
    static double values[2000];
    static struct store_record records[2000];
    size_t n = 0;
    for (int step = from; step <= to; step += stride, n++) {
        values[n] = step + plus;
        records[n] = record_metrics(step, 1, &name, &values[n]);
    }
    fixture_report(r, job, attempt, 0, first, records, n);
}

static void expect_at(struct fixture *f, int64_t job, int64_t asked, int64_t step, double value) {
    bool found;
    int64_t at;
    double v;
    OK(store_metric_at(f->store, job, "loss", asked, &found, &at, &v, &e));
    assert_int_equal(found, step > 0);
    if (step > 0) {
        assert_int_equal(at, step);
        assert_true(v == value);
    }
}

static void the_metric_at_a_step_is_the_first_point_that_no_attempt_repeats(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1);
    bool found;
    int64_t at;
    double v;
    expect_at(f, job, 1, 0, 0);
    report(f, job, 1, 1, 1, 1000, 1, 0);
    expect_at(f, job, 1, 1, 1);
    expect_at(f, job, 700, 700, 700);
    expect_at(f, job, 1001, 0, 0);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    fixture_checkpoint(r, job, 500, 0, 1001);
    fixture_next_attempt(f, job, 1, 1); /* begins at step 500 */
    expect_at(f, job, 500, 500, 500);
    expect_at(f, job, 501, 0, 0);
    report(f, job, 2, 1, 510, 1010, 10, 0.5);
    expect_at(f, job, 501, 510, 510.5);
    expect_at(f, job, 991, 1000, 1000.5);
    expect_at(f, job, 10, 10, 10);
    OK(store_metric_at(f->store, job, "other", 1, &found, &at, &v, &e));
    assert_false(found);
    FAILS(store_metric_at(f->store, 999, "loss", 1, &found, &at, &v, &e), ST_NOT_FOUND, "jobs/999");
}

static void with_maximize_the_highest_metric_is_the_best(void **state) {
    struct fixture *f = *state;
    struct store_sweep_new new = sweep_of("m", "m", 2);
    struct store_sweep sweep;
    new.maximize = true;
    OK(store_sweep_create(f->store, f->m, f->epoch, &new, &sweep, &e));
    add_trial(f, sweep.id, 1);
    add_trial(f, sweep.id, 2);
    end_trial(f, sweep.id, 1, STORE_JOB_SUCCEEDED, 0.9);
    end_trial(f, sweep.id, 2, STORE_JOB_SUCCEEDED, 0.8);
    assert_int_equal(get(f, "m").best, 1);
}

static void a_sweep_ends_after_its_trials_and_is_deleted_after_its_end(void **state) {
    struct fixture *f = *state;
    const struct store_sweep sweep = create(f, "s", 1);
    struct store_sweep row;
    add_trial(f, sweep.id, 1);
    FAILS(store_sweep_end(f->store, f->epoch, sweep.id, STORE_SWEEP_RUNNING, STORE_SWEEP_SUCCEEDED, "", &e),
          ST_FAILED_PRECONDITION, "a trial of it has not ended");
    FAILS(store_sweep_delete(f->store, f->epoch, "s", &e), ST_FAILED_PRECONDITION, "sweeps/s is RUNNING");
    end_trial(f, sweep.id, 1, STORE_JOB_SUCCEEDED, 1);
    OK(store_sweep_open_next(f->store, f->m, 0, &row, &e));
    assert_int_equal(row.id, sweep.id);
    OK(store_sweep_end(f->store, f->epoch, sweep.id, STORE_SWEEP_RUNNING, STORE_SWEEP_SUCCEEDED, "", &e));
    OK(store_sweep_open_next(f->store, f->m, 0, &row, &e));
    assert_int_equal(row.id, 0);
    FAILS(store_sweep_cancel(f->store, f->epoch, "s", &e), ST_FAILED_PRECONDITION, "is SUCCEEDED");
    OK(store_sweep_delete(f->store, f->epoch, "s", &e));
    FAILS(store_sweep_delete(f->store, f->epoch, "s", &e), ST_NOT_FOUND, "sweeps/s");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM sweep_trial"), 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job"), 1);
}

static void a_stopped_sweep_keeps_its_reason_and_a_cancel_changes_nothing_twice(void **state) {
    struct fixture *f = *state;
    const struct store_sweep sweep = create(f, "s", 1);
    OK(store_sweep_stop(f->store, f->epoch, sweep.id, "too many", &e));
    OK(store_sweep_cancel(f->store, f->epoch, "s", &e));
    OK(store_sweep_stop(f->store, f->epoch, sweep.id, "another", &e));
    assert_int_equal(get(f, "s").state, STORE_SWEEP_CANCELLING);
    assert_string_equal(get(f, "s").reason, "too many");
    OK(store_sweep_end(f->store, f->epoch, sweep.id, STORE_SWEEP_CANCELLING, STORE_SWEEP_FAILED, "too many", &e));
    create(f, "t", 1);
    OK(store_sweep_cancel(f->store, f->epoch, "t", &e));
    OK(store_sweep_end(f->store, f->epoch, get(f, "t").id, STORE_SWEEP_CANCELLING, STORE_SWEEP_CANCELLED, "", &e));
    OK(store_sweep_cancel(f->store, f->epoch, "t", &e)); /* a repeated call */
}

static void lists_are_pages_and_old_sweeps_are_deleted(void **state) {
    struct fixture *f = *state;
    struct store_sweep *rows;
    int64_t deleted;
    size_t n;
    create(f, "a", 1);
    create(f, "b", 1);
    create(f, "c", 1);
    OK(store_sweep_list(f->store, f->m, 0, 2, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(rows[0].name, "c");
    assert_null(rows[0].spec);
    OK(store_sweep_list(f->store, f->m, rows[1].id, 2, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "a");
    OK(store_sweep_cancel(f->store, f->epoch, "a", &e));
    OK(store_sweep_end(f->store, f->epoch, rows[0].id, STORE_SWEEP_CANCELLING, STORE_SWEEP_CANCELLED, "", &e));
    OK(store_sweep_delete_old(f->store, f->epoch, 1, 10, &deleted, &e));
    assert_int_equal(deleted, 0);
    pg_run(f->conninfo, "UPDATE sweep SET end_time = now() - interval '2 days' WHERE name = 'a'");
    OK(store_sweep_delete_old(f->store, f->epoch, 1, 10, &deleted, &e));
    assert_int_equal(deleted, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM sweep"), 2);
}

static void a_cancelled_job_keeps_the_reason_of_its_cancel(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1);
    struct store_job row;
    OK(store_job_move(f->store, f->epoch,
                      &(struct store_job_move){ .request_id = "a",
                                                .job = job,
                                                .attempt = 1,
                                                .from = STORE_JOB_RUNNING,
                                                .to = STORE_JOB_CANCELLING,
                                                .reason = "its sweep was cancelled" },
                      NULL, &e));
    OK(store_job_move(f->store, f->epoch,
                      &(struct store_job_move){ .request_id = "b",
                                                .job = job,
                                                .attempt = 1,
                                                .from = STORE_JOB_CANCELLING,
                                                .to = STORE_JOB_CANCELLED,
                                                .reason = "" },
                      NULL, &e));
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_string_equal(row.reason, "its sweep was cancelled");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE state = 11 "
                                            "AND message = 'its sweep was cancelled'"),
                     1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_request_makes_one_sweep_and_a_name_is_used_once),
        TEST(trials_are_created_once_in_order_and_only_while_the_sweep_runs),
        TEST(ends_are_counted_once_and_the_best_trial_is_kept),
        TEST(a_result_at_a_rung_is_stored_once_with_what_follows),
        TEST(the_metric_at_a_step_is_the_first_point_that_no_attempt_repeats),
        TEST(with_maximize_the_highest_metric_is_the_best),
        TEST(a_sweep_ends_after_its_trials_and_is_deleted_after_its_end),
        TEST(a_stopped_sweep_keeps_its_reason_and_a_cancel_changes_nothing_twice),
        TEST(lists_are_pages_and_old_sweeps_are_deleted),
        TEST(a_cancelled_job_keeps_the_reason_of_its_cancel),
    };
    return cmocka_run_group_tests_name("store sweeps", tests, fixture_group_setup, fixture_group_teardown);
}
