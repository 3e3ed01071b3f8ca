/* A table maps the end of a request's path to its handler, which gets the body as JSON and returns the answer as JSON.
 * An unknown request is answered by an empty object and reported by an event, since a client raises an exception in the
 * user's code for every other status.
 *
 * A run needs no creation: an id that is used for the first time is a new run. runs/create returns the job's own run
 * (MLFLOW_RUN) if nothing has used it yet.
 *
 * Requests with the same bytes on one connection are no repetitions: a loop logs the same value twice within a
 * millisecond, which is the resolution of their times. */
#include "executor/program/tracking/mlflow.h"

#include "base/clock.h"
#include "executor/program/tracking/hash.h"
#include "tracking/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPERIMENT  "1"
#define MODELS      "models"
#define MODEL_BEGIN "m-" /* of the id of a model */
#define ARTIFACTS   "/mlflow-artifacts/artifacts"

enum { MODEL_ID_BYTES = 24 };

struct call {
    struct mlflow *m;
    const struct http_request *request;
    json_t *body; /* an object, maybe empty */
};

/* Text of a member of the body, or of the query. */
static const char *argument(const struct call *c, const char *name) {
    const char *text = json_member_text(c->body, name);
    const char *query = *text ? NULL : http_argument(c->request, name);
    return query ? query : text;
}

static struct run *run_of(const struct call *c) {
    const char *id = argument(c, "run_id");
    if (!*id)
        id = argument(c, "run_uuid");
    return runs_get(&c->m->runs, c->m->points, *id ? id : MLFLOW_RUN);
}

/* ---- answers ---- */

static json_t *run_info(const struct run *run, const char *name) {
    char uri[RUN_ID_BYTES + 64];
    snprintf(uri, sizeof uri, "mlflow-artifacts:/" EXPERIMENT "/%s/artifacts", run->id);
    return json_pack("{ss ss ss ss ss sI ss ss ss}", "run_id", run->id, "run_uuid", run->id, "run_name",
                     *name ? name : run->id, "experiment_id", EXPERIMENT, "user_id", "trainyard", "start_time",
                     (json_int_t)(clock_wall_us() / 1000), "status", "RUNNING", "artifact_uri", uri, "lifecycle_stage",
                     "active");
}

static json_t *run_answer(const struct run *run, const char *name) {
    return json_pack("{s{so s{s[] s[] s[]} s{s[] s[]}}}", "run", "info", run_info(run, name), "data", "metrics",
                     "params", "tags", "inputs", "dataset_inputs", "model_inputs");
}

static json_t *experiment(const char *name) {
    return json_pack("{ss ss ss ss sI sI s[]}", "experiment_id", EXPERIMENT, "name", *name ? name : "Default",
                     "artifact_location", "mlflow-artifacts:/" EXPERIMENT, "lifecycle_stage", "active", "creation_time",
                     (json_int_t)(clock_wall_us() / 1000), "last_update_time", (json_int_t)(clock_wall_us() / 1000),
                     "tags");
}

static json_t *experiment_get(const struct call *c) {
    return json_pack("{so}", "experiment", experiment(argument(c, "experiment_name")));
}

static json_t *experiment_create(const struct call *c) {
    (void)c;
    return json_pack("{ss}", "experiment_id", EXPERIMENT);
}

static json_t *experiments_list(const struct call *c) {
    (void)c;
    return json_pack("{s[o]}", "experiments", experiment(""));
}

static json_t *empty(const struct call *c) {
    (void)c;
    return json_object();
}

static json_t *list_empty(const struct call *c) {
    (void)c;
    return json_pack("{s[] s[] s[] s[]}", "runs", "metrics", "files", "traces");
}

/* ---- repetitions ---- */

