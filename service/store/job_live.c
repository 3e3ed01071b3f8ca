#include "service/store/job_origin.h"
#include "service/store/job_row.h"
#include "service/store/pool.h"

/* Pages by the index job_live. LIMIT 1 makes the planner look up the last attempt of each job by its key, instead of
 * reading all attempts. Open attempts are merged from an index, which must begin at the page, or each page reads those
 * of all earlier ones. A spec is as large as all other columns together, and only a job with an open attempt
 * needs it. */
struct live_row {
    struct store_live_job live;
    struct sql_array executors, pids;
};
static const struct sql_query JOB_LIVE = {
    { "job_live",
      "SELECT {columns} "
      "FROM (SELECT * FROM job WHERE state < " SQL_JOB_SUCCEEDED " AND id > $1 ORDER BY id LIMIT $2) j "
      "LEFT JOIN LATERAL (SELECT number, world_size FROM attempt WHERE job = j.id AND number = j.attempt LIMIT 1) l "
      "ON true "
      "LEFT JOIN attempt a ON a.job = j.id AND a.job > $1 AND a.number = j.attempt AND a.state < " SQL_ATTEMPT_ENDED " "
      "LEFT JOIN job_spec s ON s.job = a.job "
      "LEFT JOIN checkpoint c ON c.id = a.from_checkpoint "
      "LEFT JOIN LATERAL (SELECT step, attempt FROM checkpoint WHERE job = a.job "
      "AND state = " SQL_CHECKPOINT_COMMITTED " ORDER BY step DESC, attempt DESC LIMIT 1) k ON true "
      "LEFT JOIN LATERAL (SELECT array_agg(executor ORDER BY rank) AS executors, "
      "array_agg(coalesce(pid, 0) ORDER BY rank) AS pids FROM placement WHERE job = a.job AND attempt = a.number) p "
      "ON a.number IS NOT NULL ORDER BY j.id" },
    SQL_ROW_AFTER(&JOB_ROW, struct live_row, /* store_live_job begins with a store_job */
                  SQL_COLUMN(struct live_row, live.attempt_open, "a.number IS NOT NULL"),
                  SQL_COLUMN(struct live_row, live.ranks,
                             "CASE WHEN l.number IS NULL THEN 0 ELSE coalesce(l.world_size, j.world_size) END"),
                  SQL_COLUMN(struct live_row, live.from_step, "a.from_step"),
                  SQL_COLUMN(struct live_row, live.from_checkpoint, "a.from_checkpoint"),
                  SQL_COLUMN(struct live_row, live.resume_directory, "coalesce(c.directory, '')"),
                  SQL_COLUMN(struct live_row, live.forked, "coalesce(c.job <> j.id, false)"),
                  SQL_COLUMN(struct live_row, live.init_directory, ORIGIN_WEIGHTS_DIRECTORY),
                  SQL_COLUMN(struct live_row, live.final_committed,
                             "EXISTS (SELECT 1 FROM checkpoint f WHERE f.job = j.id AND f.attempt = j.attempt "
                             "AND f.final AND f.state = " SQL_CHECKPOINT_COMMITTED ")"),
                  SQL_COLUMN(struct live_row, live.committed_step,
                             "coalesce(CASE WHEN k.attempt = j.attempt THEN k.step END, -1)"),
                  SQL_COLUMN(struct live_row, executors, "p.executors"), SQL_COLUMN(struct live_row, pids, "p.pids"))
};

static status_t read_placement(struct store_memory *m, const struct live_row *row, struct store_live_job *ret,
                               struct err *e) {
    int *pids;
    if (row->executors.n != (size_t)ret->ranks || row->pids.n != row->executors.n)
        return err_set(e, ST_INTERNAL, "jobs/%lld has %zu placements for %d ranks", (long long)ret->job.id,
                       row->executors.n, ret->ranks);
    ret->executors = sql_array_texts(&row->executors, m);
    pids = store_memory_get(m, row->pids.n, sizeof *pids);
    for (size_t i = 0; i < row->pids.n; i++)
        pids[i] = sql_array_int4(&row->pids, i);
    ret->pids = pids;
    return ST_OK;
}

status_t store_job_live(struct store *s, struct store_memory *m, int64_t after, int limit, struct store_live_job **ret,
                        size_t *ret_n, struct err *e) {
    struct live_row *rows;
    struct store_live_job *jobs;
    size_t n;
    TRY(store_rows_within(s, STORE_RECOVERY_TIMEOUT_MS, m, &JOB_LIVE, ARGS(arg_int8(after), arg_int8(limit)), &rows, &n,
                          e));
    jobs = store_memory_get(m, n, sizeof *jobs);
    for (size_t i = 0; i < n; i++) {
        jobs[i] = rows[i].live;
        if (jobs[i].attempt_open)
            TRY(read_placement(m, &rows[i], &jobs[i], e));
    }
    *ret = jobs;
    *ret_n = n;
    return ST_OK;
}
