/* A fault is written in one transaction under the lock of the job, and of the job whose checkpoint may be unreadable:
 * the list of hosts that the job avoids (trimmed to the newest), the executor's count of faults, the checkpoint's
 * unreadable_time, and an event. A new leader reads the lists of many jobs at once. */
#include "service/store/host_fault.h"

#include "service/store/checkpoint_from.h"
#include "service/store/job_lock.h"
#include "service/store/job_origin.h"
#include "service/store/pool.h"

#include <stdio.h>

static const struct sql AVOID_HOST = {
    "avoid_host", "INSERT INTO job_avoided_host (job, executor, cause, reason) VALUES ($1, $2, $3, $4) "
                  "ON CONFLICT (job, executor) DO UPDATE SET cause = $3, reason = $4, time = now()"
};
static const struct sql AVOID_TRIM = {
    "avoid_trim", "DELETE FROM job_avoided_host WHERE job = $1 AND executor NOT IN "
                  "(SELECT executor FROM job_avoided_host WHERE job = $1 ORDER BY time DESC, executor LIMIT $2)"
};
static const struct sql EXECUTOR_FAULT = {
    "executor_fault",
    "UPDATE executor SET fault_jobs = CASE WHEN fault_time > now() - $4 * interval '1 millisecond' "
    "THEN fault_jobs + (fault_job <> $2)::integer ELSE 1 END, fault_time = now(), fault_job = $2, fault_reason = $3 "
    "WHERE id = $1"
};
static const struct sql CHECKPOINT_UNREADABLE = {
    "checkpoint_unreadable", "UPDATE checkpoint SET unreadable_time = coalesce(unreadable_time, now()), reason = $3 "
                             "WHERE state = " SQL_CHECKPOINT_COMMITTED " AND id = " CHECKPOINT_FROM
};
static const struct sql_query AVOIDED_HOSTS = {
    { "avoided_hosts", "SELECT {columns} FROM job_avoided_host a JOIN job j ON j.id = a.job "
                       "WHERE a.job BETWEEN $1 AND $2 AND j.state < " SQL_JOB_SUCCEEDED
                       " AND a.time > now() - $3 * interval '1 millisecond' ORDER BY a.job, a.time" },
    SQL_ROW(struct store_avoided_host, SQL_COLUMN(struct store_avoided_host, job, "a.job"),
            SQL_COLUMN(struct store_avoided_host, executor, "a.executor"),
            SQL_COLUMN(struct store_avoided_host, cause, "a.cause"),
            SQL_COLUMN(struct store_avoided_host, reason, "a.reason"),
            SQL_COLUMN(struct store_avoided_host, age_ms, "(extract(epoch FROM now() - a.time) * 1000)::bigint"))
};
/* Starts from the checkpoints that cannot be read, which are few, and not from the jobs, which are many. */
static const struct sql_query UNREADABLE_FROM = {
    { "unreadable_from",
      "SELECT {columns} FROM checkpoint k "
      "JOIN attempt a ON a.from_checkpoint = k.id JOIN job j ON j.id = a.job AND j.attempt = a.number "
      "WHERE k.unreadable_time IS NOT NULL AND k.state = " SQL_CHECKPOINT_COMMITTED " AND j.id BETWEEN $1 AND $2 "
      "AND j.state < " SQL_JOB_SUCCEEDED " ORDER BY j.id" },
    SQL_ROW(
        struct store_unreadable, SQL_COLUMN(struct store_unreadable, job, "j.id"),
        SQL_COLUMN(struct store_unreadable, age_ms, "(extract(epoch FROM now() - k.unreadable_time) * 1000)::bigint"))
};

static status_t avoid(struct connection *c, const struct store_host_fault *x, struct err *e) {
    TRY(sql_execute(c, &AVOID_HOST,
                    ARGS(arg_int8(x->job), arg_text(x->executor), arg_int2(x->cause), arg_sentence(x->reason)), NULL,
                    e));
    return sql_execute(c, &AVOID_TRIM, ARGS(arg_int8(x->job), arg_int8(STORE_MAX_AVOIDED_HOSTS)), NULL, e);
}

static status_t blame(struct connection *c, const struct store_host_fault *x, struct err *e) {
    return sql_execute(c, &EXECUTOR_FAULT,
                       ARGS(arg_text(x->executor), arg_int8(x->job), arg_sentence(x->reason), arg_int8(x->window_ms)),
                       NULL, e);
}

static status_t mark_unreadable(struct connection *c, const struct store_host_fault *x, const char *reason,
                                struct err *e) {
    return sql_execute(c, &CHECKPOINT_UNREADABLE, ARGS(arg_int8(x->job), arg_int4(x->attempt), arg_sentence(reason)),
                       NULL, e);
}

static status_t write_fault(struct connection *c, const struct store_host_fault *x, struct err *e) {
    struct job_lock l;
    bool seen;
    char text[600];
    snprintf(text, sizeof text, "executor %.64s: %.400s", x->executor, x->reason);
    TRY(origin_lock(c, x->job, e));
    TRY(job_lock(c, x->job, &l, e));
    TRY(request_seen(c, x->request_id, x->job, &seen, NULL, e));
    if (seen)
        return ST_OK;
    TRY(job_lock_fence(&l, x->attempt, e));
    TRY(avoid(c, x, e));
    TRY(blame(c, x, e));
    if (x->checkpoint)
        TRY(mark_unreadable(c, x, text, e));
    return event_write(c, x->job, x->attempt, x->checkpoint ? "checkpoint_unreadable" : "host_fault", text,
                       x->request_id, NULL, e);
}

status_t store_host_fault(struct store *s, int64_t epoch, const struct store_host_fault *fault, struct err *e) {
    struct store_host_fault x = *fault;
    if (!*x.reason)
        x.reason = "no reason was given";
    return STORE_WRITE(s, epoch, c, write_fault(c, &x, e), e);
}

/* ---- read ---- */

static status_t read_faults(struct connection *c, struct store_memory *m, int64_t first, int64_t last,
                            int64_t window_ms, struct store_host_faults *ret, struct err *e) {
    struct store_avoided_host *avoided;
    struct store_unreadable *unreadable;
    TRY(sql_rows(c, m, &AVOIDED_HOSTS, ARGS(arg_int8(first), arg_int8(last), arg_int8(window_ms)), &avoided,
                 &ret->n_avoided, e));
    TRY(sql_rows(c, m, &UNREADABLE_FROM, ARGS(arg_int8(first), arg_int8(last)), &unreadable, &ret->n_unreadable, e));
    ret->avoided = avoided;
    ret->unreadable = unreadable;
    return ST_OK;
}

status_t store_host_faults(struct store *s, struct store_memory *m, int64_t first, int64_t last, int64_t window_ms,
                           struct store_host_faults *ret, struct err *e) {
    return STORE_READ(s, c, read_faults(c, m, first, last, window_ms, ret, e), e);
}
