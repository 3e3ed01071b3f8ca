#include "service/store/job_delete.h"

#include "service/store/job_lock.h"
#include "service/store/pool.h"

#include <stdlib.h>

/* Checkpoints that keep their job; and those of the job j that another one began with. */
#define PINNED  "pinned AND state < " SQL_CHECKPOINT_DELETING
#define ORIGINS "(SELECT 1 FROM checkpoint c JOIN job_origin o ON o.checkpoint = c.id WHERE c.job = j.id)"

static const struct sql DELETE_NEEDED = {
    "delete_needed", "SELECT o.job, c.id FROM checkpoint c JOIN job_origin o ON o.checkpoint = c.id "
                     "JOIN job f ON f.id = o.job WHERE c.job = $1 AND f.delete_time IS NULL ORDER BY o.job LIMIT 1"
};
static const struct sql DELETE_PINNED = { "delete_pinned",
                                          "SELECT id FROM checkpoint WHERE job = $1 AND " PINNED " LIMIT 1" };
static const struct sql DELETE_MARK = {
    "delete_mark", "WITH j AS (UPDATE job SET delete_time = now() WHERE id = $1 AND delete_time IS NULL RETURNING id) "
                   "UPDATE checkpoint k SET state = " SQL_CHECKPOINT_DELETING ", delete_time = now() FROM j "
                   "WHERE k.job = j.id AND k.state < " SQL_CHECKPOINT_DELETING
};
static const struct sql ENDED_BEFORE = {
    "ended_before", "SELECT id FROM job j WHERE end_time < now() - make_interval(days => $1) AND delete_time IS NULL "
                    "AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE job = j.id AND " PINNED ") "
                    "AND NOT EXISTS " ORIGINS " ORDER BY end_time LIMIT $2"
};
static const struct sql DELETE_NEXT = { "delete_next",
                                        "SELECT j.id, j.attempt, s.body FROM job j JOIN job_spec s ON s.job = j.id "
                                        "WHERE j.delete_time IS NOT NULL AND j.id > $1 AND NOT EXISTS " ORIGINS
                                        " ORDER BY j.id LIMIT 1" };
static const struct sql DELETE_READY = {
    "delete_ready", "SELECT EXISTS (SELECT 1 FROM checkpoint WHERE job = $1 AND state < " SQL_CHECKPOINT_DELETED ") "
                    "FROM job WHERE id = $1 AND delete_time IS NOT NULL FOR UPDATE"
};
/* In this order; what is left then goes with the job's own row: its attempts, and the checkpoints they name. Of the
 * kinds that grow, a batch goes on behind the last key of the one before: under an old snapshot elsewhere the dead rows
 * stay in the index, and each batch would read them all. */
static const struct kind {
    struct sql sql;
    int keys; /* that it takes, and answers with, the last one's */
} KINDS[] = {
    { { "delete_metrics",
        "WITH gone AS (DELETE FROM metric_chunk WHERE ctid = ANY (ARRAY (SELECT ctid FROM metric_chunk "
        "WHERE job = $1 AND (name, rank, attempt, number) > ($3, $4, $5, $6) "
        "ORDER BY name, rank, attempt, number LIMIT $2)) RETURNING name, rank, attempt, number) "
        "SELECT name::bigint, rank::bigint, attempt::bigint, number::bigint FROM gone "
        "ORDER BY name DESC, rank DESC, attempt DESC, number DESC LIMIT 1" },
      4 },
    { { "delete_logs", "WITH gone AS (DELETE FROM log_chunk WHERE ctid = ANY (ARRAY (SELECT ctid FROM log_chunk "
                       "WHERE job = $1 AND number > $3 ORDER BY number LIMIT $2)) RETURNING number) "
                       "SELECT number FROM gone ORDER BY number DESC LIMIT 1" },
      1 },
    { { "delete_events", "WITH gone AS (DELETE FROM event WHERE ctid = ANY (ARRAY (SELECT ctid FROM event "
                         "WHERE job = $1 AND number > $3 ORDER BY number LIMIT $2)) RETURNING number) "
                         "SELECT number FROM gone ORDER BY number DESC LIMIT 1" },
      1 },
    { { "delete_shards", "DELETE FROM shard WHERE ctid = ANY (ARRAY (SELECT h.ctid FROM shard h JOIN checkpoint c "
                         "ON c.id = h.checkpoint WHERE c.job = $1 LIMIT $2))" },
      0 },
    { { "delete_sequences", "DELETE FROM rank_sequence WHERE ctid = ANY (ARRAY "
                            "(SELECT ctid FROM rank_sequence WHERE job = $1 LIMIT $2))" },
      0 },
    { { "delete_placements", "DELETE FROM placement WHERE ctid = ANY (ARRAY "
                             "(SELECT ctid FROM placement WHERE job = $1 LIMIT $2))" },
      0 },
    { { "delete_checkpoints", "DELETE FROM checkpoint WHERE ctid = ANY (ARRAY (SELECT ctid FROM checkpoint c "
                              "WHERE job = $1 AND NOT EXISTS (SELECT 1 FROM attempt WHERE from_checkpoint = c.id) "
                              "LIMIT $2))" },
      0 },
};
#define N_KINDS ((int)(sizeof KINDS / sizeof *KINDS))
static const struct sql DELETE_JOB = { "delete_job", "DELETE FROM job WHERE id = $1" };

/* ---- the mark ---- */

static status_t refuse_needed(struct connection *c, int64_t job, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &DELETE_NEEDED, &a, &r, e));
    if (PQntuples(r) == 0)
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld began with jobs/%lld/checkpoints/%lld: delete that job first",
                   (long long)sql_int8(r, 0, 0), (long long)job, (long long)sql_int8(r, 0, 1));
}

