#include "service/store/job.h"

#include "service/store/job_lock.h"
#include "service/store/job_origin.h"
#include "service/store/job_row.h"
#include "service/store/pool.h"
#include "service/store/text.h"

/* One statement is one transaction and one round trip: this is the path that clients wait for. */
static const struct sql JOB_CREATE = {
    "job_create",
    "WITH l AS (SELECT 1 FROM leader WHERE epoch = $1 FOR SHARE), "
    "j AS (INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, keep_last, "
    "keep_best) SELECT $2, $3, " SQL_JOB_QUEUED ", $4, $5, $6, $7, $8, $9, $10 FROM l RETURNING id, create_time), "
    "s AS (INSERT INTO job_spec (job, body) SELECT id, $11 FROM j), "
    "e AS (INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
    "SELECT id, 1, 0, 'state_changed', " SQL_JOB_QUEUED ", '', $12 FROM j) SELECT id, create_time FROM j"
};
static const struct sql REQUEST_FIND = { "request_find", "SELECT job, number FROM event WHERE request_id = $1" };
static const struct sql JOB_GET = { "job_get",
                                    "SELECT " JOB_COLUMNS " FROM job j JOIN job_spec s ON s.job = j.id WHERE j.id = $1 "
                                    "AND j.delete_time IS NULL" };
/* One plan each: a state in the condition is a different index. */
static const struct sql JOB_LIST = { "job_list",
                                     "SELECT " JOB_COLUMNS " FROM job j LEFT JOIN job_spec s ON $4 AND s.job = j.id "
                                     "WHERE j.id < $1 AND ($2 = '' OR j.queue = $2) AND j.delete_time IS NULL "
                                     "ORDER BY j.id DESC LIMIT $3" };
static const struct sql JOB_LIST_STATE = { "job_list_state",
                                           "SELECT " JOB_COLUMNS
                                           " FROM job j LEFT JOIN job_spec s ON $4 AND s.job = j.id "
                                           "WHERE j.state = $5 AND j.id < $1 AND ($2 = '' OR j.queue = $2) "
                                           "AND j.delete_time IS NULL "
                                           "ORDER BY j.id DESC LIMIT $3" };
/* All jobs less the marked ones: each part reads an index alone, a condition on the first would read every row. */
static const struct sql JOB_COUNTS = {
    "job_counts",
    "SELECT state, sum(n)::int8 FROM (SELECT state, count(*) AS n FROM job GROUP BY state "
    "UNION ALL SELECT state, -count(*) FROM job WHERE delete_time IS NOT NULL GROUP BY state) q GROUP BY state"
};

void job_row_read(const PGresult *r, int row, struct store_job *ret) {
    *ret = (struct store_job){
        .id = sql_int8(r, row, 0),
        .name = sql_text(r, row, 1),
        .queue = sql_text(r, row, 2),
        .state = (enum store_job_state)sql_int2(r, row, 3),
        .reason = sql_text(r, row, 4),
        .priority = sql_int4(r, row, 5),
        .world_size = sql_int4(r, row, 6),
        .accelerator = sql_text(r, row, 7),
        .max_restarts = sql_int4(r, row, 8),
        .restarts = sql_int4(r, row, 9),
        .attempt = sql_int4(r, row, 10),
        .steps = sql_int8(r, row, 11),
        .step = sql_int8(r, row, 12),
        .last_event = sql_int8(r, row, 13),
        .weights_sha256 = sql_text(r, row, 14),
        .create_time_us = sql_time(r, row, 15),
        .start_time_us = sql_time(r, row, 16),
        .end_time_us = sql_time(r, row, 17),
        .spec = sql_is_null(r, row, 18) ? NULL : sql_text(r, row, 18),
        .spec_bytes = (size_t)PQgetlength(r, row, 18),
    };
}

/* ---- create ---- */

struct create {
    int64_t epoch, job, time_us;
    const struct store_job_new *in;
};

static status_t create_insert(struct connection *c, struct create *x, struct err *e) {
    const struct store_job_new *in = x->in;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->epoch);
    sql_add_text(&a, in->name);
    sql_add_text(&a, in->queue);
    sql_add_int4(&a, in->priority);
    sql_add_int4(&a, in->world_size);
    sql_add_text(&a, in->accelerator);
    sql_add_int4(&a, in->max_restarts);
    sql_add_int8(&a, in->steps);
    sql_add_int4(&a, in->keep_last);
    sql_add_int4(&a, in->keep_best);
    sql_add_bytes(&a, in->spec, in->spec_bytes);
    sql_add_text(&a, in->request_id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &JOB_CREATE, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "epoch %lld is over: another controller leads", (long long)x->epoch);
    x->job = sql_int8(r, 0, 0);
    x->time_us = sql_time(r, 0, 1);
    return ST_OK;
}

