/* The states in the protobuf messages, in C and in the database are equal, and the database accepts exactly the edges
 * of the scheduler's table. */
#include "tests/store/store_fixture.h"

#include "service/scheduler/job_state.h"

#include <trainyard/v1/checkpoint.pb-c.h>
#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/sweep.pb-c.h>

#include <stdio.h>
#include <string.h>

static bool scheduler_has(enum job_state at, enum job_state becomes) {
    for (enum job_cause cause = 0; cause < JOB_CAUSES; cause++)
        if (job_state_edge(at, becomes, cause))
            return true;
    return false;
}

static bool database_has(const struct fixture *f, const char *entity, int at, int becomes) {
    char sql[160];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM state_edge WHERE entity = '%s' AND at = %d AND becomes = %d",
             entity, at, becomes);
    return pg_number(f->conninfo, sql) == 1;
}

/* Sets the rows to a state without the trigger, then changes the state with it. */
static void expect_guarded(const struct fixture *f, const char *entity, const char *with, int at, int becomes) {
    char sql[1000];
    int n = snprintf(sql, sizeof sql, "SET session_replication_role = replica; UPDATE %s SET ", entity);
    n += snprintf(sql + n, sizeof sql - (size_t)n, with, at, at, at, at);
    n += snprintf(sql + n, sizeof sql - (size_t)n, "; SET session_replication_role = origin; UPDATE %s SET ", entity);
    snprintf(sql + n, sizeof sql - (size_t)n, with, becomes, becomes, becomes, becomes);
    bool allowed = at == becomes || database_has(f, entity, at, becomes);
    const char *found = pg_try(f->conninfo, sql);
    if (strcmp(found, allowed ? "00000" : "23514") != 0)
        fail_msg("%s from %d to %d: SQLSTATE %s", entity, at, becomes, found);
    if (!allowed && strncmp(pg_refused_by(), "state_edge", 10) != 0)
        fail_msg("%s from %d to %d is refused by '%s'", entity, at, becomes, pg_refused_by());
}

static void the_database_and_the_scheduler_have_the_same_edges(void **state) {
    struct fixture *f = *state;
    for (enum job_state at = JOB_STATE_QUEUED; at <= JOB_STATE_CANCELLED; at++)
        for (enum job_state becomes = JOB_STATE_QUEUED; becomes <= JOB_STATE_CANCELLED; becomes++)
            if (scheduler_has(at, becomes) != database_has(f, "job", at, becomes))
                fail_msg("%s -> %s: %s the scheduler's table only", job_state_name(at), job_state_name(becomes),
                         scheduler_has(at, becomes) ? "in" : "not in");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM state_edge WHERE at NOT BETWEEN 1 AND 11 "
                                            "OR becomes NOT BETWEEN 1 AND 11"),
                     0);
}

static void the_database_refuses_every_change_without_an_edge(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *entity, *with; /* %1$d: the state, with the columns that its CHECKs need */
        int states;
    } rows[] = {
        { "job",
          "state = %d, attempt = 1, start_time = now(), end_time = CASE WHEN %d >= 9 THEN now() END "
          "WHERE %d + %d > 0",
          11 },
        { "attempt", "state = %d, start_time = now(), end_time = CASE WHEN %d = 4 THEN now() END WHERE %d + %d > 0",
          4 },
        { "checkpoint",
          "state = %d, shards = 1, reason = 'r', commit_time = CASE WHEN %d <> 1 THEN now() END, "
          "unreadable_time = now(), delete_time = CASE WHEN %d IN (4, 5) THEN now() END WHERE %d > 0",
          6 },
        { "sweep", "state = %d, end_time = CASE WHEN %d >= 3 THEN now() END WHERE %d + %d > 0", 5 },
        { "executor", "state = %d, lost_time = CASE WHEN %d = 2 THEN now() END WHERE %d + %d > 0", 2 },
    };
    fixture_running(f, 1);
    pg_run(f->conninfo,
           "INSERT INTO executor VALUES ('x', 1, 1, 'h', 'a', 'v', 2, '', now(), now(), NULL);"
           "INSERT INTO checkpoint (job, attempt, step, world_size, directory) VALUES (1, 1, 5, 1, 'd');"
           "INSERT INTO sweep (name, state, spec, request_id, request_digest, user_name, maximize, trials) "
           "VALUES ('s', 1, '', 'r', '', '', false, 1)");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int at = 1; at <= rows[i].states; at++)
            for (int becomes = 1; becomes <= rows[i].states; becomes++)
                expect_guarded(f, rows[i].entity, rows[i].with, at, becomes);
}

static void a_move_without_an_edge_is_refused_in_a_sentence(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    struct store_job_move move = { .request_id = fixture_request(f),
                                   .job = job,
                                   .attempt = 1,
                                   .from = STORE_JOB_RUNNING,
                                   .to = STORE_JOB_CANCELLED,
                                   .reason = "" };
    FAILS(store_job_move(f->store, f->epoch, &move, NULL, &e), ST_FAILED_PRECONDITION,
          "job in state 3 may not become 11");
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM job"), STORE_JOB_RUNNING);
}

static void messages_and_rows_have_the_same_states(void **state) {
    (void)state;
    const ProtobufCEnumDescriptor *of = &trainyard__v1__job__state__descriptor;
    assert_int_equal(of->n_values, JOB_STATE_CANCELLED + 1);
    for (int i = JOB_STATE_QUEUED; i <= JOB_STATE_CANCELLED; i++) {
        assert_string_equal(protobuf_c_enum_descriptor_get_value(of, i)->name, job_state_name((enum job_state)i));
        assert_string_equal(store_job_state_name(i), job_state_name((enum job_state)i));
    }
    const ProtobufCEnumDescriptor *sweeps = &trainyard__v1__sweep__state__descriptor;
    assert_int_equal(sweeps->n_values, STORE_SWEEP_CANCELLED + 1);
    for (int i = STORE_SWEEP_RUNNING; i <= STORE_SWEEP_CANCELLED; i++)
        assert_string_equal(protobuf_c_enum_descriptor_get_value(sweeps, i)->name, store_sweep_state_name(i));
    /* The compiler has compared the numbers of the states of rows. Messages have no other states. */
    assert_int_equal(trainyard__v1__attempt__state__descriptor.n_values, STORE_ATTEMPT_ENDED + 1);
    assert_int_equal(trainyard__v1__checkpoint__state__descriptor.n_values, STORE_CHECKPOINT_MISSING + 1);
    /* DRAINING and DRAINED follow from the row's mark and its ranks, DISCONNECTED and LEAVING from its detach_time. */
    assert_int_equal(trainyard__v1__executor__state__descriptor.n_values, STORE_EXECUTOR_LOST + 1 + 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_database_and_the_scheduler_have_the_same_edges),
        TEST(the_database_refuses_every_change_without_an_edge),
        TEST(a_move_without_an_edge_is_refused_in_a_sentence),
        cmocka_unit_test(messages_and_rows_have_the_same_states),
    };
    return cmocka_run_group_tests_name("store states", tests, fixture_group_setup, fixture_group_teardown);
}
