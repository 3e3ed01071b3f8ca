/* Jobs: creating, reading and counting them.
 *
 * A job without an origin, code, labels and sweep is created by one statement, which locks the leader's row itself;
 * another job needs a transaction, which also locks the job of the origin, the archive of the code or the sweep, and
 * inserts the labels. Both insert the job, its spec and its first event with the request id. The unique index on
 * request ids makes a repeated call fail with ALREADY_EXISTS; store_job_requested then finds the job of the first call,
 * and compares the digests of the two requests. */
#include "service/store/job.h"

#include "service/store/job_code.h"
#include "service/store/job_label.h"
#include "service/store/job_lock.h"
#include "service/store/job_origin.h"
#include "service/store/job_row.h"
#include "service/store/pool.h"
#include "service/store/trial_insert.h"

#include <assert.h>
#include <string.h>

/* One statement, which is one transaction and one round trip, because clients wait for it. */
struct created {
    int64_t job, time_us, transaction;
};
static const struct sql_query JOB_CREATE = {
    { "job_create",
      "WITH l AS (SELECT 1 FROM leader WHERE epoch = $1 AND nonce = $2::uuid AND pg_postmaster_start_time() = $3 "
      "AND " SQL_LEADER_IN_PLACE " FOR SHARE), "
      "j AS (INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, keep_last, "
      "keep_best, needs, max_world_size, stops_at_step, user_name, project) SELECT $4, $5, " SQL_JOB_QUEUED
      ", $6, $7, $8, $9, $10, $11, $12, $16, nullif($17, $7), $18, $19, $20 FROM l RETURNING id, create_time), "
      "s AS (INSERT INTO job_spec (job, body, request_digest) SELECT id, $13, nullif($15, ''::bytea) FROM j), "
      "e AS (INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
      "SELECT id, 1, 0, 'state_changed', " SQL_JOB_QUEUED ", '', $14 FROM j) SELECT {columns} FROM j" },
    SQL_ROW(struct created, SQL_COLUMN(struct created, job, "id"), SQL_COLUMN(struct created, time_us, "create_time"),
            SQL_COLUMN(struct created, transaction, "pg_current_xact_id()::text::bigint"))
};
static const struct sql JOB_LABELS = { "job_labels", "INSERT INTO job_label (job, key, value) "
                                                     "SELECT $1, l.key, l.value FROM unnest($2, $3) l (key, value)" };
static const struct sql_query REQUEST_FIND = { { "request_find", "SELECT {columns} FROM event WHERE request_id = $1" },
                                               SQL_SCALAR(int64_t, "job") };
struct request_job {
    int64_t job, event;
    const uint8_t *digest;
};
static const struct sql_query REQUEST_JOB = {
    { "request_job", "SELECT {columns} FROM event e LEFT JOIN job_spec s ON s.job = e.job WHERE e.request_id = $1" },
    SQL_ROW(struct request_job, SQL_COLUMN(struct request_job, job, "e.job"),
            SQL_COLUMN(struct request_job, event, "e.number"),
            SQL_COLUMN(struct request_job, digest, "s.request_digest"))
};

static const struct sql_column JOB_COLUMNS[] = {
    SQL_COLUMN(struct store_job, id, "j.id"),
    SQL_COLUMN(struct store_job, name, "j.name"),
    SQL_COLUMN(struct store_job, queue, "j.queue"),
    SQL_COLUMN(struct store_job, user, "j.user_name"),
    SQL_COLUMN(struct store_job, project, "j.project"),
    SQL_COLUMN(struct store_job, state, "j.state"),
    SQL_COLUMN(struct store_job, reason, "j.reason"),
    SQL_COLUMN(struct store_job, priority, "j.priority"),
    SQL_COLUMN(struct store_job, world_size, "j.world_size"),
    SQL_COLUMN(struct store_job, max_world_size, "coalesce(j.max_world_size, j.world_size)"),
    SQL_COLUMN(struct store_job, stops_at_step, "j.stops_at_step"),
    SQL_COLUMN(struct store_job, accelerator, "j.accelerator"),
    SQL_COLUMN(struct store_job, needs, "j.needs"),
    SQL_COLUMN(struct store_job, max_restarts, "j.max_restarts"),
    SQL_COLUMN(struct store_job, restarts, "j.restarts"),
    SQL_COLUMN(struct store_job, attempt, "j.attempt"),
    SQL_COLUMN(struct store_job, steps, "j.steps"),
    SQL_COLUMN(struct store_job, step, "j.step"),
    SQL_COLUMN(struct store_job, last_event, "j.last_event"),
    SQL_COLUMN(struct store_job, weights_sha256, "j.weights_sha256"),
    SQL_COLUMN(struct store_job, create_time_us, "j.create_time"),
    SQL_COLUMN(struct store_job, start_time_us, "j.start_time"),
    SQL_COLUMN(struct store_job, end_time_us, "j.end_time"),
    SQL_COLUMN(struct store_job, records_lost, "j.records_lost"),
    SQL_COLUMN_BYTES(struct store_job, spec, spec_bytes, "s.body"),
};
const struct sql_row JOB_ROW = SQL_ROW_OF(struct store_job, JOB_COLUMNS);
static const struct sql_query JOB_GET = {
    { "job_get", "SELECT {columns} FROM job j JOIN job_spec s ON s.job = j.id WHERE j.id = $1 "
                 "AND j.delete_time IS NULL" },
    &JOB_ROW
};
static const struct sql_query JOB_PROJECT = { { "job_project", "SELECT {columns} FROM job WHERE id = $1" },
                                              SQL_SCALAR(const char *, "project") };