static status_t find_request(struct connection *c, const char *request_id, int64_t *ret_job, int64_t *ret_event,
                             struct err *e) {
    struct sql_args a = { 0 };
    sql_add_text(&a, request_id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &REQUEST_FIND, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "no request '%s' was stored", request_id);
    *ret_job = sql_int8(r, 0, 0);
    *ret_event = sql_int8(r, 0, 1);
    return ST_OK;
}

static status_t create_alone(struct connection *c, void *ctx, struct err *e) { return create_insert(c, ctx, e); }

static status_t create_from_origin(struct connection *c, void *ctx, struct err *e) {
    struct create *x = ctx;
    int64_t step;
    TRY(create_insert(c, x, e));
    TRY(origin_hold(c, &x->in->origin, &step, e));
    return origin_write(c, x->job, &x->in->origin, step, e);
}

status_t store_job_create(struct store *s, int64_t epoch, const struct store_job_new *job, int64_t *ret_job,
                          bool *ret_existed, int64_t *ret_time_us, struct err *e) {
    struct create x = { .epoch = epoch, .in = job };
    /* The insert comes first: a request id that is known is the exception, a lost answer to the COMMIT included. */
    status_t st = job->origin.checkpoint ? store_transact(s, epoch, create_from_origin, &x, e)
                                         : store_query(s, create_alone, &x, e);
    *ret_existed = st == ST_ALREADY_EXISTS;
    if (*ret_existed)
        return store_job_requested(s, job->request_id, ret_job, e);
    TRY(st);
    *ret_job = x.job;
    if (ret_time_us)
        *ret_time_us = x.time_us;
    return ST_OK;
}

/* ---- read ---- */

struct get {
    struct store_memory *m;
    int64_t job;
    struct store_job *ret;
};

static status_t get_body(struct connection *c, void *ctx, struct err *e) {
    struct get *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &JOB_GET, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)x->job);
    job_row_read(r, 0, x->ret);
    return store_memory_keep(x->m, &r, e);
}

status_t store_job_get(struct store *s, struct store_memory *m, int64_t job, struct store_job *ret, struct err *e) {
    return store_query(s, get_body, &(struct get){ m, job, ret }, e);
}

struct list {
    struct store_memory *m;
    const struct store_job_filter *filter;
    struct store_job *jobs;
    size_t n;
};

static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct list *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->filter->before > 0 ? x->filter->before : INT64_MAX);
    sql_add_text(&a, x->filter->queue ? x->filter->queue : "");
    sql_add_int8(&a, x->filter->limit);
    sql_add_bool(&a, x->filter->with_spec);
    if (x->filter->state)
        sql_add_int2(&a, x->filter->state);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, x->filter->state ? &JOB_LIST_STATE : &JOB_LIST, &a, &r, e));
    x->n = (size_t)PQntuples(r);
    TRY(store_memory_get(x->m, x->n, sizeof *x->jobs, &x->jobs, e));
    for (size_t i = 0; i < x->n; i++)
        job_row_read(r, (int)i, &x->jobs[i]);
    return store_memory_keep(x->m, &r, e);
}

status_t store_job_list(struct store *s, struct store_memory *m, const struct store_job_filter *filter,
                        struct store_job **ret, size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .filter = filter };
    TRY(store_query(s, list_body, &x, e));
    *ret = x.jobs;
    *ret_n = x.n;
    return ST_OK;
}

struct find {
    const char *request_id;
    int64_t job, event;
};

static status_t find_body(struct connection *c, void *ctx, struct err *e) {
    struct find *x = ctx;
    return find_request(c, x->request_id, &x->job, &x->event, e);
}

status_t store_request_find(struct store *s, const char *request_id, int64_t *ret_job, struct err *e) {
    struct find x = { .request_id = request_id };
    TRY(store_query(s, find_body, &x, e));
    *ret_job = x.job;
    return ST_OK;
}

status_t store_job_requested(struct store *s, const char *request_id, int64_t *ret_job, struct err *e) {
    struct find x = { .request_id = request_id };
    TRY(store_query(s, find_body, &x, e));
    if (x.event != 1)
        return err_set(e, ST_ALREADY_EXISTS, "request '%s' was already made for another purpose, on jobs/%lld",
                       request_id, (long long)x.job);
    *ret_job = x.job;
    return ST_OK;
}

static status_t counts_body(struct connection *c, void *ctx, struct err *e) {
    int64_t *counts = ctx;
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &JOB_COUNTS, NULL, &r, e));
    for (int i = 0; i < 12; i++)
        counts[i] = 0;
    for (int i = 0; i < PQntuples(r); i++)
        counts[sql_int2(r, i, 0)] = sql_int8(r, i, 1);
    return ST_OK;
}

status_t store_job_counts(struct store *s, int64_t counts[12], struct err *e) {
    return store_query(s, counts_body, counts, e);
}
