#include "service/store/checkpoint.h"

#include "service/store/job_lock.h"
#include "service/store/pool.h"
#include "service/store/text.h"

#include <stdio.h>

#define COLUMNS                                                                                                        \
    "id, job, attempt, step, state, bytes, shards, world_size, directory, weights_sha256, reason, create_time, "       \
    "commit_time, validation_loss, pinned, final"

static const struct sql CHECKPOINT_LIST = {
    "checkpoint_list",
    "SELECT " COLUMNS " FROM checkpoint WHERE job = $1 AND id < $2 AND state < " SQL_CHECKPOINT_DELETED " "
    "ORDER BY id DESC LIMIT $3"
};
static const struct sql CHECKPOINT_GET = { "checkpoint_get",
                                           "SELECT " COLUMNS " FROM checkpoint WHERE job = $1 AND id = $2 "
                                           "AND EXISTS (SELECT 1 FROM job WHERE id = $1 AND delete_time IS NULL)" };
static const struct sql CHECKPOINT_NEWEST = {
    "checkpoint_newest", "SELECT " COLUMNS " FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED " "
                         "ORDER BY step DESC, attempt DESC LIMIT 1"
};
static const struct sql CHECKPOINT_AT = { "checkpoint_at",
                                          "SELECT " COLUMNS
                                          " FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED
                                          " AND step = $2 "
                                          "ORDER BY attempt DESC LIMIT 1" };
static const struct sql JOB_EXISTS = { "job_exists", "SELECT 1 FROM job WHERE id = $1 AND delete_time IS NULL" };
static const struct sql CHECKPOINT_CORRUPT = {
    "checkpoint_corrupt", "UPDATE checkpoint SET state = " SQL_CHECKPOINT_CORRUPT
                          ", reason = $3 WHERE state = " SQL_CHECKPOINT_COMMITTED " AND id = "
                          "(SELECT from_checkpoint FROM attempt WHERE job = $1 AND number = $2) RETURNING step"
};
static const struct sql ATTEMPT_FROM = {
    "attempt_from", "SELECT 1 FROM attempt WHERE job = $1 AND number = $2 AND from_checkpoint IS NOT NULL"
};
static const struct sql CHECKPOINT_PINNED = {
    "checkpoint_pinned", "SELECT state, pinned, attempt, step FROM checkpoint WHERE job = $1 AND id = $2"
};
static const struct sql CHECKPOINT_PIN = { "checkpoint_pin", "UPDATE checkpoint SET pinned = $2 WHERE id = $1" };
static const struct sql CHECKPOINT_RETIRE = {
    "checkpoint_retire",
    "WITH j AS (SELECT attempt, state, greatest(keep_last, 1) AS keep_last, keep_best FROM job WHERE id = $1), "
    "ranked AS (SELECT id, validation_loss, row_number() OVER (ORDER BY step DESC, attempt DESC) AS newest, "
    "row_number() OVER (ORDER BY validation_loss NULLS LAST, step DESC) AS best "
    "FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED "), "
    "kept AS (SELECT id FROM ranked, j WHERE newest <= keep_last OR (best <= keep_best AND validation_loss IS NOT "
    "NULL) "
    "UNION ALL SELECT a.from_checkpoint FROM attempt a, j WHERE a.job = $1 AND a.number = j.attempt "
    "AND a.from_checkpoint IS NOT NULL "
    /* what another job begins with, until it has its own or has ended */
    "UNION ALL SELECT r.id FROM ranked r JOIN job_origin o ON o.checkpoint = r.id JOIN job f ON f.id = o.job "
    "WHERE f.state < " SQL_JOB_SUCCEEDED " "
    "AND NOT EXISTS (SELECT 1 FROM checkpoint own WHERE own.job = f.id AND own.state = " SQL_CHECKPOINT_COMMITTED ")) "
    "UPDATE checkpoint k SET state = " SQL_CHECKPOINT_DELETING ", delete_time = now() FROM j WHERE k.job = $1 AND "
    "((k.state = " SQL_CHECKPOINT_COMMITTED " AND NOT k.pinned AND NOT k.final "
    "AND k.id NOT IN (SELECT id FROM kept)) "
    "OR (k.state = " SQL_CHECKPOINT_WRITING " AND (k.attempt < j.attempt OR j.state >= " SQL_JOB_SUCCEEDED ")))"
};
static const struct sql CHECKPOINT_DELETING = {
    "checkpoint_deleting", "SELECT " COLUMNS " FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_DELETING " "
                           "ORDER BY id"
};
static const struct sql CHECKPOINT_DELETING_NEXT = { "checkpoint_deleting_next",
                                                     "SELECT job FROM checkpoint WHERE state = " SQL_CHECKPOINT_DELETING
                                                     " AND job > $1 ORDER BY job LIMIT 1" };
