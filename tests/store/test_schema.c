/* Migrations up, down and up again; a newer schema is refused; every CHECK refuses the value that its name describes.
 */
#include "tests/store/store_fixture.h"

#include "service/store/migrate.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setup(void **state) {
    struct fixture *f = *state;
    snprintf(f->conninfo, sizeof f->conninfo, "%s", pg_database(f->pg, false));
    return 0;
}

static const char OBJECTS[] = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname "
                              "NOT LIKE 'schema_migration%'";

static void migrations_go_up_down_and_up(void **state) {
    struct fixture *f = *state;
    int from, newest = store_schema_version();
    struct store *s;
    FAILS(store_open(&(struct store_options){ .conninfo = f->conninfo }, &s, &e), ST_FAILED_PRECONDITION,
          "trainyard-controller migrate");
    OK(store_migrate(f->conninfo, newest, &from, &e));
    assert_int_equal(from, 0);
    long long objects = pg_number(f->conninfo, OBJECTS);
    assert_true(objects > 20);
    OK(store_migrate(f->conninfo, newest, &from, &e));
    assert_int_equal(from, newest);
    OK(store_migrate(f->conninfo, 0, &from, &e));
    assert_int_equal(pg_number(f->conninfo, OBJECTS), 0);
    for (int version = 1; version <= newest; version++)
        OK(store_migrate(f->conninfo, version, &from, &e));
    assert_int_equal(pg_number(f->conninfo, OBJECTS), objects);
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo }, &s, &e));
    store_close(s);
    FAILS(store_migrate(f->conninfo, newest + 1, &from, &e), ST_INVALID_ARGUMENT, "there is no schema");
}

static void a_newer_schema_is_refused(void **state) {
    struct fixture *f = *state;
    int from;
    struct store *s;
    OK(store_migrate(f->conninfo, store_schema_version(), &from, &e));
    pg_run(f->conninfo, "INSERT INTO schema_migration VALUES (9999, 'future')");
    FAILS(store_migrate(f->conninfo, store_schema_version(), &from, &e), ST_FAILED_PRECONDITION, "newer");
    FAILS(store_migrate(f->conninfo, 0, &from, &e), ST_FAILED_PRECONDITION, "newer");
    FAILS(store_open(&(struct store_options){ .conninfo = f->conninfo }, &s, &e), ST_FAILED_PRECONDITION, "newer");
}

