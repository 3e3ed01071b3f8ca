/* Deletion of jobs in bounded transactions.
 *
 * Jobs refer to each other by origins and own up to millions of rows, so that deletion is spread over many
 * transactions. The mark (delete_time) is set under the job's lock, which also protects against a job that begins with
 * one of its checkpoints at the same time. Then each call of store_job_delete_rows deletes one batch: TABLES lists the
 * tables in the order in which foreign keys allow it, and store_delete_at remembers the table and, for a table that
 * grows, the last key. When no table has rows behind that place, the search runs once more from the start, because a
 * transaction that began before the mark may have added rows. If there are none, the job's own row is deleted. */
#include "service/store/job_delete.h"

#include "service/store/job_lock.h"
#include "service/store/pool.h"

#include <string.h>

/* Conditions that protect a job: pinned checkpoints; checkpoints of job j that another job began with. */
#define PINNED  "pinned AND state IN " SQL_CHECKPOINT_KEPT
#define ORIGINS "(SELECT 1 FROM checkpoint c JOIN job_origin o ON o.checkpoint = c.id WHERE c.job = j.id)"

struct needed {
    int64_t job, checkpoint;
};
static const struct sql_query DELETE_NEEDED = {
    { "delete_needed", "SELECT {columns} FROM checkpoint c JOIN job_origin o ON o.checkpoint = c.id "
                       "JOIN job f ON f.id = o.job WHERE c.job = $1 AND f.delete_time IS NULL ORDER BY o.job LIMIT 1" },
    SQL_ROW(struct needed, SQL_COLUMN(struct needed, job, "o.job"), SQL_COLUMN(struct needed, checkpoint, "c.id"))
};
static const struct sql_query DELETE_PINNED = {
    { "delete_pinned", "SELECT {columns} FROM checkpoint WHERE job = $1 AND " PINNED " LIMIT 1" },
    SQL_SCALAR(int64_t, "id")
};
static const struct sql DELETE_MARK = {
    "delete_mark", "WITH j AS (UPDATE job SET delete_time = now() WHERE id = $1 AND delete_time IS NULL RETURNING id) "
                   "UPDATE checkpoint k SET state = " SQL_CHECKPOINT_DELETING ", delete_time = now() FROM j "
                   "WHERE k.job = j.id AND k.state IN " SQL_CHECKPOINT_KEPT
};
static const struct sql_query ENDED_BEFORE = {
    { "ended_before",
      "SELECT {columns} FROM job j WHERE end_time < now() - make_interval(days => $1) AND delete_time IS NULL "
      "AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE job = j.id AND " PINNED ") "
      "AND NOT EXISTS " ORIGINS " AND NOT EXISTS (SELECT 1 FROM imported_run i WHERE i.job = j.id "
      "AND i.import_time >= now() - make_interval(days => $1)) ORDER BY end_time LIMIT $2" },
    SQL_SCALAR(int64_t, "id")
};
static const struct sql_query DELETE_NEXT = {
    { "delete_next", "SELECT {columns} FROM job j JOIN job_spec s ON s.job = j.id "
                     "WHERE j.delete_time IS NOT NULL AND j.id > $1 AND NOT EXISTS " ORIGINS " ORDER BY j.id LIMIT 1" },
    SQL_ROW(struct store_deleted_job, SQL_COLUMN(struct store_deleted_job, job, "j.id"),
            SQL_COLUMN(struct store_deleted_job, attempts, "j.attempt"),
            SQL_COLUMN_BYTES(struct store_deleted_job, spec, spec_bytes, "s.body"))
};
static const struct sql_query DELETE_READY = {
    { "delete_ready", "SELECT {columns} FROM job WHERE id = $1 AND delete_time IS NOT NULL FOR UPDATE" },
    SQL_SCALAR(bool, "NOT EXISTS (SELECT 1 FROM checkpoint WHERE job = $1 AND state <> " SQL_CHECKPOINT_DELETED ")")
};
/* The tables, in the order in which they are emptied. What is left then goes with the job's own row: its attempts, and
 * the checkpoints that they name. A batch of a table that grows (`next`) starts behind the last key of the batch
 * before: while an older snapshot is open, the deleted rows stay in the index, and each batch would read them all. */
