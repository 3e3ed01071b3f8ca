#include "service/store/metric_story.h"

static const struct sql STORY = {
    "story", "SELECT a.number, a.from_step FROM job j LEFT JOIN attempt a ON a.job = j.id AND a.number <= $2 "
             "WHERE j.id = $1 AND j.delete_time IS NULL ORDER BY a.number"
};

status_t story_read(struct connection *c, struct store_memory *m, int64_t job, int most, struct story *ret,
                    struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    sql_add_int4(&a, most);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &STORY, &a, &r, e));
    int rows = PQntuples(r);
    if (rows == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
    ret->attempts = sql_int4(r, rows - 1, 0);
    TRY(store_memory_get(m, (size_t)ret->attempts + 1, sizeof *ret->cutoff, &ret->cutoff, e));
    int64_t cutoff = INT64_MAX;
    for (int row = rows - 1; row >= 0; row--) {
        ret->cutoff[sql_int4(r, row, 0)] = cutoff;
        if (sql_int8(r, row, 1) < cutoff)
            cutoff = sql_int8(r, row, 1);
    }
    return ST_OK;
}

int64_t story_cutoff(const struct story *s, int attempt) {
    return attempt <= s->attempts ? s->cutoff[attempt] : INT64_MAX;
}
