/* Checkpoints: reading them, marking their state, and garbage collection.
 *
 * CHECKPOINT_MARK_GARBAGE decides in one statement which checkpoints of a job to delete. It ranks the COMMITTED ones by
 * step and by validation loss, and keeps the keep_last newest, the keep_best best, those that the current attempt or a
 * forked job needs, pinned ones and the final one. WRITING ones of attempts that are over can never be completed. The
 * same rules, for one checkpoint and with a reason for the user, are in CHECKPOINT_NEEDED. Every change runs under the
 * lock of the job, so that a fork or a new attempt either sees the state DELETING, or is seen. */
#include "service/store/checkpoint.h"

#include "service/store/checkpoint_from.h"
#include "service/store/job_lock.h"
#include "service/store/job_origin.h"
#include "service/store/pool.h"

#include <stdio.h>

static const struct sql_column CHECKPOINT_COLUMNS[] = {
    SQL_COLUMN(struct store_checkpoint, id, "id"),
    SQL_COLUMN(struct store_checkpoint, job, "job"),
    SQL_COLUMN(struct store_checkpoint, attempt, "attempt"),
    SQL_COLUMN(struct store_checkpoint, step, "step"),
    SQL_COLUMN(struct store_checkpoint, state, "state"),
    SQL_COLUMN(struct store_checkpoint, bytes, "bytes"),
    SQL_COLUMN(struct store_checkpoint, shards, "shards"),
    SQL_COLUMN(struct store_checkpoint, world_size, "world_size"),
    SQL_COLUMN(struct store_checkpoint, directory, "directory"),
    SQL_COLUMN(struct store_checkpoint, weights_sha256, "weights_sha256"),
    SQL_COLUMN(struct store_checkpoint, reason, "reason"),
    SQL_COLUMN(struct store_checkpoint, create_time_us, "create_time"),
    SQL_COLUMN(struct store_checkpoint, commit_time_us, "commit_time"),
    SQL_COLUMN(struct store_checkpoint, unreadable_time_us, "unreadable_time"),
    SQL_COLUMN(struct store_checkpoint, has_validation_loss, "validation_loss IS NOT NULL"),
    SQL_COLUMN(struct store_checkpoint, validation_loss, "validation_loss"),
    SQL_COLUMN(struct store_checkpoint, pinned, "pinned"),
    SQL_COLUMN(struct store_checkpoint, final, "final"),
};
static const struct sql_row CHECKPOINT = SQL_ROW_OF(struct store_checkpoint, CHECKPOINT_COLUMNS);

static const struct sql_query CHECKPOINT_LIST = {
    { "checkpoint_list",
      "SELECT {columns} FROM checkpoint WHERE job = $1 AND id < $2 AND state <> " SQL_CHECKPOINT_DELETED " "
      "ORDER BY id DESC LIMIT $3" },
    &CHECKPOINT
};
static const struct sql_query CHECKPOINT_GET = {
    { "checkpoint_get", "SELECT {columns} FROM checkpoint WHERE job = $1 AND id = $2 "
                        "AND EXISTS (SELECT 1 FROM job WHERE id = $1 AND delete_time IS NULL)" },
    &CHECKPOINT
};
static const struct sql_query CHECKPOINT_NEWEST = {
    { "checkpoint_newest", "SELECT {columns} FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED " "
                           "ORDER BY step DESC, attempt DESC LIMIT 1" },
    &CHECKPOINT
};
static const struct sql_query CHECKPOINT_AT = {
    { "checkpoint_at", "SELECT {columns} FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED
                       " AND step = $2 ORDER BY attempt DESC LIMIT 1" },
    &CHECKPOINT
};
static const struct sql JOB_EXISTS = { "job_exists", "SELECT 1 FROM job WHERE id = $1 AND delete_time IS NULL" };
static const struct sql_query CHECKPOINT_CORRUPT = {
    { "checkpoint_corrupt",
      "UPDATE checkpoint SET state = " SQL_CHECKPOINT_CORRUPT ", reason = $3, unreadable_time = NULL "
      "WHERE state = " SQL_CHECKPOINT_COMMITTED " AND id = "
      "(SELECT from_checkpoint FROM attempt WHERE job = $1 AND number = $2) RETURNING {columns}" },
    SQL_SCALAR(int64_t, "step")
};
struct missing {
    int64_t job, id, step;
};
static const struct sql_query CHECKPOINT_MISSING = {
    { "checkpoint_missing",
      "UPDATE checkpoint SET state = " SQL_CHECKPOINT_MISSING ", reason = $3, "
      "unreadable_time = coalesce(unreadable_time, now()) "
      "WHERE state = " SQL_CHECKPOINT_COMMITTED " AND id = " CHECKPOINT_FROM " RETURNING {columns}" },
    SQL_ROW(struct missing, SQL_COLUMN(struct missing, job, "job"), SQL_COLUMN(struct missing, id, "id"),
            SQL_COLUMN(struct missing, step, "step"))
};
static const struct sql CHECKPOINT_VERIFIED = { "checkpoint_verified",
                                                "UPDATE checkpoint SET state = $3, reason = $4, unreadable_time = CASE "
                                                "WHEN $5 THEN coalesce(unreadable_time, now()) END "
                                                "WHERE job = $1 AND id = $2" };
