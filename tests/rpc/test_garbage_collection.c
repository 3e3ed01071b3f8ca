/* The controller's threads that delete checkpoints and deleted jobs, over a real PostgreSQL and real folders: what
 * counts as deleted, how they continue an interrupted deletion, and when they stop. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "base/file.h"
#include "service/controller/checkpoint_files.h"
#include "service/controller/checkpoint_gc.h"
#include "service/controller/job_gc.h"
#include "service/store/job_delete.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 120000 /* longer than any wait */

static char base[64];
static const char *const roots[] = { base };
static const struct checkpoint_place place = { .directory = base,
                                               .roots = { .option = "--checkpoint-root", .paths = roots, .n = 1 } };
static const Trainyard__V1__JobSpec SPEC = TRAINYARD__V1__JOB_SPEC__INIT;

static int setup(void **state) {
    snprintf(base, sizeof base, "/tmp/retention-test-XXXXXX");
    assert_non_null(mkdtemp(base));
    return fixture_setup(state);
}

static int teardown(void **state) {
    fixture_teardown(state);
    return dir_remove(base, NULL) == ST_OK ? 0 : -1;
}

/* A path in the attempt's folder, static. */
static const char *path_of(int64_t job, const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%lld/attempt-1%s", base, (long long)job, name);
    return path;
}

static void make(int64_t job, const char *name) { OK(dir_make(path_of(job, name), 0755, &e)); }
static bool there(int64_t job, const char *name) { return access(path_of(job, name), F_OK) == 0; }

/* Makes the attempt's folder unreadable, for a reason other than its absence. */
static void make_unreadable(int64_t job) {
    char folder[80];
    snprintf(folder, sizeof folder, "%s/%lld", base, (long long)job);
    OK(dir_make(folder, 0755, &e));
    assert_int_equal(symlink("attempt-1", path_of(job, "")), 0);
}

/* A job that has ended, with checkpoints of steps 1..n and their folders. */
static int64_t ended_job(struct fixture *f, int n) {
    char sql[900], name[40];
    int64_t job = fixture_running(f, 1);
    fixture_move(f, job, 1, STORE_JOB_RUNNING, STORE_JOB_FAILED);
    for (int i = 1; i <= n; i++) {
        snprintf(name, sizeof name, "/step-%d", i);
        make(job, name);
    }
    snprintf(sql, sizeof sql,
             "UPDATE job_spec SET body = '' WHERE job = %1$lld;"
             "INSERT INTO checkpoint (job, attempt, step, world_size, shards, directory, state, commit_time) "
             "SELECT %1$lld, 1, n, 1, 1, '%2$s/step-' || n, 2, now() FROM generate_series(1, %3$d) n",
             (long long)job, path_of(job, ""), n);
    pg_run(f->conninfo, sql);
    return job;
}

static void await_range(const struct fixture *f, const char *sql, long long min, long long max) {
    deadline_ms_t deadline = deadline_in(PATIENCE_MS);
    for (long long n; (n = pg_number(f->conninfo, sql)) < min || n > max; usleep(10000))
        if (clock_mono_ms() > deadline)
            fail_msg("%s is %lld, not from %lld to %lld", sql, n, min, max);
}

static void await_number(const struct fixture *f, const char *sql, long long wanted) {
    await_range(f, sql, wanted, wanted);
}

static void await_more(const struct fixture *f, const char *sql, long long min) { await_range(f, sql, min, LLONG_MAX); }

#define ROLLED_BACK "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"

/* ---- files ---- */

static void only_files_that_are_known_to_be_gone_count_as_removed(void **state) {
    (void)state;
    struct store_checkpoint row = { .id = 7, .job = 1, .attempt = 1, .step = 5 };
    char directory[300], away[80];
    snprintf(directory, sizeof directory, "%s", path_of(1, "/step-5"));
    row.directory = directory;
    OK(checkpoint_files_remove(&place, &SPEC, &row, &e)); /* it was never written */
    make(1, "/step-5/below");
    OK(checkpoint_files_remove(&place, &SPEC, &row, &e));
    assert_false(there(1, "/step-5"));

    row.directory = "/elsewhere/1/attempt-1/step-5";
    FAILS(checkpoint_files_remove(&place, &SPEC, &row, &e), ST_FAILED_PRECONDITION,
          "checkpoint 7 is in '/elsewhere/1/attempt-1/step-5', but this controller named '/tmp/");
    row.directory = directory;
    snprintf(away, sizeof away, "%s.away", base);
    assert_int_equal(rename(base, away), 0);
    FAILS(checkpoint_files_remove(&place, &SPEC, &row, &e), ST_UNAVAILABLE, "is not in reach");
    assert_int_equal(rename(away, base), 0);

    row.job = 2;
    snprintf(directory, sizeof directory, "%s", path_of(2, "/step-5"));
    make_unreadable(2);
    struct err e = { "" };
    assert_int_not_equal(checkpoint_files_remove(&place, &SPEC, &row, &e), ST_OK);
    assert_non_null(strstr(e.msg, "symbolic link"));
}