/* The request of another connection that had the same bytes; NULL: this one is new. */
static struct mlflow_request *request_repeated(const struct call *c) {
    struct mlflow *m = c->m;
    const uint64_t hash = hash_bytes(HASH_BEGIN, c->request->body, c->request->n_body);
    const unsigned n = m->n_requests < MLFLOW_REQUESTS ? m->n_requests : MLFLOW_REQUESTS;
    for (unsigned i = 0; i < n; i++)
        if (m->requests[i].hash == hash && m->requests[i].client != c->request->client)
            return &m->requests[i];
    m->requests[m->n_requests++ % MLFLOW_REQUESTS] = (struct mlflow_request){ hash, c->request->client, NULL };
    return NULL;
}

/* ---- runs ---- */

static json_t *run_create(const struct call *c) {
    char id[RUN_ID_BYTES];
    snprintf(id, sizeof id, c->m->runs.n == 0 ? MLFLOW_RUN : "run-%d", c->m->runs.n + 1);
    const char *name = argument(c, "run_name");
    const struct mlflow_request *before = request_repeated(c);
    if (before && before->run)
        return run_answer(before->run, name);
    struct run *run = runs_get(&c->m->runs, c->m->points, id);
    if (!before)
        c->m->requests[(c->m->n_requests - 1) % MLFLOW_REQUESTS].run = run;
    if (*run->prefix)
        points_event(c->m->points, "tracking_run",
                     "the program began another MLflow run, '%.100s': its metrics begin "
                     "with '%s'",
                     *name ? name : id, run->prefix);
    return run_answer(run, name);
}

static json_t *run_get(const struct call *c) { return run_answer(run_of(c), ""); }

static json_t *run_update(const struct call *c) {
    return json_pack("{so}", "run_info", run_info(run_of(c), argument(c, "run_name")));
}

/* ---- what is logged ---- */

static void metric_take(const struct call *c, const struct run *run, const json_t *metric) {
    const char *name = json_member_text(metric, "key");
    const int64_t step = json_int(json_object_get(metric, "step"), 0);
    double value;
    if (!json_double(json_object_get(metric, "value"), &value))
        points_event(c->m->points, "metric_refused", "the value of '%.80s' is not a number", name);
    else if (step == 0)
        points_add_unnumbered(c->m->points, run->prefix, name, value);
    else
        points_add(c->m->points, run->prefix, name, step, value);
}

static void pairs_take(const struct call *c, const struct run *run, struct notes *notes, const json_t *pairs) {
    size_t i;
    json_t *pair;
    json_array_foreach(pairs, i, pair) {
        const char *name = json_member_text(pair, "key");
        if (strncmp(name, "mlflow.", 7) != 0) /* the client's own: user, source, name of the run */
            notes_add(notes, c->m->points, run->prefix, name, json_member_text(pair, "value"));
    }
}

static json_t *log_batch(const struct call *c) {
    const struct run *run = run_of(c);
    size_t i;
    json_t *metric;
    if (request_repeated(c))
        return json_object();
    json_array_foreach(json_object_get(c->body, "metrics"), i, metric) metric_take(c, run, metric);
    pairs_take(c, run, &c->m->parameters, json_object_get(c->body, "params"));
    pairs_take(c, run, &c->m->tags, json_object_get(c->body, "tags"));
    return json_object();
}

static json_t *log_metric(const struct call *c) {
    if (!request_repeated(c))
        metric_take(c, run_of(c), c->body);
    return json_object();
}

static void pair_take(const struct call *c, struct notes *notes) {
    json_t *pairs = json_pack("[O]", c->body);
    pairs_take(c, run_of(c), notes, pairs);
    json_decref(pairs);
}

static json_t *log_parameter(const struct call *c) {
    pair_take(c, &c->m->parameters);
    return json_object();
}

static json_t *set_tag(const struct call *c) {
    pair_take(c, &c->m->tags);
    return json_object();
}

/* ---- what is not kept ---- */

static json_t *ignored(const struct call *c) {
    points_event(c->m->points, "tracking_ignored", "MLflow's request %s is answered, but nothing is kept of it",
                 c->request->path);
    return json_object();
}

