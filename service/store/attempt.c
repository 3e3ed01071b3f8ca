#include "service/store/attempt.h"

#include "service/store/job_lock.h"
#include "service/store/job_move.h"
#include "service/store/job_origin.h"
#include "service/store/pool.h"
#include "service/store/text.h"

#include <stdio.h>
#include <stdlib.h>

static const struct sql ATTEMPT_OPEN = { "attempt_open",
                                         "SELECT number FROM attempt WHERE job = $1 AND state < " SQL_ATTEMPT_ENDED };
static const struct sql CHECKPOINT_PICK = {
    "checkpoint_pick",
    "SELECT id, step FROM ((SELECT id, step, 1 AS rank FROM checkpoint "
    "WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED " ORDER BY step DESC, attempt DESC LIMIT 1) "
    "UNION ALL (SELECT c.id, c.step, 2 FROM job_origin o JOIN checkpoint c "
    "ON c.id = o.checkpoint WHERE o.job = $1 AND NOT o.weights_only AND c.state = " SQL_CHECKPOINT_COMMITTED ")) p "
    "ORDER BY rank LIMIT 1"
};
static const struct sql ATTEMPT_INSERT = {
    "attempt_insert", "INSERT INTO attempt (job, number, state, epoch, from_step, from_checkpoint) "
                      "SELECT $1, $2, " SQL_ATTEMPT_STARTING ", epoch, $3, nullif($4, 0) FROM leader"
};
static const struct sql PLACEMENT_INSERT = {
    "placement_insert", "INSERT INTO placement (job, attempt, rank, executor) "
                        "SELECT $1, $2, ordinality - 1, executor FROM unnest($3) WITH ORDINALITY AS p(executor)"
};
static const struct sql JOB_START = { "job_start",
                                      "WITH j AS (UPDATE job SET state = " SQL_JOB_STARTING
                                      ", attempt = $2, step = $3, reason = $4, last_event = last_event + 1 "
                                      "WHERE id = $1 AND attempt = $2 - 1 AND state = $5 RETURNING id, last_event) "
                                      "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
                                      "SELECT id, last_event, $2, 'state_changed', " SQL_JOB_STARTING
                                      ", $4, $6 FROM j RETURNING number" };
static const struct sql ATTEMPT_START = {
    "attempt_start", "SELECT a.from_step, a.from_checkpoint, coalesce(c.directory, ''), "
                     "coalesce(c.job <> a.job, false), " ORIGIN_WEIGHTS_DIRECTORY ", a.reason FROM attempt a "
                     "LEFT JOIN checkpoint c ON c.id = a.from_checkpoint WHERE a.job = $1 AND a.number = $2"
};
static const struct sql RANK_STARTED = {
    "rank_started", "UPDATE placement SET pid = $4, pid_start_time = $5 WHERE job = $1 AND attempt = $2 AND rank = $3 "
                    "AND (pid, pid_start_time) IS DISTINCT FROM ($4, $5)"
};
static const struct sql RANK_ENDED = {
    "rank_ended", "UPDATE placement SET end_time = $4, exit_code = $5, signal = $6, cause = $7, message = $8, "
                  "last_sequence = $9, step = $10 WHERE job = $1 AND attempt = $2 AND rank = $3 AND end_time IS NULL"
};
static const struct sql ATTEMPT_END = { "attempt_end", "WITH a AS (UPDATE attempt SET state = " SQL_ATTEMPT_ENDED
                                                       ", end_time = now(), reason = $3 "
                                                       "WHERE job = $1 AND number = $2 AND state < " SQL_ATTEMPT_ENDED
                                                       " RETURNING job) "
                                                       "UPDATE job SET restarts = $4 FROM a WHERE id = a.job" };
#define ATTEMPTS_OF(rows)                                                                                              \
    "SELECT a.number, a.state, a.from_step, a.from_checkpoint, a.reason, a.create_time, a.start_time, "                \
    "a.end_time, p.rank, p.executor, p.pid, p.pid_start_time, coalesce(c.job, 0) FROM attempt a "                      \
    "JOIN placement p ON p.job = a.job AND p.attempt = a.number LEFT JOIN checkpoint c ON c.id = "                     \
    "a.from_checkpoint WHERE a.job = $1" rows " ORDER BY a.number, p.rank"
