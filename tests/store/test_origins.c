/* Jobs that begin with a checkpoint of another job: forks, initial weights, and origins that no longer exist. */
#include "tests/store/store_fixture.h"

#include "service/store/checkpoint.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A job that begins with a checkpoint of another job: with the whole state, or only with the weights. */
static struct store_job_new row_from(int64_t job, int64_t checkpoint, bool weights_only, const char *request) {
    return (struct store_job_new){ .request_id = request,
                                   .name = "child",
                                   .queue = "default",
                                   .world_size = 1,
                                   .accelerator = "cpu",
                                   .max_restarts = 3,
                                   .steps = 100,
                                   .keep_last = 1,
                                   .spec = "s",
                                   .spec_bytes = 1,
                                   .origin = { job, checkpoint, weights_only } };
}

static int64_t job_from(struct fixture *f, int64_t job, int64_t checkpoint, bool weights_only, const char *request,
                        bool *ret_existed) {
    struct store_job_new row = row_from(job, checkpoint, weights_only, request);
    int64_t child = 0;
    OK(store_job_create(f->store, f->epoch, &row, &child, ret_existed, NULL, &e));
    return child;
}

static void a_fork_starts_from_its_origin_which_is_kept_until_the_fork_has_a_checkpoint(void **state) {
    struct fixture *f = *state;
    int64_t parent = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    fixture_checkpoint(r, parent, 10, 1, 1);
    struct store_checkpoint *list, at, *gone;
    size_t n;
    OK(store_checkpoint_at(f->store, f->m, parent, 10, &at, &e));
    FAILS(store_checkpoint_at(f->store, f->m, parent, 11, &at, &e), ST_NOT_FOUND, "step 11");
    FAILS(store_checkpoint_at(f->store, f->m, parent + 1, 11, &at, &e), ST_NOT_FOUND, "does not exist");
    FAILS(store_checkpoint_newest(f->store, f->m, parent + 1, &at, &e), ST_NOT_FOUND, "does not exist");

    bool existed;
    int64_t child = job_from(f, parent, at.id, false, "fork-1", &existed);
    assert_false(existed);
    assert_int_equal(job_from(f, parent, at.id, false, "fork-1", &existed), child);
    assert_true(existed);
    struct store_origin origin;
    int64_t step;
    OK(store_job_origin(f->store, child, &origin, &step, &e));
    assert_int_equal(origin.job, parent);
    assert_int_equal(step, 10);
    assert_false(origin.weights_only);

    const char *executors[] = { "host" };
    struct store_attempt_new attempt = { fixture_request(f), child, 1, STORE_JOB_QUEUED, 1, executors, "", NULL };
    struct store_attempt_start start;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    assert_int_equal(start.from_step, 10);
    assert_int_equal(start.from_checkpoint, at.id);
    assert_true(start.forked);
    assert_string_equal(start.directory, at.directory);
    assert_string_equal(start.init_directory, "");
    struct store_attempt *attempts;
    OK(store_attempt_list(f->store, f->m, child, &attempts, &n, &e));
    assert_int_equal(attempts[0].from_job, parent);

    for (int64_t s = 20; s <= 60; s += 10)
        fixture_checkpoint(r, parent, s, 1, s / 10);
    OK(store_checkpoint_mark_garbage(f->store, f->m, f->epoch, parent, &gone, &n, &e));
    OK(store_checkpoint_get(f->store, f->m, parent, at.id, &at, &e));
    assert_int_equal(at.state, STORE_CHECKPOINT_COMMITTED);
    assert_true(n > 0); /* other old checkpoints were marked */

    fixture_move(f, child, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    fixture_checkpoint(r, child, 20, 1, 1);
    OK(store_checkpoint_mark_garbage(f->store, f->m, f->epoch, parent, &gone, &n, &e));
    OK(store_checkpoint_get(f->store, f->m, parent, at.id, &at, &e));
    assert_int_equal(at.state, STORE_CHECKPOINT_DELETING);
    OK(store_checkpoint_list(f->store, f->m, child, 0, 10, &list, &n, &e));
    assert_int_equal(n, 1);
    struct store_job_new late = row_from(parent, at.id, false, "late");
    FAILS(store_job_create(f->store, f->epoch, &late, &child, &existed, NULL, &e), ST_FAILED_PRECONDITION,
          "not COMMITTED");
}

struct racer {
    struct fixture *f;
    struct store_job_new row;
    status_t status;
    int64_t job;
    bool existed;
};

static void *create_one(void *ctx) {
    struct racer *r = ctx;
    r->status = store_job_create(r->f->store, r->f->epoch, &r->row, &r->job, &r->existed, NULL, NULL);
    return NULL;
}

static void eight_forks_with_one_request_make_one_job_whichever_checkpoint_each_found(void **state) {
    struct fixture *f = *state;
    int64_t parent = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *report = store_report_new(f->store, f->epoch);
    struct store_checkpoint at[2];
    for (int i = 0; i < 2; i++) {
        fixture_checkpoint(report, parent, 10 + i, 1, 1 + i);
        OK(store_checkpoint_newest(f->store, f->m, parent, &at[i], &e));
    }
    pthread_t threads[8];
    struct racer racers[8];
    for (int i = 0; i < 8; i++) {
        racers[i] = (struct racer){ .f = f, .row = row_from(parent, at[i % 2].id, false, "fork-race") };
        pthread_create(&threads[i], NULL, create_one, &racers[i]);
    }
    int made = 0;
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].status, ST_OK);
        assert_int_equal(racers[i].job, racers[0].job);
        made += !racers[i].existed;
    }
    assert_int_equal(made, 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job_origin"), 1);
    int64_t known;
    OK(store_job_requested(f->store, "fork-race", NULL, &known, &e));
    assert_int_equal(known, racers[0].job);
    FAILS(store_job_requested(f->store, "never", NULL, &known, &e), ST_NOT_FOUND, "never");
}

