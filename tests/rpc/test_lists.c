/* A list of the client is complete, or states that it is not: more rows than a page has, in text and in JSON. */
#include "tests/rpc/service_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#define MANY 100500 /* more than the client once read of any list */

/* Runs trainyard and counts the lines of stdout that contain `part`. ret_last is the last such line, and may be NULL.
 */
static size_t lines(const struct service_fixture *y, const char *command, const char *part, char ret_last[400]) {
    char shell[400], line[4096];
    size_t n = 0;
    snprintf(shell, sizeof shell, "TRAINYARD_CONTROLLER=%s %s/bin/trainyard %s", y->address, getenv("TRAINYARD_BUILD"),
             command);
    FILE *out = popen(shell, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out))
        if (strstr(line, part)) {
            n++;
            if (ret_last)
                snprintf(ret_last, 400, "%.399s", line);
        }
    assert_int_equal(pclose(out), 0);
    return n;
}

static void all_events_are_listed(void **state) {
    struct service_fixture *y = *state;
    char sql[400], last[400];
    service_submit(y, 1, 0);
    snprintf(sql, sizeof sql,
             "INSERT INTO event (job, number, attempt, kind, state, message) "
             "SELECT 1, n, 0, 'note', 1, 'flood' FROM generate_series(1000, %d) n",
             MANY + 999);
    pg_run(y->conninfo, sql);
    assert_int_equal(lines(y, "events 1", " flood", last), MANY);
    assert_true(strncmp(last, "101499 ", 7) == 0);
    assert_int_equal(lines(y, "events 1 -o json", "\"flood\"", NULL), MANY);
}

static void checkpoints_and_executors_are_listed_to_the_last(void **state) {
    struct service_fixture *y = *state;
    service_submit(y, 1, 0);
    pg_run(y->conninfo, "INSERT INTO attempt (job, number, state, epoch, from_step) VALUES (1, 1, 1, 1, 0);"
                        "INSERT INTO checkpoint (job, attempt, step, world_size, directory) "
                        "SELECT 1, 1, n, 1, 'd' FROM generate_series(1, 2500) n;"
                        "INSERT INTO executor SELECT 'x' || n, 1, 2, 'h', 'a', 'v', 0, '', now(), now(), now() "
                        "FROM generate_series(1, 2500) n");
    assert_int_equal(lines(y, "checkpoints 1", "WRITING", NULL), 2500);
    assert_int_equal(lines(y, "checkpoints 1 -o name", "jobs/1/checkpoints/", NULL), 2500);
    assert_int_equal(lines(y, "executors", "LOST", NULL), 2500);
    assert_int_equal(lines(y, "executors -o json", "\"LOST\"", NULL), 2500);
}

static void points_are_exported_to_the_last(void **state) {
    struct service_fixture *y = *state;
    char sql[600], last[400];
    service_submit(y, 1, 0);
    snprintf(sql, sizeof sql,
             "INSERT INTO attempt (job, number, state, epoch, from_step) VALUES (1, 1, 1, 1, 0);"
             "INSERT INTO metric_name (name) VALUES ('flood');"
             "INSERT INTO job_metric SELECT 1, id FROM metric_name WHERE name = 'flood';"
             "INSERT INTO metric_chunk SELECT 1, (SELECT id FROM metric_name WHERE name = 'flood'), 0, 1, n, 100, 1, "
             "n * 100, n * 100 + 99, 0, 1, 1, array_fill(0.5::float8, '{100}'), NULL, to_timestamp(1795363200), "
             "decode(repeat('00', 99) || '08', 'hex') FROM generate_series(0, %d) n",
             MANY / 100 - 1);
    pg_run(y->conninfo, sql);
    assert_int_equal(lines(y, "export 1 --csv -", "flood,", last), MANY);
    assert_string_equal(last, "flood,0,1,100499,2026-11-22T16:00:00.004Z,0.5\r\n");
    assert_int_equal(lines(y, "export 1 --csv - 2>&1", "jobs/1: 100500 points of 1 series\n", NULL), 1);
}

static void a_truncated_list_reports_it(void **state) {
    struct service_fixture *y = *state;
    for (int i = 0; i < 5; i++)
        service_submit(y, 1, 0);
    assert_int_equal(lines(y, "list -o name", "jobs/", NULL), 5);
    assert_int_equal(lines(y, "list 2>&1", "there may be more", NULL), 0);
    assert_int_equal(lines(y, "list --limit 3 -o name", "jobs/", NULL), 3);
    assert_int_equal(lines(y, "list --limit 3 2>&1", "newest 3 jobs; there may be more: use --limit 30", NULL), 1);
    assert_int_equal(lines(y, "list --limit 3 -o json", "\"next_page_token\": \"\"", NULL), 0);
    assert_int_equal(lines(y, "list --limit 3 -o json", "next_page_token", NULL), 1);
}

static void a_time_outside_of_the_calendar_is_refused_with_its_field(void **state) {
    struct service_fixture *y = *state;
    static const struct {
        int64_t seconds;
        int32_t nanos;
        status_t status;
    } cases[] = { { INT64_MAX, 0, ST_INVALID_ARGUMENT },    { INT64_MIN, 0, ST_INVALID_ARGUMENT },
                  { 253402300800, 0, ST_INVALID_ARGUMENT }, { -62135596801, 0, ST_INVALID_ARGUMENT },
                  { 0, -1, ST_INVALID_ARGUMENT },           { 0, 1000000000, ST_INVALID_ARGUMENT },
                  { 253402300799, 999999999, ST_OK },       { -62135596800, 0, ST_OK } };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
        Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
        ProtobufCMessage *reply = NULL;
        struct err e = { "" };
        time.seconds = cases[i / 2].seconds;
        time.nanos = cases[i / 2].nanos;
        *(i % 2 ? &request.created_after : &request.created_before) = &time;
        assert_int_equal(service_call(y, "ListJobs", &request.base, &reply, &e), cases[i / 2].status);
        if (reply)
            protobuf_c_message_free_unpacked(reply, NULL);
        else
            assert_non_null(strstr(e.msg, i % 2 ? "created_after: a timestamp" : "created_before: a timestamp"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(all_events_are_listed),
        FIXTURE_TEST(checkpoints_and_executors_are_listed_to_the_last),
        FIXTURE_TEST(points_are_exported_to_the_last),
        FIXTURE_TEST(a_truncated_list_reports_it),
        FIXTURE_TEST(a_time_outside_of_the_calendar_is_refused_with_its_field),
    };
    return cmocka_run_group_tests_name("lists", tests, service_group_setup, service_group_teardown);
}
