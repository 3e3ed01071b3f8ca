/* Requests of MLflow's and W&B's clients by themselves: what becomes points, and what is answered. */
#include "executor/program/tracking/json.h"
#include "executor/program/tracking/mlflow.h"
#include "executor/program/tracking/wandb.h"
#include "executor/program/tracking/wandb_history.h"

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
    at += snprintf(at, (size_t)(end - at), "%d", (int)step);
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

static unsigned post(struct mlflow *m, const char *path, const char *body, struct bytes *ret) {
    const struct http_request request = { .method = "POST", .path = path, .body = body, .n_body = strlen(body) };
    ret->len = 0;
    return mlflow_serve(m, &request, ret);
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

static void a_repeated_request_is_stored_once(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    struct mlflow m;
    struct bytes ret;
    bytes_init(&ret, 1 << 16);
    mlflow_init(&m, p);
    for (int i = 0; i < 3; i++)
        assert_int_equal(post(&m, "/api/2.0/mlflow/runs/log-metric",
                              "{\"run_id\": \"run-1\", \"key\": \"a\", \"value\": 1, \"timestamp\": 5, \"step\": 2}",
                              &ret),
                         200);
    assert_int_equal(post(&m, "/api/2.0/mlflow/runs/log-metric",
                          "{\"run_id\": \"run-1\", \"key\": \"a\", \"value\": 1, \"timestamp\": 6, \"step\": 3}", &ret),
                     200);
    assert_string_equal(ret.data, "{}");
    assert_string_equal(rows, "2 a=1|3 a=1|");
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
        cmocka_unit_test(a_repeated_request_is_stored_once),
        cmocka_unit_test(the_first_run_is_the_jobs_and_later_ones_have_a_prefix),
        cmocka_unit_test(what_is_no_request_of_mlflow_is_answered_and_stores_nothing),
        cmocka_unit_test(lines_of_a_history_are_taken_once_at_any_offset),
        cmocka_unit_test(the_step_of_the_training_comes_before_the_clients_count),
        cmocka_unit_test(a_configuration_is_reported_once_and_a_changed_value_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