static json_t *model_answer(const char *id, const char *name) {
    char uri[MODEL_ID_BYTES + 64];
    snprintf(uri, sizeof uri, "mlflow-artifacts:/" EXPERIMENT "/" MODELS "/%s/artifacts", id);
    return json_pack("{s{s{ss ss ss ss sI sI ss} s{s[] s[]}}}", "model", "info", "model_id", id, "experiment_id",
                     EXPERIMENT, "name", *name ? name : "model", "artifact_uri", uri, "creation_timestamp_ms",
                     (json_int_t)(clock_wall_us() / 1000), "last_updated_timestamp_ms",
                     (json_int_t)(clock_wall_us() / 1000), "status", "LOGGED_MODEL_READY", "data", "params", "metrics");
}

static json_t *model_create(const struct call *c) {
    char id[MODEL_ID_BYTES];
    json_decref(ignored(c));
    snprintf(id, sizeof id, MODEL_BEGIN "%d", ++c->m->models);
    return model_answer(id, argument(c, "name"));
}

/* GET and PATCH of logged-models/m-N: the client asks where the files of the model belong. NULL: another path. */
static json_t *model_get(const struct call *c) {
    const char *id = strstr(c->request->path, "/logged-models/" MODEL_BEGIN);
    id = id ? id + sizeof "/logged-models/" - 1 : NULL;
    if (!id || strlen(id) >= MODEL_ID_BYTES || strspn(id + 2, "0123456789") != strlen(id + 2))
        return NULL;
    return model_answer(id, "");
}

static const struct {
    const char *end; /* of the path */
    json_t *(*handle)(const struct call *);
} handlers[] = {
    { "/runs/log-batch", log_batch },
    { "/runs/log-metric", log_metric },
    { "/runs/log-parameter", log_parameter },
    { "/runs/set-tag", set_tag },
    { "/runs/delete-tag", empty },
    { "/runs/create", run_create },
    { "/runs/get", run_get },
    { "/runs/update", run_update },
    { "/runs/search", list_empty },
    { "/runs/delete", empty },
    { "/runs/restore", empty },
    { "/experiments/get-by-name", experiment_get },
    { "/experiments/get", experiment_get },
    { "/experiments/create", experiment_create },
    { "/experiments/search", experiments_list },
    { "/experiments/set-experiment-tag", empty },
    { "/metrics/get-history", list_empty },
    { "/artifacts/list", list_empty },
    { "/logged-models", model_create },
};

static json_t *handle(const struct call *c) {
    const size_t n = strlen(c->request->path);
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++) {
        const size_t n_end = strlen(handlers[i].end);
        if (n >= n_end && strcmp(c->request->path + n - n_end, handlers[i].end) == 0)
            return handlers[i].handle(c);
    }
    json_t *model = model_get(c);
    if (model)
        return model;
    return strcmp(c->request->method, "GET") == 0 ? list_empty(c) : ignored(c);
}

/* ---- files ---- */

static unsigned fail(struct bytes *ret, unsigned code, const char *error, const char *message) {
    status_ignore(bytes_printf(ret, NULL, "{\"error_code\": \"%s\", \"message\": \"%s\"}", error, message));
    return code;
}

/* "1/RUN/artifacts/PATH" is PATH of the run; "1/models/MODEL/artifacts/PATH" is models/MODEL/PATH. False: it is none of
 * these. A PATH that does not fit becomes one that artifacts.h refuses. */
static bool file_name(struct mlflow *m, const char *uri, char *ret, size_t n) {
    const char *run = strncmp(uri, EXPERIMENT "/", 2) == 0 ? uri + 2 : NULL;
    const char *model = run && strncmp(run, MODELS "/", sizeof MODELS) == 0 ? run + sizeof MODELS : NULL;
    const char *end = run ? strstr(model ? model : run, "/artifacts") : NULL;
    char id[RUN_ID_BYTES];
    if (!end)
        return false;
    snprintf(id, sizeof id, "%.*s", (int)(end - (model ? model : run)), model ? model : run);
    end += strlen("/artifacts");
    end += *end == '/';
    const struct run *known = model ? NULL : runs_get(&m->runs, m->points, id);
    const int used = known ? snprintf(ret, n, "%s%s", known->prefix, end)
                           : snprintf(ret, n, MODELS "/%s%s%s", id, *end ? "/" : "", end);
    if (used >= (int)n)
        snprintf(ret, n, "/"); /* too long */
    return true;
}