static void a_failed_migration_leaves_nothing(void **state) {
    struct fixture *f = *state;
    int from;
    /* Blocks the second migration. */
    pg_run(f->conninfo, "CREATE TABLE metric_name ()");
    FAILS(store_migrate(f->conninfo, store_schema_version(), &from, &e), ST_INTERNAL, "migration 0002_reports.up.sql");
    assert_int_equal(pg_number(f->conninfo, "SELECT max(version) FROM schema_migration"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM pg_class WHERE relname = 'checkpoint'"), 0);
    pg_run(f->conninfo, "DROP TABLE metric_name");
    OK(store_migrate(f->conninfo, store_schema_version(), &from, &e));
    assert_int_equal(from, 1);
}

static void *migrate_one(void *ctx) {
    struct fixture *f = ctx;
    status_t *st = malloc(sizeof *st);
    *st = store_migrate(f->conninfo, store_schema_version(), NULL, NULL);
    return st;
}

static void four_programs_that_migrate_at_once_take_turns(void **state) {
    struct fixture *f = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, migrate_one, f);
    for (int i = 0; i < 4; i++) {
        void *st;
        pthread_join(threads[i], &st);
        assert_int_equal(*(status_t *)st, ST_OK);
        free(st);
    }
}

/* The state in which older versions left the ranks of lost executors. */
static void open_placements_of_ended_attempts_are_closed_on_the_way_up(void **state) {
    struct fixture *f = *state;
    OK(store_migrate(f->conninfo, 12, NULL, &e));
    pg_run(f->conninfo,
           "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, attempt, "
           "steps, keep_last, keep_best, start_time) VALUES ('n', 'q', 3, 0, 1, 'cpu', 3, 2, 1, 1, 0, now());"
           "INSERT INTO attempt (job, number, state, epoch, from_step, end_time) VALUES (1, 1, 4, 1, 0, "
           "'2001-01-01'), (1, 2, 1, 1, 0, NULL);"
           "INSERT INTO placement (job, attempt, rank, executor) VALUES (1, 1, 0, 'x'), (1, 2, 0, 'x');");
    OK(store_migrate(f->conninfo, store_schema_version(), NULL, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM placement WHERE end_time IS NULL"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT attempt FROM placement WHERE end_time = '2001-01-01'"), 1);
}

/* Jobs of years: some with several metrics, some with none. */
static void the_metrics_of_older_jobs_are_found_on_the_way_up(void **state) {
    struct fixture *f = *state;
    OK(store_migrate(f->conninfo, 17, NULL, &e));
    pg_run(f->conninfo,
           "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, keep_last, "
           "keep_best) SELECT 'n', 'q', 1, 0, 1, 'cpu', 3, 1, 1, 0 "
           "FROM generate_series(1, 2000);"
           "INSERT INTO metric_name (name) SELECT 'name_' || n FROM generate_series(1, 30) n;"
           "INSERT INTO metric_chunk SELECT j, n, 0, 1, c, 1, 1, c, c, 0, 0, 0, '{0}' FROM generate_series(1, 2000) j, "
           "generate_series(1, 30) n, generate_series(1, 3) c WHERE j % 2 = 0 AND (j + n) % 3 = 0;");
    OK(store_migrate(f->conninfo, store_schema_version(), NULL, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job_metric"), 1000 * 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM (SELECT DISTINCT job, name FROM metric_chunk EXCEPT "
                                            "SELECT job, name FROM job_metric) missing"),
                     0);
    pg_run(f->conninfo, "INSERT INTO metric_chunk VALUES (2, 1, 0, 1, 9, 1, 1, 9, 9, 0, 0, 0, '{0}')");
    assert_string_equal(
        pg_try(f->conninfo, "INSERT INTO metric_chunk VALUES (1, 1, 0, 1, 9, 1, 1, 9, 9, 0, 0, 0, '{0}')"), "23503");
}

/* ---- CHECKs: for each, a statement that it refuses, on otherwise valid rows ---- */

static const char ROWS[] =
    "INSERT INTO executor VALUES ('x', 1, 1, 'h', 'a', 'v', 2, '', now(), now(), NULL);"
    "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, keep_last, "
    "keep_best) "
    "VALUES ('n', 'q', 1, 0, 2, 'cpu', 3, 10, 1, 0);"
    "INSERT INTO event VALUES (1, 1, now(), 0, 'made', 1, '', 'r1');"
    "INSERT INTO attempt (job, number, state, epoch, from_step) VALUES (1, 1, 1, 1, 0);"
    "INSERT INTO placement (job, attempt, rank, executor) VALUES (1, 1, 0, 'x');"
    "INSERT INTO checkpoint (job, attempt, step, world_size, directory) VALUES (1, 1, 5, 2, 'd');"
    "INSERT INTO code_archive (sha256, bytes) VALUES (sha256('x'), 1);"
    "INSERT INTO metric_name (name) VALUES ('loss');"
    "INSERT INTO job_metric VALUES (1, 1);"
    "INSERT INTO metric_chunk VALUES (1, 1, 0, 1, 0, 2, 1, 1, 2, 0, 1, 1, '{0,1}', NULL);"
    "INSERT INTO rank_sequence VALUES (1, 1, 0, 5);"
    "INSERT INTO log_chunk VALUES (1, 1, 1, 0, '{now}', '{stdout}', '{text}', 4);"
    "INSERT INTO notification_target VALUES ('hook', '{10}', '{}');"
    "INSERT INTO token (name, digest, role) VALUES ('ci', sha256('secret'), 1);"
    "INSERT INTO sweep (name, state, spec, request_id, request_digest, user_name, maximize, trials, created) "
    "VALUES ('s', 1, '', 'r', '', '', false, 2, 1);"
    "INSERT INTO sweep_trial (sweep, number, job) VALUES (1, 1, 1);"
    "INSERT INTO sweep_rung (sweep, rung, trial, step, score) VALUES (1, 1, 1, 5, 0.5);";

static const char *const REFUSED[] = {
    "UPDATE job SET max_world_size = world_size",
    "UPDATE attempt SET world_size = 0",
    "INSERT INTO notification_target VALUES ('Hook', '{}', '{}')",
    "INSERT INTO notification (target, time, kind, message, tries) VALUES ('hook', now(), 'k', '', -1)",
    "UPDATE sweep SET name = '-s'",
    "UPDATE sweep SET name = repeat('s', 58)",
    "UPDATE sweep SET state = 0",
    "UPDATE sweep SET end_time = now()",
    "UPDATE sweep SET state = 3, created = 0",
    "UPDATE sweep SET state = 3, end_time = now()",
    "UPDATE sweep SET trials = 10001",
    "UPDATE sweep SET created = 3",
    "UPDATE sweep SET created = -1",
    "UPDATE sweep SET ended = 2",
    "UPDATE sweep SET failed = 1",
    "UPDATE sweep SET succeeded = -1, ended = 1",
    "UPDATE sweep SET best = 1",
    "UPDATE sweep SET stopped = 2",
    "UPDATE sweep_trial SET rungs = 65",
    "UPDATE sweep_trial SET stop_step = 5",
    "UPDATE sweep_rung SET rung = 65",
    "UPDATE sweep_rung SET score = 'NaN'",
    "UPDATE sweep_trial SET number = 0",
    "UPDATE sweep_trial SET state = 8",
    "INSERT INTO secret (name, key, ciphertext, creator) VALUES ('1A', repeat('0', 16), repeat('x', 29)::bytea, '')",
    "INSERT INTO secret (name, key, ciphertext, creator) VALUES ('A', 'wrong', repeat('x', 29)::bytea, '')",
    "INSERT INTO secret (name, key, ciphertext, creator) VALUES ('A', repeat('0', 16), repeat('x', 28)::bytea, '')",
    "INSERT INTO secret (name, key, ciphertext, creator, update_time) SELECT 'A', '0123456789abcdef', "
    "decode(repeat('00', 29), 'hex'), '', now() - interval '1 day'",
    "UPDATE token SET executor = 'x'",
    "UPDATE token SET shared = true",
    "INSERT INTO audit VALUES (now(), 1, '', '', '', 'Method', '', NULL, '', 'OK', '')",
    "INSERT INTO audit VALUES (now(), 1, '', '', '', 'S.M', '', NULL, '', 'ok', '')",
    "INSERT INTO audit VALUES (now(), 1, '', '', '', 'S.M', '', NULL, '', 'OK', '', -1)",
    "INSERT INTO code_archive (sha256, bytes) VALUES ('short', 1)",
    "INSERT INTO code_archive (sha256, bytes) VALUES (sha256('y'), 0)",
    "INSERT INTO imported_run VALUES (1, 'Source', 'a')",
    "INSERT INTO imported_run VALUES (1, 'source', '')",
    "INSERT INTO artifact VALUES (1, '', 1, 0, 0, repeat('a', 64), now())",
    "INSERT INTO artifact VALUES (1, 'a', 1, 0, -1, repeat('a', 64), now())",
    "INSERT INTO artifact VALUES (1, 'a', 1, 0, 0, 'x', now())",
    "INSERT INTO code_chunk VALUES (sha256('x'), 0, 1, '')",
    "INSERT INTO code_chunk VALUES (sha256('x'), 512, 1, 'd')",
    "INSERT INTO code_chunk VALUES (sha256('x'), 0, -1, 'd')",
    "INSERT INTO code_total (one) VALUES (false)",
    "UPDATE code_total SET bytes = -1",
    "INSERT INTO leader VALUES (false, 1, '', now())",
    "INSERT INTO cluster VALUES (false)",
    "INSERT INTO election VALUES (0, gen_random_uuid())",
    "UPDATE job SET records_lost = -1",
    "UPDATE job SET needs = -1",
    "INSERT INTO state_edge VALUES ('rank', 1, 2)",
    "UPDATE leader SET epoch = -1",
    "UPDATE executor SET state = 3",
    "UPDATE executor SET state = 2",
    "UPDATE executor SET lost_time = now()",
    "UPDATE executor SET slots = -1",
    "UPDATE executor SET id = ''",
    "UPDATE executor SET drain_reason = 'new disk'",
    "UPDATE executor SET drain_requester = 'ops'",
    "UPDATE executor SET drain_now = true",
    "UPDATE executor SET state = 2, lost_time = now(), detach_time = now()",
    "UPDATE executor SET leaving = true",
    "UPDATE executor SET fault_time = now()",
    "INSERT INTO job_avoided_host VALUES (1, 'x', 12, '')",
    "INSERT INTO device VALUES ('x', 0, 'tpu', 0, '', 0)",
    "INSERT INTO device VALUES ('x', 0, 'cuda', 0, '', 0, '', '', true, '')",
    "UPDATE job SET state = 0",
    "UPDATE job SET state = 12",
    "UPDATE job SET state = 10",
    "UPDATE job SET end_time = now()",
    "UPDATE job SET state = 3, attempt = 1",
    "UPDATE job SET state = 2",
    "UPDATE job SET world_size = 0",
    "UPDATE job SET world_size = 1025",
    "UPDATE job SET accelerator = 'tpu'",
    "UPDATE job SET max_restarts = -1",
    "UPDATE job SET restarts = -1",
    "UPDATE job SET attempt = -1",
    "UPDATE job SET steps = -1",
    "UPDATE job SET step = -1",
    "UPDATE job SET keep_last = -1",
    "UPDATE job SET keep_best = -1",
    "UPDATE job SET last_event = 0",
    "UPDATE job SET delete_time = now()",
    "UPDATE job SET weights_sha256 = 'ABC'",
    "INSERT INTO job_spec (job, body, request_digest) VALUES (1, '', 'short')",
    "UPDATE attempt SET number = 0",
    "UPDATE attempt SET state = 5",
    "UPDATE attempt SET state = 4",
    "UPDATE attempt SET end_time = now()",
    "UPDATE attempt SET state = 2",
    "UPDATE attempt SET from_step = -1, from_checkpoint = 1",
    "UPDATE attempt SET from_step = 5",
    "UPDATE placement SET rank = -1",
    "UPDATE placement SET rank = 1024",
    "UPDATE placement SET pid = 1",
    "UPDATE placement SET threads = 0",
    "UPDATE executor SET cores = -1",
    "UPDATE placement SET end_time = now()",
    "UPDATE event SET number = 0",
    "UPDATE event SET kind = 'Bad Kind'",
    "UPDATE event SET state = 0",
    "UPDATE event SET request_id = ''",
    "UPDATE checkpoint SET state = 7",
    "UPDATE checkpoint SET state = 6, commit_time = now(), reason = 'r'",
    "UPDATE checkpoint SET unreadable_time = now()",
    "UPDATE checkpoint SET step = -1",
    "UPDATE checkpoint SET shards = 3",
    "UPDATE checkpoint SET shards = 2, state = 2",
    "UPDATE checkpoint SET state = 2, commit_time = now()",
    "UPDATE checkpoint SET commit_time = now()",
    "UPDATE checkpoint SET state = 3, commit_time = now()",
    "UPDATE checkpoint SET state = 4",
    "UPDATE checkpoint SET delete_time = now()",
    "UPDATE checkpoint SET bytes = -1",
    "UPDATE checkpoint SET world_size = 0",
    "UPDATE checkpoint SET weights_sha256 = 'x'",
    "INSERT INTO shard VALUES (1, -1, 'f', 1, repeat('a', 64))",
    "INSERT INTO shard VALUES (1, 0, 'f', -1, repeat('a', 64))",
    "INSERT INTO shard VALUES (1, 0, 'f', 1, 'short')",
    "INSERT INTO metric_name (name) VALUES ('')",
    "INSERT INTO metric_name (name) VALUES (repeat('x', 65))",
    "UPDATE metric_chunk SET n = 0, values = '{}'",
    "UPDATE metric_chunk SET n = 1",
    "UPDATE metric_chunk SET n = 241",
    "UPDATE metric_chunk SET number = -1",
    "UPDATE metric_chunk SET stride = -1",
    "UPDATE metric_chunk SET stride = NULL",
    "UPDATE metric_chunk SET offsets = '{0,1}'",
    "UPDATE metric_chunk SET stride = NULL, offsets = '{0}'",
    "UPDATE metric_chunk SET last_step = 0",
    "UPDATE metric_chunk SET first_time = now()",
    "UPDATE metric_chunk SET times = '\\x0000'",
    "UPDATE metric_chunk SET first_time = now(), times = '\\x00'",
    "UPDATE metric_chunk SET first_time = now(), times = '\\x0000000000000000000000'",
    "UPDATE rank_sequence SET sequence = -1",
    "UPDATE rank_sequence SET repeated_us = -1",
    "UPDATE log_chunk SET lines = '{}'",
    "UPDATE log_chunk SET lines = '{a,b}'",
    "UPDATE log_chunk SET times = '{}'",
    "UPDATE log_chunk SET streams = '{}'",
    "UPDATE log_chunk SET bytes = -1",
    "UPDATE log_chunk SET number = 0",
    "INSERT INTO queue (name) VALUES ('')",
    "INSERT INTO queue (name, cohort) VALUES ('q', '-')",
    "INSERT INTO queue (name, weight) VALUES ('q', 0)",
    "INSERT INTO queue (name, max_priority) VALUES ('q', 1000001)",
    "INSERT INTO queue (name, cuda_lend) VALUES ('q', -2)",
    "INSERT INTO queue (name, cpu_average) VALUES ('q', -1)",
    "UPDATE token SET name = ''",
    "UPDATE token SET digest = 'short'",
    "UPDATE token SET role = 0",
    "UPDATE token SET role = 6",
    "UPDATE token SET project = '-'",
    "UPDATE token SET project = 'p', role = 3",
    "UPDATE token SET role = 5", /* it never expires */
    "UPDATE token SET expire_time = create_time",
    "UPDATE token SET revoke_time = create_time - interval '1 second'",
};

static void every_check_refuses_the_rows_that_it_forbids(void **state) {
    struct fixture *f = *state;
    OK(store_migrate(f->conninfo, store_schema_version(), NULL, &e));
    pg_run(f->conninfo, ROWS);
    pg_run(f->conninfo, "CREATE TABLE seen (name text)");
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        const char *found = pg_try(f->conninfo, REFUSED[i]);
        if (strcmp(found, "23514") != 0)
            fail_msg("%s: SQLSTATE %s", REFUSED[i], found);
        char sql[200];
        snprintf(sql, sizeof sql, "INSERT INTO seen VALUES ('%s')", pg_refused_by());
        pg_run(f->conninfo, sql);
    }
    /* Each CHECK has a statement above. */
    static const char missed[] = "FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace "
                                 "AND conname NOT IN (SELECT name FROM seen)";
    char sql[300];
    snprintf(sql, sizeof sql, "SELECT count(*) %s", missed);
    assert_int_equal(pg_number(f->conninfo, sql), 0);
}

