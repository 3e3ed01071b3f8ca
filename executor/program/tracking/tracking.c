#include "executor/program/tracking/tracking.h"

#include "base/alloc.h"
#include "executor/program/tracking/http_server.h"
#include "executor/program/tracking/mlflow.h"
#include "executor/program/tracking/tensorboard_files.h"
#include "executor/program/tracking/wandb.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

enum { TICK_MS = 1000, SETTLE_MS = 500, SERVER_END_MS = 5000, FILES_WAIT_MS = 100, VARIABLES = 16, URL_BYTES = 64 };

struct tracking {
    struct points *points;
    struct artifacts *artifacts;
    struct tensorboard_files *files;
    struct http_server *server; /* NULL: it could not be opened */
    struct mlflow mlflow;
    struct wandb wandb;
    char tensorboard[PATH_MAX], wandb_data[PATH_MAX], url[URL_BYTES];
    deadline_ms_t tick_at;
    bool server_more;
    void (*tick)(void *ctx);
    void *ctx;
    struct tracking_variable variables[VARIABLES];
    size_t n_variables;
};

/* The user has another MLflow server, or another account of W&B. */
static const char *const other_mlflow[] = { "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME",
                                            NULL };
static const char *const other_wandb[] = { "WANDB_BASE_URL", "WANDB_API_KEY", "WANDB_MODE", NULL };
static const char *const never[] = { NULL };

static void variable_add(struct tracking *t, const char *name, const char *value, const char *const *unless) {
    t->variables[t->n_variables++] = (struct tracking_variable){ name, value, unless };
}

static void files_open(struct tracking *t, const struct tracking_options *o) {
    t->files = tensorboard_files_new(t->points, o->tick, o->sink.ctx);
    snprintf(t->tensorboard, sizeof t->tensorboard, "%s/tensorboard", o->scratch);
    if (mkdir(t->tensorboard, 0700) < 0)
        points_event(t->points, "tracking_off", "the folder for event files cannot be made: %s", strerror(errno));
    tensorboard_files_watch(t->files, o->work, false);
    tensorboard_files_watch(t->files, t->tensorboard, false);
    if (o->tensorboard && *o->tensorboard)
        tensorboard_files_watch(t->files, o->tensorboard, true);
    variable_add(t, "TRAINYARD_TENSORBOARD", t->tensorboard, never);
}

static unsigned serve(void *ctx, const struct http_request *request, struct bytes *ret) {
    struct tracking *t = ctx;
    if (mlflow_has(request->path))
        return mlflow_serve(&t->mlflow, request, ret);
    if (wandb_has(request->path))
        return wandb_serve(&t->wandb, request, ret);
    return 404;
}

static void *upload_begin(void *ctx, const char *path) {
    struct tracking *t = ctx;
    char name[ARTIFACT_PATH_BYTES + 1];
    const bool has = mlflow_has(path) ? mlflow_upload(&t->mlflow, path, name, sizeof name)
                                      : wandb_has(path) && wandb_upload(&t->wandb, path, name, sizeof name);
    return has ? artifacts_begin(t->artifacts, name) : NULL;
}

static bool upload_write(void *upload, const char *piece, size_t n) { return artifact_write(upload, piece, n); }
static bool upload_end(void *upload) { return artifact_end(upload); }
static void upload_drop(void *upload) { artifact_drop(upload); }

static void upload_advanced(void *ctx, struct artifact *f, bool ended) {
    struct tracking *t = ctx;
    http_server_continue(t->server, f, ended);
}

static void server_open(struct tracking *t) {
    static const struct http_handler handler = { serve, upload_begin, upload_write, upload_end, upload_drop };
    struct err e;
    if (http_server_open(&handler, t, &t->server, &e) != ST_OK) {
        points_event(t->points, "tracking_off", "metrics of MLflow and W&B are not taken: %s", e.msg);
        return;
    }
    const char *token = http_server_token(t->server);
    snprintf(t->url, sizeof t->url, "http://127.0.0.1:%d", http_server_port(t->server));
    mlflow_init(&t->mlflow, t->points);
    t->mlflow.artifacts = t->artifacts;
    wandb_init(&t->wandb, t->points, t->url, token);
    variable_add(t, "MLFLOW_TRACKING_URI", t->url, other_mlflow);
    variable_add(t, "MLFLOW_TRACKING_TOKEN", token, other_mlflow);
    /* A call of MLflow's client then takes a third of a millisecond instead of two; one thread keeps the order. */
    variable_add(t, "MLFLOW_ENABLE_ASYNC_LOGGING", "true", other_mlflow);
    variable_add(t, "MLFLOW_ASYNC_LOGGING_THREADPOOL_SIZE", "1", other_mlflow);
    variable_add(t, "WANDB_BASE_URL", t->url, other_wandb);
    variable_add(t, "WANDB_API_KEY", token, other_wandb);
    variable_add(t, "WANDB_MODE", "online", other_wandb);
    /* The client stages artifacts here, by default in the home folder, which a sandbox may protect. */
    variable_add(t, "WANDB_DATA_DIR", t->wandb_data, other_wandb);
    variable_add(t, "WANDB_CACHE_DIR", t->wandb_data, other_wandb);
}

