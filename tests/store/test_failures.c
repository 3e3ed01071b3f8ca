/* Failures of the server that are no refusal of a statement: they pass, so that the call is made again; and a
 * connection that is kept for one thread. */
#include "tests/store/store_fixture.h"

#include "service/store/executor.h"
#include "service/store/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Each INSERT of an event fails with this SQLSTATE, the first `n` times. A sequence is not rolled back. */
static void fail_events(struct fixture *f, const char *sqlstate, int n) {
    char sql[800];
    snprintf(sql, sizeof sql,
             "DROP SEQUENCE IF EXISTS tries; CREATE SEQUENCE tries;"
             "CREATE OR REPLACE FUNCTION fail_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
             "IF nextval('tries') <= %d THEN RAISE EXCEPTION 'the disk is on fire' USING ERRCODE = '%s'; END IF; "
             "RETURN NEW; END $$;"
             "CREATE OR REPLACE TRIGGER fail_event BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION fail_event()",
             n, sqlstate);
    pg_run(f->conninfo, sql);
}

static void a_failure_of_the_server_is_tried_again_with_another_connection(void **state) {
    struct fixture *f = *state;
    static const char *const passing[] = { "58030", "XX000", "XX001", "42501", "25P02", "26000", "42P05" };
    int64_t job = fixture_running(f, 1);
    int attempt = 1;
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        struct store_stats before, after;
        fail_events(f, passing[i], 1);
        store_stats(f->store, &before);
        attempt = fixture_next_attempt(f, job, attempt, 1);
        store_stats(f->store, &after);
        assert_int_equal(after.failures - before.failures, 1);
        assert_true(pg_number(f->conninfo, "SELECT last_value FROM tries") > 1);
    }
    assert_int_equal(attempt, 1 + (int)(sizeof passing / sizeof *passing));
}

static void a_statement_that_is_wrong_is_tried_once(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct store_job_move move = {
        .request_id = "wrong", .job = job, .attempt = 1, .from = STORE_JOB_RUNNING, .to = STORE_JOB_CANCELLING
    };
    fail_events(f, "42P01", 1000);
    FAILS(store_job_move(f->store, f->epoch, &move, NULL, &e), ST_INTERNAL, "the disk is on fire (42P01)");
    assert_int_equal(pg_number(f->conninfo, "SELECT last_value FROM tries"), 1);
    fail_events(f, "23514", 1000);
    FAILS(store_job_move(f->store, f->epoch, &move, NULL, &e), ST_FAILED_PRECONDITION, "(23514)");
    assert_int_equal(pg_number(f->conninfo, "SELECT last_value FROM tries"), 1);
}

/* A migration of a newer release changes a column that a prepared statement of this process returns. */
static void a_statement_whose_columns_have_changed_is_prepared_again(void **state) {
    struct fixture *f = *state;
    struct store_executor x = { .id = "a", .hostname = "h", .address = "", .version = "", .reason = "", .slots = 7 },
                          got;
    OK(store_executor_attach(f->store, f->epoch, &x, 1, &e));
    OK(store_executor_get(f->store, f->m, "a", &got, &e));
    pg_run(f->conninfo, "ALTER TABLE executor ALTER COLUMN slots TYPE smallint");
    OK(store_executor_get(f->store, f->m, "a", &got, &e));
    assert_int_equal(got.slots, 7);
}

enum { CONNECTIONS = 3 };

/* Another thread than the one that has a connection of its own. */
struct others {
    struct store *store;
    struct transaction used[CONNECTIONS - 1], late;
    struct err why;
    pthread_barrier_t used_up, done;
};

static void *use_all(void *arg) {
    struct others *o = arg;
    for (int i = 0; i < CONNECTIONS - 1; i++) {
        o->used[i] = transaction_read(o->store);
        assert_true(transaction_begin(&o->used[i], &o->why));
    }
    o->late = transaction_read(o->store);
    assert_false(transaction_begin(&o->late, &o->why));
    pthread_barrier_wait(&o->used_up);
    pthread_barrier_wait(&o->done);
    for (int i = 0; i < CONNECTIONS - 1; i++)
        transaction_end(&o->used[i], ST_OK, NULL);
    o->late = transaction_read(o->store);
    assert_true(transaction_begin(&o->late, &o->why)); /* an idle connection is there for all */
    transaction_end(&o->late, ST_OK, NULL);
    return NULL;
}

static void one_thread_has_a_connection_of_its_own_while_others_use_all_that_they_may(void **state) {
    struct fixture *f = *state;
    struct others o = { 0 };
    pthread_t thread;
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo, .connections = CONNECTIONS, .patience_ms = -1 },
                  &o.store, &e));
    store_reserve(o.store);
    pthread_barrier_init(&o.used_up, NULL, 2);
    pthread_barrier_init(&o.done, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, use_all, &o), 0);
    pthread_barrier_wait(&o.used_up);
    assert_int_equal(o.late.status, ST_RESOURCE_EXHAUSTED);
    assert_string_equal(o.why.msg, "all 2 connections to PostgreSQL are busy");
    OK(store_ping(o.store, &e));
    OK(store_ping(o.store, &e));
    pthread_barrier_wait(&o.done);
    pthread_join(thread, NULL);
    assert_int_equal(o.late.status, ST_OK);
    pthread_barrier_destroy(&o.used_up);
    pthread_barrier_destroy(&o.done);
    store_close(o.store);
}

static void a_standby_tries_on_one_session_and_on_a_new_one_after_a_restart(void **state) {
    struct fixture *f = *state;
    static const char backend[] = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                                  "AND query LIKE '%pg_try_advisory_lock%' AND state = 'idle' "
                                  "ORDER BY backend_start DESC LIMIT 1";
    struct store *standby;
    struct store_leader *leader;
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo, .patience_ms = -1 }, &standby, &e));
    OK(store_leader_try(standby, "other", 0, &leader, &e));
    assert_null(leader);
    const long long first = pg_number(f->conninfo, backend);
    for (int i = 0; i < 5; i++)
        OK(store_leader_try(standby, "other", 0, &leader, &e));
    assert_int_equal(pg_number(f->conninfo, backend), first);
    pg_kill(f->pg);
    pg_restart(f->pg);
    OK(store_leader_try(standby, "other", 0, &leader, &e)); /* the old leader's session has ended, too */
    assert_non_null(leader);
    store_leader_close(leader);
    store_close(standby);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_failure_of_the_server_is_tried_again_with_another_connection),
        TEST(a_statement_that_is_wrong_is_tried_once),
        TEST(a_statement_whose_columns_have_changed_is_prepared_again),
        TEST(a_standby_tries_on_one_session_and_on_a_new_one_after_a_restart),
        TEST(one_thread_has_a_connection_of_its_own_while_others_use_all_that_they_may),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