/* Counts all jobs and subtracts the marked ones: both parts read an index only. A condition on delete_time in the first
 * part would read every row. */
static const struct sql_query JOB_COUNTS = {
    { "job_counts", "SELECT {columns} FROM (SELECT state, count(*) AS n FROM job GROUP BY state "
                    "UNION ALL SELECT state, -count(*) FROM job WHERE delete_time IS NOT NULL GROUP BY state) q "
                    "GROUP BY state" },
    SQL_ROW(struct state_count, SQL_COLUMN(struct state_count, state, "state"),
            SQL_COLUMN(struct state_count, n, "sum(n)::int8"))
};

static const struct sql_query JOB_BRIEFS = {
    { "job_briefs", "SELECT {columns} FROM job WHERE state < " SQL_JOB_SUCCEEDED " AND delete_time IS NULL "
                    "ORDER BY state = " SQL_JOB_QUEUED ", id LIMIT $1" },
    SQL_ROW(struct store_job_brief, SQL_COLUMN(struct store_job_brief, id, "id"),
            SQL_COLUMN(struct store_job_brief, name, "name"), SQL_COLUMN(struct store_job_brief, queue, "queue"),
            SQL_COLUMN(struct store_job_brief, state, "state"),
            SQL_COLUMN(struct store_job_brief, restarts, "restarts"),
            SQL_COLUMN(struct store_job_brief, steps, "steps"))
};

/* ---- create ---- */

static status_t insert_job(struct connection *c, const struct term *term, const struct store_job_new *in,
                           struct created *ret, struct err *e) {
    bool won;
    TRY(sql_find(c, NULL, &JOB_CREATE,
                 ARGS(ARGS_OF_TERM(*term), arg_text(in->name), arg_text(in->queue), arg_int4(in->priority),
                      arg_int4(in->world_size), arg_text(in->accelerator), arg_int4(in->max_restarts),
                      arg_int8(in->steps), arg_int4(in->keep_last), arg_int4(in->keep_best),
                      arg_bytes(in->spec, in->spec_bytes), arg_text(in->request_id),
                      arg_bytes(in->request_digest, in->request_digest ? STORE_DIGEST_BYTES : 0),
                      arg_int4((int)in->needs), arg_int4(in->max_world_size ? in->max_world_size : in->world_size),
                      arg_bool(in->stops_at_step), arg_text(in->user ? in->user : ""),
                      arg_text(in->project && *in->project ? in->project : STORE_PROJECT_DEFAULT)),
                 ret, &won, e));
    return won ? ST_OK : store_term_over(term->epoch, e);
}

status_t job_labels_insert(struct connection *c, int64_t job, const struct store_job_label *labels, size_t n,
                           struct err *e) {
    const char *keys[STORE_JOB_LABELS_MAX], *values[STORE_JOB_LABELS_MAX];
    if (n == 0)
        return ST_OK;
    assert(n <= STORE_JOB_LABELS_MAX);
    for (size_t i = 0; i < n; i++) {
        keys[i] = labels[i].key;
        values[i] = labels[i].value;
    }
    return sql_execute(c, &JOB_LABELS, ARGS(arg_int8(job), arg_texts(keys, n), arg_texts(values, n)), NULL, e);
}

