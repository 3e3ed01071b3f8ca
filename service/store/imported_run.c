/* All rows of a new run are inserted in one transaction. If two clients import one run at the same time, the unique
 * index on the source and id refuses the second transaction, which then finds the job of the first. */
#include "service/store/imported_run.h"

#include "base/utf8.h"
#include "service/store/job_label.h"
#include "service/store/job_lock.h"
#include "service/store/pool.h"
#include "service/store/state_sql.h"

#include <string.h>

enum { EVENTS_MAX = 20, EVENT_BYTES = 1000 };

struct found_run {
    int64_t job, rows, end_time_us;
    bool deleted;
};
static const struct sql_query RUN_FIND = {
    { "imported_run_find", "SELECT {columns} FROM imported_run i JOIN job j ON j.id = i.job LEFT JOIN rank_sequence s "
                           "ON s.job = i.job AND s.attempt = 1 AND s.rank = 0 WHERE i.source = $1 AND i.id = $2" },
    SQL_ROW(struct found_run, SQL_COLUMN(struct found_run, job, "i.job"),
            SQL_COLUMN(struct found_run, rows, "coalesce(s.sequence, 0)"),
            SQL_COLUMN(struct found_run, end_time_us, "j.end_time"),
            SQL_COLUMN(struct found_run, deleted, "j.delete_time IS NOT NULL"))
};
static const struct sql_query RUN_JOB = {
    { "imported_run_job",
      "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, "
      "attempt, steps, keep_last, "
      "keep_best, create_time, start_time, end_time, user_name) "
      "VALUES ($1, 'default', $2, 0, 1, 'cpu', 0, 1, 0, 0, 0, $3, $3, $4, $5) RETURNING {columns}" },
    SQL_SCALAR(int64_t, "id")
};
static const struct sql RUN_SPEC = { "imported_run_spec", "INSERT INTO job_spec (job, body) VALUES ($1, $2)" };
static const struct sql RUN_EVENT = { "imported_run_event",
                                      "INSERT INTO event (job, number, attempt, kind, state, message) "
                                      "VALUES ($1, 1, 1, 'imported', $2, $3)" };
static const struct sql RUN_ATTEMPT = {
    "imported_run_attempt",
    "INSERT INTO attempt (job, number, state, epoch, from_step, create_time, start_time, end_time) "
    "VALUES ($1, 1, " SQL_ATTEMPT_ENDED ", $2, 0, $3, $3, $4)"
};
static const struct sql RUN_PLACEMENT = {
    "imported_run_placement", "INSERT INTO placement (job, attempt, rank, executor, end_time, cause, message) "
                              "VALUES ($1, 1, 0, '" STORE_IMPORT_EXECUTOR "', $2, 0, 'the run was imported')"
};
static const struct sql RUN_ROW = { "imported_run_row",
                                    "INSERT INTO imported_run (job, source, id) VALUES ($1, $2, $3)" };
static const struct sql RUN_END = { "imported_run_end",
                                    "WITH i AS (UPDATE imported_run SET import_time = now() WHERE job = $1), a AS "
                                    "(UPDATE attempt SET end_time = $2 WHERE job = $1 AND number = 1) "
                                    "UPDATE job SET end_time = $2 WHERE id = $1 AND end_time < $2" };
static const struct sql_query JOB_IMPORTED = { { "job_imported", "SELECT {columns} FROM imported_run WHERE job = $1" },
                                               SQL_SCALAR(bool, "count(*) > 0") };

struct result {
    int64_t job, rows;
    bool created;
};

static status_t write_texts(struct connection *c, int64_t job, const char *kind, char *const *texts, size_t n,
                            struct err *e) {
    for (size_t i = 0; i < n; i++)
        TRY(event_write(c, job, 1, kind, texts[i], NULL, NULL, e));
    return ST_OK;
}