struct key {
    int64_t at[4];
};
static const struct table {
    struct sql sql;         /* $1 the job, $2 the rows of a batch */
    struct sql_query after; /* the same from a key on ($3, ...), which returns the last one's key */
} TABLES[] = {
    { .after = { { "delete_metrics",
                   "WITH gone AS (DELETE FROM metric_chunk WHERE ctid = ANY (ARRAY (SELECT ctid FROM metric_chunk "
                   "WHERE job = $1 AND (name, rank, attempt, number) > ($3, $4, $5, $6) "
                   "ORDER BY name, rank, attempt, number LIMIT $2)) RETURNING name, rank, attempt, number) "
                   "SELECT {columns} FROM gone ORDER BY name DESC, rank DESC, attempt DESC, number DESC LIMIT 1" },
                 SQL_ROW(struct key, SQL_COLUMN(struct key, at[0], "name"), SQL_COLUMN(struct key, at[1], "rank"),
                         SQL_COLUMN(struct key, at[2], "attempt"), SQL_COLUMN(struct key, at[3], "number")) } },
    /* A name that no other job has is deleted too. The writer that gives it to another job at the same time has a lock
     * on its row; this statement then fails, and is tried again later. Rows that were stored behind the last key keep
     * their name until the search begins again. */
    { .after = { { "delete_names",
                   "WITH gone AS (DELETE FROM job_metric WHERE ctid = ANY (ARRAY (SELECT j.ctid FROM job_metric j "
                   "WHERE j.job = $1 AND j.name > $3 AND NOT EXISTS (SELECT 1 FROM metric_chunk k WHERE k.job = j.job "
                   "AND k.name = j.name) ORDER BY j.name LIMIT $2)) RETURNING name), "
                   "unused AS (DELETE FROM metric_name m USING gone g WHERE m.id = g.name "
                   "AND NOT EXISTS (SELECT 1 FROM job_metric j WHERE j.name = m.id AND j.job <> $1)) "
                   "SELECT {columns} FROM gone ORDER BY name DESC LIMIT 1" },
                 SQL_ROW(struct key, SQL_COLUMN(struct key, at[0], "name")) } },
    { .after = { { "delete_logs", "WITH gone AS (DELETE FROM log_chunk WHERE ctid = ANY (ARRAY (SELECT ctid "
                                  "FROM log_chunk WHERE job = $1 AND number > $3 ORDER BY number LIMIT $2)) "
                                  "RETURNING number) SELECT {columns} FROM gone ORDER BY number DESC LIMIT 1" },
                 SQL_ROW(struct key, SQL_COLUMN(struct key, at[0], "number")) } },
    { .after = { { "delete_events", "WITH gone AS (DELETE FROM event WHERE ctid = ANY (ARRAY (SELECT ctid FROM event "
                                    "WHERE job = $1 AND number > $3 ORDER BY number LIMIT $2)) RETURNING number) "
                                    "SELECT {columns} FROM gone ORDER BY number DESC LIMIT 1" },
                 SQL_ROW(struct key, SQL_COLUMN(struct key, at[0], "number")) } },
    { .sql = { "delete_shards", "DELETE FROM shard WHERE ctid = ANY (ARRAY (SELECT h.ctid FROM shard h "
                                "JOIN checkpoint c ON c.id = h.checkpoint WHERE c.job = $1 LIMIT $2))" } },
    { .sql = { "delete_sequences", "DELETE FROM rank_sequence WHERE ctid = ANY (ARRAY "
                                   "(SELECT ctid FROM rank_sequence WHERE job = $1 LIMIT $2))" } },
    { .sql = { "delete_placements", "DELETE FROM placement WHERE ctid = ANY (ARRAY "
                                    "(SELECT ctid FROM placement WHERE job = $1 LIMIT $2))" } },
    { .sql = { "delete_checkpoints", "DELETE FROM checkpoint WHERE ctid = ANY (ARRAY (SELECT ctid FROM checkpoint c "
                                     "WHERE job = $1 AND NOT EXISTS (SELECT 1 FROM attempt "
                                     "WHERE from_checkpoint = c.id) LIMIT $2))" } },
};
#define N_TABLES ((int)(sizeof TABLES / sizeof *TABLES))
static const struct sql DELETE_JOB = { "delete_job", "DELETE FROM job WHERE id = $1" };

/* ---- the mark ---- */

static status_t refuse_needed(struct connection *c, int64_t job, struct err *e) {
    struct needed by;
    bool found;
    TRY(sql_find(c, NULL, &DELETE_NEEDED, ARGS(arg_int8(job)), &by, &found, e));
    return found ? err_set(e, ST_FAILED_PRECONDITION,
                           "jobs/%lld began with jobs/%lld/checkpoints/%lld: delete that job first", (long long)by.job,
                           (long long)job, (long long)by.checkpoint)
                 : ST_OK;
}

