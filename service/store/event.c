#include "service/store/event.h"

#include "service/store/job_lock.h"
#include "service/store/pool.h"

/* The outer join returns one row of NULLs for a job without newer events, and no row if there is no job. */
static const struct sql_query EVENT_LIST = {
    { "event_list", "SELECT {columns} FROM job j LEFT JOIN LATERAL "
                    "(SELECT * FROM event WHERE job = j.id AND number > $2 ORDER BY number LIMIT $3) e ON true "
                    "WHERE j.id = $1 AND j.delete_time IS NULL ORDER BY e.number" },
    SQL_ROW(struct store_event, SQL_COLUMN(struct store_event, number, "e.number"),
            SQL_COLUMN(struct store_event, time_us, "e.time"), SQL_COLUMN(struct store_event, attempt, "e.attempt"),
            SQL_COLUMN(struct store_event, kind, "e.kind"), SQL_COLUMN(struct store_event, state, "e.state"),
            SQL_COLUMN(struct store_event, message, "e.message"))
};

status_t store_event_list(struct store *s, struct store_memory *m, int64_t job, int64_t after, int limit,
                          struct store_event **ret, size_t *ret_n, struct err *e) {
    TRY(store_rows(s, m, &EVENT_LIST, ARGS(arg_int8(job), arg_int8(after), arg_int8(limit)), ret, ret_n, e));
    if (*ret_n == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
    if ((*ret)[0].number == 0)
        *ret_n = 0;
    return ST_OK;
}

static status_t add_event(struct connection *c, const char *request_id, int64_t job, int attempt, const char *kind,
                          const char *message, int64_t *ret_event, struct err *e) {
    struct job_lock l;
    bool seen;
    TRY(job_lock(c, job, &l, e));
    TRY(request_seen(c, request_id, job, &seen, ret_event, e));
    return seen ? ST_OK : event_write(c, job, attempt, kind, message, request_id, ret_event, e);
}

status_t store_event_add(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                         const char *kind, const char *message, int64_t *ret_event, struct err *e) {
    return STORE_WRITE(s, epoch, c, add_event(c, request_id, job, attempt, kind, message, ret_event, e), e);
}
