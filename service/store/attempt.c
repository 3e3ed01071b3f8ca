/* Attempts: their start, the starts and ends of their ranks, their end.
 *
 * create_attempt runs under the locks of the job and of the job that it was forked from. It checks that the previous
 * attempt has ended, picks the checkpoint to start from (CHECKPOINT_PICK), inserts the attempt and its placements, and
 * moves the job to STARTING. If there is nothing to start from although there should be (refuse_start), the
 * attempt ends and the job becomes FAILED in the same transaction. In the end it reads back what is stored, so that a
 * repeated request gets the same answer.
 *
 * Starts of ranks come in bulk from all agents: one statement writes up to STORE_MAX_RANK_STARTS of them from arrays.
 */
#include "service/store/attempt.h"

#include "base/alloc.h"
#include "service/store/job_lock.h"
#include "service/store/job_move.h"
#include "service/store/job_origin.h"
#include "service/store/pool.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static const struct sql_query ATTEMPT_OPEN = {
    { "attempt_open", "SELECT {columns} FROM attempt WHERE job = $1 AND state < " SQL_ATTEMPT_ENDED },
    SQL_SCALAR(int, "number")
};
struct picked {
    int64_t id, step; /* 0: none */
    bool own;
};
static const struct sql_query CHECKPOINT_PICK = {
    { "checkpoint_pick",
      "SELECT {columns} FROM ((SELECT id, step, 1 AS rank FROM checkpoint "
      "WHERE job = $1 AND state = " SQL_CHECKPOINT_COMMITTED " ORDER BY step DESC, attempt DESC LIMIT 1) "
      "UNION ALL (SELECT c.id, c.step, 2 FROM job_origin o JOIN checkpoint c "
      "ON c.id = o.checkpoint WHERE o.job = $1 AND NOT o.weights_only AND c.state = " SQL_CHECKPOINT_COMMITTED ")) p "
      "ORDER BY rank LIMIT 1" },
    SQL_ROW(struct picked, SQL_COLUMN(struct picked, id, "id"), SQL_COLUMN(struct picked, step, "step"),
            SQL_COLUMN(struct picked, own, "rank = 1"))
};
struct missing {
    int64_t id, step;
    char reason[256];
};
static const struct sql_query NEWEST_MISSING = {
    { "newest_missing", "SELECT {columns} FROM checkpoint WHERE job = $1 AND unreadable_time IS NOT NULL "
                        "AND state = " SQL_CHECKPOINT_MISSING " ORDER BY step DESC, attempt DESC LIMIT 1" },
    SQL_ROW(struct missing, SQL_COLUMN(struct missing, id, "id"), SQL_COLUMN(struct missing, step, "step"),
            SQL_COLUMN(struct missing, reason, "reason"))
};
static const struct sql ATTEMPT_INSERT = {
    "attempt_insert", "INSERT INTO attempt (job, number, state, epoch, from_step, from_checkpoint, world_size, "
                      "repeats_until) SELECT $1, $2, " SQL_ATTEMPT_STARTING ", epoch, $3, nullif($4, 0), $5, "
                      "coalesce((SELECT greatest(j.step, a.repeats_until) FROM job j JOIN attempt a ON a.job = j.id "
                      "WHERE j.id = $1 AND a.number = $2 - 1), -1) FROM leader"
};
static const struct sql PLACEMENT_INSERT = {
    "placement_insert", "INSERT INTO placement (job, attempt, rank, executor) "
                        "SELECT $1, $2, ordinality - 1, executor FROM unnest($3) WITH ORDINALITY AS p(executor)"
};
static const struct sql_query JOB_START = {
    { "job_start",
      "WITH j AS (UPDATE job SET state = " SQL_JOB_STARTING
      ", attempt = $2, step = $3, reason = $4, last_event = last_event + 1 "
      "WHERE id = $1 AND attempt = $2 - 1 AND state = $5 RETURNING id, last_event) "
      "INSERT INTO event (job, number, attempt, kind, state, message, request_id) "
      "SELECT id, last_event, $2, 'state_changed', " SQL_JOB_STARTING ", $4, $6 FROM j RETURNING {columns}" },
    SQL_SCALAR(int64_t, "number")
};
/* The job's last change of state before the attempt shows whether it was QUEUED, and since when. */
#define QUEUED_SECONDS                                                                                                 \
    "coalesce((SELECT CASE WHEN e.state = " SQL_JOB_QUEUED                                                             \
    " THEN extract(epoch FROM a.create_time - e.time)::float8 END FROM event e WHERE e.job = a.job "                   \
    "AND e.kind = 'state_changed' AND e.attempt < a.number ORDER BY e.number DESC LIMIT 1), -1)"
