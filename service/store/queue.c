#include "service/store/queue.h"

#include "service/store/pool.h"
#include "service/store/sql.h"
#include "service/store/state_sql.h"

/* One walk over the jobs that have not ended, by the index on their state; ranks are counted from the open attempts,
 * which are few beside the jobs that wait. */
static const struct sql QUEUE_LIST = {
    "queue_list",
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
    "SELECT q.*, o.create_time FROM q LEFT JOIN job o ON o.id = q.oldest ORDER BY q.queue"
};

struct list {
    struct store_memory *m;
    const char *after;
    int limit;
    struct store_queue *queues;
    size_t n;
};

static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct list *x = ctx;
    struct sql_args a = { 0 };
    sql_add_text(&a, x->after);
    sql_add_int8(&a, x->limit);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &QUEUE_LIST, &a, &r, e));
    x->n = (size_t)PQntuples(r);
    TRY(store_memory_get(x->m, x->n, sizeof *x->queues, &x->queues, e));
    for (int row = 0; row < (int)x->n; row++)
        x->queues[row] = (struct store_queue){ .name = sql_text(r, row, 0),
                                               .waiting = sql_int8(r, row, 1),
                                               .running = sql_int8(r, row, 2),
                                               .paused = sql_int8(r, row, 3),
                                               .used = { sql_int8(r, row, 4), sql_int8(r, row, 5) },
                                               .wanted = { sql_int8(r, row, 6), sql_int8(r, row, 7) },
                                               .oldest = sql_int8(r, row, 8),
                                               .oldest_time_us = sql_time(r, row, 9) };
    return store_memory_keep(x->m, &r, e);
}

status_t store_queue_list(struct store *s, struct store_memory *m, const char *after, int limit,
                          struct store_queue **ret, size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .after = after ? after : "", .limit = limit };
    TRY(store_query(s, list_body, &x, e));
    *ret = x.queues;
    *ret_n = x.n;
    return ST_OK;
}
