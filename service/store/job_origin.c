#include "service/store/job_origin.h"

#include "service/store/job_lock.h"
#include "service/store/pool.h"

#include <stdio.h>

struct origin_checkpoint {
    enum store_checkpoint_state state;
    int64_t step;
};
static const struct sql_query ORIGIN_CHECKPOINT = {
    { "origin_checkpoint", "SELECT {columns} FROM checkpoint WHERE job = $1 AND id = $2" },
    SQL_ROW(struct origin_checkpoint, SQL_COLUMN(struct origin_checkpoint, state, "state"),
            SQL_COLUMN(struct origin_checkpoint, step, "step"))
};
static const struct sql ORIGIN_INSERT = {
    "origin_insert", "INSERT INTO job_origin (job, checkpoint, weights_only) VALUES ($1, $2, $3)"
};
struct origin_row {
    struct store_origin origin;
    int64_t step;
};
static const struct sql_query ORIGIN_GET = {
    { "origin_get", "SELECT {columns} FROM job_origin o JOIN checkpoint c ON c.id = o.checkpoint WHERE o.job = $1" },
    SQL_ROW(struct origin_row, SQL_COLUMN(struct origin_row, origin.job, "c.job"),
            SQL_COLUMN(struct origin_row, origin.checkpoint, "c.id"),
            SQL_COLUMN(struct origin_row, origin.weights_only, "o.weights_only"),
            SQL_COLUMN(struct origin_row, step, "c.step"))
};
struct gone_row {
    int64_t job, checkpoint;
    enum store_checkpoint_state state;
};
static const struct sql_query ORIGIN_GONE = {
    { "origin_gone", "SELECT {columns} FROM job_origin o JOIN checkpoint c ON c.id = o.checkpoint "
                     "WHERE o.job = $1 AND c.state <> " SQL_CHECKPOINT_COMMITTED " "
                     "AND NOT EXISTS (SELECT 1 FROM checkpoint own WHERE own.job = $1 "
                     "AND own.state = " SQL_CHECKPOINT_COMMITTED ")" },
    SQL_ROW(struct gone_row, SQL_COLUMN(struct gone_row, job, "c.job"), SQL_COLUMN(struct gone_row, checkpoint, "c.id"),
            SQL_COLUMN(struct gone_row, state, "c.state"))
};

status_t origin_lock_checkpoint(struct connection *c, const struct store_origin *origin, int64_t *ret_step,
                                struct err *e) {
    struct job_lock l;
    struct origin_checkpoint row;
    bool found;
    TRY(job_lock(c, origin->job, &l, e));
    TRY(sql_find(c, NULL, &ORIGIN_CHECKPOINT, ARGS(arg_int8(origin->job), arg_int8(origin->checkpoint)), &row, &found,
                 e));
    if (!found)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld/checkpoints/%lld does not exist", (long long)origin->job,
                       (long long)origin->checkpoint);
    if (row.state != STORE_CHECKPOINT_COMMITTED)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld is not COMMITTED", (long long)origin->job,
                       (long long)origin->checkpoint);
    *ret_step = row.step;
    return ST_OK;
}

status_t origin_lock(struct connection *c, int64_t job, struct err *e) {
    struct origin_row row;
    struct job_lock l;
    bool found;
    TRY(sql_find(c, NULL, &ORIGIN_GET, ARGS(arg_int8(job)), &row, &found, e));
    return found ? job_lock_marked(c, row.origin.job, &l, e) : ST_OK;
}

status_t origin_gone(struct connection *c, int64_t job, bool *ret_gone, struct err *ret_why, struct err *e) {
    struct gone_row row;
    TRY(sql_find(c, NULL, &ORIGIN_GONE, ARGS(arg_int8(job)), &row, ret_gone, e));
    if (!*ret_gone)
        return ST_OK;
    snprintf(ret_why->msg, sizeof ret_why->msg,
             "jobs/%lld has nothing to resume from: jobs/%lld/checkpoints/%lld, which it began with, %s, and it has no "
             "checkpoint of its own",
             (long long)job, (long long)row.job, (long long)row.checkpoint,
             row.state == STORE_CHECKPOINT_CORRUPT   ? "is corrupt"
             : row.state == STORE_CHECKPOINT_MISSING ? "is missing: its files could not be read"
                                                     : "has been deleted");
    return ST_OK;
}

status_t origin_write(struct connection *c, int64_t job, const struct store_origin *origin, int64_t step,
                      struct err *e) {
    TRY(sql_execute(c, &ORIGIN_INSERT,
                    ARGS(arg_int8(job), arg_int8(origin->checkpoint), arg_bool(origin->weights_only)), NULL, e));
    char sentence[160];
    snprintf(sentence, sizeof sentence, "%s jobs/%lld/checkpoints/%lld, step %lld",
             origin->weights_only ? "begins with the weights of" : "continues from", (long long)origin->job,
             (long long)origin->checkpoint, (long long)step);
    return event_write(c, job, 0, origin->weights_only ? "initialised" : "forked", sentence, NULL, NULL, e);
}

status_t store_job_origin(struct store *s, int64_t job, struct store_origin *ret, int64_t *ret_step, struct err *e) {
    struct origin_row row = { 0 };
    bool found;
    TRY(store_find(s, NULL, &ORIGIN_GET, ARGS(arg_int8(job)), &row, &found, e));
    *ret = row.origin;
    *ret_step = row.step;
    return ST_OK;
}

status_t store_job_origin_gone(struct store *s, int64_t job, bool *ret_gone, struct err *ret_why, struct err *e) {
    return STORE_READ(s, c, origin_gone(c, job, ret_gone, ret_why, e), e);
}