static const struct sql ATTEMPT_FROM = {
    "attempt_from", "SELECT 1 FROM attempt WHERE job = $1 AND number = $2 AND from_checkpoint IS NOT NULL"
};
/* The columns that a user's change of a checkpoint needs. */
struct checkpoint_row {
    enum store_checkpoint_state state;
    bool pinned;
    int attempt;
    int64_t step;
};
static const struct sql_query CHECKPOINT_PINNED = {
    { "checkpoint_pinned", "SELECT {columns} FROM checkpoint WHERE job = $1 AND id = $2" },
    SQL_ROW(struct checkpoint_row, SQL_COLUMN(struct checkpoint_row, state, "state"),
            SQL_COLUMN(struct checkpoint_row, pinned, "pinned"), SQL_COLUMN(struct checkpoint_row, attempt, "attempt"),
            SQL_COLUMN(struct checkpoint_row, step, "step"))
};
static const struct sql CHECKPOINT_PIN = { "checkpoint_pin", "UPDATE checkpoint SET pinned = $2 WHERE id = $1" };
static const struct sql CHECKPOINT_MARK_GARBAGE = {
    "checkpoint_mark_garbage",
    "WITH j AS (SELECT attempt, state, greatest(keep_last, 1) AS keep_last, keep_best FROM job WHERE id = $1), "
    "ranked AS (SELECT id, validation_loss, row_number() OVER (ORDER BY step DESC, attempt DESC) AS newest, "
    "row_number() OVER (ORDER BY validation_loss NULLS LAST, step DESC) AS best "
    "FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED "), "
    "kept AS (SELECT id FROM ranked, j WHERE newest <= keep_last OR (best <= keep_best AND validation_loss IS NOT "
    "NULL) "
    "UNION ALL SELECT a.from_checkpoint FROM attempt a, j WHERE a.job = $1 AND a.number = j.attempt "
    "AND a.from_checkpoint IS NOT NULL "
    /* those that another job begins with, until it has one of its own or has ended */
    "UNION ALL SELECT r.id FROM ranked r JOIN job_origin o ON o.checkpoint = r.id JOIN job f ON f.id = o.job "
    "WHERE f.state < " SQL_JOB_SUCCEEDED " "
    "AND NOT EXISTS (SELECT 1 FROM checkpoint own WHERE own.job = f.id AND own.state = " SQL_CHECKPOINT_COMMITTED ")) "
    "UPDATE checkpoint k SET state = " SQL_CHECKPOINT_DELETING ", delete_time = now() FROM j WHERE k.job = $1 AND "
    "((k.state = " SQL_CHECKPOINT_COMMITTED " AND NOT k.pinned AND NOT k.final "
    "AND k.id NOT IN (SELECT id FROM kept)) "
    "OR (k.state = " SQL_CHECKPOINT_WRITING " AND (k.attempt < j.attempt OR j.state >= " SQL_JOB_SUCCEEDED ")))"
};
static const struct sql_query CHECKPOINT_DELETING = {
    { "checkpoint_deleting",
      "SELECT {columns} FROM checkpoint WHERE job = $1 AND state = " SQL_CHECKPOINT_DELETING " ORDER BY id" },
    &CHECKPOINT
};
static const struct sql_query CHECKPOINT_DELETING_NEXT = {
    { "checkpoint_deleting_next",
      "SELECT {columns} FROM checkpoint WHERE state = " SQL_CHECKPOINT_DELETING " AND job > $1 ORDER BY job LIMIT 1" },
    SQL_SCALAR(int64_t, "job")
};
/* A limited number of jobs, so that the statement's time is bounded. */
struct overdue {
    int64_t job;
    bool overdue;
};
static const struct sql_query CHECKPOINT_OVERDUE = {
    { "checkpoint_overdue",
      "SELECT {columns} FROM (SELECT * FROM job WHERE id > $1 AND delete_time IS NULL ORDER BY id LIMIT $2) j "
      "ORDER BY j.id" },
    SQL_ROW(struct overdue, SQL_COLUMN(struct overdue, job, "j.id"),
            SQL_COLUMN(struct overdue, overdue,
                       "(SELECT count(*) FROM checkpoint k WHERE k.job = j.id AND k.state = " SQL_CHECKPOINT_COMMITTED
                       ") > greatest(j.keep_last, 1) OR EXISTS (SELECT 1 FROM checkpoint k WHERE k.job = j.id "
                       "AND k.state = " SQL_CHECKPOINT_WRITING " AND (k.attempt < j.attempt "
                       "OR j.state >= " SQL_JOB_SUCCEEDED "))"))
};
static const struct sql CHECKPOINT_DELETED = { "checkpoint_deleted",
                                               "UPDATE checkpoint SET state = " SQL_CHECKPOINT_DELETED
                                               " WHERE id = $1 AND state = " SQL_CHECKPOINT_DELETING };