/* Of so many jobs at a time that a statement's time is bounded. */
static const struct sql CHECKPOINT_OVERDUE = {
    "checkpoint_overdue",
    "SELECT j.id, (SELECT count(*) FROM checkpoint k WHERE k.job = j.id AND k.state = " SQL_CHECKPOINT_COMMITTED ") "
    "> greatest(j.keep_last, 1) OR EXISTS (SELECT 1 FROM checkpoint k WHERE k.job = j.id "
    "AND k.state = " SQL_CHECKPOINT_WRITING " AND (k.attempt < j.attempt OR j.state >= " SQL_JOB_SUCCEEDED ")) "
    "FROM (SELECT * FROM job WHERE id > $1 AND delete_time IS NULL ORDER BY id LIMIT $2) j ORDER BY j.id"
};
static const struct sql CHECKPOINT_DELETED = { "checkpoint_deleted",
                                               "UPDATE checkpoint SET state = " SQL_CHECKPOINT_DELETED
                                               " WHERE id = $1 AND state = " SQL_CHECKPOINT_DELETING };

/* Why it may not go; the first that holds. */
static const struct sql CHECKPOINT_NEEDED = {
    "checkpoint_needed",
    "SELECT k.state, CASE WHEN k.pinned THEN 'is pinned: unpin it first' "
    "WHEN k.state = " SQL_CHECKPOINT_WRITING " THEN 'is not whole yet' "
    "WHEN j.state < " SQL_JOB_SUCCEEDED " AND k.id = (SELECT id FROM checkpoint WHERE job = $1 "
    "AND state = " SQL_CHECKPOINT_COMMITTED " ORDER BY step DESC, attempt DESC LIMIT 1) "
    "THEN 'is what its job would go on from' "
    "WHEN j.state < " SQL_JOB_SUCCEEDED " AND EXISTS (SELECT 1 FROM attempt a WHERE a.job = j.id "
    "AND a.number = j.attempt AND a.from_checkpoint = k.id) THEN 'is what its job''s attempt started from' "
    "WHEN EXISTS (SELECT 1 FROM job_origin o JOIN job f ON f.id = o.job WHERE o.checkpoint = k.id "
    "AND f.state < " SQL_JOB_SUCCEEDED " AND NOT EXISTS (SELECT 1 FROM checkpoint own WHERE own.job = f.id "
    "AND own.state = " SQL_CHECKPOINT_COMMITTED ")) THEN 'is what another job began with and still needs' "
    "ELSE '' END, k.attempt, k.step FROM checkpoint k JOIN job j ON j.id = k.job WHERE k.job = $1 AND k.id = $2"
};
static const struct sql CHECKPOINT_DELETE = { "checkpoint_delete",
                                              "UPDATE checkpoint SET state = " SQL_CHECKPOINT_DELETING
                                              ", delete_time = now() WHERE id = $1" };