static void server_run(struct tracking *t) {
    struct err e;
    artifacts_run(t->artifacts);
    t->server_more = false;
    if (!t->server || http_server_run(t->server, &t->server_more, &e) == ST_OK)
        return;
    points_event(t->points, "tracking_off", "metrics of MLflow and W&B are not taken: %s", e.msg);
    t->server = http_server_close(t->server);
}

struct tracking *tracking_open(const struct tracking_options *options) {
    struct tracking *t = alloc_zeroed(1, sizeof *t);
    t->points = points_new(&options->sink);
    t->artifacts = artifacts_new(t->points,
                                 &(struct artifacts_sink){ options->artifact, options->sink.ctx, upload_advanced, t });
    t->tick = options->tick;
    t->ctx = options->sink.ctx;
    snprintf(t->wandb_data, sizeof t->wandb_data, "%s/wandb", options->scratch);
    files_open(t, options);
    server_open(t);
    return t;
}

struct tracking *tracking_close(struct tracking *t) {
    if (t) {
        t->server = http_server_close(t->server);
        tensorboard_files_free(t->files);
        artifacts_free(t->artifacts);
        points_free(t->points);
    }
    free(t);
    return NULL;
}

size_t tracking_variables(const struct tracking *t, const struct tracking_variable **ret) {
    *ret = t->variables;
    return t->n_variables;
}

void tracking_folder(struct tracking *t, int job, int attempt, int rank) {
    artifacts_folder(t->artifacts, job, attempt, rank);
}

void tracking_row(struct tracking *t, int64_t step, char *const *names, const double *values, size_t n) {
    points_flush(t->points);
    points_from(t->points, "the FIFO");
    for (size_t i = 0; i < n; i++)
        points_add(t->points, "", names[i], step, values[i]);
    points_flush(t->points);
}

int tracking_fd(const struct tracking *t) { return t->server ? http_server_fd(t->server) : -1; }
int tracking_files_fd(const struct tracking *t) { return artifacts_fd(t->artifacts); }

deadline_ms_t tracking_due(const struct tracking *t) { return t->server_more ? 0 : t->tick_at; }

void tracking_run(struct tracking *t) {
    server_run(t);
    if (clock_mono_ms() < t->tick_at)
        return;
    mlflow_flush(&t->mlflow);
    wandb_flush(&t->wandb);
    t->tick_at = tensorboard_files_read(t->files) ? 0 : deadline_in(TICK_MS);
}

/* A client may have sent its last request without waiting for the answer. */
static void server_end(struct tracking *t) {
    const deadline_ms_t until = deadline_in(SERVER_END_MS);
    while (t->server && clock_mono_ms() < until) {
        struct pollfd p[] = { { .fd = tracking_fd(t), .events = POLLIN },
                              { .fd = tracking_files_fd(t), .events = POLLIN } };
        const bool waits = artifacts_busy(t->artifacts);
        if (!t->server_more && poll(p, 2, waits ? FILES_WAIT_MS : 0) <= 0 && !waits)
            break;
        server_run(t);
        t->tick(t->ctx);
    }
    artifacts_end(t->artifacts);
}

/* A scan that has begun may have passed a new file: another one follows. */
void tracking_settle(struct tracking *t) {
    const deadline_ms_t until = deadline_in(SETTLE_MS);
    server_run(t);
    for (int i = 0; i < 2; i++) {
        tensorboard_files_rescan(t->files);
        while (tensorboard_files_read(t->files) && clock_mono_ms() < until)
            t->tick(t->ctx);
    }
}

void tracking_end(struct tracking *t) {
    server_end(t);
    mlflow_flush(&t->mlflow);
    wandb_end(&t->wandb);
    tensorboard_files_end(t->files);
    points_end(t->points);
}