/* Makes the job FAILED and retries it. */
static status_t retry(struct fixture *f, int64_t job, struct err *e) {
    char sql[160];
    snprintf(sql, sizeof sql, "UPDATE job SET state = 10, end_time = now() WHERE id = %lld AND state <> 10",
             (long long)job);
    pg_force(f->conninfo, sql);
    snprintf(sql, sizeof sql, "SELECT attempt FROM job WHERE id = %lld", (long long)job);
    struct store_job_move move = { .request_id = fixture_request(f),
                                   .job = job,
                                   .attempt = (int)pg_number(f->conninfo, sql),
                                   .from = STORE_JOB_FAILED,
                                   .to = STORE_JOB_QUEUED,
                                   .reason = "" };
    bool gone;
    status_t st = store_job_retry(f->store, f->epoch, &move, &gone, e);
    assert_true(gone == (st == ST_FAILED_PRECONDITION));
    return st;
}

static void a_retry_of_a_job_whose_origin_is_gone_is_refused(void **state) {
    struct fixture *f = *state;
    int64_t parent = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    fixture_checkpoint(r, parent, 10, 1, 1);
    struct store_checkpoint at;
    OK(store_checkpoint_newest(f->store, f->m, parent, &at, &e));
    bool existed;
    int64_t child = job_from(f, parent, at.id, false, "fork", &existed), alone = fixture_job(f, 1);
    OK(retry(f, child, &e));
    OK(retry(f, alone, &e)); /* began with nothing */
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 5, delete_time = now()");
    FAILS(retry(f, child, &e), ST_FAILED_PRECONDITION, "has been deleted");
    /* A repeated request returns the same job anyway. */
    assert_int_equal(job_from(f, parent, at.id, false, "fork", &existed), child);
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 3, delete_time = NULL, reason = 'bits'");
    FAILS(retry(f, child, &e), ST_FAILED_PRECONDITION, "is corrupt");
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 2");
    pg_force(f->conninfo, "UPDATE job SET state = 1, end_time = NULL WHERE state = 10");
    fixture_attempt(f, child, STORE_JOB_QUEUED, 1);
    fixture_move(f, child, 1, STORE_JOB_STARTING, STORE_JOB_RUNNING);
    fixture_checkpoint(r, child, 20, 1, 1);
    char sql[120];
    snprintf(sql, sizeof sql, "UPDATE checkpoint SET state = 3, reason = 'bits' WHERE id = %lld", (long long)at.id);
    pg_force(f->conninfo, sql);
    OK(retry(f, child, &e));
}