static const struct sql_query ATTEMPT_START = {
    { "attempt_start", "SELECT {columns} FROM attempt a JOIN job_spec s ON s.job = a.job "
                       "LEFT JOIN checkpoint c ON c.id = a.from_checkpoint WHERE a.job = $1 AND a.number = $2" },
    SQL_ROW(struct store_attempt_start, SQL_COLUMN_BYTES(struct store_attempt_start, spec, spec_bytes, "s.body"),
            SQL_COLUMN(struct store_attempt_start, queued_seconds, QUEUED_SECONDS),
            SQL_COLUMN(struct store_attempt_start, from_step, "a.from_step"),
            SQL_COLUMN(struct store_attempt_start, from_checkpoint, "a.from_checkpoint"),
            SQL_COLUMN(struct store_attempt_start, directory, "coalesce(c.directory, '')"),
            SQL_COLUMN(struct store_attempt_start, forked, "coalesce(c.job <> a.job, false)"),
            SQL_COLUMN(struct store_attempt_start, init_directory, ORIGIN_WEIGHTS_DIRECTORY),
            SQL_COLUMN(struct store_attempt_start, refused, "a.reason"))
};
/* The last report of each rank counts. Rows are locked in one order, and each attempt against its end. A row that
 * already has the values is not written. The start of a process may be reported after its end, because ends are written
 * at once. */
static const struct sql RANK_STARTS = {
    "rank_starts",
    "WITH reported AS (SELECT job, attempt, rank, executor, (array_agg(pid ORDER BY i DESC) FILTER (WHERE pid > 0))[1] "
    "AS pid, "
    "(array_agg(start_time ORDER BY i DESC) FILTER (WHERE pid > 0))[1] AS start_time, "
    "(array_agg(threads ORDER BY i DESC) FILTER (WHERE threads > 0))[1] AS threads "
    "FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY "
    "AS u(job, attempt, rank, executor, pid, start_time, threads, i) GROUP BY job, attempt, rank, executor), "
    "differs AS (SELECT s.* FROM reported s JOIN job j ON j.id = s.job AND j.attempt = s.attempt AND j.delete_time IS "
    "NULL "
    "JOIN attempt a ON a.job = s.job AND a.number = s.attempt AND a.state < " SQL_ATTEMPT_ENDED " "
    "JOIN placement p ON p.job = s.job AND p.attempt = s.attempt AND p.rank = s.rank "
    "AND p.executor = s.executor WHERE s.pid IS NOT NULL AND (p.pid, p.pid_start_time) IS DISTINCT FROM (s.pid, "
    "s.start_time) "
    "OR p.end_time IS NULL AND s.threads IS NOT NULL AND p.threads IS DISTINCT FROM s.threads "
    "ORDER BY s.job, s.rank FOR NO KEY UPDATE OF p FOR SHARE OF a) "
    "UPDATE placement p SET pid = coalesce(d.pid, p.pid), pid_start_time = coalesce(d.start_time, p.pid_start_time), "
    "threads = coalesce(d.threads, p.threads) FROM differs d "
    "WHERE p.job = d.job AND p.attempt = d.attempt AND p.rank = d.rank"
};
static const struct sql RANK_ENDED = {
    "rank_ended", "UPDATE placement SET end_time = $4, exit_code = $5, signal = $6, cause = $7, message = $8, "
                  "last_sequence = $9, step = $10 WHERE job = $1 AND attempt = $2 AND rank = $3 AND executor = $11 "
                  "AND end_time IS NULL"
};
/* Also closes the placements whose end was not reported, so that an open placement always belongs to an open attempt.
 * Cause 0: how the rank ended is unknown. */