/* A user who can write to the folder of their own job makes it a link to another job's folder. */
static void a_link_in_place_of_a_folder_removes_nothing_of_another_job(void **state) {
    (void)state;
    static const char *const linked[] = { "", "/step-5" };
    struct store_checkpoint row = { .id = 7, .attempt = 1, .step = 5 };
    char directory[300], folder[160];
    make(100, "/step-5/file");
    for (int i = 0; i < 3; i++) {
        row.job = 10 + i;
        snprintf(directory, sizeof directory, "%s", path_of(row.job, "/step-5"));
        row.directory = directory;
        if (i < 2) {
            snprintf(folder, sizeof folder, "%s", path_of(100, linked[i]));
            make(row.job, "");
            if (i == 0)
                assert_int_equal(rmdir(path_of(row.job, "")), 0);
            assert_int_equal(symlink(folder, path_of(row.job, linked[i])), 0);
        } else {
            char own[160];
            snprintf(own, sizeof own, "%s/%lld", base, (long long)row.job);
            snprintf(folder, sizeof folder, "%s/100", base);
            assert_int_equal(symlink(folder, own), 0);
        }
        struct err e = { "" };
        assert_int_not_equal(checkpoint_files_remove(&place, &SPEC, &row, &e), ST_OK);
        assert_int_not_equal(checkpoint_files_sweep(&place, &SPEC, row.job, 1, &e), ST_OK);
        assert_true(there(100, "/step-5/file"));
    }
}

static void a_folder_below_no_root_is_not_touched(void **state) {
    (void)state;
    static const char *const other[] = { "/nowhere" };
    const struct checkpoint_place elsewhere = { .directory = base,
                                                .roots = { .option = "--checkpoint-root", .paths = other, .n = 1 } };
    struct store_checkpoint row = { .id = 7, .job = 20, .attempt = 1, .step = 5 };
    char directory[300];
    make(20, "/step-5");
    snprintf(directory, sizeof directory, "%s", path_of(20, "/step-5"));
    row.directory = directory;
    FAILS(checkpoint_files_remove(&elsewhere, &SPEC, &row, &e), ST_PERMISSION_DENIED,
          "lies below no --checkpoint-root");
    FAILS(checkpoint_files_sweep(&elsewhere, &SPEC, 20, 1, &e), ST_PERMISSION_DENIED,
          "lies below no --checkpoint-root");
    assert_true(there(20, "/step-5"));
}

/* Before the first deletion, an unmarked directory gets this cluster's mark. Another cluster deletes nothing in it. */
static void a_directory_is_taken_before_anything_is_removed_from_it(void **state) {
    (void)state;
    struct checkpoint_place ours = place, theirs = place;
    ours.cluster = "11111111-2222-3333-4444-555555555555";
    theirs.cluster = "99999999-2222-3333-4444-555555555555";
    struct store_checkpoint row = { .id = 7, .job = 1, .attempt = 1, .step = 5 };
    char directory[300], mark[120];
    snprintf(mark, sizeof mark, "%s/.trainyard-cluster", base);
    snprintf(directory, sizeof directory, "%s", path_of(1, "/step-5"));
    row.directory = directory;
    OK(checkpoint_files_remove(&ours, &SPEC, &row, &e));
    OK(checkpoint_files_sweep(&ours, &SPEC, 1, 1, &e));
    assert_int_not_equal(access(mark, F_OK), 0); /* there was nothing to remove */
    make(1, "/step-5/below");
    make(1, "/step-6");
    OK(checkpoint_files_remove(&ours, &SPEC, &row, &e));
    assert_false(there(1, "/step-5"));
    row.step = 6;
    snprintf(directory, sizeof directory, "%s", path_of(1, "/step-6"));
    FAILS(checkpoint_files_remove(&theirs, &SPEC, &row, &e), ST_FAILED_PRECONDITION, "belongs to cluster 11111111");
    FAILS(checkpoint_files_sweep(&theirs, &SPEC, 1, 1, &e), ST_FAILED_PRECONDITION, "belongs to cluster 11111111");
    assert_true(there(1, "/step-6"));
    OK(checkpoint_files_sweep(&ours, &SPEC, 1, 1, &e));
    assert_false(there(1, ""));
}

