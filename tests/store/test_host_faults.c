/* Faults of hosts are stored for the next leader. A checkpoint that a host cannot read is not marked as corrupt. */
#include "tests/store/store_fixture.h"

#include "service/store/checkpoint.h"
#include "service/store/executor.h"
#include "service/store/host_fault.h"
#include "service/store/job.h"

#include <stdio.h>
#include <string.h>

enum { HOST_FAULT = 12, CHECKPOINT_UNREADABLE = 13, WINDOW_MS = 600000 };

static void fault(struct fixture *f, int64_t job, int attempt, const char *executor, int cause, const char *reason) {
    const struct store_host_fault x = { .request_id = fixture_request(f),
                                        .job = job,
                                        .attempt = attempt,
                                        .executor = executor,
                                        .cause = cause,
                                        .reason = reason,
                                        .checkpoint = cause == CHECKPOINT_UNREADABLE,
                                        .window_ms = WINDOW_MS };
    OK(store_host_fault(f->store, f->epoch, &x, &e));
    OK(store_host_fault(f->store, f->epoch, &x, &e)); /* its answer was lost: it happens once */
}

static struct store_host_faults faults(struct fixture *f, int64_t first, int64_t last) {
    struct store_host_faults all;
    OK(store_host_faults(f->store, f->m, first, last, WINDOW_MS, &all, &e));
    return all;
}

/* A COMMITTED checkpoint of the running attempt. */
static int64_t checkpoint(struct fixture *f, int64_t job, int attempt, int step) {
    char sql[400];
    snprintf(sql, sizeof sql,
             "INSERT INTO checkpoint (job, attempt, step, state, world_size, shards, directory, commit_time) "
             "VALUES (%lld, %d, %d, 2, 1, 1, '/c', now())",
             (long long)job, attempt, step);
    pg_run(f->conninfo, sql);
    return pg_number(f->conninfo, "SELECT max(id) FROM checkpoint");
}

static struct store_checkpoint row_of(struct fixture *f, int64_t job, int64_t id) {
    struct store_checkpoint row;
    OK(store_checkpoint_get(f->store, f->m, job, id, &row, &e));
    return row;
}

static void the_hosts_that_a_job_avoids_are_kept_until_it_ends(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1), other = fixture_running(f, 1);
    fault(f, job, 1, "a", HOST_FAULT, "no file");
    fault(f, job, 1, "a", HOST_FAULT, "no file yet");
    fault(f, job, 1, "b", HOST_FAULT, "no device");
    fault(f, other, 1, "b", HOST_FAULT, "no device");
    struct store_host_faults all = faults(f, job, job);
    assert_int_equal(all.n_avoided, 2);
    assert_string_equal(all.avoided[0].executor, "a");
    assert_string_equal(all.avoided[0].reason, "no file yet");
    assert_int_equal(all.avoided[0].cause, HOST_FAULT);
    assert_in_range(all.avoided[0].age_ms, 0, WINDOW_MS);
    assert_int_equal(faults(f, job, other).n_avoided, 3);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'host_fault'"), 4);
    pg_run(f->conninfo, "UPDATE job_avoided_host SET time = now() - interval '11 minutes' WHERE executor = 'a'");
    assert_int_equal(faults(f, job, job).n_avoided, 1);
    fixture_move(f, job, 1, STORE_JOB_RUNNING, STORE_JOB_FAILED);
    assert_int_equal(faults(f, job, other).n_avoided, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job_avoided_host"), 1);
}

static void of_more_hosts_than_are_kept_the_oldest_go(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1);
    char name[8];
    for (int i = 0; i < STORE_MAX_AVOIDED_HOSTS + 3; i++) {
        snprintf(name, sizeof name, "h%02d", i);
        fault(f, job, 1, name, HOST_FAULT, "no file");
    }
    const struct store_host_faults all = faults(f, job, job);
    assert_int_equal(all.n_avoided, STORE_MAX_AVOIDED_HOSTS);
    assert_string_equal(all.avoided[0].executor, "h03");
}

