#include "service/store/job_lock.h"

static const struct sql_query JOB_LOCK = {
    { "job_lock", "SELECT {columns} FROM job WHERE id = $1 FOR NO KEY UPDATE" },
    SQL_ROW(struct job_lock, SQL_COLUMN(struct job_lock, job, "id"), SQL_COLUMN(struct job_lock, state, "state"),
            SQL_COLUMN(struct job_lock, attempt, "attempt"), SQL_COLUMN(struct job_lock, last_event, "last_event"),
            SQL_COLUMN(struct job_lock, restarts, "restarts"),
            SQL_COLUMN(struct job_lock, deleted, "delete_time IS NOT NULL"))
};
struct request {
    int64_t job, event;
};
static const struct sql_query REQUEST_SEEN = { { "request_seen", "SELECT {columns} FROM event WHERE request_id = $1" },
                                               SQL_ROW(struct request, SQL_COLUMN(struct request, job, "job"),
                                                       SQL_COLUMN(struct request, event, "number")) };
static const struct sql_query EVENT_WRITE = {
    { "event_write", "WITH j AS (UPDATE job SET last_event = last_event + 1 WHERE id = $1 RETURNING last_event, state) "
                     "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                     "SELECT $1, last_event, $2, $3, state, $4, $5 FROM j RETURNING {columns}" },
    SQL_SCALAR(int64_t, "number")
};

status_t job_lock_marked(struct connection *c, int64_t job, struct job_lock *ret, struct err *e) {
    bool found;
    TRY(sql_find(c, NULL, &JOB_LOCK, ARGS(arg_int8(job)), ret, &found, e));
    return found ? ST_OK : err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
}

status_t job_lock(struct connection *c, int64_t job, struct job_lock *ret, struct err *e) {
    TRY(job_lock_marked(c, job, ret, e));
    return ret->deleted ? err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job) : ST_OK;
}

status_t job_lock_fence(const struct job_lock *l, int attempt, struct err *e) {
    if (attempt == l->attempt)
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION, "fenced: attempt %d of jobs/%lld is not its current one, %d", attempt,
                   (long long)l->job, l->attempt);
}

status_t request_seen(struct connection *c, const char *request_id, int64_t job, bool *ret_seen, int64_t *ret_event,
                      struct err *e) {
    struct request request;
    TRY(sql_find(c, NULL, &REQUEST_SEEN, ARGS(arg_text(request_id)), &request, ret_seen, e));
    if (!*ret_seen)
        return ST_OK;
    if (request.job != job)
        return err_set(e, ST_ALREADY_EXISTS, "request '%s' was already made for jobs/%lld", request_id,
                       (long long)request.job);
    if (ret_event)
        *ret_event = request.event;
    return ST_OK;
}

status_t event_write(struct connection *c, int64_t job, int attempt, const char *kind, const char *message,
                     const char *request_id, int64_t *ret_number, struct err *e) {
    int64_t number;
    TRY(sql_get(c, NULL, &EVENT_WRITE,
                ARGS(arg_int8(job), arg_int4(attempt), arg_text(kind), arg_sentence(message), arg_text(request_id)),
                &number, "the job does not exist", e));
    if (ret_number)
        *ret_number = number;
    return ST_OK;
}
