/* The controller's threads that remove checkpoints and deleted jobs, over a real PostgreSQL and real folders: what they
 * may count as removed, what they go on with, and when they stop. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "base/file.h"
#include "service/controller/checkpoint_files.h"
#include "service/controller/prune.h"
#include "service/controller/retire.h"
#include "service/store/job_delete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 120000 /* means never */

static char base[64];
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

/* The attempt's folder cannot be looked at, for a reason that is not its absence. */
static void make_unreadable(int64_t job) {
    char folder[80];
    snprintf(folder, sizeof folder, "%s/%lld", base, (long long)job);
    OK(dir_make(folder, 0755, &e));
    assert_int_equal(symlink("attempt-1", path_of(job, "")), 0);
}

/* A job that has ended, with a checkpoint of each of steps 1..n, whose folders are there. */
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

static void await_number(const struct fixture *f, const char *sql, long long wanted) {
    deadline_ms_t deadline = deadline_in(PATIENCE_MS);
    while (pg_number(f->conninfo, sql) != wanted)
        if (clock_mono_ms() > deadline)
            fail_msg("%s is not %lld", sql, wanted);
}

/* ---- files ---- */

static void only_files_that_are_known_to_be_gone_count_as_removed(void **state) {
    (void)state;
    struct store_checkpoint row = { .id = 7, .job = 1, .attempt = 1, .step = 5 };
    char directory[300], away[80];
    snprintf(directory, sizeof directory, "%s", path_of(1, "/step-5"));
    row.directory = directory;
    OK(checkpoint_files_remove(base, &SPEC, &row, &e)); /* nobody wrote it */
    make(1, "/step-5/below");
    OK(checkpoint_files_remove(base, &SPEC, &row, &e));
    assert_false(there(1, "/step-5"));

    row.directory = "/elsewhere/1/attempt-1/step-5";
    FAILS(checkpoint_files_remove(base, &SPEC, &row, &e), ST_FAILED_PRECONDITION,
          "checkpoint 7 is in '/elsewhere/1/attempt-1/step-5', but this controller named '/tmp/");
    row.directory = directory;
    snprintf(away, sizeof away, "%s.away", base);
    assert_int_equal(rename(base, away), 0);
    FAILS(checkpoint_files_remove(base, &SPEC, &row, &e), ST_UNAVAILABLE, "is not in reach");
    assert_int_equal(rename(away, base), 0);

    row.job = 2;
    snprintf(directory, sizeof directory, "%s", path_of(2, "/step-5"));
    make_unreadable(2);
    struct err e = { "" };
    assert_int_not_equal(checkpoint_files_remove(base, &SPEC, &row, &e), ST_OK);
    assert_non_null(strstr(e.msg, "write to '"));
}

static void what_no_row_names_is_swept_and_what_no_worker_wrote_is_kept(void **state) {
    (void)state;
    make(1, "/step-5/below");
    make(1, "/profile");
    OK(checkpoint_files_sweep(base, &SPEC, 1, 2, &e));
    assert_false(there(1, "/.."));
    assert_false(there(1, ""));
    make(1, "/step-5");
    make(1, "/step-5b");
    make(1, "/step-");
    make(1, "/notes");
    OK(checkpoint_files_sweep(base, &SPEC, 1, 2, &e));
    assert_false(there(1, "/step-5"));
    assert_true(there(1, "/step-5b") && there(1, "/step-") && there(1, "/notes"));
    make_unreadable(2);
    struct err e = { "" };
    assert_int_not_equal(checkpoint_files_sweep(base, &SPEC, 2, 1, &e), ST_OK);
    assert_non_null(strstr(e.msg, "read '"));
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
    CLEANUP(prune_closep) struct prune *p = NULL;
    OK(prune_open(f->store, base, 0, &p, &e));
    prune_lead(p, f->epoch);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM job WHERE id = %lld", (long long)fine);
    await_number(f, sql, 0); /* the last of the three */
    p = prune_close(p);
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
    CLEANUP(prune_closep) struct prune *p = NULL;
    OK(prune_open(f->store, base, 0, &p, &e));
    struct pg_open *open = pg_begin(f->conninfo, "SELECT 1 FROM checkpoint WHERE step = 2 FOR UPDATE");
    prune_lead(p, f->epoch);
    pg_await_blocked(f->pg, f->conninfo, 1);
    prune_lead(p, 0);
    pg_commit(open);
    p = prune_close(p);
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
    CLEANUP(retire_closep) struct retire *r = NULL;
    OK(retire_open(f->store, base, &r, &e));
    retire_lead(r, f->epoch);
    await_number(f, "SELECT count(*) FROM checkpoint WHERE state = 5", 1);
    r = retire_close(r);
    assert_false(there(job, "/step-1"));
    assert_true(there(job, "/step-2") && there(stuck, "/step-1") && there(deleted, "/step-1"));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 2"), 1);
}