/* Why a checkpoint must not be deleted: the first reason that holds. */
struct needed {
    enum store_checkpoint_state state;
    char why[80];
    int attempt;
    int64_t step;
};
static const struct sql_query CHECKPOINT_NEEDED = {
    { "checkpoint_needed",
      "SELECT {columns} FROM checkpoint k JOIN job j ON j.id = k.job WHERE k.job = $1 AND k.id = $2" },
    SQL_ROW(struct needed, SQL_COLUMN(struct needed, state, "k.state"), SQL_COLUMN(struct needed, attempt, "k.attempt"),
            SQL_COLUMN(struct needed, step, "k.step"),
            SQL_COLUMN(struct needed, why,
                       "CASE WHEN k.pinned THEN 'is pinned: unpin it first' "
                       "WHEN k.state = " SQL_CHECKPOINT_WRITING " THEN 'is still being written' "
                       "WHEN j.state < " SQL_JOB_SUCCEEDED " AND k.id = (SELECT id FROM checkpoint WHERE job = $1 "
                       "AND state = " SQL_CHECKPOINT_COMMITTED " ORDER BY step DESC, attempt DESC LIMIT 1) "
                       "THEN 'is the one that its job would resume from' "
                       "WHEN j.state < " SQL_JOB_SUCCEEDED " AND EXISTS (SELECT 1 FROM attempt a WHERE a.job = j.id "
                       "AND a.number = j.attempt AND a.from_checkpoint = k.id) "
                       "THEN 'is the one that its job''s attempt started from' "
                       "WHEN EXISTS (SELECT 1 FROM job_origin o JOIN job f ON f.id = o.job WHERE o.checkpoint = k.id "
                       "AND f.state < " SQL_JOB_SUCCEEDED " AND NOT EXISTS (SELECT 1 FROM checkpoint own "
                       "WHERE own.job = f.id AND own.state = " SQL_CHECKPOINT_COMMITTED ")) "
                       "THEN 'is needed by another job that began with it' ELSE '' END"))
};
static const struct sql CHECKPOINT_DELETE = { "checkpoint_delete",
                                              "UPDATE checkpoint SET state = " SQL_CHECKPOINT_DELETING
                                              ", delete_time = now() WHERE id = $1" };

/* ---- read ---- */

static status_t no_checkpoint(int64_t job, int64_t id, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "jobs/%lld/checkpoints/%lld does not exist", (long long)job, (long long)id);
}

