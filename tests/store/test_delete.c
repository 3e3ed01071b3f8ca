/* Deleting a job: marking it, the conditions under which it is refused, and deleting its rows in batches. */
#include "tests/store/store_fixture.h"

#include "service/store/checkpoint.h"
#include "service/store/event.h"
#include "service/store/job_delete.h"
#include "service/store/job_list.h"
#include "service/store/metric.h"

#include <stdio.h>
#include <string.h>

/* A job that has ended, with one row of each kind, and `rows` rows of the kinds that grow. */
static int64_t ended_job(struct fixture *f, int rows) {
    char sql[2000];
    int64_t job = fixture_running(f, 1);
    fixture_move(f, job, 1, STORE_JOB_RUNNING, STORE_JOB_FAILED);
    snprintf(sql, sizeof sql,
             "INSERT INTO metric_name (name) VALUES ('loss') ON CONFLICT DO NOTHING;"
             "INSERT INTO job_metric SELECT %1$lld, id FROM metric_name WHERE name = 'loss';"
             "INSERT INTO metric_chunk SELECT %1$lld, (SELECT id FROM metric_name WHERE name = 'loss'), 0, 1, n, 1, 1, "
             "n, n, "
             "0, 0, 0, '{0}' "
             "FROM generate_series(1, %2$d) n;"
             "INSERT INTO log_chunk SELECT %1$lld, n, 1, 0, '{now}', '{stdout}', '{text}', 4 "
             "FROM generate_series(1, %2$d) n;"
             "INSERT INTO log_head VALUES (%1$lld, 1, 4);"
             "INSERT INTO event SELECT %1$lld, n, now(), 1, 'note', 3, '', NULL FROM generate_series(100, 99 + %2$d) n;"
             "INSERT INTO rank_sequence VALUES (%1$lld, 1, 0, 5);"
             "INSERT INTO checkpoint (job, attempt, step, world_size, shards, directory, state, commit_time) "
             "VALUES (%1$lld, 1, 5, 1, 1, 'd', 2, now()), (%1$lld, 1, 6, 1, 0, 'd', 1, NULL);"
             "INSERT INTO checkpoint (job, attempt, step, world_size, shards, directory, state, commit_time, reason) "
             "VALUES (%1$lld, 1, 7, 1, 1, 'd', 3, now(), 'bits');"
             "INSERT INTO shard SELECT id, 0, 'f', 1, repeat('a', 64) FROM checkpoint WHERE job = %1$lld;"
             "UPDATE attempt SET state = 4, end_time = now() WHERE job = %1$lld;"
             "UPDATE attempt SET from_checkpoint = (SELECT max(id) FROM checkpoint) WHERE job = %1$lld",
             (long long)job, rows);
    pg_run(f->conninfo, sql);
    return job;
}

static const char *const TABLES[] = { "job",      "job_spec",      "attempt",      "placement",
                                      "event",    "checkpoint",    "metric_chunk", "log_chunk",
                                      "log_head", "rank_sequence", "job_origin",   "job_metric" };

static long long rows_of(const struct fixture *f, int64_t job) {
    char sql[200];
    long long n = 0;
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE %s = %lld", TABLES[i], i ? "job" : "id",
                 (long long)job);
        n += pg_number(f->conninfo, sql);
    }
    return n;
}

static void files_are_gone(struct fixture *f, int64_t job) {
    struct store_checkpoint *rows;
    size_t n;
    OK(store_checkpoint_deleting(f->store, f->m, job, &rows, &n, &e));
    for (size_t i = 0; i < n; i++)
        OK(store_checkpoint_deleted(f->store, f->epoch, rows[i].id, &e));
}

/* Returns the number of batches. */
static int delete_rows(struct fixture *f, int64_t job) {
    struct store_delete_at at = { 0 };
    int batches = 0;
    for (bool done = false; !done; batches++)
        OK(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e));
    return batches;
}

static void only_a_job_that_has_ended_is_deleted(void **state) {
    struct fixture *f = *state;
    int64_t queued = fixture_job(f, 1), running = fixture_running(f, 1);
    FAILS(store_job_delete(f->store, f->epoch, queued, &e), ST_FAILED_PRECONDITION, "jobs/1 is QUEUED");
    FAILS(store_job_delete(f->store, f->epoch, running, &e), ST_FAILED_PRECONDITION, "jobs/2 is RUNNING");
    FAILS(store_job_delete(f->store, f->epoch, 99, &e), ST_NOT_FOUND, "jobs/99 does not exist");
    FAILS(store_job_delete(f->store, f->epoch + 1, running, &e), ST_FAILED_PRECONDITION, "epoch");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job WHERE delete_time IS NOT NULL"), 0);
}

