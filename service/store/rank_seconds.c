/* The view rank_seconds (migrations/0026) divides the time of each rank. */
#include "service/store/rank_seconds.h"

#include "service/store/pool.h"
#include "service/store/sql.h"

#define SECONDS(type, cause, function) SQL_COLUMN(struct type, sum.cause, function "(" #cause ")")
#define ALL_SECONDS(type, function)                                                                                    \
    SECONDS(type, start, function), SECONDS(type, data, function), SECONDS(type, compute, function),                   \
        SECONDS(type, waiting, function), SECONDS(type, checkpoint, function), SECONDS(type, repeated, function),      \
        SECONDS(type, idle, function)

static const struct sql_query ATTEMPT_SECONDS = {
    { "attempt_seconds", "SELECT {columns} FROM rank_seconds WHERE job = $1 GROUP BY attempt ORDER BY attempt" },
    SQL_ROW(struct store_attempt_seconds, SQL_COLUMN(struct store_attempt_seconds, attempt, "attempt"),
            SQL_COLUMN(struct store_attempt_seconds, ranks, "count(*)::int"),
            SQL_COLUMN(struct store_attempt_seconds, wall, "max(wall)"), ALL_SECONDS(store_attempt_seconds, "sum"))
};
static const struct sql_query RANK_SECONDS = {
    { "rank_seconds", "SELECT {columns} FROM rank_seconds WHERE job = $1 AND attempt = $2 ORDER BY rank" },
    SQL_ROW(struct store_one_rank_seconds, SQL_COLUMN(struct store_one_rank_seconds, rank, "rank"),
            ALL_SECONDS(store_one_rank_seconds, ""))
};
/* The sums are made job by job, so that the planner looks each job up by its key: a join with the view would read the
 * rows of all jobs. */
static const struct sql_query JOB_SECONDS = {
    { "job_seconds",
      "SELECT {columns} FROM unnest($1) AS j(id) CROSS JOIN LATERAL "
      "(SELECT sum(start) AS start, sum(data) AS data, sum(compute - undivided) AS compute, sum(waiting) AS waiting, "
      "sum(checkpoint) AS checkpoint, sum(repeated) AS repeated, sum(idle) AS idle FROM rank_seconds "
      "WHERE job = j.id HAVING count(*) > 0) s ORDER BY j.id" },
    SQL_ROW(struct store_job_seconds, SQL_COLUMN(struct store_job_seconds, job, "j.id"),
            ALL_SECONDS(store_job_seconds, ""))
};

status_t store_attempt_seconds(struct store *s, struct store_memory *m, int64_t job, struct store_attempt_seconds **ret,
                               size_t *ret_n, struct err *e) {
    return store_rows(s, m, &ATTEMPT_SECONDS, ARGS(arg_int8(job)), ret, ret_n, e);
}

status_t store_rank_seconds(struct store *s, struct store_memory *m, int64_t job, int attempt,
                            struct store_one_rank_seconds **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &RANK_SECONDS, ARGS(arg_int8(job), arg_int4(attempt)), ret, ret_n, e);
}

status_t store_job_seconds(struct store *s, struct store_memory *m, const int64_t *jobs, size_t n,
                           struct store_job_seconds **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &JOB_SECONDS, ARGS(arg_int8s(jobs, n)), ret, ret_n, e);
}