status_t store_checkpoint_list(struct store *s, struct store_memory *m, int64_t job, int64_t before, int limit,
                               struct store_checkpoint **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &CHECKPOINT_LIST,
                      ARGS(arg_int8(job), arg_int8(before > 0 ? before : INT64_MAX), arg_int8(limit)), ret, ret_n, e);
}

status_t store_checkpoint_get(struct store *s, struct store_memory *m, int64_t job, int64_t id,
                              struct store_checkpoint *ret, struct err *e) {
    bool found = false;
    if (id > 0)
        TRY(store_find(s, m, &CHECKPOINT_GET, ARGS(arg_int8(job), arg_int8(id)), ret, &found, e));
    return found ? ST_OK : no_checkpoint(job, id, e);
}

/* The row of a query for one COMMITTED checkpoint; of_step: " of step 7" for the error, or "". */
static status_t find_committed(struct connection *c, struct store_memory *m, const struct sql_query *q,
                               const struct sql_arg *args, int64_t job, const char *of_step,
                               struct store_checkpoint *ret, struct err *e) {
    bool found;
    int64_t jobs;
    TRY(sql_find(c, m, q, args, ret, &found, e));
    if (found)
        return ST_OK;
    TRY(sql_execute(c, &JOB_EXISTS, ARGS(arg_int8(job)), &jobs, e));
    if (jobs == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
    return err_set(e, ST_NOT_FOUND, "jobs/%lld has no committed checkpoint%s", (long long)job, of_step);
}

status_t store_checkpoint_newest(struct store *s, struct store_memory *m, int64_t job, struct store_checkpoint *ret,
                                 struct err *e) {
    return STORE_READ(s, c, find_committed(c, m, &CHECKPOINT_NEWEST, ARGS(arg_int8(job)), job, "", ret, e), e);
}

status_t store_checkpoint_at(struct store *s, struct store_memory *m, int64_t job, int64_t step,
                             struct store_checkpoint *ret, struct err *e) {
    const struct sql_arg *args = ARGS(arg_int8(job), arg_int8(step));
    char of_step[40];
    snprintf(of_step, sizeof of_step, " of step %lld", (long long)step);
    return STORE_READ(s, c, find_committed(c, m, &CHECKPOINT_AT, args, job, of_step, ret, e), e);
}

/* ---- corrupt, missing ---- */

static status_t mark_corrupt(struct connection *c, int64_t job, int attempt, const char *reason, struct err *e) {
    struct job_lock l;
    int64_t n, step;
    bool changed;
    TRY(job_lock(c, job, &l, e));
    TRY(sql_execute(c, &ATTEMPT_FROM, ARGS(arg_int8(job), arg_int4(attempt)), &n, e));
    if (n == 0)
        return err_set(e, ST_NOT_FOUND, "the attempt started from no checkpoint");
    TRY(sql_find(c, NULL, &CHECKPOINT_CORRUPT, ARGS(arg_int8(job), arg_int4(attempt), arg_sentence(reason)), &step,
                 &changed, e));
    if (!changed)
        return ST_OK;
    char sentence[440];
    snprintf(sentence, sizeof sentence, "step %lld: %s", (long long)step, reason);
    return event_write(c, job, attempt, "checkpoint_corrupt", sentence, NULL, NULL, e);
}

status_t store_checkpoint_corrupt(struct store *s, int64_t epoch, int64_t job, int attempt, const char *reason,
                                  struct err *e) {
    const char *why = reason && *reason ? reason : "its files do not match their digests";
    return STORE_WRITE(s, epoch, c, mark_corrupt(c, job, attempt, why, e), e);
}

static status_t mark_missing(struct connection *c, int64_t job, int attempt, const char *reason, struct err *e) {
    struct job_lock l;
    struct missing row;
    bool changed;
    TRY(origin_lock(c, job, e)); /* the job whose checkpoint it may be */
    TRY(job_lock(c, job, &l, e));
    TRY(sql_find(c, NULL, &CHECKPOINT_MISSING, ARGS(arg_int8(job), arg_int4(attempt), arg_sentence(reason)), &row,
                 &changed, e));
    if (!changed)
        return ST_OK;
    char sentence[500];
    snprintf(sentence, sizeof sentence, "jobs/%lld/checkpoints/%lld, step %lld: %s", (long long)row.job,
             (long long)row.id, (long long)row.step, reason);
    return event_write(c, job, attempt, "checkpoint_missing", sentence, NULL, NULL, e);
}

status_t store_checkpoint_missing(struct store *s, int64_t epoch, int64_t job, int attempt, const char *reason,
                                  struct err *e) {
    const char *why = reason && *reason ? reason : "its files cannot be read";
    return STORE_WRITE(s, epoch, c, mark_missing(c, job, attempt, why, e), e);
}

/* ---- verified ---- */

/* The state after a check. A checkpoint whose files cannot be read now keeps its state: that alone proves nothing. */
static enum store_checkpoint_state state_after(enum store_checkpoint_state state, enum store_check_result result) {
    if (result == STORE_CHECK_UNREADABLE)
        return state;
    return result == STORE_CHECK_GOOD ? STORE_CHECKPOINT_COMMITTED : STORE_CHECKPOINT_CORRUPT;
}

static bool is_verifiable(enum store_checkpoint_state state) {
    return state == STORE_CHECKPOINT_COMMITTED || state == STORE_CHECKPOINT_CORRUPT ||
           state == STORE_CHECKPOINT_MISSING;
}

static status_t write_verified(struct connection *c, int64_t job, int64_t id, enum store_check_result result,
                               const char *reason, struct err *e) {
    static const char *const kinds[] = { "checkpoint_verified", "checkpoint_corrupt", "checkpoint_unreadable" };
    struct job_lock l;
    struct checkpoint_row row;
    bool found;
    TRY(job_lock(c, job, &l, e));
    TRY(sql_find(c, NULL, &CHECKPOINT_PINNED, ARGS(arg_int8(job), arg_int8(id)), &row, &found, e));
    if (!found || !is_verifiable(row.state)) /* deleted meanwhile */
        return err_set(e, ST_NOT_FOUND, "jobs/%lld/checkpoints/%lld does not exist any more", (long long)job,
                       (long long)id);
    const bool unreadable = result == STORE_CHECK_UNREADABLE;
    if (unreadable && row.state == STORE_CHECKPOINT_CORRUPT)
        return ST_OK; /* the stored reason is more precise */
    const char *why = result == STORE_CHECK_GOOD ? "" : reason;
    TRY(sql_execute(c, &CHECKPOINT_VERIFIED,
                    ARGS(arg_int8(job), arg_int8(id), arg_int2(state_after(row.state, result)), arg_sentence(why),
                         arg_bool(unreadable)),
                    NULL, e));
    char sentence[500];
    snprintf(sentence, sizeof sentence, "step %lld, by a user%s%.400s", (long long)row.step,
             *why ? ": " : ", all of its bytes", why);
    return event_write(c, job, row.attempt, kinds[result], sentence, NULL, NULL, e);
}

status_t store_checkpoint_verified(struct store *s, int64_t epoch, int64_t job, int64_t id,
                                   enum store_check_result result, const char *reason, struct err *e) {
    const char *why = reason && *reason ? reason : "no reason was given";
    return STORE_WRITE(s, epoch, c, write_verified(c, job, id, result, why, e), e);
}

/* ---- pin, delete ---- */

/* A user's change, as an event of the checkpoint's attempt. */
static status_t write_user_event(struct connection *c, int64_t job, int attempt, const char *kind, int64_t step,
                                 struct err *e) {
    char sentence[80];
    snprintf(sentence, sizeof sentence, "step %lld, by a user", (long long)step);
    return event_write(c, job, attempt, kind, sentence, NULL, NULL, e);
}

static status_t pin_checkpoint(struct connection *c, int64_t job, int64_t id, bool pinned, struct err *e) {
    struct job_lock l;
    struct checkpoint_row row;
    bool found;
    TRY(job_lock(c, job, &l, e));
    TRY(sql_find(c, NULL, &CHECKPOINT_PINNED, ARGS(arg_int8(job), arg_int8(id)), &row, &found, e));
    if (!found)
        return no_checkpoint(job, id, e);
    if (pinned && row.state != STORE_CHECKPOINT_COMMITTED)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld is not COMMITTED", (long long)job,
                       (long long)id);
    if (pinned == row.pinned)
        return ST_OK;
    TRY(sql_execute(c, &CHECKPOINT_PIN, ARGS(arg_int8(id), arg_bool(pinned)), NULL, e));
    if (!pinned)
        TRY(sql_execute(c, &CHECKPOINT_MARK_GARBAGE, ARGS(arg_int8(job)), NULL, e));
    return write_user_event(c, job, row.attempt, pinned ? "checkpoint_pinned" : "checkpoint_unpinned", row.step, e);
}

