/* Requests of MLflow's and W&B's clients by themselves: what becomes points, and what is answered. */
#include "executor/program/tracking/mlflow.h"
#include "executor/program/tracking/wandb.h"
#include "executor/program/tracking/wandb_history.h"
#include "tracking/json.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char rows[4096], sentences[4096];

static void on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    (void)ctx;
    char *at = rows + strlen(rows), *end = rows + sizeof rows;
    at += snprintf(at, (size_t)(end - at), "%" PRId64, step);
    for (size_t i = 0; i < n && at < end; i++)
        at += snprintf(at, (size_t)(end - at), " %s=%g", names[i], values[i]);
    if (at < end)
        snprintf(at, (size_t)(end - at), "|");
}

static void on_event(void *ctx, const char *kind, const char *message) {
    (void)ctx;
    const size_t used = strlen(sentences);
    snprintf(sentences + used, sizeof sentences - used, "%s: %s|", kind, message);
}

static struct points *points_of_test(void) {
    *rows = *sentences = '\0';
    return points_new(&(struct points_sink){ NULL, on_row, on_event });
}

/* client: the number of the connection. */
static unsigned post_from(uint64_t client, struct mlflow *m, const char *path, const char *body, struct bytes *ret) {
    const struct http_request request = {
        .method = "POST", .path = path, .body = body, .n_body = strlen(body), .client = client
    };
    ret->len = 0;
    return mlflow_serve(m, &request, ret);
}

static unsigned post(struct mlflow *m, const char *path, const char *body, struct bytes *ret) {
    return post_from(1, m, path, body, ret);
}

static void numbers_are_read_as_clients_write_them(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool good;
        double value;
        int64_t integer;
    } cases[] = {
        { "[1]", true, 1, 1 },
        { "[1.5]", true, 1.5, -7 },
        { "[2.0]", true, 2, 2 },
        { "[true]", true, 1, -7 },
        { "[\"NaN\"]", true, NAN, -7 },
        { "[\"-Infinity\"]", true, -INFINITY, -7 },
        { "[\"12\"]", false, 0, 12 },
        { "[\"12x\"]", false, 0, -7 },
        { "[null]", false, 0, -7 },
        { "[1e300]", true, 1e300, -7 },
        { "[\"\"]", false, 0, -7 },
        { "[{}]", false, 0, -7 },
        { "[99999999999999999999]", true, 1e20, -7 },
        { "[\"99999999999999999999\"]", false, 0, -7 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *list = json_parse(cases[i].text, strlen(cases[i].text));
        assert_non_null(list);
        double value = 0;
        assert_int_equal(json_double(json_array_get(list, 0), &value), cases[i].good);
        if (cases[i].good && !isnan(cases[i].value))
            assert_true(value == cases[i].value);
        assert_int_equal(isnan(value) != 0, isnan(cases[i].value) != 0);
        assert_int_equal(json_int(json_array_get(list, 0), -7), cases[i].integer);
        json_decref(list);
    }
    assert_null(json_parse("{", 1));
    assert_int_equal(json_int(NULL, 3), 3);
}

static void a_request_that_is_repeated_on_another_connection_is_stored_once(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct mlflow m;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    mlflow_init(&m, p);
    for (int i = 0; i < 3; i++)
        assert_int_equal(post_from((uint64_t)i, &m, "/api/2.0/mlflow/runs/log-metric",
                                   "{\"run_id\": \"run-1\", \"key\": \"a\", \"value\": 1, \"timestamp\": 5, "
                                   "\"step\": 2}",
                                   &ret),
                         200);
    assert_int_equal(post(&m, "/api/2.0/mlflow/runs/log-metric",
                          "{\"run_id\": \"run-1\", \"key\": \"a\", \"value\": 1, \"timestamp\": 6, \"step\": 3}", &ret),
                     200);
    assert_string_equal(ret.data, "{}");
    assert_string_equal(rows, "2 a=1|3 a=1|");
    bytes_done(&ret);
}

static void equal_requests_of_one_connection_are_all_stored(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct mlflow m;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    mlflow_init(&m, p);
    for (int i = 0; i < 3; i++)
        post(&m, "/api/2.0/mlflow/runs/log-metric", "{\"key\": \"a\", \"value\": 1, \"timestamp\": 5, \"step\": 0}",
             &ret);
    assert_string_equal(rows, "0 a=1|1 a=1|2 a=1|");
    bytes_done(&ret);
}