static status_t create_job(struct store *s, struct connection *c, int64_t epoch, const struct store_job_new *in,
                           struct created *ret, struct err *e) {
    const struct term term = store_term(s);
    int64_t step;
    if (term.epoch != epoch)
        return store_term_over(epoch, e);
    TRY(insert_job(c, &term, in, ret, e));
    TRY(job_labels_insert(c, ret->job, in->labels, in->n_labels, e));
    if (in->sweep)
        TRY(trial_insert(c, in->sweep, in->trial, ret->job, e));
    if (in->code)
        TRY(job_code_insert(c, ret->job, in->code, e));
    if (!in->origin.checkpoint)
        return ST_OK;
    TRY(origin_lock_checkpoint(c, &in->origin, &step, e));
    return origin_write(c, ret->job, &in->origin, step, e);
}

status_t store_job_create(struct store *s, int64_t epoch, const struct store_job_new *job, int64_t *ret_job,
                          bool *ret_existed, int64_t *ret_time_us, struct err *e) {
    struct created created = { 0 };
    /* The insert comes first, because a known request id is rare: a repeated call, or a lost answer to the COMMIT. */
    const bool several = job->origin.checkpoint || job->code || job->n_labels > 0 || job->sweep;
    struct transaction t = several ? transaction_write(s, epoch) : transaction_read(s);
    while (transaction_begin(&t, e))
        transaction_end(&t, create_job(s, t.c, epoch, job, &created, e), e);
    *ret_existed = t.status == ST_ALREADY_EXISTS;
    if (*ret_existed)
        return store_job_requested(s, job->request_id, job->request_digest, ret_job, e);
    TRY(t.status);
    store_note_commit(s, created.transaction);
    *ret_job = created.job;
    if (ret_time_us)
        *ret_time_us = created.time_us;
    return ST_OK;
}

/* ---- read ---- */

status_t store_job_get(struct store *s, struct store_memory *m, int64_t job, struct store_job *ret, struct err *e) {
    bool found;
    TRY(store_find(s, m, &JOB_GET, ARGS(arg_int8(job)), ret, &found, e));
    return found ? ST_OK : err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
}

status_t store_job_project(struct store *s, struct store_memory *m, int64_t job, const char **ret, bool *ret_found,
                           struct err *e) {
    return store_find(s, m, &JOB_PROJECT, ARGS(arg_int8(job)), ret, ret_found, e);
}

static status_t no_request(const char *request_id, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "no request '%s' was stored", request_id);
}

status_t store_request_find(struct store *s, const char *request_id, int64_t *ret_job, struct err *e) {
    bool found;
    TRY(store_find(s, NULL, &REQUEST_FIND, ARGS(arg_text(request_id)), ret_job, &found, e));
    return found ? ST_OK : no_request(request_id, e);
}

/* A job that was stored before digests were has none: its spec counts as the same. */
static bool same_request(const struct request_job *r, const uint8_t *digest) {
    return !digest || !r->digest || memcmp(r->digest, digest, STORE_DIGEST_BYTES) == 0;
}

status_t store_job_requested(struct store *s, const char *request_id, const uint8_t *digest, int64_t *ret_job,
                             struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct request_job request;
    bool found;
    TRY(store_find(s, m, &REQUEST_JOB, ARGS(arg_text(request_id)), &request, &found, e));
    if (!found)
        return no_request(request_id, e);
    if (request.event != 1)
        return err_set(e, ST_ALREADY_EXISTS, "request '%s' was already made for another purpose, on jobs/%lld",
                       request_id, (long long)request.job);
    if (!same_request(&request, digest))
        return err_set(e, ST_ALREADY_EXISTS,
                       "request_id: '%s' made jobs/%lld of another spec; another job needs another id", request_id,
                       (long long)request.job);
    *ret_job = request.job;
    return ST_OK;
}

status_t store_job_counts(struct store *s, int64_t counts[12], struct err *e) {
    return store_state_counts(s, &JOB_COUNTS, counts, 12, e);
}

status_t store_job_briefs(struct store *s, struct store_memory *m, int limit, struct store_job_brief **ret,
                          size_t *ret_n, struct err *e) {
    return store_rows(s, m, &JOB_BRIEFS, ARGS(arg_int8(limit)), ret, ret_n, e);
}