status_t store_checkpoint_pin(struct store *s, int64_t epoch, int64_t job, int64_t id, bool pinned, struct err *e) {
    return STORE_WRITE(s, epoch, c, pin_checkpoint(c, job, id, pinned, e), e);
}

static status_t delete_checkpoint(struct connection *c, int64_t job, int64_t id, struct err *e) {
    struct job_lock l;
    struct needed row;
    bool found;
    TRY(job_lock(c, job, &l, e));
    TRY(sql_find(c, NULL, &CHECKPOINT_NEEDED, ARGS(arg_int8(job), arg_int8(id)), &row, &found, e));
    if (!found)
        return no_checkpoint(job, id, e);
    if (row.state == STORE_CHECKPOINT_DELETING || row.state == STORE_CHECKPOINT_DELETED)
        return ST_OK;
    if (*row.why)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld/checkpoints/%lld %s", (long long)job, (long long)id,
                       row.why);
    TRY(sql_execute(c, &CHECKPOINT_DELETE, ARGS(arg_int8(id)), NULL, e));
    return write_user_event(c, job, row.attempt, "checkpoint_deleted", row.step, e);
}

status_t store_checkpoint_delete(struct store *s, int64_t epoch, int64_t job, int64_t id, struct err *e) {
    return STORE_WRITE(s, epoch, c, delete_checkpoint(c, job, id, e), e);
}

