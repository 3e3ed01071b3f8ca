/* Imported runs: found by their source and id, written without an open attempt, kept from the import on; and the rows
 * of artifacts. */
#include "tests/store/store_fixture.h"

#include "service/store/artifact.h"
#include "service/store/imported_run.h"
#include "service/store/job_delete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *const NAMES[] = { "loss" };
static char *const TEXTS[] = { "lr=0.1" };

static struct store_imported_run run_of(const char *id) {
    return (struct store_imported_run){ .source = "mlflow",
                                        .id = id,
                                        .name = "run",
                                        .user = "importer",
                                        .state = STORE_JOB_FAILED,
                                        .start_time_us = 1000000,
                                        .end_time_us = 2000000,
                                        .spec = "spec",
                                        .spec_bytes = 4,
                                        .parameters = TEXTS,
                                        .n_parameters = 1 };
}

static int64_t import_run(struct fixture *f, const struct store_imported_run *run, int64_t *ret_rows,
                          bool *ret_created) {
    int64_t job = 0;
    OK(store_imported_run(f->store, f->epoch, run, &job, ret_rows, ret_created, &e));
    return job;
}

static struct store_batch_result report_as(struct fixture *f, int64_t job, const char *executor, int64_t first, int n) {
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    struct store_record records[10];
    double value = 1;
    for (int i = 0; i < n; i++)
        records[i] = record_metrics(first + i, 1, NAMES, &value);
    struct store_batch batch = { job, 1, 0, first, records, (size_t)n, 0, executor };
    struct store_batch_result result;
    OK(store_report_write(r, &batch, 1, &result, &e));
    return result;
}

static void a_run_is_one_job_and_its_rows_are_stored_once(void **state) {
    struct fixture *f = *state;
    struct store_imported_run run = run_of("a"), other = run_of("b");
    int64_t rows;
    bool created;
    const int64_t job = import_run(f, &run, &rows, &created);
    assert_true(created && rows == 0);
    assert_false(report_as(f, job, STORE_IMPORT_EXECUTOR, 1, 5).fenced);
    assert_int_equal(report_as(f, job, STORE_IMPORT_EXECUTOR, 3, 6).sequence, 8);
    assert_true(report_as(f, job, STORE_IMPORT_EXECUTOR, 10, 1).gap);
    assert_true(report_as(f, job, "host", 9, 1).fenced);
    run.end_time_us = 9000000;
    assert_int_equal(import_run(f, &run, &rows, &created), job);
    assert_true(!created && rows == 8);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 8);
    assert_int_equal(pg_number(f->conninfo, "SELECT extract(epoch FROM end_time) FROM job"), 9);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'parameters'"), 1);
    assert_true(import_run(f, &other, &rows, &created) != job && created);
}

static void an_imported_job_cannot_be_retried(void **state) {
    struct fixture *f = *state;
    struct store_imported_run run = run_of("a");
    int64_t rows;
    bool created, gone, imported;
    const int64_t job = import_run(f, &run, &rows, &created);
    struct store_job_move move = { .request_id = fixture_request(f),
                                   .job = job,
                                   .attempt = 1,
                                   .from = STORE_JOB_FAILED,
                                   .to = STORE_JOB_QUEUED,
                                   .reason = "" };
    FAILS(store_job_retry(f->store, f->epoch, &move, &gone, &e), ST_FAILED_PRECONDITION, "was imported");
    OK(store_job_imported(f->store, job, &imported, &e));
    assert_true(imported);
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM job"), STORE_JOB_FAILED);
}

static void the_days_of_an_imported_job_begin_with_the_import(void **state) {
    struct fixture *f = *state;
    struct store_imported_run run = run_of("a");
    int64_t rows, *jobs;
    bool created;
    size_t n;
    import_run(f, &run, &rows, &created);
    OK(store_job_ended_before(f->store, f->m, 1, 10, &jobs, &n, &e));
    assert_int_equal(n, 0);
    pg_run(f->conninfo, "UPDATE imported_run SET import_time = now() - interval '2 days'");
    OK(store_job_ended_before(f->store, f->m, 1, 10, &jobs, &n, &e));
    assert_int_equal(n, 1);
}

static void a_run_that_cannot_be_stored_is_refused(void **state) {
    struct fixture *f = *state;
    struct store_imported_run run = run_of("");
    int64_t job, rows;
    bool created;
    FAILS(store_imported_run(f->store, f->epoch, &run, &job, &rows, &created, &e), ST_INVALID_ARGUMENT, "run.id");
    run = run_of("a");
    run.source = "MLflow";
    FAILS(store_imported_run(f->store, f->epoch, &run, &job, &rows, &created, &e), ST_INVALID_ARGUMENT, "run.source");
    run = run_of("a");
    run.state = STORE_JOB_RUNNING;
    FAILS(store_imported_run(f->store, f->epoch, &run, &job, &rows, &created, &e), ST_INVALID_ARGUMENT, "run.state");
    run = run_of("a");
    run.end_time_us = 1;
    FAILS(store_imported_run(f->store, f->epoch, &run, &job, &rows, &created, &e), ST_INVALID_ARGUMENT,
          "run.start_time");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job"), 0);
}

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct store_record artifact(const char *path, int64_t bytes, const char *sha256) {
    return (struct store_record){ .kind = STORE_RECORD_ARTIFACT,
                                  .time_us = 1,
                                  .artifact = { .path = path, .sha256 = sha256, .bytes = bytes } };
}

static void a_file_has_one_row_and_what_is_no_file_is_dropped(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    const struct store_record records[] = { artifact("b", 1, DIGEST), artifact("a/c", 2, DIGEST),
                                            artifact("b", 3, DIGEST), artifact("", 1, DIGEST),
                                            artifact("x", 1, "none") };
    struct store_artifact *rows;
    size_t n;
    int attempt;
    assert_int_equal(fixture_report(r, job, 1, 0, 1, records, 5).sequence, 5);
    OK(store_artifact_list(f->store, f->m, job, 0, 10, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(rows[0].path, "a/c");
    assert_string_equal(rows[1].path, "b");
    assert_int_equal(rows[1].bytes, 3);
    OK(store_artifact_list(f->store, f->m, job, 1, 10, &rows, &n, &e));
    assert_int_equal(n, 1);
    OK(store_artifact_attempt(f->store, job, "b", &attempt, &e));
    assert_int_equal(attempt, 1);
    OK(store_artifact_attempt(f->store, job, "x", &attempt, &e));
    assert_int_equal(attempt, 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_dropped'"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_run_is_one_job_and_its_rows_are_stored_once),     TEST(an_imported_job_cannot_be_retried),
        TEST(the_days_of_an_imported_job_begin_with_the_import), TEST(a_run_that_cannot_be_stored_is_refused),
        TEST(a_file_has_one_row_and_what_is_no_file_is_dropped),
    };
    return cmocka_run_group_tests_name("imported runs and artifacts", tests, fixture_group_setup,
                                       fixture_group_teardown);
}