static void a_deleted_job_is_found_by_no_question_and_cannot_be_retried(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 1), kept = ended_job(f, 1), counts[12];
    OK(store_job_delete(f->store, f->epoch, job, &e));
    OK(store_job_delete(f->store, f->epoch, job, &e)); /* again */
    struct store_job row, *list;
    size_t n;
    FAILS(store_job_get(f->store, f->m, job, &row, &e), ST_NOT_FOUND, "jobs/1 does not exist");
    for (int by_state = 0; by_state < 2; by_state++) {
        struct store_job_filter filter = { .limit = 10, .state = by_state ? STORE_JOB_FAILED : 0 };
        OK(store_job_list(f->store, f->m, &filter, &list, &n, &e));
        assert_int_equal(n, 1);
        assert_int_equal(list[0].id, kept);
    }
    OK(store_job_counts(f->store, counts, &e));
    assert_int_equal(counts[STORE_JOB_FAILED], 1);
    bool gone;
    struct store_job_move move = { .request_id = fixture_request(f),
                                   .job = job,
                                   .attempt = 1,
                                   .from = STORE_JOB_FAILED,
                                   .to = STORE_JOB_QUEUED,
                                   .reason = "" };
    FAILS(store_job_retry(f->store, f->epoch, &move, &gone, &e), ST_NOT_FOUND, "jobs/1 does not exist");
}

static void nothing_that_a_deleted_job_had_is_found_or_changed(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 1);
    OK(store_job_delete(f->store, f->epoch, job, &e));
    struct store_event *events;
    struct store_series *series;
    struct store_checkpoint row;
    struct store_metric_query query = { .job = job, .max_points = 1, .rank = -1 };
    size_t n;
    FAILS(store_event_list(f->store, f->m, job, 0, 10, &events, &n, &e), ST_NOT_FOUND, "jobs/1 does not exist");
    FAILS(store_metric_query(f->store, f->m, &query, &series, &n, &e), ST_NOT_FOUND, "jobs/1 does not exist");
    FAILS(store_checkpoint_get(f->store, f->m, job, 1, &row, &e), ST_NOT_FOUND, "jobs/1/checkpoints/1 does not");
    FAILS(store_checkpoint_newest(f->store, f->m, job, &row, &e), ST_NOT_FOUND, "jobs/1 does not exist");
    FAILS(store_checkpoint_at(f->store, f->m, job, 5, &row, &e), ST_NOT_FOUND, "jobs/1 does not exist");
    FAILS(store_checkpoint_pin(f->store, f->epoch, job, 1, false, &e), ST_NOT_FOUND, "jobs/1 does not exist");
    FAILS(store_checkpoint_delete(f->store, f->epoch, job, 1, &e), ST_NOT_FOUND, "jobs/1 does not exist");
    FAILS(store_event_add(f->store, f->epoch, fixture_request(f), job, 1, "note", "", NULL, &e), ST_NOT_FOUND,
          "jobs/1 does not exist");
}

static void rows_of_one_job_are_deleted_in_batches_after_its_files(void **state) {
    struct fixture *f = *state;
    int64_t kept = ended_job(f, 3), job = ended_job(f, 2 * STORE_DELETE_BATCH + 1);
    long long others = rows_of(f, kept);
    struct store_delete_at at = { 0 };
    bool done;
    FAILS(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e), ST_NOT_FOUND, "no such job is marked");
    OK(store_job_delete(f->store, f->epoch, job, &e));
    FAILS(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e), ST_FAILED_PRECONDITION, "still have files");
    files_are_gone(f, job);
    long long before = rows_of(f, job);
    OK(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e));
    assert_false(done);
    at = (struct store_delete_at){ 0 }; /* as another leader that begins the deletion again */
    assert_int_equal(before - rows_of(f, job), STORE_DELETE_BATCH);
    /* 3 batches of each kind that grows, of which one is deleted; the names of metrics; shards, sequences, placements,
     * checkpoints; then the rest. */
    assert_int_equal(delete_rows(f, job), 2 + 3 + 3 + 1 + 4 + 1);
    assert_int_equal(rows_of(f, job), 0);
    assert_int_equal(rows_of(f, kept), others);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM shard"), 3);
    FAILS(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e), ST_NOT_FOUND, "no such job is marked");
}