static status_t refuse_pinned(struct connection *c, int64_t job, struct err *e) {
    int64_t checkpoint;
    bool found;
    TRY(sql_find(c, NULL, &DELETE_PINNED, ARGS(arg_int8(job)), &checkpoint, &found, e));
    return found ? err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld is pinned: unpin it first",
                           (long long)job, (long long)checkpoint)
                 : ST_OK;
}

/* A job that begins with a checkpoint of this one takes the same lock, and finds the checkpoint no longer COMMITTED. */
static status_t mark_job(struct connection *c, int64_t job, struct err *e) {
    struct job_lock l;
    TRY(job_lock_marked(c, job, &l, e));
    if (l.state < STORE_JOB_SUCCEEDED)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld is %s: only a job that has ended can be deleted",
                       (long long)job, store_job_state_name(l.state));
    TRY(refuse_needed(c, job, e));
    TRY(refuse_pinned(c, job, e));
    return sql_execute(c, &DELETE_MARK, ARGS(arg_int8(job)), NULL, e);
}

status_t store_job_delete(struct store *s, int64_t epoch, int64_t job, struct err *e) {
    return STORE_WRITE(s, epoch, c, mark_job(c, job, e), e);
}

status_t store_job_ended_before(struct store *s, struct store_memory *m, int days, int limit, int64_t **ret,
                                size_t *ret_n, struct err *e) {
    return store_rows(s, m, &ENDED_BEFORE, ARGS(arg_int4(days), arg_int8(limit)), ret, ret_n, e);
}

/* ---- the rows ---- */

status_t store_job_delete_next(struct store *s, struct store_memory *m, int64_t after, struct store_deleted_job *ret,
                               struct err *e) {
    bool found;
    *ret = (struct store_deleted_job){ 0 };
    return store_find(s, m, &DELETE_NEXT, ARGS(arg_int8(after)), ret, &found, e);
}

static status_t delete_batch(struct connection *c, int64_t job, struct store_delete_at *at, bool *ret_any,
                             struct err *e) {
    const struct table *table = &TABLES[at->kind];
    struct key key;
    int64_t n;
    if (table->sql.name) {
        TRY(sql_execute(c, &table->sql, ARGS(arg_int8(job), arg_int8(STORE_DELETE_BATCH)), &n, e));
        *ret_any = n > 0;
        return ST_OK;
    }
    struct sql_arg args[7] = { arg_int8(job), arg_int8(STORE_DELETE_BATCH) };
    for (size_t i = 0; i < table->after.row->n_columns; i++)
        args[2 + i] = arg_int8(at->key[i]);
    TRY(sql_find(c, NULL, &table->after, args, &key, ret_any, e));
    if (*ret_any)
        memcpy(at->key, key.at, table->after.row->n_columns * sizeof *key.at);
    return ST_OK;
}

/* The first batch from there on that finds a row. */
static status_t delete_from(struct connection *c, int64_t job, struct store_delete_at *at, bool *ret_any,
                            struct err *e) {
    *ret_any = false;
    while (at->kind < N_TABLES) {
        TRY(delete_batch(c, job, at, ret_any, e));
        if (*ret_any)
            break;
        *at = (struct store_delete_at){ .kind = at->kind + 1 };
    }
    return ST_OK;
}

static status_t delete_rows(struct connection *c, int64_t job, const struct store_delete_at *at,
                            struct store_delete_at *ret_next, bool *ret_done, struct err *e) {
    bool ready, any;
    TRY(sql_get(c, NULL, &DELETE_READY, ARGS(arg_int8(job)), &ready, "no such job is marked as deleted", e));
    if (!ready)
        return err_set(e, ST_FAILED_PRECONDITION, "checkpoints of jobs/%lld still have files", (long long)job);
    *ret_done = false;
    *ret_next = *at;
    TRY(delete_from(c, job, ret_next, &any, e));
    if (any)
        return ST_OK;
    *ret_next = (struct store_delete_at){ 0 }; /* rows may have been stored behind it meanwhile */
    TRY(delete_from(c, job, ret_next, &any, e));
    if (any)
        return ST_OK;
    *ret_done = true;
    return sql_execute(c, &DELETE_JOB, ARGS(arg_int8(job)), NULL, e);
}

status_t store_job_delete_rows(struct store *s, int64_t epoch, int64_t job, struct store_delete_at *at, bool *ret_done,
                               struct err *e) {
    struct store_delete_at next = *at;
    TRY(STORE_WRITE(s, epoch, c, delete_rows(c, job, at, &next, ret_done, e), e));
    *at = next;
    return ST_OK;
}