static void a_run_whose_creation_is_repeated_is_the_same_run(void **state) {
    (void)state;
    static const char body[] = "{\"run_name\": \"x\", \"start_time\": 1700000000000}";
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct mlflow m;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    mlflow_init(&m, p);
    for (uint64_t client = 1; client <= 3; client++) {
        assert_int_equal(post_from(client, &m, "/api/2.0/mlflow/runs/create", body, &ret), 200);
        assert_non_null(strstr(ret.data, "\"run_id\":\"run-1\""));
    }
    assert_string_equal(sentences, "");
    bytes_done(&ret);
}

static void the_first_run_is_the_jobs_and_later_ones_have_a_prefix(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct mlflow m;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    mlflow_init(&m, p);
    assert_int_equal(post(&m, "/api/2.0/mlflow/runs/create", "{\"run_name\": \"x\"}", &ret), 200);
    assert_non_null(strstr(ret.data, "\"run_id\":\"run-1\""));
    assert_int_equal(post(&m, "/api/2.0/mlflow/runs/create", "{}", &ret), 200);
    assert_non_null(strstr(ret.data, "\"run_id\":\"run-2\""));
    post(&m, "/api/2.0/mlflow/runs/log-metric", "{\"run_id\": \"run-2\", \"key\": \"a\", \"value\": 1, \"step\": 1}",
         &ret);
    post(&m, "/api/2.0/mlflow/runs/log-metric", "{\"run_id\": \"run-1\", \"key\": \"a\", \"value\": 2, \"step\": 1}",
         &ret);
    for (int i = 0; i < 2 * RUNS_MAX; i++) { /* the client may give any id */
        char body[80];
        snprintf(body, sizeof body, "{\"run_id\": \"%d\", \"key\": \"b\", \"value\": 1, \"step\": %d}", i, i + 1);
        assert_int_equal(post(&m, "/api/2.0/mlflow/runs/log-metric", body, &ret), 200);
    }
    assert_non_null(strstr(rows, "1 run-2/a=1|1 a=2|1 run-3/b=1|2 run-4/b=1|"));
    assert_non_null(strstr(rows, "128 run-64/b=1|"));
    bytes_done(&ret);
}

static void what_is_no_request_of_mlflow_is_answered_and_stores_nothing(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct mlflow m;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    mlflow_init(&m, p);
    assert_int_equal(post(&m, "/api/2.0/mlflow/runs/log-batch", "[1]", &ret), 400);
    assert_int_equal(post(&m, "/api/2.0/mlflow/runs/log-batch", "{", &ret), 400);
    assert_int_equal(
        post(&m, "/api/2.0/mlflow/runs/log-batch", "{\"metrics\": 1, \"params\": [1], \"tags\": {}}", &ret), 200);
    assert_int_equal(
        post(&m, "/api/2.0/mlflow/runs/log-batch", "{\"metrics\": [1, {}, {\"key\": 1, \"value\": 1}]}", &ret), 200);
    assert_int_equal(post(&m, "/api/2.0/mlflow/no/such/thing", "{}", &ret), 200);
    assert_int_equal(post(&m, "/api/3.0/mlflow/server-info", "", &ret), 404);
    points_end(p);
    assert_string_equal(rows, "");
    assert_non_null(strstr(sentences, "tracking_ignored: MLflow's request /api/2.0/mlflow/no/such/thing is answered"));
    bytes_done(&ret);
}

