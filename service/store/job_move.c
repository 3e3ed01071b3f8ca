/* Changes of a job's state, except its start (attempt.c).
 *
 * A move locks the job's row, and for a retry first the row of the job that it was forked from. It returns the stored
 * result if the request was seen before, and refuses a job in another state or attempt. Then one statement changes the
 * row and writes the event. The trigger of migrations/0005 refuses a move without an edge in state_edge. */
#include "service/store/job_move.h"

#include "service/store/checkpoint_from.h"
#include "service/store/imported_run.h"
#include "service/store/job_lock.h"
#include "service/store/job_origin.h"
#include "service/store/pool.h"

static const struct sql_query JOB_MOVE = {
    { "job_move", "WITH d AS (DELETE FROM job_avoided_host WHERE job = $1 AND $4 >= " SQL_JOB_SUCCEEDED "), "
                  "j AS (UPDATE job SET state = $4, "
                  "reason = CASE WHEN $3 = " SQL_JOB_CANCELLING
                  " AND $6 = '' THEN reason ELSE $6 END, restarts = $5, last_event = last_event + 1, "
                  "start_time = CASE WHEN $4 IN (" SQL_JOB_RUNNING ", " SQL_JOB_SUCCEEDED
                  ") THEN coalesce(start_time, now()) ELSE start_time END, "
                  "end_time = CASE WHEN $4 >= " SQL_JOB_SUCCEEDED " THEN now() END "
                  "WHERE id = $1 AND attempt = $2 AND state = $3 RETURNING id, last_event, reason) "
                  "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                  "SELECT id, last_event, $2, 'state_changed', $4, reason, $7 FROM j RETURNING {columns}" },
    SQL_SCALAR(int64_t, "number")
};
static const struct sql JOB_WAITING = { "job_waiting",
                                        "WITH j AS (UPDATE job SET reason = $3, last_event = last_event + 1 "
                                        "WHERE id = $1 AND attempt = $2 AND state = " SQL_JOB_QUEUED
                                        " RETURNING id, last_event) "
                                        "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                                        "SELECT id, last_event, $2, 'waiting', " SQL_JOB_QUEUED ", $3, $4 FROM j" };
/* All ranks run: their checkpoint could be read, and the faults of their hosts are cleared. Rows of executors that
 * another transaction has locked are skipped, because other transactions lock executors in another order. */
static const struct sql ATTEMPT_RUNNING = {
    "attempt_running",
    "WITH a AS (UPDATE attempt SET state = " SQL_ATTEMPT_RUNNING ", start_time = now() "
    "WHERE job = $1 AND number = $2 AND state = " SQL_ATTEMPT_STARTING " RETURNING number), "
    "k AS (UPDATE checkpoint SET unreadable_time = NULL, reason = '' FROM a WHERE id = " CHECKPOINT_FROM
    " AND unreadable_time IS NOT NULL AND checkpoint.state = " SQL_CHECKPOINT_COMMITTED "), "
    "f AS (SELECT x.id FROM executor x JOIN a ON true WHERE x.fault_time IS NOT NULL AND x.id IN "
    "(SELECT executor FROM placement WHERE job = $1 AND attempt = $2) FOR UPDATE OF x SKIP LOCKED) "
    "UPDATE executor SET fault_time = NULL, fault_job = NULL, fault_jobs = 0, fault_reason = '' FROM f "
    "WHERE executor.id = f.id"
};
static const struct sql ATTEMPT_ENDING = { "attempt_ending",
                                           "UPDATE attempt SET state = " SQL_ATTEMPT_ENDING " "
                                           "WHERE job = $1 AND number = $2 AND state < " SQL_ATTEMPT_ENDING };

status_t job_move_row(struct connection *c, const struct store_job_move *in, int64_t *ret_event, struct err *e) {
    return sql_get(c, NULL, &JOB_MOVE,
                   ARGS(arg_int8(in->job), arg_int4(in->attempt), arg_int2(in->from), arg_int2(in->to),
                        arg_int4(in->restarts), arg_sentence(in->reason), arg_text(in->request_id)),
                   ret_event, "the job is not in the state from which it would move", e);
}

static status_t refuse_move(const struct job_lock *l, const struct store_job_move *in, struct err *e) {
    if (l->attempt != in->attempt)
        return job_lock_fence(l, in->attempt, e);
    return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld is %s, not %s", (long long)l->job,
                   store_job_state_name(l->state), store_job_state_name(in->from));
}

static status_t move_attempt(struct connection *c, const struct store_job_move *in, struct err *e) {
    bool ending = in->to == STORE_JOB_RESTARTING || in->to == STORE_JOB_CANCELLING || in->to == STORE_JOB_PREEMPTING ||
                  in->to == STORE_JOB_PAUSING;
    if (in->to != STORE_JOB_RUNNING && !ending)
        return ST_OK;
    return sql_execute(c, ending ? &ATTEMPT_ENDING : &ATTEMPT_RUNNING, ARGS(arg_int8(in->job), arg_int4(in->attempt)),
                       NULL, e);
}

/* The row has moved by then. A refusal rolls that back. */
static status_t check_origin(struct connection *c, int64_t job, bool *ret_gone, struct err *e) {
    struct err why;
    TRY(origin_gone(c, job, ret_gone, &why, e));
    return *ret_gone ? err_set(e, ST_FAILED_PRECONDITION, "%s", why.msg) : ST_OK;
}

static status_t refuse_imported(struct connection *c, int64_t job, struct err *e) {
    bool imported;
    TRY(job_imported(c, job, &imported, e));
    return imported ? err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld was imported: it cannot run", (long long)job)
                    : ST_OK;
}

/* ret_origin_gone: not NULL for a retry, which needs the checkpoint that the job began with. */
static status_t move_job(struct connection *c, const struct store_job_move *in, int64_t *ret_event,
                         bool *ret_origin_gone, struct err *e) {
    struct job_lock l;
    bool seen;
    if (ret_origin_gone)
        *ret_origin_gone = false;
    if (ret_origin_gone)
        TRY(origin_lock(c, in->job, e));
    TRY(job_lock(c, in->job, &l, e));
    TRY(request_seen(c, in->request_id, in->job, &seen, ret_event, e));
    if (seen)
        return ST_OK;
    if (l.state != in->from || l.attempt != in->attempt)
        return refuse_move(&l, in, e);
    if (ret_origin_gone)
        TRY(refuse_imported(c, in->job, e));
    TRY(job_move_row(c, in, ret_event, e));
    if (ret_origin_gone)
        TRY(check_origin(c, in->job, ret_origin_gone, e));
    return move_attempt(c, in, e);
}

status_t store_job_move(struct store *s, int64_t epoch, const struct store_job_move *move, int64_t *ret_event,
                        struct err *e) {
    int64_t event;
    TRY(STORE_WRITE(s, epoch, c, move_job(c, move, &event, NULL, e), e));
    if (ret_event)
        *ret_event = event;
    return ST_OK;
}

status_t store_job_retry(struct store *s, int64_t epoch, const struct store_job_move *move, bool *ret_origin_gone,
                         struct err *e) {
    int64_t event;
    bool gone = false;
    status_t st = STORE_WRITE(s, epoch, c, move_job(c, move, &event, &gone, e), e);
    *ret_origin_gone = st == ST_FAILED_PRECONDITION && gone;
    return st;
}

/* ---- wait ---- */

static status_t write_waiting(struct connection *c, const char *request_id, int64_t job, int attempt,
                              const char *reason, struct err *e) {
    struct job_lock l;
    bool seen;
    TRY(job_lock(c, job, &l, e));
    TRY(request_seen(c, request_id, job, &seen, NULL, e));
    if (seen)
        return ST_OK;
    return sql_execute(c, &JOB_WAITING,
                       ARGS(arg_int8(job), arg_int4(attempt), arg_sentence(reason), arg_text(request_id)), NULL, e);
}

status_t store_job_waiting(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                           const char *reason, struct err *e) {
    return STORE_WRITE(s, epoch, c, write_waiting(c, request_id, job, attempt, reason, e), e);
}