static void what_no_row_names_is_swept_and_what_no_worker_wrote_is_kept(void **state) {
    (void)state;
    make(1, "/step-5/below");
    make(1, "/profile");
    OK(checkpoint_files_sweep(&place, &SPEC, 1, 2, &e));
    assert_false(there(1, "/.."));
    assert_false(there(1, ""));
    make(1, "/step-5");
    make(1, "/step-5b");
    make(1, "/step-");
    make(1, "/notes");
    OK(checkpoint_files_sweep(&place, &SPEC, 1, 2, &e));
    assert_false(there(1, "/step-5"));
    assert_true(there(1, "/step-5b") && there(1, "/step-") && there(1, "/notes"));
    make_unreadable(2);
    struct err e = { "" };
    assert_int_not_equal(checkpoint_files_sweep(&place, &SPEC, 2, 1, &e), ST_OK);
    assert_non_null(strstr(e.msg, "symbolic link"));
}

/* ---- deleted jobs ---- */

static void a_deleted_job_waits_while_one_of_its_folders_may_be_left(void **state) {
    struct fixture *f = *state;
    int64_t foreign = ended_job(f, 2), unreadable = ended_job(f, 1), fine = ended_job(f, 2);
    char sql[200];
    make(fine, "/step-9");
    snprintf(sql, sizeof sql, "UPDATE checkpoint SET directory = '/elsewhere' WHERE job = %lld AND step = 1",
             (long long)foreign);
    pg_run(f->conninfo, sql);
    OK(dir_remove(path_of(unreadable, ""), &e));
    make_unreadable(unreadable);
    for (int64_t job = foreign; job <= fine; job++)
        OK(store_job_delete(f->store, f->epoch, job, &e));
    CLEANUP(job_gc_closep) struct job_gc *p = NULL;
    OK(job_gc_open(f->store, &place, &(struct job_gc_days){ 0 }, &p, &e));
    job_gc_lead(p, f->epoch);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM job WHERE id = %lld", (long long)fine);
    await_number(f, sql, 0); /* the last of the three */
    p = job_gc_close(p);
    assert_false(there(fine, ""));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job"), 2);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM checkpoint WHERE state = 4 AND job IN (%lld, %lld)",
             (long long)foreign, (long long)unreadable);
    assert_int_equal(pg_number(f->conninfo, sql), 3);
    assert_true(there(foreign, "/step-2"));
}

static void who_leads_no_more_leaves_the_rest_of_a_jobs_files(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 3);
    OK(store_job_delete(f->store, f->epoch, job, &e));
    CLEANUP(job_gc_closep) struct job_gc *p = NULL;
    OK(job_gc_open(f->store, &place, &(struct job_gc_days){ 0 }, &p, &e));
    struct pg_open *open = pg_begin(f->conninfo, "SELECT 1 FROM checkpoint WHERE step = 2 FOR UPDATE");
    job_gc_lead(p, f->epoch);
    pg_await_blocked(f->pg, f->conninfo, 1);
    job_gc_lead(p, 0);
    pg_commit(open);
    p = job_gc_close(p);
    assert_false(there(job, "/step-2"));
    assert_true(there(job, "/step-3"));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 4"), 1);
}

/* ---- retention ---- */

static void a_removal_that_has_begun_is_gone_on_with_by_the_next_leader(void **state) {
    struct fixture *f = *state;
    int64_t stuck = ended_job(f, 1), job = ended_job(f, 2), deleted = ended_job(f, 1);
    pg_run(f->conninfo, "UPDATE checkpoint SET state = 4, delete_time = now() WHERE step = 1;"
                        "UPDATE checkpoint SET directory = '/elsewhere' WHERE job = 1");
    OK(store_job_delete(f->store, f->epoch, deleted, &e));
    CLEANUP(checkpoint_gc_closep) struct checkpoint_gc *r = NULL;
    OK(checkpoint_gc_open(f->store, &place, &r, &e));
    checkpoint_gc_lead(r, f->epoch);
    await_number(f, "SELECT count(*) FROM checkpoint WHERE state = 5", 1);
    r = checkpoint_gc_close(r);
    assert_false(there(job, "/step-1"));
    assert_true(there(job, "/step-2") && there(stuck, "/step-1") && there(deleted, "/step-1"));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 2"), 1);
}

