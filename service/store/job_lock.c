#include "service/store/job_lock.h"
#include "service/store/text.h"

#include <stdio.h>

static const struct sql JOB_LOCK = {
    "job_lock",
    "SELECT state, attempt, last_event, restarts, delete_time IS NOT NULL FROM job WHERE id = $1 FOR NO KEY UPDATE"
};
static const struct sql REQUEST_SEEN = { "request_seen", "SELECT job, number FROM event WHERE request_id = $1" };
static const struct sql EVENT_WRITE = {
    "event_write", "WITH j AS (UPDATE job SET last_event = last_event + 1 WHERE id = $1 RETURNING last_event, state) "
                   "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                   "SELECT $1, last_event, $2, $3, state, $4, $5 FROM j RETURNING number"
};

status_t job_lock_marked(struct connection *c, int64_t job, struct job_lock *ret, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &JOB_LOCK, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld does not exist", (long long)job);
    *ret = (struct job_lock){ .job = job,
                              .state = (enum store_job_state)sql_int2(r, 0, 0),
                              .attempt = sql_int4(r, 0, 1),
                              .last_event = sql_int8(r, 0, 2),
                              .restarts = sql_int4(r, 0, 3),
                              .deleted = sql_bool(r, 0, 4) };
    return ST_OK;
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
    struct sql_args a = { 0 };
    sql_add_text(&a, request_id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &REQUEST_SEEN, &a, &r, e));
    *ret_seen = PQntuples(r) > 0;
    if (!*ret_seen)
        return ST_OK;
    if (sql_int8(r, 0, 0) != job)
        return err_set(e, ST_ALREADY_EXISTS, "request '%s' was already made for jobs/%lld", request_id,
                       (long long)sql_int8(r, 0, 0));
    if (ret_event)
        *ret_event = sql_int8(r, 0, 1);
    return ST_OK;
}

status_t event_write(struct connection *c, int64_t job, int attempt, const char *kind, const char *message,
                     const char *request_id, int64_t *ret_number, struct err *e) {
    struct sql_args a = { 0 };
    struct sentence said;
    sql_add_int8(&a, job);
    sql_add_int4(&a, attempt);
    sql_add_text(&a, kind);
    sql_add_text(&a, sentence_of(message, &said));
    sql_add_text(&a, request_id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &EVENT_WRITE, &a, &r, "the job does not exist", e));
    if (ret_number)
        *ret_number = sql_int8(r, 0, 0);
    return ST_OK;
}