static const struct sql ATTEMPT_END = {
    "attempt_end", "WITH a AS (UPDATE attempt SET state = " SQL_ATTEMPT_ENDED ", end_time = now(), reason = $3 "
                   "WHERE job = $1 AND number = $2 AND state < " SQL_ATTEMPT_ENDED " RETURNING job, number), "
                   "p AS (UPDATE placement SET end_time = now(), cause = 0, message = 'its end was not reported' "
                   "FROM a WHERE placement.job = a.job AND placement.attempt = a.number "
                   "AND placement.end_time IS NULL) "
                   "UPDATE job SET restarts = $4 FROM a WHERE id = a.job"
};
/* One row for each placement. */
struct attempt_placement {
    struct store_attempt attempt;
    struct store_placement placement;
    bool placed; /* else the placement is not read */
};
static const struct sql_column ATTEMPT_COLUMNS[] = {
    SQL_COLUMN(struct attempt_placement, attempt.number, "a.number"),
    SQL_COLUMN(struct attempt_placement, attempt.state, "a.state"),
    SQL_COLUMN(struct attempt_placement, attempt.from_step, "a.from_step"),
    SQL_COLUMN(struct attempt_placement, attempt.from_checkpoint, "a.from_checkpoint"),
    SQL_COLUMN(struct attempt_placement, attempt.from_job, "c.job"),
    SQL_COLUMN(struct attempt_placement, attempt.world_size, "coalesce(a.world_size, j.world_size)"),
    SQL_COLUMN(struct attempt_placement, attempt.reason, "a.reason"),
    SQL_COLUMN(struct attempt_placement, attempt.create_time_us, "a.create_time"),
    SQL_COLUMN(struct attempt_placement, attempt.start_time_us, "a.start_time"),
    SQL_COLUMN(struct attempt_placement, attempt.end_time_us, "a.end_time"),
    SQL_COLUMN(struct attempt_placement, placement.rank, "p.rank"),
    SQL_COLUMN(struct attempt_placement, placement.executor, "p.executor"),
    SQL_COLUMN(struct attempt_placement, placement.pid, "p.pid"),
    SQL_COLUMN(struct attempt_placement, placement.pid_start_time, "p.pid_start_time"),
    SQL_COLUMN(struct attempt_placement, placement.threads, "p.threads"),
    SQL_COLUMN(struct attempt_placement, placement.hostname, "x.hostname"),
    SQL_COLUMN(struct attempt_placement, placed, "p.rank IS NOT NULL"),
};
static const struct sql_row ATTEMPT_PLACEMENT = SQL_ROW_OF(struct attempt_placement, ATTEMPT_COLUMNS);
#define ATTEMPTS_OF(attempts, placements)                                                                              \
    "SELECT {columns} FROM " attempts " a JOIN job j ON j.id = a.job LEFT JOIN placement p ON p.job = a.job "          \
    "AND p.attempt = a.number " placements " LEFT JOIN checkpoint c ON c.id = a.from_checkpoint "                      \
    "LEFT JOIN executor x ON x.id = p.executor ORDER BY a.number, p.rank"
/* newer: the ranks of all newer attempts. */
static const struct sql_query ATTEMPT_LIST = {
    { "attempt_list", ATTEMPTS_OF("(SELECT *, coalesce(sum(coalesce(world_size, 1)) OVER (ORDER BY number DESC ROWS "
                                  "BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS newer FROM attempt "
                                  "WHERE job = $1 ORDER BY number DESC LIMIT $2)",
                                  "AND a.newer < $3") },
    &ATTEMPT_PLACEMENT
};
static const struct sql_query ATTEMPT_GET = {
    { "attempt_get", ATTEMPTS_OF("(SELECT * FROM attempt WHERE job = $1 AND number = $2)", "") }, &ATTEMPT_PLACEMENT
};
static const struct sql_query RANK_SEQUENCE = {
    { "rank_sequence", "SELECT {columns} FROM rank_sequence WHERE job = $1 AND attempt = $2 AND rank = $3" },
    SQL_SCALAR(int64_t, "sequence")
};