static const struct sql ATTEMPT_LIST = { "attempt_list", ATTEMPTS_OF("") };
static const struct sql ATTEMPT_GET = { "attempt_get", ATTEMPTS_OF(" AND a.number = $2") };
static const struct sql RANK_SEQUENCE = {
    "rank_sequence", "SELECT sequence FROM rank_sequence WHERE job = $1 AND attempt = $2 AND rank = $3"
};

static void add_key(struct sql_args *a, int64_t job, int attempt) {
    sql_add_int8(a, job);
    sql_add_int4(a, attempt);
}

/* ---- create ---- */

struct create {
    struct store_memory *m;
    const struct store_attempt_new *in;
    struct store_attempt_start *ret;
};

static status_t check_create(struct connection *c, const struct job_lock *l, const struct store_attempt_new *in,
                             struct err *e) {
    if (l->state != in->from)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld is %s, not %s", (long long)in->job,
                       store_job_state_name(l->state), store_job_state_name(in->from));
    if (l->attempt != in->attempt - 1)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld stands at attempt %d: %d is not the next one",
                       (long long)in->job, l->attempt, in->attempt);
    struct sql_args a = { 0 };
    sql_add_int8(&a, in->job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &ATTEMPT_OPEN, &a, &r, e));
    if (PQntuples(r) > 0)
        return err_set(e, ST_FAILED_PRECONDITION, "attempt %d of jobs/%lld has not ended", sql_int4(r, 0, 0),
                       (long long)in->job);
    return ST_OK;
}

static status_t pick_checkpoint(struct connection *c, int64_t job, int64_t *ret_id, int64_t *ret_step, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHECKPOINT_PICK, &a, &r, e));
    *ret_id = PQntuples(r) ? sql_int8(r, 0, 0) : 0;
    *ret_step = PQntuples(r) ? sql_int8(r, 0, 1) : 0;
    return ST_OK;
}

static status_t insert_attempt(struct connection *c, const struct store_attempt_new *in, int64_t checkpoint,
                               int64_t step, struct err *e) {
    struct sql_args a = { 0 };
    add_key(&a, in->job, in->attempt);
    sql_add_int8(&a, step);
    sql_add_int8(&a, checkpoint);
    TRY(sql_run(c, &ATTEMPT_INSERT, &a, NULL, e));
    struct sql_args p = { 0 };
    add_key(&p, in->job, in->attempt);
    CLEANUP(freep) char *buffer = NULL;
    TRY(sql_add_text_array(&p, in->executors, (size_t)in->world_size, &buffer, e));
    return sql_run(c, &PLACEMENT_INSERT, &p, NULL, e);
}

static status_t start_job(struct connection *c, const struct store_attempt_new *in, int64_t step, int64_t *ret_event,
                          struct err *e) {
    struct sql_args a = { 0 };
    struct sentence reason;
    add_key(&a, in->job, in->attempt);
    sql_add_int8(&a, step);
    sql_add_text(&a, sentence_of(in->reason, &reason));
    sql_add_int2(&a, in->from);
    sql_add_text(&a, in->request_id);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &JOB_START, &a, &r, "the job changed under its lock", e));
    *ret_event = sql_int8(r, 0, 0);
    return ST_OK;
}

static status_t end_attempt(struct connection *c, int64_t job, int attempt, int restarts, const char *why,
                            struct err *e) {
    struct sql_args a = { 0 };
    struct sentence reason;
    add_key(&a, job, attempt);
    sql_add_text(&a, sentence_of(why, &reason));
    sql_add_int4(&a, restarts);
    return sql_run(c, &ATTEMPT_END, &a, NULL, e);
}

/* What the job began with is locked. */
static status_t refuse_without_origin(struct connection *c, const struct job_lock *l,
                                      const struct store_attempt_new *in, struct err *e) {
    bool gone;
    struct err why;
    int64_t event;
    TRY(origin_gone(c, in->job, &gone, &why, e));
    if (!gone)
        return ST_OK;
    struct store_job_move move = { .job = in->job,
                                   .attempt = in->attempt,
                                   .from = STORE_JOB_STARTING,
                                   .to = STORE_JOB_FAILED,
                                   .restarts = l->restarts,
                                   .reason = why.msg };
    TRY(end_attempt(c, in->job, in->attempt, l->restarts, why.msg, e));
    return job_move_row(c, &move, &event, e);
}