static void an_executor_lists_its_faults_until_a_job_runs_there(void **state) {
    struct fixture *f = *state;
    struct store_executor row;
    const struct store_executor host = {
        .id = "host", .incarnation = 1, .hostname = "h", .address = "a", .version = "v", .slots = 1, .reason = ""
    };
    OK(store_executor_attach(f->store, f->epoch, &host, 1, &e));
    const int64_t first = fixture_running(f, 1), second = fixture_job(f, 1);
    OK(store_executor_get(f->store, f->m, "host", &row, &e));
    assert_int_equal(row.fault_jobs, 0);
    fault(f, first, 1, "host", HOST_FAULT, "no file");
    fault(f, first, 1, "host", HOST_FAULT, "no file");
    const int attempt = fixture_attempt(f, second, STORE_JOB_QUEUED, 1);
    fault(f, second, attempt, "host", HOST_FAULT, "no device");
    OK(store_executor_get(f->store, f->m, "host", &row, &e));
    assert_int_equal(row.fault_jobs, 2);
    assert_int_equal(row.fault_job, second);
    assert_string_equal(row.fault_reason, "no device");
    assert_true(row.fault_time_us > 0);
    fixture_move(f, second, attempt, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    OK(store_executor_get(f->store, f->m, "host", &row, &e));
    assert_int_equal(row.fault_jobs, 0);
    assert_int_equal(row.fault_time_us, 0);
}

static void an_unreadable_checkpoint_stays_committed_and_is_well_when_it_was_read(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1), id = checkpoint(f, job, 1, 9);
    int attempt = fixture_next_attempt(f, job, 1, 1);
    fault(f, job, attempt, "a", CHECKPOINT_UNREADABLE, "no such file");
    struct store_checkpoint row = row_of(f, job, id);
    const int64_t since_us = row.unreadable_time_us;
    assert_int_equal(row.state, STORE_CHECKPOINT_COMMITTED);
    assert_true(since_us > 0);
    assert_string_equal(row.reason, "executor a: no such file");
    fault(f, job, attempt, "b", CHECKPOINT_UNREADABLE, "I/O error");
    row = row_of(f, job, id);
    assert_int_equal(row.unreadable_time_us, since_us);
    assert_string_equal(row.reason, "executor b: I/O error");
    const struct store_host_faults all = faults(f, job, job);
    assert_int_equal(all.n_unreadable, 1);
    assert_int_equal(all.unreadable[0].job, job);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'checkpoint_unreadable'"), 2);
    attempt = fixture_next_attempt(f, job, attempt, 1); /* which runs: all ranks have read it */
    row = row_of(f, job, id);
    assert_int_equal(row.unreadable_time_us, 0);
    assert_string_equal(row.reason, "");
    assert_int_equal(faults(f, job, job).n_unreadable, 0);
}

static void a_missing_checkpoint_is_skipped_and_without_another_the_job_fails(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1), older = checkpoint(f, job, 1, 5), newest = checkpoint(f, job, 1, 9);
    int attempt = fixture_next_attempt(f, job, 1, 1);
    OK(store_checkpoint_missing(f->store, f->epoch, job, attempt, "executor a: no such file", &e));
    OK(store_checkpoint_missing(f->store, f->epoch, job, attempt, "executor a: no such file", &e));
    assert_int_equal(row_of(f, job, newest).state, STORE_CHECKPOINT_MISSING);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'checkpoint_missing'"), 1);
    attempt = fixture_next_attempt(f, job, attempt, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT from_checkpoint FROM attempt WHERE number = 3"), older);
    OK(store_checkpoint_missing(f->store, f->epoch, job, attempt, "executor a: no such file", &e));
    fixture_move(f, job, attempt, STORE_JOB_RUNNING, STORE_JOB_RESTARTING);
    OK(store_attempt_end(f->store, f->epoch, job, attempt, 0, "no such file", &e));
    const char *host = "host";
    struct store_attempt_start start;
    const struct store_attempt_new next = { .request_id = fixture_request(f),
                                            .job = job,
                                            .attempt = attempt + 1,
                                            .from = STORE_JOB_RESTARTING,
                                            .world_size = 1,
                                            .executors = &host,
                                            .reason = "" };
    OK(store_attempt_create(f->store, f->m, f->epoch, &next, &start, &e));
    assert_non_null(strstr(start.refused, "no checkpoint of the job can be read: the newest, of step 9, is MISSING"));
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM job"), STORE_JOB_FAILED);
}

static void the_result_of_a_check_becomes_the_state(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1), id = checkpoint(f, job, 1, 9);
    const int attempt = fixture_next_attempt(f, job, 1, 1);
    OK(store_checkpoint_missing(f->store, f->epoch, job, attempt, "no such file", &e));
    OK(store_checkpoint_verified(f->store, f->epoch, job, id, STORE_CHECK_UNREADABLE, "I/O error", &e));
    assert_int_equal(row_of(f, job, id).state, STORE_CHECKPOINT_MISSING);
    assert_string_equal(row_of(f, job, id).reason, "I/O error");
    OK(store_checkpoint_verified(f->store, f->epoch, job, id, STORE_CHECK_CORRUPT, "one bit", &e));
    assert_int_equal(row_of(f, job, id).state, STORE_CHECKPOINT_CORRUPT);
    assert_int_equal(row_of(f, job, id).unreadable_time_us, 0);
    OK(store_checkpoint_verified(f->store, f->epoch, job, id, STORE_CHECK_UNREADABLE, "I/O error", &e));
    assert_string_equal(row_of(f, job, id).reason, "one bit"); /* the more precise reason */
    OK(store_checkpoint_verified(f->store, f->epoch, job, id, STORE_CHECK_GOOD, "", &e));
    assert_int_equal(row_of(f, job, id).state, STORE_CHECKPOINT_COMMITTED);
    assert_string_equal(row_of(f, job, id).reason, "");
    pg_run(f->conninfo, "UPDATE checkpoint SET state = 4, delete_time = now()");
    FAILS(store_checkpoint_verified(f->store, f->epoch, job, id, STORE_CHECK_GOOD, "", &e), ST_NOT_FOUND,
          "does not exist any more");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_hosts_that_a_job_avoids_are_kept_until_it_ends),
        TEST(of_more_hosts_than_are_kept_the_oldest_go),
        TEST(an_executor_lists_its_faults_until_a_job_runs_there),
        TEST(an_unreadable_checkpoint_stays_committed_and_is_well_when_it_was_read),
        TEST(a_missing_checkpoint_is_skipped_and_without_another_the_job_fails),
        TEST(the_result_of_a_check_becomes_the_state),
    };
    return cmocka_run_group_tests_name("store host faults", tests, fixture_group_setup, fixture_group_teardown);
}