static const char *uri_of(const char *path) {
    const char *at = strstr(path, ARTIFACTS);
    at = at ? at + sizeof ARTIFACTS - 1 : NULL;
    return at && *at == '/' ? at + 1 : at;
}

bool mlflow_upload(struct mlflow *m, const char *path, char *ret, size_t n) {
    const char *uri = uri_of(path);
    return uri && file_name(m, uri, ret, n);
}

/* GET of a file, or of the list of a folder (?path=). */
static unsigned file_get(struct mlflow *m, const struct http_request *request, struct bytes *ret) {
    char name[ARTIFACT_PATH_BYTES + 1] = "/";
    const char *uri = uri_of(request->path), *folder = http_argument(request, "path");
    if (*uri) {
        if (m->artifacts && file_name(m, uri, name, sizeof name))
            *request->file = artifacts_read(m->artifacts, name, request->n_file);
        return *request->file >= 0 ? 200 : fail(ret, 404, "RESOURCE_DOES_NOT_EXIST", "this job has no such file");
    }
    json_t *answer = json_object();
    const bool has = m->artifacts && folder && file_name(m, folder, name, sizeof name);
    const size_t n = strlen(name);
    if (has && n > 0 && name[n - 1] == '/')
        name[n - 1] = '\0';
    json_object_set_new(answer, "files", has ? artifacts_list(m->artifacts, name) : json_array());
    CLEANUP(freep) char *text = json_dumps(answer, JSON_COMPACT);
    status_ignore(bytes_printf(ret, NULL, "%s", text ? text : "{}"));
    json_decref(answer);
    return 200;
}

/* ---- for the server ---- */

void mlflow_init(struct mlflow *m, struct points *points) {
    *m = (struct mlflow){ .points = points, .parameters.kind = "parameters", .tags.kind = "tags" };
}

bool mlflow_has(const char *path) {
    return strncmp(path, "/api/2.0/mlflow", 15) == 0 || strncmp(path, "/api/3.0/mlflow", 15) == 0 ||
           strncmp(path, "/ajax-api/", 10) == 0;
}

unsigned mlflow_serve(struct mlflow *m, const struct http_request *request, struct bytes *ret) {
    if (strstr(request->path, "/mlflow/server-info"))
        return fail(ret, 404, "ENDPOINT_NOT_FOUND", "this server has no such page");
    if (request->dropped && strcmp(request->method, "PUT") != 0) {
        points_event(m->points, "metric_refused", "a request of an MLflow client is longer than 16 MiB");
        return fail(ret, 413, "INVALID_PARAMETER_VALUE", "the request is longer than 16 MiB");
    }
    if (uri_of(request->path) && strcmp(request->method, "GET") == 0 && request->file)
        return file_get(m, request, ret);
    if (request->uploaded) /* it is stored, or an event has said why not */
        return bytes_printf(ret, NULL, "{}") == ST_OK ? 200 : 500;
    struct call c = { m, request, request->n_body > 0 ? json_parse(request->body, request->n_body) : json_object() };
    if (!json_is_object(c.body)) {
        json_decref(c.body);
        return fail(ret, 400, "INVALID_PARAMETER_VALUE", "the body is no JSON object");
    }
    points_from(m->points, "MLflow");
    json_t *answer = handle(&c);
    points_flush(m->points);
    char *text = json_dumps(answer, JSON_COMPACT);
    status_ignore(bytes_printf(ret, NULL, "%s", text ? text : "{}"));
    free(text);
    json_decref(answer);
    json_decref(c.body);
    return 200;
}

void mlflow_flush(struct mlflow *m) {
    notes_flush(&m->parameters, m->points);
    notes_flush(&m->tags, m->points);
}