static void lines_of_a_history_are_taken_once_at_any_offset(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct run run = { .lines = 0 };
    int64_t others = 0;
    static const char *const bodies[] = {
        "{\"files\": {\"wandb-history.jsonl\": {\"offset\": 0, \"content\": [\"{\\\"a\\\": 1, \\\"_step\\\": 0}\", "
        "\"{\\\"a\\\": 2, \\\"_step\\\": 1}\"]}}}",
        "{\"files\": {\"wandb-history.jsonl\": {\"offset\": 1, \"content\": [\"{\\\"a\\\": 2, \\\"_step\\\": 1}\", "
        "\"{\\\"a\\\": {\\\"b\\\": 3, \\\"c\\\": {\\\"_type\\\": \\\"image-file\\\"}}, \\\"_step\\\": 2}\"]}}}",
    };
    for (int i = 0; i < 4; i++)
        assert_true(wandb_history(bodies[i % 2], strlen(bodies[i % 2]), &run, p, &others));
    points_end(p);
    assert_string_equal(rows, "0 a=1|1 a=2|2 a.b=3|");
    assert_int_equal(others, 1);
    assert_int_equal(run.lines, 3);
    assert_false(wandb_history("[", 1, &run, p, &others));
    assert_true(
        wandb_history("{\"files\": {\"wandb-history.jsonl\": {\"content\": [1, \"x\"]}}}", 57, &run, p, &others));
    assert_non_null(strstr(sentences, "metric_refused: a line of a W&B run's history is no object with a step"));
}

static void question(struct wandb *w, const char *body, struct bytes *ret) {
    const struct http_request request = { .method = "POST", .path = "/graphql", .body = body, .n_body = strlen(body) };
    ret->len = 0;
    assert_int_equal(wandb_serve(w, &request, ret), 200);
}

static void line_send(struct wandb *w, const char *run, int offset, int step, double value, struct bytes *ret) {
    char path[80], body[256];
    snprintf(path, sizeof path, "/files/trainyard/p/%s/file_stream", run);
    snprintf(body, sizeof body,
             "{\"files\": {\"wandb-history.jsonl\": {\"offset\": %d, \"content\": [\"{\\\"a\\\": %g, \\\"_step\\\": "
             "%d}\"]}}}",
             offset, value, step);
    const struct http_request request = { .method = "POST", .path = path, .body = body, .n_body = strlen(body) };
    ret->len = 0;
    assert_int_equal(wandb_serve(w, &request, ret), 200);
}

static const char resume_status[] = "{\"query\": \"query RunResumeStatus { model() { bucket(name: $name) { id } } }\", "
                                    "\"variables\": {\"name\": \"x\", \"project\": \"p\"}}";

static void a_run_that_is_known_can_be_resumed_and_loses_no_line(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct wandb w;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    wandb_init(&w, p, "http://a", "token");
    question(&w, resume_status, &ret);
    assert_non_null(strstr(ret.data, "\"bucket\":null"));
    line_send(&w, "x", 0, 0, 5, &ret);
    line_send(&w, "x", 1, 7, 6, &ret);
    question(&w, resume_status, &ret);
    json_t *answer = json_parse(ret.data, ret.len);
    const json_t *bucket = json_object_get(json_object_get(json_object_get(answer, "data"), "model"), "bucket");
    assert_string_equal(json_member_text(bucket, "name"), "x");
    assert_int_equal(json_int(json_object_get(bucket, "historyLineCount"), -1), 2);
    assert_string_equal(json_member_text(bucket, "historyTail"), "[\"{\\\"_step\\\": 7}\"]");
    json_decref(answer);
    line_send(&w, "x", 2, 8, 7, &ret);
    assert_string_equal(rows, "0 a=5|7 a=6|8 a=7|");
    bytes_done(&ret);
}

static void a_run_that_begins_again_with_its_id_loses_no_line(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct wandb w;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    wandb_init(&w, p, "http://a", "token");
    line_send(&w, "x", 0, 0, 1, &ret);
    line_send(&w, "x", 1, 1, 2, &ret);
    for (int i = 0; i < 2; i++) /* its first line, and a repetition of it */
        line_send(&w, "x", 0, 0, 3, &ret);
    line_send(&w, "x", 1, 1, 4, &ret);
    assert_string_equal(rows, "0 a=1|1 a=2|0 a=3|1 a=4|");
    bytes_done(&ret);
}

static void lines_of_more_runs_than_are_told_apart_are_all_stored(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct wandb w;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    wandb_init(&w, p, "http://a", "token");
    for (int i = 0; i < RUNS_MAX; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", i);
        line_send(&w, id, 0, 1, 1, &ret);
    }
    *rows = '\0';
    line_send(&w, "more", 0, 1, 2, &ret);
    line_send(&w, "more", 1, 2, 3, &ret);
    line_send(&w, "still more", 1, 3, 4, &ret);
    line_send(&w, "63", 1, 4, 5, &ret);
    assert_string_equal(rows, "1 run-64/a=2|2 run-64/a=3|3 run-64/a=4|4 run-64/a=5|");
    assert_string_equal(sentences, "tracking_run: the program began more than 64 runs: the metrics of all further ones "
                                   "begin with 'run-64/'|");
    bytes_done(&ret);
}