/* ---- garbage collection ---- */

status_t store_checkpoint_deleting(struct store *s, struct store_memory *m, int64_t job, struct store_checkpoint **ret,
                                   size_t *ret_n, struct err *e) {
    return store_rows(s, m, &CHECKPOINT_DELETING, ARGS(arg_int8(job)), ret, ret_n, e);
}

status_t store_checkpoint_deleting_next(struct store *s, int64_t after, int64_t *ret_job, struct err *e) {
    bool found;
    *ret_job = 0;
    return store_find(s, NULL, &CHECKPOINT_DELETING_NEXT, ARGS(arg_int8(after)), ret_job, &found, e);
}

status_t store_checkpoint_overdue(struct store *s, struct store_memory *m, int64_t after, int64_t **ret, size_t *ret_n,
                                  int64_t *ret_last, struct err *e) {
    struct overdue *rows;
    int64_t *jobs;
    size_t n;
    TRY(store_rows(s, m, &CHECKPOINT_OVERDUE, ARGS(arg_int8(after), arg_int8(STORE_OVERDUE_JOBS)), &rows, &n, e));
    jobs = store_memory_get(m, n, sizeof *jobs);
    *ret_n = 0;
    for (size_t i = 0; i < n; i++)
        if (rows[i].overdue)
            jobs[(*ret_n)++] = rows[i].job;
    *ret = jobs;
    *ret_last = n == STORE_OVERDUE_JOBS ? rows[n - 1].job : 0;
    return ST_OK;
}

static status_t mark_garbage(struct connection *c, struct store_memory *m, int64_t job, struct store_checkpoint **ret,
                             size_t *ret_n, struct err *e) {
    struct job_lock l;
    TRY(job_lock(c, job, &l, e));
    TRY(sql_execute(c, &CHECKPOINT_MARK_GARBAGE, ARGS(arg_int8(job)), NULL, e));
    return sql_rows(c, m, &CHECKPOINT_DELETING, ARGS(arg_int8(job)), ret, ret_n, e);
}

status_t store_checkpoint_mark_garbage(struct store *s, struct store_memory *m, int64_t epoch, int64_t job,
                                       struct store_checkpoint **ret, size_t *ret_n, struct err *e) {
    return STORE_WRITE(s, epoch, c, mark_garbage(c, m, job, ret, ret_n, e), e);
}

status_t store_checkpoint_deleted(struct store *s, int64_t epoch, int64_t id, struct err *e) {
    return store_execute(s, epoch, &CHECKPOINT_DELETED, ARGS(arg_int8(id)), NULL, e);
}
