#include "service/store/queue.h"

#include "service/store/pool.h"
#include "service/store/sql.h"
#include "service/store/state_sql.h"

/* The columns of the limits, for the member `m` of a row. of("name"): the expression of a column. */
#define LIMITS(type, m, of)                                                                                            \
    SQL_COLUMN(type, m.quota[STORE_SLOT_CPU], of("cpu_quota")),                                                        \
        SQL_COLUMN(type, m.quota[STORE_SLOT_CUDA], of("cuda_quota")),                                                  \
        SQL_COLUMN(type, m.borrow[STORE_SLOT_CPU], of("cpu_borrow")),                                                  \
        SQL_COLUMN(type, m.borrow[STORE_SLOT_CUDA], of("cuda_borrow")),                                                \
        SQL_COLUMN(type, m.lend[STORE_SLOT_CPU], of("cpu_lend")),                                                      \
        SQL_COLUMN(type, m.lend[STORE_SLOT_CUDA], of("cuda_lend")),                                                    \
        SQL_COLUMN(type, m.user[STORE_SLOT_CPU], of("cpu_user")),                                                      \
        SQL_COLUMN(type, m.user[STORE_SLOT_CUDA], of("cuda_user"))
#define COLUMN(name)   name
#define OF_QUEUE(name) "coalesce(r." name ", -1)"
#define SETTINGS_NAMES                                                                                                 \
    "cohort, weight, max_priority, cpu_quota, cuda_quota, cpu_borrow, cuda_borrow, cpu_lend, cuda_lend, cpu_user, "    \
    "cuda_user"
#define ARGS_OF_SETTINGS(x)                                                                                            \
    arg_text((x)->cohort), arg_int4((x)->weight), arg_int4((x)->max_priority), arg_int4((x)->quota[STORE_SLOT_CPU]),   \
        arg_int4((x)->quota[STORE_SLOT_CUDA]), arg_int4((x)->borrow[STORE_SLOT_CPU]),                                  \
        arg_int4((x)->borrow[STORE_SLOT_CUDA]), arg_int4((x)->lend[STORE_SLOT_CPU]),                                   \
        arg_int4((x)->lend[STORE_SLOT_CUDA]), arg_int4((x)->user[STORE_SLOT_CPU]),                                     \
        arg_int4((x)->user[STORE_SLOT_CUDA])

static const struct sql_column ROW_COLUMNS[] = {
    SQL_COLUMN(struct store_queue_row, name, "name"),
    SQL_COLUMN(struct store_queue_row, settings.cohort, "cohort"),
    SQL_COLUMN(struct store_queue_row, settings.weight, "weight"),
    SQL_COLUMN(struct store_queue_row, settings.max_priority, "max_priority"),
    LIMITS(struct store_queue_row, settings, COLUMN),
    SQL_COLUMN(struct store_queue_row, average[STORE_SLOT_CPU], "cpu_average"),
    SQL_COLUMN(struct store_queue_row, average[STORE_SLOT_CUDA], "cuda_average"),
    SQL_COLUMN(struct store_queue_row, average_age_ms,
               "greatest(0, extract(epoch FROM now() - average_time) * 1000)::int8"),
};
static const struct sql_row ROW = SQL_ROW_OF(struct store_queue_row, ROW_COLUMNS);

/* Two calls must not both find space for the last queue. */
static const struct sql QUEUE_LOCK = { "queue_lock", "LOCK TABLE queue IN SHARE ROW EXCLUSIVE MODE" };
static const struct sql_query QUEUE_FULL = { { "queue_full", "SELECT {columns} FROM queue" },
                                             SQL_SCALAR(bool, "count(*) >= $1") };
static const struct sql QUEUE_CREATE = { "queue_create", "INSERT INTO queue (name, " SETTINGS_NAMES
                                                         ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
                                                         "$12) ON CONFLICT (name) DO NOTHING" };
static const struct sql QUEUE_SET = { "queue_set", "UPDATE queue SET (" SETTINGS_NAMES
                                                   ") = ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) "
                                                   "WHERE name = $1" };
