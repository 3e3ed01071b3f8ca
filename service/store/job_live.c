#include "service/store/job_origin.h"
#include "service/store/job_row.h"
#include "service/store/pool.h"

static const struct sql JOB_LIVE = {
    "job_live",
    "SELECT " JOB_COLUMNS ", a.state < " SQL_ATTEMPT_ENDED
    ", a.from_step, a.from_checkpoint, coalesce(c.directory, ''), "
    "coalesce(c.job <> j.id, false), " ORIGIN_WEIGHTS_DIRECTORY ", "
    "EXISTS (SELECT 1 FROM checkpoint f WHERE f.job = j.id AND f.attempt = j.attempt AND f.final "
    "AND f.state = " SQL_CHECKPOINT_COMMITTED "), "
    "p.executors, p.pids FROM job j JOIN job_spec s ON s.job = j.id "
    "LEFT JOIN attempt a ON a.job = j.id AND a.number = j.attempt LEFT JOIN checkpoint c ON c.id = a.from_checkpoint "
    "LEFT JOIN LATERAL (SELECT array_agg(executor ORDER BY rank) AS executors, "
    "array_agg(coalesce(pid, 0) ORDER BY rank) AS pids FROM placement WHERE job = j.id AND attempt = j.attempt) p "
    "ON a.state < " SQL_ATTEMPT_ENDED " WHERE j.state < " SQL_JOB_SUCCEEDED " ORDER BY j.id"
};

struct live {
    struct store_memory *m;
    struct store_live_job *jobs;
    size_t n;
};

/* The array's texts follow each other with lengths between them: copied, each with its NUL. */
static status_t read_placement(struct store_memory *m, const PGresult *r, int row, int col, struct store_live_job *ret,
                               struct err *e) {
    size_t n, n_pids;
    const char *at = sql_array(r, row, col, &n), *pid_at = sql_array(r, row, col + 1, &n_pids);
    if (n != (size_t)ret->job.world_size || n_pids != n)
        return err_set(e, ST_INTERNAL, "jobs/%lld has %zu placements for %d ranks", (long long)ret->job.id, n,
                       ret->job.world_size);
    const char **executors;
    int *pids;
    char *text;
    TRY(store_memory_get(m, n, sizeof *executors, &executors, e));
    TRY(store_memory_get(m, n, sizeof *pids, &pids, e));
    TRY(store_memory_get(m, (size_t)PQgetlength(r, row, col), 1, &text, e));
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *from = sql_array_next_text(&at, &len);
        executors[i] = text;
        for (size_t k = 0; k < len; k++)
            *text++ = from[k];
        *text++ = '\0';
        pids[i] = sql_array_int4(pid_at, i);
    }
    ret->executors = executors;
    ret->pids = pids;
    return ST_OK;
}

static status_t live_body(struct connection *c, void *ctx, struct err *e) {
    struct live *x = ctx;
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &JOB_LIVE, NULL, &r, e));
    x->n = (size_t)PQntuples(r);
    TRY(store_memory_get(x->m, x->n, sizeof *x->jobs, &x->jobs, e));
    for (size_t i = 0; i < x->n; i++) {
        struct store_live_job *l = &x->jobs[i];
        int row = (int)i, col = JOB_COLUMNS_N;
        job_row_read(r, row, &l->job);
        l->attempt_open = sql_bool(r, row, col);
        l->from_step = sql_int8(r, row, col + 1);
        l->from_checkpoint = sql_int8(r, row, col + 2);
        l->resume_directory = sql_text(r, row, col + 3);
        l->forked = sql_bool(r, row, col + 4);
        l->init_directory = sql_text(r, row, col + 5);
        l->final_committed = sql_bool(r, row, col + 6);
        if (l->attempt_open)
            TRY(read_placement(x->m, r, row, col + 7, l, e));
    }
    return store_memory_keep(x->m, &r, e);
}

status_t store_job_live(struct store *s, struct store_memory *m, struct store_live_job **ret, size_t *ret_n,
                        struct err *e) {
    struct live x = { .m = m };
    TRY(store_query(s, live_body, &x, e));
    *ret = x.jobs;
    *ret_n = x.n;
    return ST_OK;
}