static void a_retry_of_a_job_that_has_not_failed_is_refused(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_job(f, 1);
    struct store_job_move move = {
        .request_id = fixture_request(f), .job = job, .from = STORE_JOB_FAILED, .to = STORE_JOB_QUEUED, .reason = ""
    };
    bool gone = true;
    FAILS(store_job_retry(f->store, f->epoch, &move, &gone, &e), ST_FAILED_PRECONDITION, "is QUEUED, not FAILED");
    assert_false(gone);
}

static struct store_attempt_start start_of(struct fixture *f, int64_t job, int number) {
    const char *executors[] = { "host-a" };
    struct store_attempt_new attempt = { .request_id = fixture_request(f),
                                         .job = job,
                                         .attempt = number,
                                         .from = number == 1 ? STORE_JOB_QUEUED : STORE_JOB_RESTARTING,
                                         .world_size = 1,
                                         .executors = executors,
                                         .reason = "" };
    struct store_attempt_start start, again;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &again, &e));
    assert_string_equal(start.refused, again.refused);
    assert_int_equal(start.event, again.event);
    return start;
}

/* A running job with a checkpoint of step 10, with which another job may begin. */
static struct store_checkpoint parent_with_checkpoint(struct fixture *f, int64_t *ret) {
    *ret = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    fixture_checkpoint(r, *ret, 10, 1, 1);
    struct store_checkpoint at;
    OK(store_checkpoint_newest(f->store, f->m, *ret, &at, &e));
    return at;
}

/* It must not start from step 0, which would be a different training, or resume from incomplete files. */
static void a_job_whose_origin_is_gone_fails_instead_of_starting(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    static const struct {
        const char *how, *says;
    } gone[] = { { "state = 3, reason = 'bits'", "is corrupt" },
                 { "state = 4, delete_time = now()", "has been deleted" },
                 { "state = 5, delete_time = now()", "has been deleted" } };
    for (int i = 0; i < 6; i++) {
        char sql[400], request[32];
        bool existed, weights_only = i >= 3;
        snprintf(request, sizeof request, "origin-%d", i);
        pg_force(f->conninfo, "UPDATE checkpoint SET state = 2, delete_time = NULL");
        int64_t child = job_from(f, parent, at.id, weights_only, request, &existed);
        snprintf(sql, sizeof sql, "UPDATE checkpoint SET %s WHERE id = %lld", gone[i % 3].how, (long long)at.id);
        pg_force(f->conninfo, sql);
        struct store_attempt_start start = start_of(f, child, 1);
        assert_non_null(strstr(start.refused, "has nothing to resume from"));
        assert_non_null(strstr(start.refused, gone[i % 3].says));
        assert_int_equal(start.from_checkpoint, 0);
        struct store_job job;
        OK(store_job_get(f->store, f->m, child, &job, &e));
        assert_int_equal(job.state, STORE_JOB_FAILED);
        assert_string_equal(job.reason, start.refused);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM event WHERE job = %lld AND state = 10 AND message = '%s'",
                 (long long)child, job.reason);
        assert_int_equal(pg_number(f->conninfo, sql), 1);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM attempt WHERE job = %lld AND state < 4", (long long)child);
        assert_int_equal(pg_number(f->conninfo, sql), 0);
    }
    pg_force(f->conninfo, "UPDATE checkpoint SET state = 2, delete_time = NULL");
    bool existed;
    int64_t child = job_from(f, parent, at.id, false, "origin-there", &existed);
    struct store_attempt_start start = start_of(f, child, 1);
    assert_string_equal(start.refused, "");
    assert_int_equal(start.from_checkpoint, at.id);
}

