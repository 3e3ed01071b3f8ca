#include "service/store/sweep_trial.h"

#include "service/store/pool.h"
#include "service/store/trial_insert.h"

static const struct sql TRIAL_INSERT = {
    "trial_insert", "WITH s AS (UPDATE sweep SET created = created + 1 WHERE id = $1 AND state = " SQL_SWEEP_RUNNING
                    " AND created = $2 - 1 RETURNING id) "
                    "INSERT INTO sweep_trial (sweep, number, job) SELECT id, $2, $3 FROM s"
};

static const struct sql_column TRIAL_COLUMNS[] = {
    SQL_COLUMN(struct store_trial, number, "t.number"),
    SQL_COLUMN(struct store_trial, job, "t.job"),
    SQL_COLUMN(struct store_trial, state, "coalesce(j.state, t.state)"),
    SQL_COLUMN(struct store_trial, step, "coalesce(j.step, t.step)"),
    SQL_COLUMN(struct store_trial, reason, "coalesce(j.reason, t.reason)"),
    SQL_COLUMN(struct store_trial, rungs, "t.rungs"),
    SQL_COLUMN(struct store_trial, stop_step, "t.stop_step"),
    SQL_COLUMN(struct store_trial, stop_reason, "t.stop_reason"),
    SQL_COLUMN(struct store_trial, open, "t.state IS NULL"),
    SQL_COLUMN(struct store_trial, has_metric, "t.metric IS NOT NULL"),
    SQL_COLUMN(struct store_trial, metric, "t.metric"),
};
static const struct sql_row TRIAL = SQL_ROW_OF(struct store_trial, TRIAL_COLUMNS);
/* A job that is marked as deleted counts as deleted. */
#define FROM_TRIAL                                                                                                     \
    "SELECT {columns} FROM sweep_trial t LEFT JOIN job j ON j.id = t.job AND j.delete_time IS NULL WHERE t.sweep = "   \
    "$1 "
static const struct sql_query TRIAL_OPEN = { { "trial_open", FROM_TRIAL "AND t.state IS NULL ORDER BY t.number" },
                                             &TRIAL };
static const struct sql_query TRIAL_LIST = {
    { "trial_list", FROM_TRIAL "AND t.number > $2 ORDER BY t.number LIMIT $3" }, &TRIAL
};
/* Of equal metrics the lower number is better, so that the order in which trials end does not matter. */
static const struct sql TRIAL_END = {
    "trial_end", "WITH t AS (UPDATE sweep_trial SET state = $3, step = $4, reason = $5, metric = $6 "
                 "WHERE sweep = $1 AND number = $2 AND state IS NULL RETURNING number, metric), "
                 "b AS (SELECT s.id, t.number, t.metric FROM t JOIN sweep s ON s.id = $1 WHERE $3 = " SQL_JOB_SUCCEEDED
                 " AND t.metric > '-Infinity' AND t.metric < 'Infinity' AND (s.best IS NULL "
                 "OR CASE WHEN s.maximize THEN t.metric > s.best_metric ELSE t.metric < s.best_metric END "
                 "OR (t.metric = s.best_metric AND t.number < s.best))) "
                 "UPDATE sweep s SET ended = ended + 1, succeeded = succeeded + ($3 = " SQL_JOB_SUCCEEDED ")::int, "
                 "failed = failed + ($3 = " SQL_JOB_FAILED ")::int, "
                 "best = coalesce(b.number, s.best), best_metric = coalesce(b.metric, s.best_metric) "
                 "FROM t LEFT JOIN b ON true WHERE s.id = $1"
};

status_t trial_insert(struct connection *c, int64_t sweep, int number, int64_t job, struct err *e) {
    int64_t n;
    TRY(sql_execute(c, &TRIAL_INSERT, ARGS(arg_int8(sweep), arg_int4(number), arg_int8(job)), &n, e));
    return n == 1 ? ST_OK
                  : err_set(e, ST_FAILED_PRECONDITION,
                            "trial %d cannot be created: sweep %lld is not RUNNING, or its next trial is another one",
                            number, (long long)sweep);
}

status_t store_trial_open(struct store *s, struct store_memory *m, int64_t sweep, struct store_trial **ret,
                          size_t *ret_n, struct err *e) {
    return store_rows(s, m, &TRIAL_OPEN, ARGS(arg_int8(sweep)), ret, ret_n, e);
}

status_t store_trial_list(struct store *s, struct store_memory *m, int64_t sweep, int after, int limit,
                          struct store_trial **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &TRIAL_LIST, ARGS(arg_int8(sweep), arg_int4(after), arg_int8(limit)), ret, ret_n, e);
}

status_t store_trial_end(struct store *s, int64_t epoch, int64_t sweep, const struct store_trial *end, struct err *e) {
    return store_execute(s, epoch, &TRIAL_END,
                         ARGS(arg_int8(sweep), arg_int4(end->number), arg_int2(end->state), arg_int8(end->step),
                              arg_sentence(end->reason), arg_if(end->has_metric, arg_double(end->metric))),
                         NULL, e);
}