static void a_users_change_of_a_checkpoint_is_one_event(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 1);
    FAILS(store_checkpoint_pin(f->store, f->epoch, job, 99, true, &e), ST_NOT_FOUND, "jobs/1/checkpoints/99 does not");
    FAILS(store_checkpoint_pin(f->store, f->epoch, job, 99, false, &e), ST_NOT_FOUND, "jobs/1/checkpoints/99 does not");
    FAILS(store_checkpoint_pin(f->store, f->epoch, job, 2, true, &e), ST_FAILED_PRECONDITION, "2 is not COMMITTED");
    OK(store_checkpoint_pin(f->store, f->epoch, job, 2, false, &e));
    for (int i = 0; i < 2; i++)
        OK(store_checkpoint_pin(f->store, f->epoch, job, 1, true, &e));
    for (int i = 0; i < 2; i++)
        OK(store_checkpoint_pin(f->store, f->epoch, job, 1, false, &e));
    for (int i = 0; i < 2; i++)
        OK(store_checkpoint_delete(f->store, f->epoch, job, 1, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind LIKE 'checkpoint\\_%'"), 3);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE message = 'step 5, by a user' "
                                            "AND attempt = 1 AND kind IN ('checkpoint_pinned', 'checkpoint_unpinned', "
                                            "'checkpoint_deleted')"),
                     3);
}

/* The rows of the table whose number is smaller. */
static long long below(const struct fixture *f, const char *table, int number) {
    char sql[160];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE number < %d", table, number);
    return pg_number(f->conninfo, sql);
}

static void a_batch_continues_after_the_last_one_and_rows_added_behind_it_are_deleted_last(void **state) {
    struct fixture *f = *state;
    static const struct {
        int kind; /* store_delete_at.kind */
        const char *table, *late;
    } KINDS[] = {
        { 0, "metric_chunk",
          "INSERT INTO metric_chunk SELECT 1, (SELECT id FROM metric_name), 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, "
          "'{0}'" },
        { 2, "log_chunk", "INSERT INTO log_chunk SELECT 1, 1, 1, 0, '{now}', '{stdout}', '{text}', 4" },
        { 3, "event", "INSERT INTO event SELECT 1, 1, now(), 1, 'note', 3, '', NULL" },
    };
    struct store_delete_at at = { 0 };
    int64_t job = ended_job(f, 3 * STORE_DELETE_BATCH);
    bool done;
    OK(store_job_delete(f->store, f->epoch, job, &e));
    files_are_gone(f, job);
    for (int k = 0; k < 3; k++) {
        while (at.kind < KINDS[k].kind || at.key[0] == 0)
            OK(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e));
        pg_run(f->conninfo, KINDS[k].late);
        OK(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e));
        assert_int_equal(below(f, KINDS[k].table, 2), 1);
    }
    for (done = false; !done;)
        OK(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e));
    assert_int_equal(rows_of(f, job), 0);
}

static void name_add(const struct fixture *f, int64_t job, const char *name) {
    char sql[300];
    snprintf(sql, sizeof sql,
             "INSERT INTO metric_name (name) VALUES ('%1$s') ON CONFLICT DO NOTHING;"
             "INSERT INTO job_metric SELECT %2$lld, id FROM metric_name WHERE name = '%1$s'",
             name, (long long)job);
    pg_run(f->conninfo, sql);
}

static long long names_like(const struct fixture *f, const char *pattern) {
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM metric_name WHERE name LIKE '%s'", pattern);
    return pg_number(f->conninfo, sql);
}

static void a_metrics_name_is_deleted_with_the_last_job_that_has_it(void **state) {
    struct fixture *f = *state;
    int64_t first = ended_job(f, 1), second = ended_job(f, 1);
    name_add(f, first, "own");
    name_add(f, first, "shared");
    name_add(f, second, "shared");
    OK(store_job_delete(f->store, f->epoch, first, &e));
    files_are_gone(f, first);
    delete_rows(f, first);
    assert_int_equal(names_like(f, "own"), 0);
    assert_int_equal(names_like(f, "shared"), 1);
    OK(store_job_delete(f->store, f->epoch, second, &e));
    files_are_gone(f, second);
    delete_rows(f, second);
    assert_int_equal(names_like(f, "%"), 0);
}

