/* Three kinds of requests: GraphQL (/graphql), pieces of a run's files (.../file_stream), and files (PUT).
 *
 * A GraphQL request is recognised by a field of its query, in the order of the table `answers`, since clients of
 * different releases give their operations different names. A request that no row matches gets empty data, which the
 * clients treat as a server without that feature. */
#include "executor/program/tracking/wandb.h"

#include "base/alloc.h"
#include "executor/program/tracking/hash.h"
#include "executor/program/tracking/wandb_artifacts.h"
#include "executor/program/tracking/wandb_history.h"
#include "tracking/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTITY   "trainyard"
#define PUT_PATH "/files/put/" /* PUT_PATH RUN / NAME */
enum { FILES_MAX = 256, URL_BYTES = 160 };

struct query {
    struct wandb *w;
    const json_t *variables;
};

/* The first of the variables that is a text. */
static const char *variable(const struct query *q, const char *a, const char *b, const char *other) {
    const char *text = json_member_text(q->variables, a);
    if (!*text)
        text = json_member_text(q->variables, b);
    return *text ? text : other;
}

/* ---- runs ---- */

/* The client sends the whole configuration again with each change of the run: each value is reported once. */
static bool parameter_known(struct wandb *w, const struct run *run, const char *name, const char *text) {
    const uint64_t hash = hash_text(hash_text(hash_text(HASH_BEGIN, run->prefix), name), text);
    for (int i = 0; i < w->n_known; i++)
        if (w->known[i] == hash)
            return true;
    if (w->n_known < WANDB_PARAMETERS)
        w->known[w->n_known++] = hash;
    return false;
}

/* "lr": {"value": 0.1} is one parameter; members of its value are parameters of their own. */
static void parameter_take(struct wandb *w, const struct run *run, const char *name, const json_t *value) {
    CLEANUP(freep) char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (text && !json_is_null(value) && !parameter_known(w, run, name, text))
        notes_add(&w->parameters, w->points, run->prefix, name, text);
}

static void configuration_take(struct wandb *w, const struct run *run, const char *text) {
    json_t *all = json_parse(text, strlen(text));
    const char *name;
    json_t *item;
    json_object_foreach(all, name, item) {
        json_t *value = json_object_get(item, "value");
        if (*name != '_')
            parameter_take(w, run, name, value ? value : item);
    }
    json_decref(all);
}

static json_t *project(const struct query *q) {
    const char *name = variable(q, "project", "projectName", "uncategorized");
    return json_pack("{ss ss s{ss ss}}", "id", "project", "name", name, "entity", "id", ENTITY, "name", ENTITY);
}

static json_t *upsert_run(const struct query *q) {
    const char *id = variable(q, "name", "id", "run");
    const int before = q->w->runs.n;
    const struct run *run = runs_get(&q->w->runs, q->w->points, id);
    const char *name = variable(q, "displayName", "display_name", run->id);
    if (q->w->runs.n > before && *run->prefix)
        points_event(q->w->points, "tracking_run",
                     "the program began another W&B run, '%.100s': its metrics begin "
                     "with '%s'",
                     name, run->prefix);
    configuration_take(q->w, run, json_member_text(q->variables, "config"));
    return json_pack("{s{s{ss ss ss sn ss sn sI so} sb}}", "upsertBucket", "bucket", "id", run->id, "name", run->id,
                     "displayName", name, "description", "config", "{}", "sweepName", "historyLineCount",
                     (json_int_t)run->lines, "project", project(q), "inserted", q->w->runs.n > before);
}

/* A program that resumes a run goes on with the next line and step of its history. Clients since 0.18 resume only a run
 * that has the telemetry "t" in its wandbConfig. */
static json_t *bucket_of(const struct run *run) {
    CLEANUP(freep) char *last = NULL, *tail = NULL;
    if (run->step >= 0 && asprintf(&last, "{\"_step\": %" PRId64 "}", run->step) < 0)
        last = NULL;
    json_t *lines = last ? json_pack("[s]", last) : json_array();
    tail = json_dumps(lines, JSON_COMPACT);
    json_decref(lines);
    return json_pack("{ss ss ss ss si sI si ss ss ss s[] ss}", "id", run->id, "name", run->id, "displayName", run->id,
                     "summaryMetrics", "{}", "logLineCount", 0, "historyLineCount", (json_int_t)run->lines,
                     "eventsLineCount", 0, "historyTail", tail ? tail : "[]", "eventsTail", "[]", "config", "{}",
                     "tags", "wandbConfig", "{\"t\": {}}");
}