/* Reads back what is stored, so that a repeated call returns the same. */
static status_t read_start(struct connection *c, struct create *x, struct err *e) {
    struct sql_args a = { 0 };
    add_key(&a, x->in->job, x->in->attempt);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &ATTEMPT_START, &a, &r, "the attempt does not exist", e));
    x->ret->from_step = sql_int8(r, 0, 0);
    x->ret->from_checkpoint = sql_int8(r, 0, 1);
    x->ret->directory = sql_text(r, 0, 2);
    x->ret->forked = sql_bool(r, 0, 3);
    x->ret->init_directory = sql_text(r, 0, 4);
    x->ret->refused = sql_text(r, 0, 5);
    return store_memory_keep(x->m, &r, e);
}

static status_t create_body(struct connection *c, void *ctx, struct err *e) {
    struct create *x = ctx;
    const struct store_attempt_new *in = x->in;
    struct job_lock l;
    TRY(origin_lock(c, in->job, e));
    TRY(job_lock(c, in->job, &l, e));
    bool seen;
    TRY(request_seen(c, in->request_id, in->job, &seen, &x->ret->event, e));
    if (!seen) {
        int64_t checkpoint, step;
        TRY(check_create(c, &l, in, e));
        TRY(pick_checkpoint(c, in->job, &checkpoint, &step, e));
        TRY(insert_attempt(c, in, checkpoint, step, e));
        TRY(start_job(c, in, step, &x->ret->event, e));
        TRY(refuse_without_origin(c, &l, in, e));
    }
    return read_start(c, x, e);
}

status_t store_attempt_create(struct store *s, struct store_memory *m, int64_t epoch,
                              const struct store_attempt_new *attempt, struct store_attempt_start *ret, struct err *e) {
    return store_transact(s, epoch, create_body, &(struct create){ m, attempt, ret }, e);
}

/* ---- ranks ---- */

/* What is said of ranks counts only while the attempt is open: a host that was thought lost, and its workers were not,
 * changes nothing. */
static status_t lock_open_attempt(struct connection *c, int64_t job, int attempt, struct err *e) {
    struct job_lock l;
    TRY(job_lock(c, job, &l, e));
    TRY(job_lock_fence(&l, attempt, e));
    struct sql_args a = { 0 };
    sql_add_int8(&a, job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &ATTEMPT_OPEN, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "fenced: attempt %d of jobs/%lld has ended", attempt, (long long)job);
    return ST_OK;
}

struct started {
    int64_t job;
    int attempt, rank, pid;
    int64_t pid_start_time;
};

static status_t started_body(struct connection *c, void *ctx, struct err *e) {
    const struct started *x = ctx;
    TRY(lock_open_attempt(c, x->job, x->attempt, e));
    struct sql_args a = { 0 };
    add_key(&a, x->job, x->attempt);
    sql_add_int4(&a, x->rank);
    sql_add_int4(&a, x->pid);
    sql_add_int8(&a, x->pid_start_time);
    return sql_run(c, &RANK_STARTED, &a, NULL, e);
}

status_t store_rank_started(struct store *s, int64_t epoch, int64_t job, int attempt, int rank, int pid,
                            int64_t pid_start_time, struct err *e) {
    return store_transact(s, epoch, started_body, &(struct started){ job, attempt, rank, pid, pid_start_time }, e);
}

struct ended {
    int64_t job;
    int attempt;
    const struct store_rank_end *ends;
    size_t n;
};

static status_t end_rank(struct connection *c, const struct ended *x, const struct store_rank_end *end, struct err *e) {
    struct sql_args a = { 0 };
    struct sentence said;
    add_key(&a, x->job, x->attempt);
    sql_add_int4(&a, end->rank);
    sql_add_time(&a, end->time_us);
    sql_add_int4(&a, end->exit_code);
    sql_add_int4(&a, end->signal);
    sql_add_int2(&a, end->cause);
    sql_add_text(&a, sentence_of(end->message, &said));
    sql_add_int8(&a, end->last_sequence);
    sql_add_int8(&a, end->step);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &RANK_ENDED, &a, &r, e));
    if (atoi(PQcmdTuples(r)) == 0)
        return ST_OK;
    char sentence[400];
    snprintf(sentence, sizeof sentence, "rank %d: %s", end->rank, end->message);
    return event_write(c, x->job, x->attempt, "rank_ended", sentence, NULL, NULL, e);
}

static status_t ended_body(struct connection *c, void *ctx, struct err *e) {
    const struct ended *x = ctx;
    TRY(lock_open_attempt(c, x->job, x->attempt, e));
    for (size_t i = 0; i < x->n; i++)
        TRY(end_rank(c, x, &x->ends[i], e));
    return ST_OK;
}