/* Starts to lead, and returns when all jobs have been checked. The last one is a job with too many checkpoints, which
 * this function creates. */
static void lead_and_look_through(struct fixture *f, struct checkpoint_gc *r) {
    char sql[200];
    int64_t job = ended_job(f, 3); /* of which two are kept */
    checkpoint_gc_lead(r, f->epoch);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM checkpoint WHERE state = 5 AND job = %lld", (long long)job);
    await_number(f, sql, 1);
}

static void what_a_leader_died_before_it_marked_is_retired_by_the_next(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 5), enough = ended_job(f, 2), runs = fixture_running(f, 1);
    char sql[600];
    make(job, "/step-6");
    snprintf(sql, sizeof sql,
             "INSERT INTO checkpoint (job, attempt, step, world_size, directory) VALUES "
             "(%1$lld, 1, 6, 1, '%2$s'), (%3$lld, 1, 6, 1, 'd')",
             (long long)job, path_of(job, "/step-6"), (long long)runs);
    pg_run(f->conninfo, sql);
    CLEANUP(checkpoint_gc_closep) struct checkpoint_gc *r = NULL;
    OK(checkpoint_gc_open(f->store, &place, &r, &e));
    lead_and_look_through(f, r);
    snprintf(sql, sizeof sql, "SELECT sum(step) FROM checkpoint WHERE state = 5 AND job = %lld", (long long)job);
    assert_int_equal(pg_number(f->conninfo, sql), 1 + 2 + 3 + 6);
    assert_true(!there(job, "/step-3") && !there(job, "/step-6") && there(job, "/step-4") && there(job, "/step-5"));
    assert_true(there(enough, "/step-1"));
    snprintf(sql, sizeof sql, "SELECT state FROM checkpoint WHERE job = %lld", (long long)runs);
    assert_int_equal(pg_number(f->conninfo, sql), 1);
}

static void a_job_that_does_not_fit_into_the_queue_is_not_forgotten(void **state) {
    struct fixture *f = *state;
    CLEANUP(checkpoint_gc_closep) struct checkpoint_gc *r = NULL;
    OK(checkpoint_gc_open(f->store, &place, &r, &e));
    lead_and_look_through(f, r);
    int64_t held = ended_job(f, 1), job = ended_job(f, 3);
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT 1 FROM job WHERE id = %lld FOR UPDATE", (long long)held);
    struct pg_open *open = pg_begin(f->conninfo, sql);
    checkpoint_gc_request(r, held);
    pg_await_blocked(f->pg, f->conninfo, 1);
    for (int i = 0; i < CHECKPOINT_GC_MAX_WAITING; i++)
        checkpoint_gc_request(r, 1000000 + i);
    checkpoint_gc_request(r, job);
    pg_commit(open);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM checkpoint WHERE state = 5 AND job = %lld", (long long)job);
    await_number(f, sql, 1);
}

static void a_job_that_was_deleted_still_frees_what_it_began_with(void **state) {
    struct fixture *f = *state;
    CLEANUP(checkpoint_gc_closep) struct checkpoint_gc *r = NULL;
    OK(checkpoint_gc_open(f->store, &place, &r, &e));
    lead_and_look_through(f, r);
    int64_t parent = ended_job(f, 4), child = ended_job(f, 0);
    char sql[200];
    pg_run(f->conninfo, "UPDATE job SET keep_best = 0");
    snprintf(sql, sizeof sql,
             "INSERT INTO job_origin SELECT %lld, id, false FROM checkpoint WHERE job = %lld "
             "AND step = 1",
             (long long)child, (long long)parent);
    pg_run(f->conninfo, sql);
    OK(store_job_delete(f->store, f->epoch, child, &e));
    checkpoint_gc_request(r, child);
    await_number(f, "SELECT count(*) FROM checkpoint WHERE state = 5", 3);
    assert_false(there(parent, "/step-1"));
    assert_true(there(parent, "/step-3"));
}