static void read_row(const PGresult *r, int row, struct store_checkpoint *ret) {
    *ret = (struct store_checkpoint){
        .id = sql_int8(r, row, 0),
        .job = sql_int8(r, row, 1),
        .attempt = sql_int4(r, row, 2),
        .step = sql_int8(r, row, 3),
        .state = (enum store_checkpoint_state)sql_int2(r, row, 4),
        .bytes = sql_int8(r, row, 5),
        .shards = sql_int4(r, row, 6),
        .world_size = sql_int4(r, row, 7),
        .directory = sql_text(r, row, 8),
        .weights_sha256 = sql_text(r, row, 9),
        .reason = sql_text(r, row, 10),
        .create_time_us = sql_time(r, row, 11),
        .commit_time_us = sql_time(r, row, 12),
        .has_validation_loss = !sql_is_null(r, row, 13),
        .validation_loss = sql_double(r, row, 13),
        .pinned = sql_bool(r, row, 14),
        .final = sql_bool(r, row, 15),
    };
}

struct rows {
    struct store_memory *m;
    int64_t job, id;
    int limit;
    struct store_checkpoint *at;
    size_t n;
};

static status_t take_rows(struct rows *x, PGresult **r, struct err *e) {
    x->n = (size_t)PQntuples(*r);
    TRY(store_memory_get(x->m, x->n, sizeof *x->at, &x->at, e));
    for (size_t i = 0; i < x->n; i++)
        read_row(*r, (int)i, &x->at[i]);
    return store_memory_keep(x->m, r, e);
}

/* ---- read ---- */

static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct rows *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    sql_add_int8(&a, x->id > 0 ? x->id : INT64_MAX);
    sql_add_int8(&a, x->limit);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_LIST, &a, &r, e));
    return take_rows(x, &r, e);
}

status_t store_checkpoint_list(struct store *s, struct store_memory *m, int64_t job, int64_t before, int limit,
                               struct store_checkpoint **ret, size_t *ret_n, struct err *e) {
    struct rows x = { .m = m, .job = job, .id = before, .limit = limit };
    TRY(store_query(s, list_body, &x, e));
    *ret = x.at;
    *ret_n = x.n;
    return ST_OK;
}

static status_t none_committed(struct connection *c, int64_t job, const char *of_step, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &JOB_EXISTS, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
    return err_set(e, ST_NOT_FOUND, "jobs/%lld has no committed checkpoint%s", (long long)job, of_step);
}

static status_t get_body(struct connection *c, void *ctx, struct err *e) {
    struct rows *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    if (x->id)
        sql_add_int8(&a, x->id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, x->id ? &CHECKPOINT_GET : &CHECKPOINT_NEWEST, &a, &r, e));
    if (PQntuples(r) == 0 && x->id)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld/checkpoints/%lld does not exist", (long long)x->job,
                       (long long)x->id);
    if (PQntuples(r) == 0)
        return none_committed(c, x->job, "", e);
    return take_rows(x, &r, e);
}

status_t store_checkpoint_get(struct store *s, struct store_memory *m, int64_t job, int64_t id,
                              struct store_checkpoint *ret, struct err *e) {
    if (id <= 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld/checkpoints/%lld does not exist", (long long)job, (long long)id);
    struct rows x = { .m = m, .job = job, .id = id };
    TRY(store_query(s, get_body, &x, e));
    *ret = x.at[0];
    return ST_OK;
}

status_t store_checkpoint_newest(struct store *s, struct store_memory *m, int64_t job, struct store_checkpoint *ret,
                                 struct err *e) {
    struct rows x = { .m = m, .job = job };
    TRY(store_query(s, get_body, &x, e));
    *ret = x.at[0];
    return ST_OK;
}

static status_t at_body(struct connection *c, void *ctx, struct err *e) {
    struct rows *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    sql_add_int8(&a, x->id); /* the step */
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_AT, &a, &r, e));
    char of_step[40];
    snprintf(of_step, sizeof of_step, " of step %lld", (long long)x->id);
    if (PQntuples(r) == 0)
        return none_committed(c, x->job, of_step, e);
    return take_rows(x, &r, e);
}

status_t store_checkpoint_at(struct store *s, struct store_memory *m, int64_t job, int64_t step,
                             struct store_checkpoint *ret, struct err *e) {
    struct rows x = { .m = m, .job = job, .id = step };
    TRY(store_query(s, at_body, &x, e));
    *ret = x.at[0];
    return ST_OK;
}

