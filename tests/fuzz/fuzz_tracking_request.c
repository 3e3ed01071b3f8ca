/* The body of a request of a tracker's client, which any program can send: its first byte chooses the request. Each
 * answer is JSON, and each row is within the limits that the store has for it. */
#include "base/limits.h"
#include "executor/program/tracking/mlflow.h"
#include "executor/program/tracking/wandb.h"
#include "tracking/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    (void)ctx, (void)values;
    assert(step >= 0 && n > 0 && n <= POINTS_ROW);
    for (size_t i = 0; i < n; i++)
        assert(*names[i] && strlen(names[i]) <= LIMIT_METRIC_NAME_BYTES);
}

static void on_event(void *ctx, const char *kind, const char *message) {
    (void)ctx;
    assert(*kind && *message && strlen(message) < POINTS_EVENT_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const paths[] = { "/api/2.0/mlflow/runs/log-batch",
                                         "/api/2.0/mlflow/runs/create",
                                         "/api/2.0/mlflow/runs/set-tag",
                                         "/api/2.0/mlflow/logged-models",
                                         "/graphql",
                                         "/files/a/b/c/file_stream" };
    if (n == 0)
        return 0;
    const struct points_sink sink = { NULL, on_row, on_event };
    struct points *points = points_new(&sink);
    struct mlflow *mlflow = calloc(1, sizeof *mlflow);
    struct wandb *wandb = calloc(1, sizeof *wandb);
    struct bytes ret;
    char *body = calloc(1, n);
    assert(mlflow && wandb && body);
    memcpy(body, data + 1, n - 1);
    const char *path = paths[data[0] % (sizeof paths / sizeof *paths)];
    const struct http_request request = { .method = "POST", .path = path, .body = body, .n_body = n - 1 };
    bytes_init(&ret, 1 << 20);
    mlflow_init(mlflow, points);
    wandb_init(wandb, points, "http://127.0.0.1:1", "token");
    const unsigned code = mlflow_has(path) ? mlflow_serve(mlflow, &request, &ret) : wandb_serve(wandb, &request, &ret);
    char upload[600], name[ARTIFACT_PATH_BYTES + 1];
    snprintf(upload, sizeof upload, "/api/2.0/mlflow-artifacts/artifacts/1/%.*s", 500, body);
    if (mlflow_upload(mlflow, upload, name, sizeof name))
        assert(strlen(name) <= ARTIFACT_PATH_BYTES);
    snprintf(upload, sizeof upload, "/files/put/%.*s", 500, body);
    if (wandb_upload(wandb, upload, name, sizeof name))
        assert(strlen(name) <= ARTIFACT_PATH_BYTES);
    json_t *answer = json_loadb(ret.data, ret.len, 0, NULL);
    assert((code == 200 || code == 400) && json_is_object(answer));
    json_decref(answer);
    mlflow_flush(mlflow);
    wandb_end(wandb);
    points_end(points);
    points_free(points);
    bytes_done(&ret);
    free(body);
    free(mlflow);
    free(wandb);
    return 0;
}