/* ---- create ---- */

static status_t check_create(struct connection *c, const struct job_lock *l, const struct store_attempt_new *in,
                             struct err *e) {
    if (l->state != in->from)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld is %s, not %s", (long long)in->job,
                       store_job_state_name(l->state), store_job_state_name(in->from));
    if (l->attempt != in->attempt - 1)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld has attempt %d: %d is not the next one",
                       (long long)in->job, l->attempt, in->attempt);
    int open;
    bool found;
    TRY(sql_find(c, NULL, &ATTEMPT_OPEN, ARGS(arg_int8(in->job)), &open, &found, e));
    return found ? err_set(e, ST_FAILED_PRECONDITION, "attempt %d of jobs/%lld has not ended", open, (long long)in->job)
                 : ST_OK;
}

static status_t insert_attempt(struct connection *c, const struct store_attempt_new *in, const struct picked *from,
                               struct err *e) {
    TRY(sql_execute(c, &ATTEMPT_INSERT,
                    ARGS(arg_int8(in->job), arg_int4(in->attempt), arg_int8(from->step), arg_int8(from->id),
                         arg_int4(in->world_size)),
                    NULL, e));
    return sql_execute(c, &PLACEMENT_INSERT,
                       ARGS(arg_int8(in->job), arg_int4(in->attempt), arg_texts(in->executors, (size_t)in->world_size)),
                       NULL, e);
}

static status_t start_job(struct connection *c, const struct store_attempt_new *in, int64_t step, int64_t *ret_event,
                          struct err *e) {
    return sql_get(c, NULL, &JOB_START,
                   ARGS(arg_int8(in->job), arg_int4(in->attempt), arg_int8(step), arg_sentence(in->reason),
                        arg_int2(in->from), arg_text(in->request_id)),
                   ret_event, "the job changed under its lock", e);
}

static status_t end_attempt(struct connection *c, int64_t job, int attempt, int restarts, const char *why,
                            struct err *e) {
    return sql_execute(c, &ATTEMPT_END, ARGS(arg_int8(job), arg_int4(attempt), arg_sentence(why), arg_int4(restarts)),
                       NULL, e);
}

/* Whether all checkpoints of the job are MISSING. The files may still exist on a host that cannot be read now, so that
 * the job must not start from the beginning unless a user decides that. */
static status_t all_missing(struct connection *c, int64_t job, bool *ret_missing, struct err *ret_why, struct err *e) {
    struct missing row;
    TRY(sql_find(c, NULL, &NEWEST_MISSING, ARGS(arg_int8(job)), &row, ret_missing, e));
    if (!*ret_missing)
        return ST_OK;
    snprintf(ret_why->msg, sizeof ret_why->msg,
             "no checkpoint of the job can be read: the newest, of step %lld, is MISSING (%.200s). Restore its files "
             "and run "
             "'trainyard checkpoint verify jobs/%lld/checkpoints/%lld', or delete all that are MISSING to begin again; "
             "then retry",
             (long long)row.step, row.reason, (long long)job, (long long)row.id);
    return ST_OK;
}

/* Ends the attempt and fails the job if it must not start. The origin of the job is locked. own: the attempt starts
 * from a checkpoint of the job itself. */