/* The database does not answer until the statement's deadline. */
static void what_the_database_kept_from_being_retired_and_deleted_is_tried_again_soon(void **state) {
    struct fixture *f = *state;
    CLEANUP(checkpoint_gc_closep) struct checkpoint_gc *r = NULL;
    CLEANUP(job_gc_closep) struct job_gc *p = NULL;
    OK(checkpoint_gc_open(f->store, &place, &r, &e));
    OK(job_gc_open(f->store, &place, &(struct job_gc_days){ 0 }, &p, &e));
    lead_and_look_through(f, r);
    int64_t job = ended_job(f, 5), deleted = ended_job(f, 1);
    OK(store_job_delete(f->store, f->epoch, deleted, &e));
    struct pg_open *open = pg_begin(f->conninfo, "SELECT 1 FROM job FOR UPDATE");
    checkpoint_gc_request(r, job);
    job_gc_lead(p, f->epoch);
    pg_await_blocked(f->pg, f->conninfo, 2);
    /* Both statements time out once. The retry of one comes later than the first timeout of the other. */
    long long rolled_back = pg_number(f->conninfo, ROLLED_BACK);
    await_more(f, ROLLED_BACK, rolled_back + 2);
    pg_commit(open);
    await_number(f, "SELECT count(*) FROM checkpoint WHERE state = 5", 1 + 3);
    await_number(f, "SELECT count(*) FROM job", 2);
}

static void the_leader_forgets_executors_that_were_lost_long_ago(void **state) {
    struct fixture *f = *state;
    CLEANUP(job_gc_closep) struct job_gc *p = NULL;
    pg_run(f->conninfo, "INSERT INTO executor SELECT 'host-' || n, 1, 2, 'h', 'a', 'v', 1, '', now(), now(), "
                        "now() - n * interval '1 day' FROM generate_series(6, 9) n");
    OK(job_gc_open(f->store, &place, &(struct job_gc_days){ .lost = 7 }, &p, &e));
    job_gc_lead(p, f->epoch);
    await_number(f, "SELECT count(*) FROM executor", 1); /* a week and some milliseconds is longer than a week */
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM executor WHERE id = 'host-6'"), 1);
}

static void the_leader_deletes_old_entries_of_the_audit_log(void **state) {
    struct fixture *f = *state;
    CLEANUP(job_gc_closep) struct job_gc *p = NULL;
    char sql[400];
    snprintf(sql, sizeof sql,
             "INSERT INTO audit SELECT now() - least(i, 8) * interval '1 day', i, '', '', '', 'S.M', '', NULL, '', "
             "'OK', '' FROM generate_series(5, %d) i",
             8 + JOB_GC_AUDIT_BATCH);
    pg_run(f->conninfo, sql);
    OK(job_gc_open(f->store, &place, &(struct job_gc_days){ .audit = 7 }, &p, &e));
    job_gc_lead(p, f->epoch);
    await_number(f, "SELECT count(*) FROM audit", 2); /* a week and some milliseconds is longer than a week */
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(entry) FROM audit"), 5 + 6);
}

static void jobs_are_removed_when_no_lost_executor_can_be_forgotten(void **state) {
    struct fixture *f = *state;
    CLEANUP(job_gc_closep) struct job_gc *p = NULL;
    OK(store_job_delete(f->store, f->epoch, ended_job(f, 1), &e));
    pg_run(f->conninfo, "ALTER TABLE executor RENAME TO away");
    OK(job_gc_open(f->store, &place, &(struct job_gc_days){ .lost = 7 }, &p, &e));
    job_gc_lead(p, f->epoch);
    await_number(f, "SELECT count(*) FROM job", 0);
}

#define OWN_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        OWN_TEST(only_files_that_are_known_to_be_gone_count_as_removed),
        OWN_TEST(a_link_in_place_of_a_folder_removes_nothing_of_another_job),
        OWN_TEST(a_folder_below_no_root_is_not_touched),
        OWN_TEST(a_directory_is_taken_before_anything_is_removed_from_it),
        OWN_TEST(what_no_row_names_is_swept_and_what_no_worker_wrote_is_kept),
        OWN_TEST(a_deleted_job_waits_while_one_of_its_folders_may_be_left),
        OWN_TEST(who_leads_no_more_leaves_the_rest_of_a_jobs_files),
        OWN_TEST(a_removal_that_has_begun_is_gone_on_with_by_the_next_leader),
        OWN_TEST(what_a_leader_died_before_it_marked_is_retired_by_the_next),
        OWN_TEST(a_job_that_does_not_fit_into_the_queue_is_not_forgotten),
        OWN_TEST(a_job_that_was_deleted_still_frees_what_it_began_with),
        OWN_TEST(the_leader_forgets_executors_that_were_lost_long_ago),
        OWN_TEST(the_leader_deletes_old_entries_of_the_audit_log),
        OWN_TEST(jobs_are_removed_when_no_lost_executor_can_be_forgotten),
        OWN_TEST(what_the_database_kept_from_being_retired_and_deleted_is_tried_again_soon),
    };
    return cmocka_run_group_tests_name("retention", tests, fixture_group_setup, fixture_group_teardown);
}