/* ---- corrupt ---- */

struct corrupt {
    int64_t job;
    int attempt;
    const char *reason;
};

static status_t corrupt_body(struct connection *c, void *ctx, struct err *e) {
    const struct corrupt *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    struct sql_args key = { 0 };
    sql_add_int8(&key, x->job);
    sql_add_int4(&key, x->attempt);
    CLEANUP(sql_clearp) PGresult *from = NULL;
    TRY(sql_run_one(c, &ATTEMPT_FROM, &key, &from, "the attempt started from no checkpoint", e));
    struct sql_args a = { 0 };
    struct sentence reason;
    sql_add_int8(&a, x->job);
    sql_add_int4(&a, x->attempt);
    sql_add_text(&a, sentence_of(x->reason, &reason));
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_CORRUPT, &a, &r, e));
    if (PQntuples(r) == 0)
        return ST_OK;
    char sentence[440];
    snprintf(sentence, sizeof sentence, "step %lld: %s", (long long)sql_int8(r, 0, 0), x->reason);
    return event_write(c, x->job, x->attempt, "checkpoint_corrupt", sentence, NULL, NULL, e);
}

status_t store_checkpoint_corrupt(struct store *s, int64_t epoch, int64_t job, int attempt, const char *reason,
                                  struct err *e) {
    const char *said = reason && *reason ? reason : "its files do not match their digests";
    return store_transact(s, epoch, corrupt_body, &(struct corrupt){ job, attempt, said }, e);
}

/* ---- pin, retire ---- */

struct pin {
    int64_t job, id;
    bool pinned;
};

/* What a user did, as an event of the checkpoint's attempt. */
static status_t tell_user_did(struct connection *c, const struct pin *x, const char *kind, int attempt, int64_t step,
                              struct err *e) {
    char sentence[80];
    snprintf(sentence, sizeof sentence, "step %lld, by a user", (long long)step);
    return event_write(c, x->job, attempt, kind, sentence, NULL, NULL, e);
}

static status_t no_checkpoint(const struct pin *x, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "jobs/%lld/checkpoints/%lld does not exist", (long long)x->job, (long long)x->id);
}

static status_t pin_body(struct connection *c, void *ctx, struct err *e) {
    const struct pin *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    struct sql_args a = { 0 }, key = { 0 }, job = { 0 };
    sql_add_int8(&a, x->job);
    sql_add_int8(&a, x->id);
    sql_add_int8(&job, x->job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_PINNED, &a, &r, e));
    if (PQntuples(r) == 0)
        return no_checkpoint(x, e);
    if (x->pinned && sql_int2(r, 0, 0) != STORE_CHECKPOINT_COMMITTED)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld is not COMMITTED", (long long)x->job,
                       (long long)x->id);
    if (x->pinned == sql_bool(r, 0, 1))
        return ST_OK;
    sql_add_int8(&key, x->id);
    sql_add_bool(&key, x->pinned);
    TRY(sql_run(c, &CHECKPOINT_PIN, &key, NULL, e));
    if (!x->pinned)
        TRY(sql_run(c, &CHECKPOINT_RETIRE, &job, NULL, e));
    return tell_user_did(c, x, x->pinned ? "checkpoint_pinned" : "checkpoint_unpinned", sql_int4(r, 0, 2),
                         sql_int8(r, 0, 3), e);
}

status_t store_checkpoint_pin(struct store *s, int64_t epoch, int64_t job, int64_t id, bool pinned, struct err *e) {
    return store_transact(s, epoch, pin_body, &(struct pin){ job, id, pinned }, e);
}