static void names_of_a_job_with_many_are_deleted_in_batches(void **state) {
    struct fixture *f = *state;
    char sql[400];
    int64_t job = ended_job(f, 1);
    snprintf(sql, sizeof sql,
             "INSERT INTO metric_name (name) SELECT 'many_' || n FROM generate_series(1, %d) n;"
             "INSERT INTO job_metric SELECT %lld, id FROM metric_name WHERE name LIKE 'many_%%'",
             3 * STORE_DELETE_BATCH, (long long)job);
    pg_run(f->conninfo, sql);
    OK(store_job_delete(f->store, f->epoch, job, &e));
    files_are_gone(f, job);
    struct store_delete_at at = { 0 };
    bool done;
    while (at.kind < 1)
        OK(store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e));
    assert_in_range(names_like(f, "many%"), 2 * STORE_DELETE_BATCH, 2 * STORE_DELETE_BATCH + 1);
    delete_rows(f, job);
    assert_int_equal(names_like(f, "%"), 0);
}

/* Another job gets the name in a transaction that is open while the last job that had it is deleted. */
static void a_name_that_is_given_to_another_job_meanwhile_is_kept(void **state) {
    struct fixture *f = *state;
    char sql[200];
    int64_t job = ended_job(f, 1), other = ended_job(f, 1);
    name_add(f, job, "passed_on");
    OK(store_job_delete(f->store, f->epoch, job, &e));
    files_are_gone(f, job);
    snprintf(sql, sizeof sql, "INSERT INTO job_metric SELECT %lld, id FROM metric_name WHERE name = 'passed_on'",
             (long long)other);
    pthread_t giver = pg_commit_when_blocked(f->pg, f->conninfo, pg_begin(f->conninfo, sql));
    struct store_delete_at at = { 0 };
    bool done = false;
    status_t st = ST_OK;
    struct err e = { "" };
    while (!done && (st = store_job_delete_rows(f->store, f->epoch, job, &at, &done, &e)) == ST_OK)
        continue;
    pthread_join(giver, NULL);
    assert_int_not_equal(st, ST_OK); /* the deletion is tried again */
    delete_rows(f, job);
    assert_int_equal(names_like(f, "passed_on"), 1);
    assert_int_equal(rows_of(f, job), 0);
}

/* A job that begins with a checkpoint of the parent. */
static int64_t child_of(struct fixture *f, int64_t parent) {
    char sql[200];
    int64_t child = ended_job(f, 1);
    snprintf(sql, sizeof sql,
             "INSERT INTO job_origin SELECT %lld, id, false FROM checkpoint WHERE job = %lld AND step = 5",
             (long long)child, (long long)parent);
    pg_run(f->conninfo, sql);
    return child;
}

static void a_job_that_another_began_with_is_deleted_after_it(void **state) {
    struct fixture *f = *state;
    int64_t parent = ended_job(f, 1), child = child_of(f, parent);
    FAILS(store_job_delete(f->store, f->epoch, parent, &e), ST_FAILED_PRECONDITION,
          "jobs/2 began with jobs/1/checkpoints/1: delete that job first");
    OK(store_job_delete(f->store, f->epoch, child, &e));
    OK(store_job_delete(f->store, f->epoch, parent, &e));
    struct store_deleted_job next;
    OK(store_job_delete_next(f->store, f->m, 0, &next, &e));
    assert_int_equal(next.job, child); /* its rows name the parent's */
    assert_int_equal(next.attempts, 1);
    assert_true(next.spec_bytes > 0);
    files_are_gone(f, child);
    files_are_gone(f, parent);
    delete_rows(f, child);
    OK(store_job_delete_next(f->store, f->m, 0, &next, &e));
    assert_int_equal(next.job, parent);
    delete_rows(f, parent);
    OK(store_job_delete_next(f->store, f->m, 0, &next, &e));
    assert_int_equal(next.job, 0);
}