static json_t *resume(const struct query *q) {
    const struct run *run = runs_find(&q->w->runs, variable(q, "name", "runName", ""));
    return json_pack("{s{ss ss s{ss ss} so}}", "model", "id", "project", "name",
                     variable(q, "project", "projectName", "uncategorized"), "entity", "id", ENTITY, "name", ENTITY,
                     "bucket", run ? bucket_of(run) : json_null());
}

/* ---- the server and its user ---- */

static json_t *viewer(const struct query *q) {
    (void)q;
    return json_pack("{s{ss ss ss ss ss s{s[]}} s{s{ss} sn s[]}}", "viewer", "id", ENTITY, "entity", ENTITY, "username",
                     ENTITY, "email", ENTITY, "flags", "{}", "teams", "edges", "serverInfo", "cliVersionInfo",
                     "max_cli_version", "999.0.0", "latestLocalVersionInfo", "features");
}

/* ---- files ---- */

/* Files of the client itself: measurements of the host, the output, and what is an event or a metric already. */
static bool is_internal(const char *name) {
    static const char *const names[] = { "output.log",
                                         "config.yaml",
                                         "requirements.txt",
                                         "diff.patch",
                                         "wandb-summary.json",
                                         "wandb-metadata.json",
                                         "wandb-history.jsonl",
                                         "wandb-events.jsonl",
                                         "conda-environment.yaml",
                                         "logs/" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* free() the result. */
static char *upload_url(const struct wandb *w, const char *run, const char *name) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    CLEANUP(freep) char *escaped = alloc_zeroed(3 * strlen(name) + 1, 1);
    char *to = escaped;
    for (const char *at = name; *at; at++)
        to += sprintf(to, strchr(plain, *at) ? "%c" : "%%%02X", (unsigned char)*at);
    return is_internal(name) ? alloc_format("%s/%s/files/none", w->url, w->token)
                             : alloc_format("%s/%s" PUT_PATH "%s/%s", w->url, w->token, run, escaped);
}

bool wandb_upload(struct wandb *w, const char *path, char *ret, size_t n) {
    char id[RUN_ID_BYTES];
    const char *run = strncmp(path, PUT_PATH, sizeof PUT_PATH - 1) == 0 ? path + sizeof PUT_PATH - 1 : NULL;
    const char *name = run ? strchr(run, '/') : NULL;
    if (!name)
        return false;
    snprintf(id, sizeof id, "%.*s", (int)(name - run), run);
    if (snprintf(ret, n, "%s%s", runs_get(&w->runs, w->points, id)->prefix, name + 1) >= (int)n)
        snprintf(ret, n, "/"); /* too long: artifacts.h refuses it */
    return true;
}

static json_t *files(const struct query *q) {
    const char *run = variable(q, "run", "name", "run");
    json_t *list = json_array();
    const json_t *names = json_object_get(q->variables, "files");
    size_t i;
    json_t *name;
    json_array_foreach(names, i, name) {
        if (i == FILES_MAX || !json_is_string(name))
            break;
        CLEANUP(freep) char *url = upload_url(q->w, run, json_string_value(name));
        json_array_append_new(list,
                              json_pack("{ss ss ss}", "name", json_string_value(name), "url", url, "uploadUrl", url));
    }
    return json_pack("{s{ss s[] so}}", "createRunFiles", "runID", run, "uploadHeaders", "files", list);
}

/* The same question of clients of 2024. */
static json_t *files_of_bucket(const struct query *q) {
    const char *run = variable(q, "run", "name", "run");
    json_t *edges = json_array();
    const json_t *names = json_object_get(q->variables, "files");
    size_t i;
    json_t *name;
    json_array_foreach(names, i, name) {
        if (i == FILES_MAX || !json_is_string(name))
            break;
        CLEANUP(freep) char *url = upload_url(q->w, run, json_string_value(name));
        json_array_append_new(
            edges, json_pack("{s{ss ss sn}}", "node", "name", json_string_value(name), "url", url, "updatedAt"));
    }
    return json_pack("{s{s{ss s{s[] so}}}}", "model", "bucket", "id", run, "files", "uploadHeaders", "edges", edges);
}

static json_t *nothing(const struct query *q) {
    (void)q;
    return json_object();
}

static const struct {
    const char *field; /* of the query */
    json_t *(*answer)(const struct query *);
} answers[] = {
    { "upsertBucket(", upsert_run }, { "createRunFiles(", files }, { "files(names:", files_of_bucket },
    { "bucket(", resume },           { "viewer", viewer },         { "serverInfo", viewer },
};

static json_t *answer(const struct query *q, const char *text) {
    char folder[URL_BYTES];
    snprintf(folder, sizeof folder, "%s/%s/files", q->w->url, q->w->token);
    json_t *about_artifacts = wandb_artifacts_answer(q->w->points, text, q->variables, folder);
    if (about_artifacts)
        return about_artifacts;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strstr(text, answers[i].field))
            return answers[i].answer(q);
    return nothing(q);
}