/* Runs `late` while an open transaction has changed the parent's checkpoints. Commits when `late` waits for it. */
static void run_behind(struct fixture *f, int64_t parent, const char *change, void *(*late)(void *), void *ctx) {
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT 1 FROM job WHERE id = %lld FOR NO KEY UPDATE; UPDATE checkpoint SET %s",
             (long long)parent, change);
    struct pg_open *open = pg_begin(f->conninfo, sql);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, late, ctx), 0);
    pg_await_blocked(f->pg, f->conninfo, 1);
    pg_commit(open);
    pthread_join(thread, NULL);
}

struct retrying {
    struct fixture *f;
    int64_t job;
    status_t status;
    struct err err;
};

static void *retry_one(void *ctx) {
    struct retrying *r = ctx;
    r->status = retry(r->f, r->job, &r->err);
    return NULL;
}

/* Garbage collection has marked the checkpoint but not committed when the retry begins. */
static void a_retry_waits_for_garbage_collection_and_fails_if_it_took_the_origin(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    bool existed;
    struct retrying late = { .f = f, .job = job_from(f, parent, at.id, false, "fork", &existed) };
    run_behind(f, parent, "state = 4, delete_time = now()", retry_one, &late);
    FAILS(err_set(&e, late.status, "%s", late.err.msg), ST_FAILED_PRECONDITION, "has been deleted");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job WHERE state = 10"), 1);
}

struct starting {
    struct fixture *f;
    int64_t job;
    struct store_attempt_start start;
};

static void *start_one(void *ctx) {
    struct starting *s = ctx;
    s->start = start_of(s->f, s->job, 1);
    return NULL;
}

/* A transaction has marked the checkpoint corrupt but not committed when the attempt begins. */
static void an_attempt_whose_origin_becomes_corrupt_meanwhile_does_not_start(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    bool existed;
    struct starting late = { .f = f, .job = job_from(f, parent, at.id, false, "fork", &existed) };
    run_behind(f, parent, "state = 3, reason = 'bits'", start_one, &late);
    assert_non_null(strstr(late.start.refused, "is corrupt"));
    assert_int_equal(late.start.from_checkpoint, 0);
}

static void every_attempt_gets_the_first_weights_of_its_job(void **state) {
    struct fixture *f = *state;
    int64_t parent;
    struct store_checkpoint at = parent_with_checkpoint(f, &parent);
    bool existed;
    int64_t child = job_from(f, parent, at.id, true, "weights-1", &existed);
    const char *executors[] = { "host" };
    struct store_attempt_new attempt = { fixture_request(f), child, 1, STORE_JOB_QUEUED, 1, executors, "", NULL };
    struct store_attempt_start start;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    assert_int_equal(start.from_checkpoint, 0);
    assert_int_equal(start.from_step, 0);
    assert_string_equal(start.init_directory, at.directory);
    struct store_live_job *live;
    size_t n;
    OK(store_job_live(f->store, f->m, 0, 100, &live, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(live[0].init_directory, "");
    assert_string_equal(live[1].init_directory, at.directory);
    assert_false(live[1].forked);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_fork_starts_from_its_origin_which_is_kept_until_the_fork_has_a_checkpoint),
        TEST(eight_forks_with_one_request_make_one_job_whichever_checkpoint_each_found),
        TEST(a_retry_of_a_job_whose_origin_is_gone_is_refused),
        TEST(a_retry_of_a_job_that_has_not_failed_is_refused),
        TEST(a_job_whose_origin_is_gone_fails_instead_of_starting),
        TEST(a_retry_waits_for_garbage_collection_and_fails_if_it_took_the_origin),
        TEST(an_attempt_whose_origin_becomes_corrupt_meanwhile_does_not_start),
        TEST(every_attempt_gets_the_first_weights_of_its_job),
    };
    return cmocka_run_group_tests_name("store origins", tests, fixture_group_setup, fixture_group_teardown);
}