static void no_job_begins_with_a_checkpoint_of_a_deleted_one(void **state) {
    struct fixture *f = *state;
    int64_t parent = ended_job(f, 1), job;
    bool existed;
    OK(store_job_delete(f->store, f->epoch, parent, &e));
    struct store_job_new in = { .request_id = "fork",
                                .name = "n",
                                .queue = "q",
                                .world_size = 1,
                                .accelerator = "cpu",
                                .steps = 1,
                                .spec = "s",
                                .spec_bytes = 1,
                                .origin = { .job = parent, .checkpoint = 1 } };
    FAILS(store_job_create(f->store, f->epoch, &in, &job, &existed, NULL, &e), ST_NOT_FOUND, "jobs/1 does not exist");
}

static void jobs_that_ended_long_ago_are_found_oldest_first_but_those_that_others_began_with(void **state) {
    struct fixture *f = *state;
    int64_t young = ended_job(f, 1), old = ended_job(f, 1), older = ended_job(f, 1), parent = ended_job(f, 1);
    int64_t deleted = ended_job(f, 1), *found;
    child_of(f, parent);
    fixture_job(f, 1); /* has not ended */
    char sql[300];
    snprintf(sql, sizeof sql,
             "UPDATE job SET end_time = now() - make_interval(days => CASE id WHEN %lld THEN 6 "
             "WHEN %lld THEN 8 ELSE 9 END) WHERE id IN (%lld, %lld, %lld, %lld, %lld)",
             (long long)young, (long long)old, (long long)young, (long long)old, (long long)older, (long long)parent,
             (long long)deleted);
    pg_run(f->conninfo, sql);
    OK(store_job_delete(f->store, f->epoch, deleted, &e));
    size_t n;
    OK(store_job_ended_before(f->store, f->m, 7, 10, &found, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(found[0], older);
    assert_int_equal(found[1], old);
    OK(store_job_ended_before(f->store, f->m, 7, 1, &found, &n, &e));
    assert_int_equal(n, 1);
    OK(store_job_ended_before(f->store, f->m, 5, 10, &found, &n, &e));
    assert_int_equal(n, 3);
}

static int64_t checkpoint_at(const struct fixture *f, int64_t job, int step) {
    char sql[160];
    snprintf(sql, sizeof sql, "SELECT id FROM checkpoint WHERE job = %lld AND step = %d", (long long)job, step);
    return pg_number(f->conninfo, sql);
}

static void a_pinned_checkpoint_keeps_itself_and_its_job(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 1), id = checkpoint_at(f, job, 5), *found;
    size_t n;
    OK(store_checkpoint_pin(f->store, f->epoch, job, id, true, &e));
    FAILS(store_checkpoint_delete(f->store, f->epoch, job, id, &e), ST_FAILED_PRECONDITION,
          "jobs/1/checkpoints/1 is pinned: unpin it first");
    FAILS(store_job_delete(f->store, f->epoch, job, &e), ST_FAILED_PRECONDITION,
          "jobs/1/checkpoints/1 is pinned: unpin it first");
    pg_run(f->conninfo, "UPDATE job SET end_time = now() - interval '9 days'");
    OK(store_job_ended_before(f->store, f->m, 7, 10, &found, &n, &e));
    assert_int_equal(n, 0);
    pg_run(f->conninfo, "UPDATE checkpoint SET state = 3, reason = 'bits' WHERE pinned");
    OK(store_checkpoint_pin(f->store, f->epoch, job, id, false, &e)); /* also of one that is no longer COMMITTED */
    OK(store_job_ended_before(f->store, f->m, 7, 10, &found, &n, &e));
    assert_int_equal(n, 1);
    OK(store_checkpoint_delete(f->store, f->epoch, job, id, &e));
    OK(store_checkpoint_delete(f->store, f->epoch, job, id, &e)); /* again */
    OK(store_job_delete(f->store, f->epoch, job, &e));
}

static void unpinning_deletes_a_checkpoint_that_nothing_else_keeps(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 1), old = checkpoint_at(f, job, 5);
    pg_run(f->conninfo,
           "INSERT INTO checkpoint (job, attempt, step, world_size, shards, directory, state, commit_time) "
           "SELECT 1, 1, n, 1, 1, 'd', 2, now() FROM generate_series(8, 9) n");
    pg_run(f->conninfo, "UPDATE job SET keep_last = 1");
    OK(store_checkpoint_pin(f->store, f->epoch, job, old, true, &e));
    OK(store_checkpoint_pin(f->store, f->epoch, job, checkpoint_at(f, job, 9), true, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 4"), 0);
    OK(store_checkpoint_pin(f->store, f->epoch, job, checkpoint_at(f, job, 9), false, &e)); /* the newest stays */
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 4 AND step IN (6, 8)"), 2);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 2"), 2);
    OK(store_checkpoint_pin(f->store, f->epoch, job, old, false, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 2 AND step = 9"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 2"), 1);
}

