#include "service/store/event.h"

#include "service/store/job_lock.h"
#include "service/store/pool.h"

/* The outer join gives one row of NULLs for a job without newer events, and none for no job. */
static const struct sql EVENT_LIST = {
    "event_list", "SELECT e.number, e.time, e.attempt, e.kind, e.state, e.message FROM job j LEFT JOIN LATERAL "
                  "(SELECT * FROM event WHERE job = j.id AND number > $2 ORDER BY number LIMIT $3) e ON true "
                  "WHERE j.id = $1 AND j.delete_time IS NULL ORDER BY e.number"
};

struct list {
    struct store_memory *m;
    int64_t job, after;
    int limit;
    struct store_event *events;
    size_t n;
};

static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct list *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    sql_add_int8(&a, x->after);
    sql_add_int8(&a, x->limit);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &EVENT_LIST, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)x->job);
    x->n = sql_is_null(r, 0, 0) ? 0 : (size_t)PQntuples(r);
    TRY(store_memory_get(x->m, x->n, sizeof *x->events, &x->events, e));
    for (size_t i = 0; i < x->n; i++) {
        int row = (int)i;
        x->events[i] = (struct store_event){
            .number = sql_int8(r, row, 0),
            .time_us = sql_time(r, row, 1),
            .attempt = sql_int4(r, row, 2),
            .kind = sql_text(r, row, 3),
            .state = (enum store_job_state)sql_int2(r, row, 4),
            .message = sql_text(r, row, 5),
        };
    }
    return store_memory_keep(x->m, &r, e);
}

status_t store_event_list(struct store *s, struct store_memory *m, int64_t job, int64_t after, int limit,
                          struct store_event **ret, size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .job = job, .after = after, .limit = limit };
    TRY(store_query(s, list_body, &x, e));
    *ret = x.events;
    *ret_n = x.n;
    return ST_OK;
}

struct add {
    const char *request_id, *kind, *message;
    int64_t job;
    int attempt;
    int64_t event;
};

static status_t add_body(struct connection *c, void *ctx, struct err *e) {
    struct add *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    bool seen;
    TRY(request_seen(c, x->request_id, x->job, &seen, &x->event, e));
    if (seen)
        return ST_OK;
    return event_write(c, x->job, x->attempt, x->kind, x->message, x->request_id, &x->event, e);
}

status_t store_event_add(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                         const char *kind, const char *message, int64_t *ret_event, struct err *e) {
    struct add x = { .request_id = request_id, .kind = kind, .message = message, .job = job, .attempt = attempt };
    TRY(store_transact(s, epoch, add_body, &x, e));
    if (ret_event)
        *ret_event = x.event;
    return ST_OK;
}