static status_t delete_body(struct connection *c, void *ctx, struct err *e) {
    const struct pin *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    struct sql_args a = { 0 }, key = { 0 };
    sql_add_int8(&a, x->job);
    sql_add_int8(&a, x->id);
    sql_add_int8(&key, x->id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_NEEDED, &a, &r, e));
    if (PQntuples(r) == 0)
        return no_checkpoint(x, e);
    if (sql_int2(r, 0, 0) >= STORE_CHECKPOINT_DELETING)
        return ST_OK;
    if (*sql_text(r, 0, 1))
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld %s", (long long)x->job, (long long)x->id,
                       sql_text(r, 0, 1));
    TRY(sql_run(c, &CHECKPOINT_DELETE, &key, NULL, e));
    return tell_user_did(c, x, "checkpoint_deleted", sql_int4(r, 0, 2), sql_int8(r, 0, 3), e);
}

status_t store_checkpoint_delete(struct store *s, int64_t epoch, int64_t job, int64_t id, struct err *e) {
    return store_transact(s, epoch, delete_body, &(struct pin){ .job = job, .id = id }, e);
}

static status_t deleting_body(struct connection *c, void *ctx, struct err *e) {
    struct rows *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_DELETING, &a, &r, e));
    return take_rows(x, &r, e);
}

status_t store_checkpoint_deleting(struct store *s, struct store_memory *m, int64_t job, struct store_checkpoint **ret,
                                   size_t *ret_n, struct err *e) {
    struct rows x = { .m = m, .job = job };
    TRY(store_query(s, deleting_body, &x, e));
    *ret = x.at;
    *ret_n = x.n;
    return ST_OK;
}

static status_t deleting_next_body(struct connection *c, void *ctx, struct err *e) {
    int64_t *job = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, *job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_DELETING_NEXT, &a, &r, e));
    *job = PQntuples(r) ? sql_int8(r, 0, 0) : 0;
    return ST_OK;
}

status_t store_checkpoint_deleting_next(struct store *s, int64_t after, int64_t *ret_job, struct err *e) {
    *ret_job = after;
    return store_query(s, deleting_next_body, ret_job, e);
}

struct overdue {
    struct store_memory *m;
    int64_t after, last;
    int64_t *jobs;
    size_t n;
};

static status_t overdue_body(struct connection *c, void *ctx, struct err *e) {
    struct overdue *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->after);
    sql_add_int8(&a, STORE_OVERDUE_JOBS);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_OVERDUE, &a, &r, e));
    int rows = PQntuples(r);
    TRY(store_memory_get(x->m, (size_t)rows, sizeof *x->jobs, &x->jobs, e));
    x->n = 0;
    for (int row = 0; row < rows; row++)
        if (sql_bool(r, row, 1))
            x->jobs[x->n++] = sql_int8(r, row, 0);
    x->last = rows == STORE_OVERDUE_JOBS ? sql_int8(r, rows - 1, 0) : 0;
    return ST_OK;
}

status_t store_checkpoint_overdue(struct store *s, struct store_memory *m, int64_t after, int64_t **ret, size_t *ret_n,
                                  int64_t *ret_last, struct err *e) {
    struct overdue x = { .m = m, .after = after };
    TRY(store_query(s, overdue_body, &x, e));
    *ret = x.jobs;
    *ret_n = x.n;
    *ret_last = x.last;
    return ST_OK;
}

static status_t retire_body(struct connection *c, void *ctx, struct err *e) {
    struct rows *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    TRY(sql_run(c, &CHECKPOINT_RETIRE, &a, NULL, e));
    return deleting_body(c, x, e);
}

status_t store_checkpoint_retire(struct store *s, struct store_memory *m, int64_t epoch, int64_t job,
                                 struct store_checkpoint **ret, size_t *ret_n, struct err *e) {
    struct rows x = { .m = m, .job = job };
    TRY(store_transact(s, epoch, retire_body, &x, e));
    *ret = x.at;
    *ret_n = x.n;
    return ST_OK;
}

static status_t deleted_body(struct connection *c, void *ctx, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, *(const int64_t *)ctx);
    return sql_run(c, &CHECKPOINT_DELETED, &a, NULL, e);
}

status_t store_checkpoint_deleted(struct store *s, int64_t epoch, int64_t id, struct err *e) {
    return store_transact(s, epoch, deleted_body, &id, e);
}
