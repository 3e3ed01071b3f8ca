#include "service/store/job_origin.h"

#include "service/store/job_lock.h"
#include "service/store/pool.h"

#include <stdio.h>

static const struct sql ORIGIN_CHECKPOINT = { "origin_checkpoint",
                                              "SELECT state, step FROM checkpoint WHERE job = $1 AND id = $2" };
static const struct sql ORIGIN_INSERT = {
    "origin_insert", "INSERT INTO job_origin (job, checkpoint, weights_only) VALUES ($1, $2, $3)"
};
static const struct sql ORIGIN_GET = {
    "origin_get",
    "SELECT c.job, c.id, o.weights_only, c.step FROM job_origin o JOIN checkpoint c ON c.id = o.checkpoint "
    "WHERE o.job = $1"
};

static const struct sql ORIGIN_GONE = {
    "origin_gone", "SELECT c.job, c.id, c.state FROM job_origin o JOIN checkpoint c ON c.id = o.checkpoint "
                   "WHERE o.job = $1 AND c.state <> " SQL_CHECKPOINT_COMMITTED " "
                   "AND NOT EXISTS (SELECT 1 FROM checkpoint own WHERE own.job = $1 "
                   "AND own.state = " SQL_CHECKPOINT_COMMITTED ")"
};

status_t origin_hold(struct connection *c, const struct store_origin *origin, int64_t *ret_step, struct err *e) {
    struct job_lock l;
    TRY(job_lock(c, origin->job, &l, e));
    struct sql_args a = { 0 };
    sql_add_int8(&a, origin->job);
    sql_add_int8(&a, origin->checkpoint);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &ORIGIN_CHECKPOINT, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld/checkpoints/%lld does not exist", (long long)origin->job,
                       (long long)origin->checkpoint);
    if (sql_int2(r, 0, 0) != STORE_CHECKPOINT_COMMITTED)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld is not COMMITTED", (long long)origin->job,
                       (long long)origin->checkpoint);
    *ret_step = sql_int8(r, 0, 1);
    return ST_OK;
}

status_t origin_lock(struct connection *c, int64_t job, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &ORIGIN_GET, &a, &r, e));
    struct job_lock l;
    return PQntuples(r) ? job_lock_marked(c, sql_int8(r, 0, 0), &l, e) : ST_OK;
}

status_t origin_gone(struct connection *c, int64_t job, bool *ret_gone, struct err *ret_why, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &ORIGIN_GONE, &a, &r, e));
    *ret_gone = PQntuples(r) > 0;
    if (!*ret_gone)
        return ST_OK;
    snprintf(ret_why->msg, sizeof ret_why->msg,
             "jobs/%lld has nothing to go on from: jobs/%lld/checkpoints/%lld, which it began with, %s, and it has no "
             "checkpoint of its own",
             (long long)job, (long long)sql_int8(r, 0, 0), (long long)sql_int8(r, 0, 1),
             sql_int2(r, 0, 2) == STORE_CHECKPOINT_CORRUPT ? "is corrupt" : "has been deleted");
    return ST_OK;
}

status_t origin_write(struct connection *c, int64_t job, const struct store_origin *origin, int64_t step,
                      struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    sql_add_int8(&a, origin->checkpoint);
    sql_add_bool(&a, origin->weights_only);
    TRY(sql_run(c, &ORIGIN_INSERT, &a, NULL, e));
    char sentence[160];
    snprintf(sentence, sizeof sentence, "%s jobs/%lld/checkpoints/%lld, step %lld",
             origin->weights_only ? "begins with the weights of" : "goes on from", (long long)origin->job,
             (long long)origin->checkpoint, (long long)step);
    return event_write(c, job, 0, origin->weights_only ? "initialised" : "forked", sentence, NULL, NULL, e);
}

struct origin {
    int64_t job, step;
    struct store_origin *ret;
};

static status_t get_body(struct connection *c, void *ctx, struct err *e) {
    struct origin *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &ORIGIN_GET, &a, &r, e));
    *x->ret = (struct store_origin){ 0 };
    x->step = 0;
    if (PQntuples(r) == 0)
        return ST_OK;
    *x->ret = (struct store_origin){ sql_int8(r, 0, 0), sql_int8(r, 0, 1), sql_bool(r, 0, 2) };
    x->step = sql_int8(r, 0, 3);
    return ST_OK;
}

status_t store_job_origin(struct store *s, int64_t job, struct store_origin *ret, int64_t *ret_step, struct err *e) {
    struct origin x = { .job = job, .ret = ret };
    TRY(store_query(s, get_body, &x, e));
    *ret_step = x.step;
    return ST_OK;
}

struct gone {
    int64_t job;
    bool gone;
    struct err *ret_why;
};

static status_t gone_body(struct connection *c, void *ctx, struct err *e) {
    struct gone *x = ctx;
    return origin_gone(c, x->job, &x->gone, x->ret_why, e);
}

status_t store_job_origin_gone(struct store *s, int64_t job, bool *ret_gone, struct err *ret_why, struct err *e) {
    struct gone x = { .job = job, .ret_why = ret_why };
    TRY(store_query(s, gone_body, &x, e));
    *ret_gone = x.gone;
    return ST_OK;
}