static void a_missing_checkpoint_can_be_deleted(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 1), id = checkpoint_at(f, job, 5);
    pg_run(f->conninfo,
           "UPDATE checkpoint SET state = 6, reason = 'no such file', unreadable_time = now() WHERE step = 5");
    OK(store_checkpoint_delete(f->store, f->epoch, job, id, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM checkpoint WHERE step = 5"), 4);
}

static void a_checkpoint_is_deleted_unless_a_job_that_has_not_ended_needs_it(void **state) {
    struct fixture *f = *state;
    int64_t job = ended_job(f, 1), good = checkpoint_at(f, job, 5), child = fixture_job(f, 1);
    char sql[200];
    FAILS(store_checkpoint_delete(f->store, f->epoch, job, 999, &e), ST_NOT_FOUND, "checkpoints/999 does not exist");
    FAILS(store_checkpoint_delete(f->store, f->epoch, job, checkpoint_at(f, job, 6), &e), ST_FAILED_PRECONDITION,
          "is still being written");
    snprintf(sql, sizeof sql, "INSERT INTO job_origin VALUES (%lld, %lld, false)", (long long)child, (long long)good);
    pg_run(f->conninfo, sql);
    FAILS(store_checkpoint_delete(f->store, f->epoch, job, good, &e), ST_FAILED_PRECONDITION,
          "is needed by another job that began with it");
    fixture_move(f, child, 0, STORE_JOB_QUEUED, STORE_JOB_CANCELLED);
    pg_force(f->conninfo, "UPDATE job SET state = 4, end_time = NULL WHERE id = 1");
    FAILS(store_checkpoint_delete(f->store, f->epoch, job, good, &e), ST_FAILED_PRECONDITION,
          "is the one that its job would resume from");
    FAILS(store_checkpoint_delete(f->store, f->epoch, job, checkpoint_at(f, job, 7), &e), ST_FAILED_PRECONDITION,
          "is the one that its job's attempt started from");
    pg_force(f->conninfo, "UPDATE job SET state = 10, end_time = now() WHERE id = 1");
    OK(store_checkpoint_delete(f->store, f->epoch, job, good, &e));
    OK(store_checkpoint_delete(f->store, f->epoch, job, checkpoint_at(f, job, 7), &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM checkpoint WHERE state = 4 AND delete_time <= now()"),
                     2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(only_a_job_that_has_ended_is_deleted),
        TEST(a_deleted_job_is_found_by_no_question_and_cannot_be_retried),
        TEST(nothing_that_a_deleted_job_had_is_found_or_changed),
        TEST(a_users_change_of_a_checkpoint_is_one_event),
        TEST(rows_of_one_job_are_deleted_in_batches_after_its_files),
        TEST(a_batch_continues_after_the_last_one_and_rows_added_behind_it_are_deleted_last),
        TEST(a_metrics_name_is_deleted_with_the_last_job_that_has_it),
        TEST(names_of_a_job_with_many_are_deleted_in_batches),
        TEST(a_name_that_is_given_to_another_job_meanwhile_is_kept),
        TEST(a_job_that_another_began_with_is_deleted_after_it),
        TEST(no_job_begins_with_a_checkpoint_of_a_deleted_one),
        TEST(a_pinned_checkpoint_keeps_itself_and_its_job),
        TEST(unpinning_deletes_a_checkpoint_that_nothing_else_keeps),
        TEST(a_missing_checkpoint_can_be_deleted),
        TEST(a_checkpoint_is_deleted_unless_a_job_that_has_not_ended_needs_it),
        TEST(jobs_that_ended_long_ago_are_found_oldest_first_but_those_that_others_began_with),
    };
    return cmocka_run_group_tests_name("store delete", tests, fixture_group_setup, fixture_group_teardown);
}