static status_t refuse_pinned(struct connection *c, int64_t job, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &DELETE_PINNED, &a, &r, e));
    return PQntuples(r) == 0
               ? ST_OK
               : err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld is pinned: unpin it first",
                         (long long)job, (long long)sql_int8(r, 0, 0));
}

/* A job that begins with a checkpoint of this one takes the same lock, and finds it COMMITTED no more. */
static status_t mark_body(struct connection *c, void *ctx, struct err *e) {
    int64_t job = *(const int64_t *)ctx;
    struct job_lock l;
    TRY(job_lock_marked(c, job, &l, e));
    if (l.state < STORE_JOB_SUCCEEDED)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld is %s: only a job that has ended can be deleted",
                       (long long)job, store_job_state_name(l.state));
    TRY(refuse_needed(c, job, e));
    TRY(refuse_pinned(c, job, e));
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    return sql_run(c, &DELETE_MARK, &a, NULL, e);
}

status_t store_job_delete(struct store *s, int64_t epoch, int64_t job, struct err *e) {
    return store_transact(s, epoch, mark_body, &job, e);
}

struct ended {
    struct store_memory *m;
    int days, limit;
    int64_t *jobs;
    size_t n;
};

static status_t ended_body(struct connection *c, void *ctx, struct err *e) {
    struct ended *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int4(&a, x->days);
    sql_add_int8(&a, x->limit);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &ENDED_BEFORE, &a, &r, e));
    x->n = (size_t)PQntuples(r);
    TRY(store_memory_get(x->m, x->n, sizeof *x->jobs, &x->jobs, e));
    for (size_t i = 0; i < x->n; i++)
        x->jobs[i] = sql_int8(r, (int)i, 0);
    return ST_OK;
}

status_t store_job_ended_before(struct store *s, struct store_memory *m, int days, int limit, int64_t **ret,
                                size_t *ret_n, struct err *e) {
    struct ended x = { .m = m, .days = days, .limit = limit };
    TRY(store_query(s, ended_body, &x, e));
    *ret = x.jobs;
    *ret_n = x.n;
    return ST_OK;
}

/* ---- the rows ---- */

struct next {
    struct store_memory *m;
    int64_t after;
    struct store_deleted_job *ret;
};

static status_t next_body(struct connection *c, void *ctx, struct err *e) {
    struct next *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->after);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &DELETE_NEXT, &a, &r, e));
    *x->ret = (struct store_deleted_job){ 0 };
    if (PQntuples(r) == 0)
        return ST_OK;
    *x->ret = (struct store_deleted_job){ .job = sql_int8(r, 0, 0),
                                          .attempts = sql_int4(r, 0, 1),
                                          .spec = sql_text(r, 0, 2),
                                          .spec_bytes = (size_t)PQgetlength(r, 0, 2) };
    return store_memory_keep(x->m, &r, e);
}

status_t store_job_delete_next(struct store *s, struct store_memory *m, int64_t after, struct store_deleted_job *ret,
                               struct err *e) {
    return store_query(s, next_body, &(struct next){ m, after, ret }, e);
}

struct rows {
    int64_t job;
    struct store_delete_at at, next;
    bool done;
};

static status_t delete_batch(struct connection *c, int64_t job, struct store_delete_at *at, bool *ret_any,
                             struct err *e) {
    const struct kind *kind = &KINDS[at->kind];
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    sql_add_int8(&a, STORE_DELETE_BATCH);
    for (int i = 0; i < kind->keys; i++)
        sql_add_int8(&a, at->key[i]);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &kind->sql, &a, &r, e));
    *ret_any = atoi(PQcmdTuples(r)) > 0; /* of a SELECT: its rows */
    for (int i = 0; *ret_any && i < kind->keys; i++)
        at->key[i] = sql_int8(r, 0, i);
    return ST_OK;
}

/* The first batch from there on that finds a row. */
static status_t delete_from(struct connection *c, int64_t job, struct store_delete_at *at, bool *ret_any,
                            struct err *e) {
    *ret_any = false;
    while (at->kind < N_KINDS) {
        TRY(delete_batch(c, job, at, ret_any, e));
        if (*ret_any)
            break;
        *at = (struct store_delete_at){ .kind = at->kind + 1 };
    }
    return ST_OK;
}

static status_t rows_body(struct connection *c, void *ctx, struct err *e) {
    struct rows *x = ctx;
    struct sql_args key = { 0 };
    bool any;
    sql_add_int8(&key, x->job);
    CLEANUP(sql_clearp) PGresult *ready = NULL;
    TRY(sql_run_one(c, &DELETE_READY, &key, &ready, "no such job is marked as deleted", e));
    if (sql_bool(ready, 0, 0))
        return err_set(e, ST_FAILED_PRECONDITION, "checkpoints of jobs/%lld still have files", (long long)x->job);
    x->done = false;
    x->next = x->at;
    TRY(delete_from(c, x->job, &x->next, &any, e));
    if (any)
        return ST_OK;
    x->next = (struct store_delete_at){ 0 }; /* what was stored behind it meanwhile */
    TRY(delete_from(c, x->job, &x->next, &any, e));
    if (any)
        return ST_OK;
    x->done = true;
    return sql_run(c, &DELETE_JOB, &key, NULL, e);
}

status_t store_job_delete_rows(struct store *s, int64_t epoch, int64_t job, struct store_delete_at *at, bool *ret_done,
                               struct err *e) {
    struct rows x = { .job = job, .at = *at };
    TRY(store_transact(s, epoch, rows_body, &x, e));
    *at = x.next;
    *ret_done = x.done;
    return ST_OK;
}