static const struct sql_query QUEUE_IN_USE = {
    { "queue_in_use", "SELECT {columns} FROM job WHERE state < " SQL_JOB_SUCCEEDED " AND queue = $1 LIMIT 1" },
    SQL_SCALAR(int64_t, "id")
};
static const struct sql QUEUE_DELETE = { "queue_delete", "DELETE FROM queue WHERE name = $1" };
static const struct sql_query QUEUE_GET = { { "queue_get", "SELECT {columns} FROM queue WHERE name = $1" }, &ROW };
static const struct sql_query QUEUE_LOCK_ROW = {
    { "queue_lock_row", "SELECT {columns} FROM queue WHERE name = $1 FOR UPDATE" }, &ROW
};
static const struct sql_query QUEUE_ALL = { { "queue_all", "SELECT {columns} FROM queue ORDER BY name" }, &ROW };
static const struct sql QUEUE_AVERAGES = {
    "queue_averages", "UPDATE queue SET cpu_average = u.cpu, cuda_average = u.cuda, average_time = now() "
                      "FROM unnest($1::text[], $2::float8[], $3::float8[]) AS u (name, cpu, cuda) "
                      "WHERE queue.name = u.name"
};

static status_t no_queue(const char *name, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "the queue '%s' was not created", name);
}

static status_t create(struct connection *c, const char *name, const struct store_queue_settings *x, struct err *e) {
    bool full;
    int64_t n;
    TRY(sql_execute(c, &QUEUE_LOCK, NULL, NULL, e));
    TRY(sql_get(c, NULL, &QUEUE_FULL, ARGS(arg_int8(STORE_MAX_QUEUES)), &full,
                "PostgreSQL returned no count of the queues", e));
    if (full)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "there are %d queues already: delete one first", STORE_MAX_QUEUES);
    TRY(sql_execute(c, &QUEUE_CREATE, ARGS(arg_text(name), ARGS_OF_SETTINGS(x)), &n, e));
    return n > 0 ? ST_OK : err_set(e, ST_ALREADY_EXISTS, "the queue '%s' exists already", name);
}

status_t store_queue_create(struct store *s, int64_t epoch, const char *name,
                            const struct store_queue_settings *settings, struct err *e) {
    return STORE_WRITE(s, epoch, c, create(c, name, settings, e), e);
}

static status_t set(struct connection *c, const char *name, store_queue_change *change, const void *ctx,
                    struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_queue_row row;
    bool found;
    TRY(sql_find(c, m, &QUEUE_LOCK_ROW, ARGS(arg_text(name)), &row, &found, e));
    if (!found)
        return no_queue(name, e);
    TRY(change(ctx, &row.settings, e));
    return sql_execute(c, &QUEUE_SET, ARGS(arg_text(name), ARGS_OF_SETTINGS(&row.settings)), NULL, e);
}

status_t store_queue_set(struct store *s, int64_t epoch, const char *name, store_queue_change *change, const void *ctx,
                         struct err *e) {
    return STORE_WRITE(s, epoch, c, set(c, name, change, ctx, e), e);
}

static status_t delete_queue(struct connection *c, const char *name, struct err *e) {
    bool used;
    int64_t job, n;
    TRY(sql_find(c, NULL, &QUEUE_IN_USE, ARGS(arg_text(name)), &job, &used, e));
    if (used)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "queue '%s' has jobs that have not ended, job %lld among them: wait for them, or cancel them",
                       name, (long long)job);
    TRY(sql_execute(c, &QUEUE_DELETE, ARGS(arg_text(name)), &n, e));
    return n > 0 ? ST_OK : no_queue(name, e);
}

status_t store_queue_delete(struct store *s, int64_t epoch, const char *name, struct err *e) {
    return STORE_WRITE(s, epoch, c, delete_queue(c, name, e), e);
}

status_t store_queue_get(struct store *s, struct store_memory *m, const char *name, struct store_queue_row *ret,
                         struct err *e) {
    bool found;
    TRY(store_find(s, m, &QUEUE_GET, ARGS(arg_text(name)), ret, &found, e));
    return found ? ST_OK : no_queue(name, e);
}

status_t store_queue_all(struct store *s, struct store_memory *m, struct store_queue_row **ret, size_t *ret_n,
                         struct err *e) {
    return store_rows(s, m, &QUEUE_ALL, NULL, ret, ret_n, e);
}

status_t store_queue_averages(struct store *s, int64_t epoch, const char *const *names, const double *cpu,
                              const double *cuda, size_t n, struct err *e) {
    return store_execute(s, epoch, &QUEUE_AVERAGES,
                         ARGS(arg_texts(names, n), arg_doubles(cpu, n), arg_doubles(cuda, n)), NULL, e);
}