/* Begins to lead, and returns when all jobs have been looked through: one that has too much, which it makes, is the
 * last of them. */
static void lead_and_look_through(struct fixture *f, struct retire *r) {
    char sql[200];
    int64_t job = ended_job(f, 3); /* of which two are kept */
    retire_lead(r, f->epoch);
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
    CLEANUP(retire_closep) struct retire *r = NULL;
    OK(retire_open(f->store, base, &r, &e));
    lead_and_look_through(f, r);
    snprintf(sql, sizeof sql, "SELECT sum(step) FROM checkpoint WHERE state = 5 AND job = %lld", (long long)job);
    assert_int_equal(pg_number(f->conninfo, sql), 1 + 2 + 3 + 6);
    assert_true(!there(job, "/step-3") && !there(job, "/step-6") && there(job, "/step-4") && there(job, "/step-5"));
    assert_true(there(enough, "/step-1"));
    snprintf(sql, sizeof sql, "SELECT state FROM checkpoint WHERE job = %lld", (long long)runs);
    assert_int_equal(pg_number(f->conninfo, sql), 1);
}

static void a_job_for_which_there_is_no_room_is_not_forgotten(void **state) {
    struct fixture *f = *state;
    CLEANUP(retire_closep) struct retire *r = NULL;
    OK(retire_open(f->store, base, &r, &e));
    lead_and_look_through(f, r);
    int64_t held = ended_job(f, 1), job = ended_job(f, 3);
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT 1 FROM job WHERE id = %lld FOR UPDATE", (long long)held);
    struct pg_open *open = pg_begin(f->conninfo, sql);
    retire_soon(r, held);
    pg_await_blocked(f->pg, f->conninfo, 1);
    for (int i = 0; i < RETIRE_WAITING; i++)
        retire_soon(r, 1000000 + i);
    retire_soon(r, job);
    pg_commit(open);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM checkpoint WHERE state = 5 AND job = %lld", (long long)job);
    await_number(f, sql, 1);
}

static void a_job_that_was_deleted_still_frees_what_it_began_with(void **state) {
    struct fixture *f = *state;
    CLEANUP(retire_closep) struct retire *r = NULL;
    OK(retire_open(f->store, base, &r, &e));
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
    retire_soon(r, child);
    await_number(f, "SELECT count(*) FROM checkpoint WHERE state = 5", 3);
    assert_false(there(parent, "/step-1"));
    assert_true(there(parent, "/step-3"));
}

/* The database stands still until the statement is given up. */
static void what_the_database_kept_from_being_retired_and_deleted_is_tried_again_soon(void **state) {
    struct fixture *f = *state;
    CLEANUP(retire_closep) struct retire *r = NULL;
    CLEANUP(prune_closep) struct prune *p = NULL;
    OK(retire_open(f->store, base, &r, &e));
    OK(prune_open(f->store, base, 0, &p, &e));
    lead_and_look_through(f, r);
    int64_t job = ended_job(f, 5), deleted = ended_job(f, 1);
    OK(store_job_delete(f->store, f->epoch, deleted, &e));
    struct pg_open *open = pg_begin(f->conninfo, "SELECT 1 FROM job FOR UPDATE");
    retire_soon(r, job);
    prune_lead(p, f->epoch);
    pg_await_blocked(f->pg, f->conninfo, 2);
    await_number(f, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", 0);
    pg_commit(open);
    await_number(f, "SELECT count(*) FROM checkpoint WHERE state = 5", 1 + 3);
    await_number(f, "SELECT count(*) FROM job", 2);
}

#define YARD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        YARD_TEST(only_files_that_are_known_to_be_gone_count_as_removed),
        YARD_TEST(what_no_row_names_is_swept_and_what_no_worker_wrote_is_kept),
        YARD_TEST(a_deleted_job_waits_while_one_of_its_folders_may_be_left),
        YARD_TEST(who_leads_no_more_leaves_the_rest_of_a_jobs_files),
        YARD_TEST(a_removal_that_has_begun_is_gone_on_with_by_the_next_leader),
        YARD_TEST(what_a_leader_died_before_it_marked_is_retired_by_the_next),
        YARD_TEST(a_job_for_which_there_is_no_room_is_not_forgotten),
        YARD_TEST(a_job_that_was_deleted_still_frees_what_it_began_with),
        YARD_TEST(what_the_database_kept_from_being_retired_and_deleted_is_tried_again_soon),
    };
    return cmocka_run_group_tests_name("retention", tests, fixture_group_setup, fixture_group_teardown);
}
