#include "service/store/metric_lineage.h"

struct attempt_start {
    int number; /* 0: the job has no attempt */
    int64_t from_step;
};
static const struct sql_query LINEAGE = {
    { "lineage", "SELECT {columns} FROM job j LEFT JOIN attempt a ON a.job = j.id AND a.number <= $2 "
                 "WHERE j.id = $1 AND j.delete_time IS NULL ORDER BY a.number" },
    SQL_ROW(
        struct attempt_start, SQL_COLUMN(struct attempt_start, number, "a.number"),
        /* Without a checkpoint an attempt repeats step 0 too. A program (steps 0) continues where it likes: its first
         * reported step is where it began, if that is not above the step of the checkpoint that it got. */
        SQL_COLUMN(struct attempt_start, from_step,
                   "CASE WHEN j.steps = 0 AND a.number > 1 THEN least((SELECT min(first_step) - 1 FROM metric_chunk k "
                   "WHERE k.job = a.job AND k.attempt = a.number), "
                   "CASE WHEN a.from_checkpoint IS NULL THEN 9223372036854775807 ELSE a.from_step END) "
                   "WHEN a.from_checkpoint IS NULL THEN -1 ELSE a.from_step END"))
};

status_t lineage_read(struct connection *c, struct store_memory *m, int64_t job, int max_attempt, struct lineage *ret,
                      struct err *e) {
    struct attempt_start *attempts;
    size_t n;
    TRY(sql_rows(c, m, &LINEAGE, ARGS(arg_int8(job), arg_int4(max_attempt)), &attempts, &n, e));
    if (n == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
    ret->attempts = attempts[n - 1].number;
    ret->cutoff = store_memory_get(m, (size_t)ret->attempts + 1, sizeof *ret->cutoff);
    int64_t cutoff = INT64_MAX;
    for (size_t i = n; i-- > 0;) {
        ret->cutoff[attempts[i].number] = cutoff;
        if (attempts[i].from_step < cutoff)
            cutoff = attempts[i].from_step;
    }
    return ST_OK;
}

int64_t lineage_cutoff(const struct lineage *l, int attempt) {
    return attempt <= l->attempts ? l->cutoff[attempt] : INT64_MAX;
}