static unsigned put(struct bytes *ret, unsigned code, json_t *body) {
    CLEANUP(freep) char *text = json_dumps(body, JSON_COMPACT);
    status_ignore(bytes_printf(ret, NULL, "%s", text ? text : "{\"data\": {}}"));
    json_decref(body);
    return code;
}

static unsigned graphql(struct wandb *w, const struct http_request *request, struct bytes *ret) {
    json_t *body = json_parse(request->body, request->n_body);
    const struct query q = { w, json_object_get(body, "variables") };
    json_t *data = answer(&q, json_member_text(body, "query"));
    json_decref(body);
    return put(ret, 200, json_pack("{so}", "data", data ? data : json_object()));
}

/* ---- the run's files ---- */

/* /files/ENTITY/PROJECT/RUN/file_stream */
static struct run *run_of(struct wandb *w, const char *path) {
    char id[RUN_ID_BYTES] = "";
    const char *end = strstr(path, "/file_stream"), *at = end;
    while (at && at > path && at[-1] != '/')
        at--;
    if (at)
        snprintf(id, sizeof id, "%.*s", (int)(end - at), at);
    return runs_get(&w->runs, w->points, id);
}

static unsigned file_stream(struct wandb *w, const struct http_request *request, struct bytes *ret) {
    if (request->dropped) {
        points_event(w->points, "metric_refused", "a request of a W&B client is longer than 16 MiB");
        return put(ret, 413, json_object());
    }
    points_from(w->points, "W&B");
    const bool whole = wandb_history(request->body, request->n_body, run_of(w, request->path), w->points, &w->others);
    points_flush(w->points);
    return put(ret, whole ? 200 : 400, json_object());
}

/* ---- for the server ---- */

void wandb_init(struct wandb *w, struct points *points, const char *url, const char *token) {
    *w = (struct wandb){ .points = points, .url = url, .token = token, .parameters.kind = "parameters" };
}

bool wandb_has(const char *path) { return strcmp(path, "/graphql") == 0 || strncmp(path, "/files/", 7) == 0; }

unsigned wandb_serve(struct wandb *w, const struct http_request *request, struct bytes *ret) {
    if (strcmp(request->path, "/graphql") == 0)
        return graphql(w, request, ret);
    if (strcmp(request->method, "POST") == 0 && strstr(request->path, "/file_stream"))
        return file_stream(w, request, ret);
    return put(ret, 200, strcmp(request->method, "GET") == 0 ? wandb_artifacts_manifest(request->path) : json_object());
}

void wandb_flush(struct wandb *w) { notes_flush(&w->parameters, w->points); }

void wandb_end(struct wandb *w) {
    wandb_flush(w);
    if (w->others > 0)
        points_event(w->points, "tracking_ignored",
                     "%" PRId64 " values that the program logged to W&B are no numbers (media, tables, texts) and are "
                     "no metrics; their files are kept",
                     w->others);
}
