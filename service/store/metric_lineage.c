#include "service/store/metric_lineage.h"

#include <stdbool.h>

struct attempt_start {
    int number; /* 0: the job has no attempt */
    bool is_program;
    int64_t from_step;
};
/* A program's job has 0 steps. Without a checkpoint an attempt of a model repeats step 0 too. */
static const struct sql_query LINEAGE = {
    { "lineage", "SELECT {columns} FROM job j LEFT JOIN attempt a ON a.job = j.id AND a.number <= $2 "
                 "WHERE j.id = $1 AND j.delete_time IS NULL ORDER BY a.number" },
    SQL_ROW(struct attempt_start, SQL_COLUMN(struct attempt_start, number, "a.number"),
            SQL_COLUMN(struct attempt_start, is_program, "j.steps = 0"),
            SQL_COLUMN(struct attempt_start, from_step,
                       "CASE WHEN a.from_checkpoint IS NOT NULL THEN a.from_step "
                       "WHEN j.steps = 0 THEN 9223372036854775807 ELSE -1 END"))
};
static const struct sql_query SERIES_STARTS = {
    { "series_starts", "SELECT {columns} FROM metric_chunk WHERE job = $1 AND attempt > 1 AND attempt <= $2 "
                       "AND number = 0 ORDER BY name, rank, attempt" },
    SQL_ROW(struct series_start, SQL_COLUMN(struct series_start, name_id, "name"),
            SQL_COLUMN(struct series_start, rank, "rank"), SQL_COLUMN(struct series_start, attempt, "attempt"),
            SQL_COLUMN(struct series_start, first_step, "first_step"))
};

status_t lineage_read(struct connection *c, struct store_memory *m, int64_t job, int max_attempt, struct lineage *ret,
                      struct err *e) {
    struct attempt_start *attempts;
    size_t n;
    TRY(sql_rows(c, m, &LINEAGE, ARGS(arg_int8(job), arg_int4(max_attempt)), &attempts, &n, e));
    if (n == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
    *ret = (struct lineage){ .attempts = attempts[n - 1].number };
    ret->cutoff = store_memory_get(m, (size_t)ret->attempts + 1, sizeof *ret->cutoff);
    int64_t cutoff = INT64_MAX;
    for (size_t i = n; i-- > 0;) {
        ret->cutoff[attempts[i].number] = cutoff;
        if (attempts[i].from_step < cutoff)
            cutoff = attempts[i].from_step;
    }
    if (!attempts[0].is_program || ret->attempts < 2)
        return ST_OK;
    return sql_rows(c, m, &SERIES_STARTS, ARGS(arg_int8(job), arg_int4(max_attempt)), &ret->starts, &ret->n_starts, e);
}

static bool is_before(const struct series_start *s, int name_id, int rank, int attempt) {
    if (s->name_id != name_id)
        return s->name_id < name_id;
    return s->rank != rank ? s->rank < rank : s->attempt <= attempt;
}

/* The first start of the series in a later attempt, by bisection, then those behind it. */
int64_t lineage_cutoff(const struct lineage *l, int name_id, int rank, int attempt) {
    int64_t cutoff = attempt <= l->attempts ? l->cutoff[attempt] : INT64_MAX;
    size_t from = 0, end = l->n_starts;
    while (from < end) {
        const size_t middle = from + (end - from) / 2;
        if (is_before(&l->starts[middle], name_id, rank, attempt))
            from = middle + 1;
        else
            end = middle;
    }
    for (size_t i = from; i < l->n_starts && l->starts[i].name_id == name_id && l->starts[i].rank == rank; i++)
        if (l->starts[i].first_step - 1 < cutoff)
            cutoff = l->starts[i].first_step - 1;
    return cutoff;
}