static status_t insert_run(struct connection *c, int64_t epoch, const struct store_imported_run *in, struct result *ret,
                           struct err *e) {
    const struct sql_arg start = arg_time(in->start_time_us), end = arg_time(in->end_time_us);
    TRY(sql_get(c, NULL, &RUN_JOB, ARGS(arg_text(in->name), arg_int2(in->state), start, end, arg_text(in->user)),
                &ret->job, "PostgreSQL returned no number of a job", e));
    const struct sql_arg job = arg_int8(ret->job);
    TRY(sql_execute(c, &RUN_SPEC, ARGS(job, arg_bytes(in->spec, in->spec_bytes)), NULL, e));
    TRY(job_labels_insert(c, ret->job, in->labels, in->n_labels, e));
    TRY(sql_execute(c, &RUN_EVENT, ARGS(job, arg_int2(in->state), arg_text(in->source)), NULL, e));
    TRY(sql_execute(c, &RUN_ATTEMPT, ARGS(job, arg_int8(epoch), start, end), NULL, e));
    TRY(sql_execute(c, &RUN_PLACEMENT, ARGS(job, end), NULL, e));
    TRY(sql_execute(c, &RUN_ROW, ARGS(job, arg_text(in->source), arg_text(in->id)), NULL, e));
    TRY(write_texts(c, ret->job, "parameters", in->parameters, in->n_parameters, e));
    TRY(write_texts(c, ret->job, "tags", in->tags, in->n_tags, e));
    ret->created = true;
    return ST_OK;
}

static status_t find_or_insert(struct connection *c, int64_t epoch, const struct store_imported_run *in,
                               struct result *ret, struct err *e) {
    struct found_run found;
    bool exists;
    *ret = (struct result){ 0 };
    TRY(sql_find(c, NULL, &RUN_FIND, ARGS(arg_text(in->source), arg_text(in->id)), &found, &exists, e));
    if (!exists)
        return insert_run(c, epoch, in, ret, e);
    if (found.deleted)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "jobs/%lld, the job of this run, is being deleted: import the run again in a moment",
                       (long long)found.job);
    ret->job = found.job;
    ret->rows = found.rows;
    if (found.end_time_us >= in->end_time_us)
        return ST_OK;
    struct job_lock l;
    TRY(job_lock(c, found.job, &l, e));
    return sql_execute(c, &RUN_END, ARGS(arg_int8(found.job), arg_time(in->end_time_us)), NULL, e);
}

/* ---- what comes from a client ---- */

static bool texts_valid(char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strlen(texts[i]) > EVENT_BYTES || !utf8_valid(texts[i], strlen(texts[i])))
            return false;
    return n <= EVENTS_MAX;
}

static status_t check(const struct store_imported_run *in, struct err *e) {
    const size_t n_source = strlen(in->source), n_id = strlen(in->id);
    if (n_source < 1 || n_source > 20 || strspn(in->source, "abcdefghijklmnopqrstuvwxyz") != n_source)
        return err_set(e, ST_INVALID_ARGUMENT, "run.source: has not 1 to 20 lower-case letters");
    if (n_id < 1 || n_id > 200 || !utf8_valid(in->id, n_id))
        return err_set(e, ST_INVALID_ARGUMENT, "run.id: has not 1 to 200 bytes of UTF-8");
    if (in->state != STORE_JOB_SUCCEEDED && in->state != STORE_JOB_FAILED && in->state != STORE_JOB_CANCELLED)
        return err_set(e, ST_INVALID_ARGUMENT, "run.state: is not SUCCEEDED, FAILED or CANCELLED");
    if (in->start_time_us <= 0 || in->end_time_us < in->start_time_us)
        return err_set(e, ST_INVALID_ARGUMENT, "run.start_time: is missing, or after run.end_time");
    if (!texts_valid(in->parameters, in->n_parameters) || !texts_valid(in->tags, in->n_tags))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "run.parameters, run.tags: more than %d texts, or one has more than %d "
                       "bytes of UTF-8",
                       EVENTS_MAX, EVENT_BYTES);
    return ST_OK;
}

status_t store_imported_run(struct store *s, int64_t epoch, const struct store_imported_run *run, int64_t *ret_job,
                            int64_t *ret_rows, bool *ret_created, struct err *e) {
    struct result result;
    TRY(check(run, e));
    status_t st = STORE_WRITE(s, epoch, c, find_or_insert(c, epoch, run, &result, e), e);
    if (st == ST_ALREADY_EXISTS)
        st = STORE_WRITE(s, epoch, c, find_or_insert(c, epoch, run, &result, e), e);
    TRY(st);
    *ret_job = result.job;
    *ret_rows = result.rows;
    *ret_created = result.created;
    return ST_OK;
}

status_t job_imported(struct connection *c, int64_t job, bool *ret, struct err *e) {
    return sql_get(c, NULL, &JOB_IMPORTED, ARGS(arg_int8(job)), ret, "PostgreSQL returned no count", e);
}

status_t store_job_imported(struct store *s, int64_t job, bool *ret, struct err *e) {
    return STORE_READ(s, c, job_imported(c, job, ret, e), e);
}