static status_t refuse_start(struct connection *c, const struct job_lock *l, const struct store_attempt_new *in,
                             bool own, struct err *e) {
    bool gone = false;
    struct err why;
    int64_t event;
    if (in->refuse) {
        gone = true;
        snprintf(why.msg, sizeof why.msg, "%s", in->refuse);
    } else if (!own) {
        TRY(all_missing(c, in->job, &gone, &why, e));
        if (!gone)
            TRY(origin_gone(c, in->job, &gone, &why, e));
    }
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

static status_t create_attempt(struct connection *c, struct store_memory *m, const struct store_attempt_new *in,
                               struct store_attempt_start *ret, struct err *e) {
    struct job_lock l;
    bool seen, found;
    TRY(origin_lock(c, in->job, e));
    TRY(job_lock(c, in->job, &l, e));
    TRY(request_seen(c, in->request_id, in->job, &seen, &ret->event, e));
    if (!seen) {
        struct picked from = { 0 };
        TRY(check_create(c, &l, in, e));
        TRY(sql_find(c, NULL, &CHECKPOINT_PICK, ARGS(arg_int8(in->job)), &from, &found, e));
        TRY(insert_attempt(c, in, &from, e));
        TRY(start_job(c, in, from.step, &ret->event, e));
        TRY(refuse_start(c, &l, in, from.own, e));
    }
    /* Reads back what is stored, so that a repeated call returns the same. */
    return sql_get(c, m, &ATTEMPT_START, ARGS(arg_int8(in->job), arg_int4(in->attempt)), ret,
                   "the attempt does not exist", e);
}

status_t store_attempt_create(struct store *s, struct store_memory *m, int64_t epoch,
                              const struct store_attempt_new *attempt, struct store_attempt_start *ret, struct err *e) {
    return STORE_WRITE(s, epoch, c, create_attempt(c, m, attempt, ret, e), e);
}

/* ---- ranks ---- */

/* Reports about ranks count only while the attempt is open: workers of a host that was wrongly taken for lost change
 * nothing. */
static status_t lock_open_attempt(struct connection *c, int64_t job, int attempt, struct err *e) {
    struct job_lock l;
    TRY(job_lock(c, job, &l, e));
    TRY(job_lock_fence(&l, attempt, e));
    int open;
    bool found;
    TRY(sql_find(c, NULL, &ATTEMPT_OPEN, ARGS(arg_int8(job)), &open, &found, e));
    return found ? ST_OK
                 : err_set(e, ST_FAILED_PRECONDITION, "fenced: attempt %d of jobs/%lld has ended", attempt,
                           (long long)job);
}

/* One statement's rows, column by column. */
struct start_columns {
    int64_t jobs[STORE_MAX_RANK_STARTS], start_times[STORE_MAX_RANK_STARTS];
    int32_t attempts[STORE_MAX_RANK_STARTS], ranks[STORE_MAX_RANK_STARTS], pids[STORE_MAX_RANK_STARTS],
        threads[STORE_MAX_RANK_STARTS];
    const char *executors[STORE_MAX_RANK_STARTS];
};

status_t store_rank_starts(struct store *s, int64_t epoch, const struct store_rank_start *ranks, size_t n,
                           struct err *e) {
    assert(n <= STORE_MAX_RANK_STARTS);
    if (n == 0)
        return ST_OK;
    CLEANUP(freep) struct start_columns *k = alloc_zeroed(1, sizeof *k);
    for (size_t i = 0; i < n; i++) {
        k->jobs[i] = ranks[i].job;
        k->attempts[i] = ranks[i].attempt;
        k->ranks[i] = ranks[i].rank;
        k->executors[i] = ranks[i].executor;
        k->pids[i] = ranks[i].pid;
        k->start_times[i] = ranks[i].pid_start_time;
        k->threads[i] = ranks[i].threads;
    }
    return store_execute(s, epoch, &RANK_STARTS,
                         ARGS(arg_int8s(k->jobs, n), arg_int4s(k->attempts, n), arg_int4s(k->ranks, n),
                              arg_texts(k->executors, n), arg_int4s(k->pids, n), arg_int8s(k->start_times, n),
                              arg_int4s(k->threads, n)),
                         NULL, e);
}

static status_t end_ranks(struct connection *c, const char *executor, int64_t job, int attempt,
                          const struct store_rank_end *ends, size_t n, struct err *e) {
    TRY(lock_open_attempt(c, job, attempt, e));
    for (const struct store_rank_end *end = ends; end < ends + n; end++) {
        int64_t changed;
        TRY(sql_execute(c, &RANK_ENDED,
                        ARGS(arg_int8(job), arg_int4(attempt), arg_int4(end->rank), arg_time(end->time_us),
                             arg_int4(end->exit_code), arg_int4(end->signal), arg_int2(end->cause),
                             arg_sentence(end->message), arg_int8(end->last_sequence), arg_int8(end->step),
                             arg_text(executor)),
                        &changed, e));
        if (!changed)
            continue;
        char sentence[400];
        snprintf(sentence, sizeof sentence, "rank %d: %s", end->rank, end->message);
        TRY(event_write(c, job, attempt, "rank_ended", sentence, NULL, NULL, e));
    }
    return ST_OK;
}

status_t store_rank_ended(struct store *s, int64_t epoch, const char *executor, int64_t job, int attempt,
                          const struct store_rank_end *ends, size_t n, struct err *e) {
    return STORE_WRITE(s, epoch, c, end_ranks(c, executor, job, attempt, ends, n, e), e);
}

static status_t end_current_attempt(struct connection *c, int64_t job, int attempt, int restarts, const char *reason,
                                    struct err *e) {
    struct job_lock l;
    TRY(job_lock(c, job, &l, e));
    TRY(job_lock_fence(&l, attempt, e));
    return end_attempt(c, job, attempt, restarts, reason, e);
}

status_t store_attempt_end(struct store *s, int64_t epoch, int64_t job, int attempt, int restarts, const char *reason,
                           struct err *e) {
    return STORE_WRITE(s, epoch, c, end_current_attempt(c, job, attempt, restarts, reason, e), e);
}

/* ---- read ---- */

/* The rows of one attempt are adjacent. */
static status_t read_attempts(struct store *s, struct store_memory *m, const struct sql_query *q,
                              const struct sql_arg *args, struct store_attempt **ret, size_t *ret_n, struct err *e) {
    struct attempt_placement *rows;
    struct store_attempt *attempts, *a = NULL;
    struct store_placement *placements;
    size_t n;
    TRY(store_rows(s, m, q, args, &rows, &n, e));
    attempts = store_memory_get(m, n, sizeof *attempts);
    placements = store_memory_get(m, n, sizeof *placements);
    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (!a || rows[i].attempt.number != a->number) {
            a = &attempts[(*ret_n)++];
            *a = rows[i].attempt;
            a->placements = &placements[i];
        }
        placements[i] = rows[i].placement;
        a->n_placements += rows[i].placed;
    }
    *ret = attempts;
    return ST_OK;
}

status_t store_attempt_list(struct store *s, struct store_memory *m, int64_t job, struct store_attempt **ret,
                            size_t *ret_n, struct err *e) {
    return read_attempts(s, m, &ATTEMPT_LIST,
                         ARGS(arg_int8(job), arg_int8(STORE_ATTEMPTS_LISTED), arg_int8(STORE_RANKS_LISTED)), ret, ret_n,
                         e);
}

status_t store_attempt_get(struct store *s, struct store_memory *m, int64_t job, int number, struct store_attempt *ret,
                           struct err *e) {
    struct store_attempt *found;
    size_t n = 0;
    if (number > 0)
        TRY(read_attempts(s, m, &ATTEMPT_GET, ARGS(arg_int8(job), arg_int4(number)), &found, &n, e));
    if (n == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld has no attempt %d", (long long)job, number);
    *ret = found[0];
    return ST_OK;
}

status_t store_rank_sequence(struct store *s, int64_t job, int attempt, int rank, int64_t *ret, struct err *e) {
    bool found;
    *ret = 0;
    return store_find(s, NULL, &RANK_SEQUENCE, ARGS(arg_int8(job), arg_int4(attempt), arg_int4(rank)), ret, &found, e);
}
