/* A job's state changes here, and in job_start (attempt.c); migrations/0005's guard knows the legal moves. */
#include "service/store/job_move.h"

#include "service/store/job_lock.h"
#include "service/store/job_origin.h"
#include "service/store/pool.h"
#include "service/store/text.h"

static const struct sql JOB_MOVE = {
    "job_move", "WITH j AS (UPDATE job SET state = $4, reason = $6, restarts = $5, last_event = last_event + 1, "
                "start_time = CASE WHEN $4 IN (" SQL_JOB_RUNNING ", " SQL_JOB_SUCCEEDED
                ") THEN coalesce(start_time, now()) ELSE start_time END, "
                "end_time = CASE WHEN $4 >= " SQL_JOB_SUCCEEDED " THEN now() END "
                "WHERE id = $1 AND attempt = $2 AND state = $3 RETURNING id, last_event) "
                "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                "SELECT id, last_event, $2, 'state_changed', $4, $6, $7 FROM j RETURNING number"
};
static const struct sql JOB_WAITING = { "job_waiting",
                                        "WITH j AS (UPDATE job SET reason = $3, last_event = last_event + 1 "
                                        "WHERE id = $1 AND attempt = $2 AND state = " SQL_JOB_QUEUED
                                        " RETURNING id, last_event) "
                                        "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                                        "SELECT id, last_event, $2, 'waiting', " SQL_JOB_QUEUED ", $3, $4 FROM j" };
static const struct sql ATTEMPT_RUNNING = { "attempt_running",
                                            "UPDATE attempt SET state = " SQL_ATTEMPT_RUNNING ", start_time = now() "
                                            "WHERE job = $1 AND number = $2 AND state = " SQL_ATTEMPT_STARTING };
static const struct sql ATTEMPT_ENDING = { "attempt_ending",
                                           "UPDATE attempt SET state = " SQL_ATTEMPT_ENDING " "
                                           "WHERE job = $1 AND number = $2 AND state < " SQL_ATTEMPT_ENDING };

status_t job_move_row(struct connection *c, const struct store_job_move *in, int64_t *ret_event, struct err *e) {
    struct sql_args a = { 0 };
    struct sentence reason;
    sql_add_int8(&a, in->job);
    sql_add_int4(&a, in->attempt);
    sql_add_int2(&a, in->from);
    sql_add_int2(&a, in->to);
    sql_add_int4(&a, in->restarts);
    sql_add_text(&a, sentence_of(in->reason, &reason));
    sql_add_text(&a, in->request_id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &JOB_MOVE, &a, &r, "the job is not where the move begins", e));
    *ret_event = sql_int8(r, 0, 0);
    return ST_OK;
}

struct move {
    const struct store_job_move *in;
    int64_t event;
    bool retry, origin_gone;
};

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
    struct sql_args a = { 0 };
    sql_add_int8(&a, in->job);
    sql_add_int4(&a, in->attempt);
    return sql_run(c, ending ? &ATTEMPT_ENDING : &ATTEMPT_RUNNING, &a, NULL, e);
}

/* The row has moved by then, which a refusal takes back. */
static status_t check_origin(struct connection *c, struct move *x, struct err *e) {
    struct err why;
    TRY(origin_gone(c, x->in->job, &x->origin_gone, &why, e));
    return x->origin_gone ? err_set(e, ST_FAILED_PRECONDITION, "%s", why.msg) : ST_OK;
}

static status_t move_body(struct connection *c, void *ctx, struct err *e) {
    struct move *x = ctx;
    const struct store_job_move *in = x->in;
    struct job_lock l;
    x->origin_gone = false;
    if (x->retry)
        TRY(origin_lock(c, in->job, e));
    TRY(job_lock(c, in->job, &l, e));
    bool seen;
    TRY(request_seen(c, in->request_id, in->job, &seen, &x->event, e));
    if (seen)
        return ST_OK;
    if (l.state != in->from || l.attempt != in->attempt)
        return refuse_move(&l, in, e);
    TRY(job_move_row(c, in, &x->event, e));
    if (x->retry)
        TRY(check_origin(c, x, e));
    return move_attempt(c, in, e);
}

status_t store_job_move(struct store *s, int64_t epoch, const struct store_job_move *move, int64_t *ret_event,
                        struct err *e) {
    struct move x = { .in = move };
    TRY(store_transact(s, epoch, move_body, &x, e));
    if (ret_event)
        *ret_event = x.event;
    return ST_OK;
}

status_t store_job_retry(struct store *s, int64_t epoch, const struct store_job_move *move, bool *ret_origin_gone,
                         struct err *e) {
    struct move x = { .in = move, .retry = true };
    status_t st = store_transact(s, epoch, move_body, &x, e);
    *ret_origin_gone = st == ST_FAILED_PRECONDITION && x.origin_gone;
    return st;
}

/* ---- wait ---- */

struct wait {
    const char *request_id, *reason;
    int64_t job;
    int attempt;
};

static status_t waiting_body(struct connection *c, void *ctx, struct err *e) {
    const struct wait *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    bool seen;
    int64_t event;
    TRY(request_seen(c, x->request_id, x->job, &seen, &event, e));
    if (seen)
        return ST_OK;
    struct sql_args a = { 0 };
    struct sentence reason;
    sql_add_int8(&a, x->job);
    sql_add_int4(&a, x->attempt);
    sql_add_text(&a, sentence_of(x->reason, &reason));
    sql_add_text(&a, x->request_id);
    return sql_run(c, &JOB_WAITING, &a, NULL, e);
}

status_t store_job_waiting(struct store *s, int64_t epoch, const char *request_id, int64_t job, int attempt,
                           const char *reason, struct err *e) {
    struct wait x = { .request_id = request_id, .reason = reason, .job = job, .attempt = attempt };
    return store_transact(s, epoch, waiting_body, &x, e);
}
