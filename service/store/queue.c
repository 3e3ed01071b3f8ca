#include "service/store/queue.h"

#include "service/store/pool.h"
#include "service/store/sql.h"
#include "service/store/state_sql.h"

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
      " AND j.delete_time IS NULL AND j.queue > $1 GROUP BY j.queue ORDER BY j.queue LIMIT $2) "
      "SELECT {columns} FROM q LEFT JOIN job o ON o.id = q.oldest ORDER BY q.queue" },
    SQL_ROW(struct store_queue, SQL_COLUMN(struct store_queue, name, "q.queue"),
            SQL_COLUMN(struct store_queue, waiting, "q.waiting"), SQL_COLUMN(struct store_queue, running, "q.running"),
            SQL_COLUMN(struct store_queue, paused, "q.paused"),
            SQL_COLUMN(struct store_queue, used[STORE_SLOT_CPU], "q.cpu"),
            SQL_COLUMN(struct store_queue, used[STORE_SLOT_CUDA], "q.cuda"),
            SQL_COLUMN(struct store_queue, wanted[STORE_SLOT_CPU], "q.cpu_wanted"),
            SQL_COLUMN(struct store_queue, wanted[STORE_SLOT_CUDA], "q.cuda_wanted"),
            SQL_COLUMN(struct store_queue, oldest, "q.oldest"),
            SQL_COLUMN(struct store_queue, oldest_time_us, "o.create_time"))
};

status_t store_queue_list(struct store *s, struct store_memory *m, const char *after, int limit,
                          struct store_queue **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &QUEUE_LIST, ARGS(arg_text(after ? after : ""), arg_int8(limit)), ret, ret_n, e);
}
