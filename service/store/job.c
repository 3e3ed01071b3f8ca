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
    "keep_best) SELECT $2, $3, 1, $4, $5, $6, $7, $8, $9, $10 FROM l RETURNING id, create_time), "
    "s AS (INSERT INTO job_spec (job, body) SELECT id, $11 FROM j), "
    "e AS (INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
    "SELECT id, 1, 0, 'state_changed', 1, '', $12 FROM j) SELECT id, create_time FROM j"
};
static const struct sql REQUEST_FIND = { "request_find", "SELECT job, number FROM event WHERE request_id = $1" };
static const struct sql JOB_GET = { "job_get", "SELECT " JOB_COLUMNS
                                               " FROM job j JOIN job_spec s ON s.job = j.id WHERE j.id = $1" };
/* One plan each: a state in the condition is a different index. */
static const struct sql JOB_LIST = { "job_list",
                                     "SELECT " JOB_COLUMNS " FROM job j LEFT JOIN job_spec s ON $4 AND s.job = j.id "
                                     "WHERE j.id < $1 AND ($2 = '' OR j.queue = $2) "
                                     "ORDER BY j.id DESC LIMIT $3" };
static const struct sql JOB_LIST_STATE = { "job_list_state",
                                           "SELECT " JOB_COLUMNS
                                           " FROM job j LEFT JOIN job_spec s ON $4 AND s.job = j.id "
                                           "WHERE j.state = $5 AND j.id < $1 AND ($2 = '' OR j.queue = $2) "
                                           "ORDER BY j.id DESC LIMIT $3" };
static const struct sql JOB_COUNTS = { "job_counts", "SELECT state, count(*) FROM job GROUP BY state" };
static const struct sql JOB_MOVE = {
    "job_move", "WITH j AS (UPDATE job SET state = $4, reason = $6, restarts = $5, last_event = last_event + 1, "
                "start_time = CASE WHEN $4 = 3 THEN coalesce(start_time, now()) ELSE start_time END, "
                "end_time = CASE WHEN $4 >= 9 THEN now() END "
                "WHERE id = $1 AND attempt = $2 AND state = $3 RETURNING id, last_event) "
                "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                "SELECT id, last_event, $2, 'state_changed', $4, $6, $7 FROM j RETURNING number"
};
static const struct sql JOB_WAITING = { "job_waiting",
                                        "WITH j AS (UPDATE job SET reason = $3, last_event = last_event + 1 "
                                        "WHERE id = $1 AND attempt = $2 AND state = 1 RETURNING id, last_event) "
                                        "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                                        "SELECT id, last_event, $2, 'waiting', 1, $3, $4 FROM j" };
static const struct sql ATTEMPT_RUNNING = {
    "attempt_running", "UPDATE attempt SET state = 2, start_time = now() WHERE job = $1 AND number = $2 AND state = 1"
};
static const struct sql ATTEMPT_ENDING = {
    "attempt_ending", "UPDATE attempt SET state = 3 WHERE job = $1 AND number = $2 AND state < 3"
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

/* ---- move ---- */

struct move {
    const struct store_job_move *in;
    int64_t event;
    bool retry, origin_gone;
};

static status_t refuse_move(const struct job_lock *l, const struct store_job_move *in, struct err *e) {
    if (l->attempt != in->attempt)
        return job_lock_fence(l, in->attempt, e);
    return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld is %s, not %s", (long long)l->job,
                   store_job_state_name(l->state), store_job_state_name(in->from));
}

static status_t move_attempt(struct connection *c, const struct store_job_move *in, struct err *e) {
    bool ending = in->to == STORE_JOB_RESTARTING || in->to == STORE_JOB_CANCELLING || in->to == STORE_JOB_PREEMPTING ||
                  in->to == STORE_JOB_PAUSING;
    if (in->to != STORE_JOB_RUNNING && !ending)
        return ST_OK;
    struct sql_args a = { 0 };
    sql_add_int8(&a, in->job);
    sql_add_int4(&a, in->attempt);
    return sql_run(c, ending ? &ATTEMPT_ENDING : &ATTEMPT_RUNNING, &a, NULL, e);
}

/* The row has moved by then, which a refusal takes back. */
static status_t check_origin(struct connection *c, struct move *x, struct err *e) {
    struct err why;
    TRY(origin_gone(c, x->in->job, &x->origin_gone, &why, e));
    return x->origin_gone ? err_set(e, ST_FAILED_PRECONDITION, "%s", why.msg) : ST_OK;
}

static status_t move_body(struct connection *c, void *ctx, struct err *e) {
    struct move *x = ctx;
    const struct store_job_move *in = x->in;
    struct job_lock l;
    x->origin_gone = false;
    if (x->retry)
        TRY(origin_lock(c, in->job, e));
    TRY(job_lock(c, in->job, &l, e));
    bool seen;
    TRY(request_seen(c, in->request_id, in->job, &seen, &x->event, e));
    if (seen)
        return ST_OK;
    struct sql_args a = { 0 };
    struct sentence reason;
    sql_add_int8(&a, in->job);
    sql_add_int4(&a, in->attempt);
    sql_add_int2(&a, in->from);
    sql_add_int2(&a, in->to);
    sql_add_int4(&a, in->restarts);
    sql_add_text(&a, sentence_of(in->reason, &reason));
    sql_add_text(&a, in->request_id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &JOB_MOVE, &a, &r, e));
    if (PQntuples(r) == 0)
        return refuse_move(&l, in, e);
    if (x->retry)
        TRY(check_origin(c, x, e));
    x->event = sql_int8(r, 0, 0);
    return move_attempt(c, in, e);
}

status_t store_job_move(struct store *s, int64_t epoch, const struct store_job_move *move, int64_t *ret_event,
                        struct err *e) {
    struct move x = { .in = move };
    TRY(store_transact(s, epoch, move_body, &x, e));
    if (ret_event)
        *ret_event = x.event;
    return ST_OK;
}

status_t store_job_retry(struct store *s, int64_t epoch, const struct store_job_move *move, bool *ret_origin_gone,
                         struct err *e) {
    struct move x = { .in = move, .retry = true };
    status_t st = store_transact(s, epoch, move_body, &x, e);
    *ret_origin_gone = st == ST_FAILED_PRECONDITION && x.origin_gone;
    return st;
}

/* ---- wait ---- */

struct wait {
    const char *request_id, *reason;
    int64_t job;
    int attempt;
};

static status_t waiting_body(struct connection *c, void *ctx, struct err *e) {
    const struct wait *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    bool seen;
    int64_t event;
    TRY(request_seen(c, x->request_id, x->job, &seen, &event, e));
    if (seen)
        return ST_OK;
    struct sql_args a = { 0 };
    struct sentence reason;
    sql_add_int8(&a, x->job);
    sql_add_int4(&a, x->attempt);
    sql_add_text(&a, sentence_of(x->reason, &reason));
    sql_add_text(&a, x->request_id);
    return sql_run(c, &JOB_WAITING, &a, NULL, e);
}

status_t store_job_waiting(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                           const char *reason, struct err *e) {
    struct wait x = { .request_id = request_id, .reason = reason, .job = job, .attempt = attempt };
    return store_transact(s, epoch, waiting_body, &x, e);
}