static void unique_keys_refuse_duplicates(void **state) {
    struct fixture *f = *state;
    OK(store_migrate(f->conninfo, store_schema_version(), NULL, &e));
    pg_run(f->conninfo, ROWS);
    static const char *const twice[] = {
        "INSERT INTO event VALUES (1, 2, now(), 0, 'made', 1, '', 'r1')",
        "INSERT INTO event VALUES (1, 1, now(), 0, 'made', 1, '', NULL)",
        "INSERT INTO attempt (job, number, state, epoch, from_step) VALUES (1, 2, 1, 1, 0)",
        "INSERT INTO checkpoint (job, attempt, step, world_size, directory) VALUES (1, 1, 5, 2, 'd')",
        "INSERT INTO metric_name (name) VALUES ('loss')",
        "INSERT INTO leader VALUES (true, 1, '', now())",
    };
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++)
        assert_string_equal(pg_try(f->conninfo, twice[i]), "23505");
    assert_string_equal(pg_try(f->conninfo, "UPDATE attempt SET from_step = 5, from_checkpoint = 99"), "23503");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(migrations_go_up_down_and_up, setup),
        cmocka_unit_test_setup(a_newer_schema_is_refused, setup),
        cmocka_unit_test_setup(a_failed_migration_leaves_nothing, setup),
        cmocka_unit_test_setup(four_programs_that_migrate_at_once_take_turns, setup),
        cmocka_unit_test_setup(open_placements_of_ended_attempts_are_closed_on_the_way_up, setup),
        cmocka_unit_test_setup(the_metrics_of_older_jobs_are_found_on_the_way_up, setup),
        cmocka_unit_test_setup(every_check_refuses_the_rows_that_it_forbids, setup),
        cmocka_unit_test_setup(unique_keys_refuse_duplicates, setup),
    };
    return cmocka_run_group_tests_name("store schema", tests, fixture_group_setup, fixture_group_teardown);
}