static void numbers_that_no_client_has_counted_to_are_refused(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct run run = { .lines = 0 };
    int64_t others = 0;
    static const char far[] =
        "{\"files\": {\"wandb-history.jsonl\": {\"offset\": 9223372036854775807, \"content\": [\"{\\\"a\\\": 1, "
        "\\\"_step\\\": 9007199254740992}\", \"{\\\"a\\\": 2, \\\"_step\\\": 9223372036854775807}\"]}}}";
    assert_true(wandb_history(far, sizeof far - 1, &run, p, &others));
    assert_int_equal(run.lines, 2);
    points_end(p);
    assert_string_equal(rows, "9007199254740992 a=1|");
    assert_non_null(strstr(sentences, "its step, 9223372036854775807, is above 2^53"));
}

static void the_step_of_the_training_comes_before_the_clients_count(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct run run = { .lines = 0 };
    int64_t others = 0;
    static const char body[] = "{\"files\": {\"wandb-history.jsonl\": {\"content\": ["
                               "\"{\\\"a\\\": 1, \\\"_step\\\": 0, \\\"train/global_step\\\": 10}\", "
                               "\"{\\\"a\\\": 2, \\\"_step\\\": 1, \\\"trainer/global_step\\\": 20}\", "
                               "\"{\\\"a\\\": 3, \\\"_step\\\": 30, \\\"train/global_step\\\": \\\"x\\\"}\"]}}}";
    assert_true(wandb_history(body, sizeof body - 1, &run, p, &others));
    points_end(p);
    assert_string_equal(rows, "10 a=1 train/global_step=10|20 a=2 trainer/global_step=20|30 a=3|");
}

static void a_configuration_is_reported_once_and_a_changed_value_again(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct wandb w;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    wandb_init(&w, p, "http://a", "token");
    static const char *const values[] = { "0.1", "0.1", "0.2" };
    for (int i = 0; i < 3; i++) {
        char body[256];
        const int n = snprintf(body, sizeof body,
                               "{\"query\": \"mutation { upsertBucket(input: {}) }\", \"variables\": {\"name\": \"x\", "
                               "\"config\": \"{\\\"lr\\\": {\\\"value\\\": %s}}\"}}",
                               values[i]);
        const struct http_request request = { .method = "POST", .path = "/graphql", .body = body, .n_body = (size_t)n };
        ret.len = 0;
        assert_int_equal(wandb_serve(&w, &request, &ret), 200);
        assert_non_null(strstr(ret.data, "\"upsertBucket\""));
    }
    wandb_end(&w);
    assert_string_equal(sentences, "parameters: lr=0.1, lr=0.2|");
    bytes_done(&ret);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_as_clients_write_them),
        cmocka_unit_test(a_request_that_is_repeated_on_another_connection_is_stored_once),
        cmocka_unit_test(equal_requests_of_one_connection_are_all_stored),
        cmocka_unit_test(a_run_whose_creation_is_repeated_is_the_same_run),
        cmocka_unit_test(a_run_that_is_known_can_be_resumed_and_loses_no_line),
        cmocka_unit_test(a_run_that_begins_again_with_its_id_loses_no_line),
        cmocka_unit_test(lines_of_more_runs_than_are_told_apart_are_all_stored),
        cmocka_unit_test(numbers_that_no_client_has_counted_to_are_refused),
        cmocka_unit_test(the_first_run_is_the_jobs_and_later_ones_have_a_prefix),
        cmocka_unit_test(what_is_no_request_of_mlflow_is_answered_and_stores_nothing),
        cmocka_unit_test(lines_of_a_history_are_taken_once_at_any_offset),
        cmocka_unit_test(the_step_of_the_training_comes_before_the_clients_count),
        cmocka_unit_test(a_configuration_is_reported_once_and_a_changed_value_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