/* One scan of the jobs that have not ended, by the index on their state. Ranks are counted from the open attempts,
 * which are few compared with the waiting jobs. */
static const struct sql_query QUEUE_LIST = {
    { "queue_list",
      "WITH used AS (SELECT a.job, count(*) AS n FROM attempt a JOIN placement p ON p.job = a.job AND p.attempt = "
      "a.number "
      "WHERE a.state < " SQL_ATTEMPT_ENDED " AND p.end_time IS NULL GROUP BY a.job), "
      "q AS (SELECT j.queue, count(*) FILTER (WHERE j.state = " SQL_JOB_QUEUED ") AS waiting, "
      "count(*) FILTER (WHERE j.state NOT IN (" SQL_JOB_QUEUED ", " SQL_JOB_PAUSED ")) AS running, "
      "count(*) FILTER (WHERE j.state = " SQL_JOB_PAUSED ") AS paused, "
      "coalesce(sum(u.n) FILTER (WHERE j.accelerator = 'cpu'), 0)::int8 AS cpu, "
      "coalesce(sum(u.n) FILTER (WHERE j.accelerator = 'cuda'), 0)::int8 AS cuda, "
      "coalesce(sum(j.world_size) FILTER (WHERE j.state = " SQL_JOB_QUEUED
      " AND j.accelerator = 'cpu'), 0)::int8 AS cpu_wanted, "
      "coalesce(sum(j.world_size) FILTER (WHERE j.state = " SQL_JOB_QUEUED " AND j.accelerator = 'cuda'), 0)::int8 "
      "AS cuda_wanted, min(j.id) FILTER (WHERE j.state = " SQL_JOB_QUEUED ") AS oldest "
      "FROM job j LEFT JOIN used u ON u.job = j.id "
      "WHERE j.state < " SQL_JOB_SUCCEEDED
      " AND j.delete_time IS NULL AND j.queue > $1 GROUP BY j.queue ORDER BY j.queue LIMIT $2), "
      "r AS (SELECT * FROM queue WHERE name > $1 ORDER BY name LIMIT $2) "
      "SELECT {columns} FROM q FULL JOIN r ON r.name = q.queue LEFT JOIN job o ON o.id = q.oldest "
      "ORDER BY coalesce(q.queue, r.name) LIMIT $2" },
    SQL_ROW(struct store_queue, SQL_COLUMN(struct store_queue, name, "coalesce(q.queue, r.name)"),
            SQL_COLUMN(struct store_queue, created, "r.name IS NOT NULL"),
            SQL_COLUMN(struct store_queue, settings.cohort, "coalesce(r.cohort, '')"),
            SQL_COLUMN(struct store_queue, settings.weight, "coalesce(r.weight, 1)"),
            SQL_COLUMN(struct store_queue, settings.max_priority, "coalesce(r.max_priority, 1000000)"),
            LIMITS(struct store_queue, settings, OF_QUEUE),
            SQL_COLUMN(struct store_queue, average[STORE_SLOT_CPU], "coalesce(r.cpu_average, 0)"),
            SQL_COLUMN(struct store_queue, average[STORE_SLOT_CUDA], "coalesce(r.cuda_average, 0)"),

            SQL_COLUMN(struct store_queue, waiting, "coalesce(q.waiting, 0)"),
            SQL_COLUMN(struct store_queue, running, "coalesce(q.running, 0)"),
            SQL_COLUMN(struct store_queue, paused, "coalesce(q.paused, 0)"),
            SQL_COLUMN(struct store_queue, used[STORE_SLOT_CPU], "coalesce(q.cpu, 0)"),
            SQL_COLUMN(struct store_queue, used[STORE_SLOT_CUDA], "coalesce(q.cuda, 0)"),
            SQL_COLUMN(struct store_queue, wanted[STORE_SLOT_CPU], "coalesce(q.cpu_wanted, 0)"),
            SQL_COLUMN(struct store_queue, wanted[STORE_SLOT_CUDA], "coalesce(q.cuda_wanted, 0)"),
            SQL_COLUMN(struct store_queue, oldest, "coalesce(q.oldest, 0)"),
            SQL_COLUMN(struct store_queue, oldest_time_us, "o.create_time"))
};

status_t store_queue_list(struct store *s, struct store_memory *m, const char *after, int limit,
                          struct store_queue **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &QUEUE_LIST, ARGS(arg_text(after ? after : ""), arg_int8(limit)), ret, ret_n, e);
}