status_t store_rank_ended(struct store *s, int64_t epoch, int64_t job, int attempt, const struct store_rank_end *ends,
                          size_t n, struct err *e) {
    return store_transact(s, epoch, ended_body, &(struct ended){ job, attempt, ends, n }, e);
}

struct end {
    int64_t job;
    int attempt, restarts;
    const char *reason;
};

static status_t end_body(struct connection *c, void *ctx, struct err *e) {
    const struct end *x = ctx;
    struct job_lock l;
    TRY(job_lock(c, x->job, &l, e));
    TRY(job_lock_fence(&l, x->attempt, e));
    return end_attempt(c, x->job, x->attempt, x->restarts, x->reason, e);
}

status_t store_attempt_end(struct store *s, int64_t epoch, int64_t job, int attempt, int restarts, const char *reason,
                           struct err *e) {
    return store_transact(s, epoch, end_body, &(struct end){ job, attempt, restarts, reason }, e);
}

/* ---- read ---- */

struct list {
    struct store_memory *m;
    int64_t job;
    int number; /* 0 = all */
    struct store_attempt *attempts;
    size_t n;
};

static void read_attempt(const PGresult *r, int row, struct store_attempt *ret) {
    *ret = (struct store_attempt){
        .number = sql_int4(r, row, 0),
        .state = (enum store_attempt_state)sql_int2(r, row, 1),
        .from_step = sql_int8(r, row, 2),
        .from_checkpoint = sql_int8(r, row, 3),
        .from_job = sql_int8(r, row, 12),
        .reason = sql_text(r, row, 4),
        .create_time_us = sql_time(r, row, 5),
        .start_time_us = sql_time(r, row, 6),
        .end_time_us = sql_time(r, row, 7),
    };
}

/* One row a placement; the rows of an attempt stand together. */
static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct list *x = ctx;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->job);
    if (x->number)
        sql_add_int4(&a, x->number);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, x->number ? &ATTEMPT_GET : &ATTEMPT_LIST, &a, &r, e));
    int rows = PQntuples(r);
    struct store_placement *placements;
    TRY(store_memory_get(x->m, (size_t)rows, sizeof *x->attempts, &x->attempts, e));
    TRY(store_memory_get(x->m, (size_t)rows, sizeof *placements, &placements, e));
    x->n = 0;
    for (int row = 0; row < rows; row++) {
        if (row == 0 || sql_int4(r, row, 0) != x->attempts[x->n - 1].number) {
            read_attempt(r, row, &x->attempts[x->n++]);
            x->attempts[x->n - 1].placements = &placements[row];
        }
        placements[row] = (struct store_placement){ sql_int4(r, row, 8), sql_text(r, row, 9), sql_int4(r, row, 10),
                                                    sql_int8(r, row, 11) };
        x->attempts[x->n - 1].n_placements++;
    }
    return store_memory_keep(x->m, &r, e);
}

status_t store_attempt_list(struct store *s, struct store_memory *m, int64_t job, struct store_attempt **ret,
                            size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .job = job };
    TRY(store_query(s, list_body, &x, e));
    *ret = x.attempts;
    *ret_n = x.n;
    return ST_OK;
}

status_t store_attempt_get(struct store *s, struct store_memory *m, int64_t job, int number, struct store_attempt *ret,
                           struct err *e) {
    struct list x = { .m = m, .job = job, .number = number };
    TRY(store_query(s, list_body, &x, e));
    if (x.n == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld has no attempt %d", (long long)job, number);
    *ret = x.attempts[0];
    return ST_OK;
}

struct sequence {
    int64_t job;
    int attempt, rank;
    int64_t ret;
};

static status_t sequence_body(struct connection *c, void *ctx, struct err *e) {
    struct sequence *x = ctx;
    struct sql_args a = { 0 };
    add_key(&a, x->job, x->attempt);
    sql_add_int4(&a, x->rank);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &RANK_SEQUENCE, &a, &r, e));
    x->ret = PQntuples(r) ? sql_int8(r, 0, 0) : 0;
    return ST_OK;
}

status_t store_rank_sequence(struct store *s, int64_t job, int attempt, int rank, int64_t *ret, struct err *e) {
    struct sequence x = { job, attempt, rank, 0 };
    TRY(store_query(s, sequence_body, &x, e));
    *ret = x.ret;
    return ST_OK;
}
