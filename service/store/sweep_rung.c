#include "service/store/sweep_rung.h"

#include "service/store/pool.h"

static const struct sql_query RUNG_SCORES = {
    { "rung_scores", "SELECT {columns} FROM sweep_rung WHERE sweep = $1 AND rung = $2" }, SQL_SCALAR(double, "score")
};
static const struct sql RUNG_WRITE = {
    "rung_write",
    "WITH t AS (UPDATE sweep_trial SET rungs = $3, stop_reason = $6, "
    "stop_step = CASE WHEN $6 <> '' THEN $4 END "
    "WHERE sweep = $1 AND number = $2 AND rungs = $3 - 1 AND state IS NULL RETURNING number), "
    "r AS (INSERT INTO sweep_rung (sweep, rung, trial, step, score) SELECT $1, $3, number, $4, $5 FROM t) "
    "UPDATE sweep SET stopped = stopped + 1 FROM t WHERE id = $1 AND $6 <> ''"
};

status_t store_rung_scores(struct store *s, struct store_memory *m, int64_t sweep, int rung, double **ret,
                           size_t *ret_n, struct err *e) {
    return store_rows(s, m, &RUNG_SCORES, ARGS(arg_int8(sweep), arg_int2(rung)), ret, ret_n, e);
}

status_t store_rung_write(struct store *s, int64_t epoch, int64_t sweep, const struct store_rung_result *r,
                          struct err *e) {
    return store_execute(s, epoch, &RUNG_WRITE,
                         ARGS(arg_int8(sweep), arg_int4(r->trial), arg_int2(r->rung), arg_int8(r->step),
                              arg_double(r->score), arg_sentence(r->stop_reason)),
                         NULL, e);
}
