/* Writing reports: one transaction for many batches.
 *
 * write_all does, in this order:
 *   1. lock_jobs: locks the rows of all jobs in ascending order, and reads which attempt of each is open.
 *   2. take_batch, for each batch: fenced, gap, or the number of its first new record. Records that are rare (shards,
 *      notices, ends, plans, log lines) are written here, each by its own statements. Names of new metrics are interned
 *      here too, because step 3 cannot wait for answers; and points of a later attempt are compared with those of the
 *      earlier ones (report_repeat.h).
 *   3. write_pipeline: adds the points to the chunks in memory, and sends each chunk that became full, then each
 *      unfilled one that changed, the marks and the jobs' steps, all without waiting for answers.
 *   4. read_events: the number of the last event of each job, for the watchers.
 * The memory of ranks changes before COMMIT. `ranks_valid` is false from the begin of a write to its COMMIT: after a
 * failure in between, the next write drops the memory and reads it again from the rows. */
#include "service/store/report.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/clock.h"
#include "service/store/artifact.h"
#include "service/store/checkpoint_shard.h"
#include "service/store/job_lock.h"
#include "service/store/pool.h"
#include "service/store/report_log.h"
#include "service/store/report_rank.h"
#include "service/store/report_repeat.h"
#include "service/store/report_split.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Events of one job that notices of workers may add. Later notices are dropped. */
#define EVENTS_PER_JOB 100000

/* A job of a write. */
struct job_events {
    int64_t job, last_event;
};
static const struct sql_query JOBS_LOCK = {
    { "jobs_lock", "SELECT {columns} FROM job WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE" },
    SQL_ROW(struct job_events, SQL_COLUMN(struct job_events, job, "id"),
            SQL_COLUMN(struct job_events, last_event, "last_event"))
};
/* The attempt of a job that has not ended, or that of an imported run. It is read by a statement of its own, whose
 * snapshot is taken after the locks. */
struct open_attempt {
    int64_t job;
    int number;
};
static const struct sql_query JOBS_OPEN = {
    { "jobs_open", "SELECT {columns} FROM attempt a WHERE job = ANY ($1) AND (state < " SQL_ATTEMPT_ENDED
                   " OR EXISTS (SELECT 1 FROM imported_run i WHERE i.job = a.job)) ORDER BY job" },
    SQL_ROW(struct open_attempt, SQL_COLUMN(struct open_attempt, job, "job"),
            SQL_COLUMN(struct open_attempt, number, "number"))
};
static const struct sql_query JOB_EVENT = { { "job_event", "SELECT {columns} FROM job WHERE id = $1" },
                                            SQL_SCALAR(int64_t, "last_event") };
static const struct sql JOB_STEP = { "job_step", "UPDATE job SET step = $2 WHERE id = $1 AND step < $2" };
static const struct sql JOB_RESULT = { "job_result", "UPDATE job SET weights_sha256 = $2 WHERE id = $1" };
static const struct sql RANK_FINAL_REPORT = { "rank_final_report",
                                              "UPDATE placement SET word_cause = $4, word_message = $5 "
                                              "WHERE job = $1 AND attempt = $2 AND rank = $3" };
struct spec_row {
    const void *body;
    size_t n;
};
static const struct sql_query SPEC_GET = { { "spec_get", "SELECT {columns} FROM job_spec WHERE job = $1" },
                                           SQL_ROW(struct spec_row,
                                                   SQL_COLUMN_BYTES(struct spec_row, body, n, "body")) };
static const struct sql SPEC_SET = { "spec_set", "UPDATE job_spec SET body = $2 WHERE job = $1" };
static const struct sql MARK_MOVE = {
    "mark_move",
    "INSERT INTO rank_sequence AS s (job, attempt, rank, sequence, joined_us, begun_us, until_us, data_us, compute_us, "
    "waiting_us, checkpoint_us, repeated_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) "
    "ON CONFLICT (job, attempt, rank) DO UPDATE SET sequence = $4, joined_us = $5, begun_us = $6, until_us = $7, "
    "data_us = $8, compute_us = $9, waiting_us = $10, checkpoint_us = $11, repeated_us = $12 WHERE s.sequence < $4"
};

static const struct sql JOB_LOST = { "job_lost", "UPDATE job SET records_lost = "
                                                 "least(records_lost, 9223372036854775807 - $2) + $2 WHERE id = $1" };
/* The last step of which the rank has a point. The last chunk of each metric is found by one search of the index. */
static const struct sql_query RANK_STEP = {
    { "rank_step", "SELECT {columns} FROM job_metric j CROSS JOIN LATERAL (SELECT last_step FROM metric_chunk "
                   "WHERE job = $1 AND name = j.name AND rank = $3 AND attempt = $2 ORDER BY number DESC LIMIT 1) k "
                   "WHERE j.job = $1" },
    SQL_SCALAR(int64_t, "coalesce(max(k.last_step), 0)")
};

struct store_report {
    struct store *store;
    int64_t epoch;
    struct rank_table *ranks;
    bool ranks_valid; /* the memory of ranks equals the rows */
    uint64_t write;   /* counts calls */
};

/* The state of one call. */
struct write {
    struct store_report *r;
    const struct store_batch *batches;
    size_t n;
    struct store_batch_result *results;
    struct rank_memory **ranks; /* [n] NULL: nothing of the batch is stored */
    size_t *from;               /* [n] the index of the first new record */
    int64_t records, points, lines;
    int64_t now_ms;
};

struct store_report *store_report_free(struct store_report *r) {
    if (r)
        rank_table_free(r->ranks);
    free(r);
    return NULL;
}

struct store_report *store_report_new(struct store *s, int64_t epoch) {
    struct store_report *r = alloc_zeroed(1, sizeof *r);
    r->ranks = rank_table_new(STORE_REPORT_BYTES);
    r->store = s;
    r->epoch = epoch;
    return r;
}

/* ---- the jobs ---- */

/* In ascending order of the job, so that two writers never wait for each other. */
struct jobs {
    struct job_events *all; /* locked */
    struct open_attempt *open;
    size_t n_all, n_open;
};

static status_t lock_jobs(struct connection *c, struct store_memory *m, const struct write *w, struct jobs *ret,
                          struct err *e) {
    int64_t *ids;
    ids = store_memory_get(m, w->n, sizeof *ids);
    for (size_t i = 0; i < w->n; i++)
        ids[i] = w->batches[i].job;
    TRY(sql_rows(c, m, &JOBS_LOCK, ARGS(arg_int8s(ids, w->n)), &ret->all, &ret->n_all, e));
    return sql_rows(c, m, &JOBS_OPEN, ARGS(arg_int8s(ids, w->n)), &ret->open, &ret->n_open, e);
}

/* The element that begins with the job; NULL when there is none. */
static void *find_job(const void *rows, size_t n, size_t size, int64_t job) {
    return n ? bsearch(&job, rows, n, size, array_by_int64) : NULL;
}

/* ---- records that are rare, each by statements of its own ---- */

/* An event's kind is a lower-case name. A worker's kind that is not is replaced by "notice". */
static const char *kind_of(const char *kind) {
    size_t n = strlen(kind);
    if (n < 1 || n > 63 || !islower((unsigned char)kind[0]))
        return "notice";
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)kind[i]) && !isdigit((unsigned char)kind[i]) && kind[i] != '_')
            return "notice";
    return kind;
}

static status_t write_notice(struct connection *c, const struct store_batch *b, const struct store_record *record,
                             int64_t last_event, struct err *e) {
    if (last_event >= EVENTS_PER_JOB)
        return ST_OK;
    return event_write(c, b->job, b->attempt, kind_of(record->notice.kind), record->notice.message, NULL, NULL, e);
}

static status_t write_end(struct connection *c, const struct store_batch *b, const struct store_record *record,
                          struct err *e) {
    TRY(sql_execute(c, &RANK_FINAL_REPORT,
                    ARGS(arg_int8(b->job), arg_int4(b->attempt), arg_int4(b->rank), arg_int2(record->end.cause),
                         arg_sentence(record->end.message)),
                    NULL, e));
    if (!sha256_hex_valid(record->end.weights_sha256))
        return ST_OK;
    return sql_execute(c, &JOB_RESULT, ARGS(arg_int8(b->job), arg_text(record->end.weights_sha256)), NULL, e);
}

static status_t report_dropped(struct connection *c, struct rank_memory *k, const char *why, struct err *e) {
    if (k->dropped_reported)
        return ST_OK;
    k->dropped_reported = true;
    return event_write(c, k->job, k->attempt, "records_dropped", why, NULL, NULL, e);
}

/* The job's row is locked, so that no other write changes the spec between reading and replacing it. */
static status_t write_plan(struct connection *c, struct rank_memory *k, const struct store_batch *b,
                           const struct store_record *record, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(freep) void *spec = NULL;
    struct spec_row old;
    size_t n = 0;
    struct err why;
    if (b->rank != 0)
        return report_dropped(c, k, "only rank 0 may report the resolved plan", e);
    TRY(sql_get(c, m, &SPEC_GET, ARGS(arg_int8(b->job)), &old, "the job has no spec", e));
    status_t st = record->resolved_plan.apply(record->resolved_plan.plan, old.body, old.n, &spec, &n, &why);
    if (st == ST_INVALID_ARGUMENT)
        return report_dropped(c, k, why.msg, e);
    if (st != ST_OK)
        return err_set(e, st, "%s", why.msg);
    return spec ? sql_execute(c, &SPEC_SET, ARGS(arg_int8(b->job), arg_bytes(spec, n)), NULL, e) : ST_OK;
}

/* A repeated report also returns the COMMITTED checkpoint: the answer to the first report may have been lost. */
static void note_committed(const struct shard_outcome *o, int64_t step, struct store_batch_result *result) {
    if (!o->committed || result->n_committed == STORE_COMMITTED_PER_BATCH)
        return;
    result->committed[result->n_committed].checkpoint = o->checkpoint;
    result->committed[result->n_committed].step = step;
    result->committed[result->n_committed].final = o->final;
    result->n_committed++;
}

static status_t write_shard(struct connection *c, struct rank_memory *k, const struct store_batch *b,
                            const struct store_record *record, bool known, struct store_batch_result *result,
                            struct err *e) {
    struct shard_outcome o = { 0 };
    struct err why;
    status_t st = known ? checkpoint_shard_read(c, b, record, &o, e) : checkpoint_shard_write(c, b, record, &o, &why);
    if (!known && st == ST_INVALID_ARGUMENT)
        return report_dropped(c, k, why.msg, e);
    if (st != ST_OK)
        return known ? st : err_set(e, st, "%s", why.msg);
    note_committed(&o, record->shard.step, result);
    return ST_OK;
}

static status_t write_artifact(struct connection *c, struct rank_memory *k, const struct store_batch *b,
                               const struct store_record *record, struct err *e) {
    struct err why;
    status_t st = artifact_write(c, b->job, b->attempt, b->rank, record, &why);
    if (st == ST_INVALID_ARGUMENT || st == ST_RESOURCE_EXHAUSTED)
        return report_dropped(c, k, why.msg, e);
    return st == ST_OK ? ST_OK : err_set(e, st, "%s", why.msg);
}

/* Adds a series for each new name, so that the pipeline needs no answers from the server. */
static status_t add_series(struct connection *c, struct rank_memory *k, const struct store_record *record,
                           struct err *e) {
    for (size_t i = 0; i < record->metrics.n; i++) {
        if (rank_series_find(k, record->metrics.names[i], i))
            continue;
        struct series *s = NULL;
        struct err why;
        status_t st = rank_series_add(k, c, record->metrics.names[i], &s, &why);
        if (st == ST_INVALID_ARGUMENT || (st == ST_RESOURCE_EXHAUSTED && k->n_series == STORE_SERIES_PER_RANK))
            TRY(report_dropped(c, k, why.msg, e));
        else if (st != ST_OK)
            return err_set(e, st, "%s", why.msg);
    }
    return ST_OK;
}

static status_t write_rare(struct connection *c, struct write *w, size_t i, int64_t last_event, struct err *e) {
    const struct store_batch *b = &w->batches[i];
    struct rank_memory *k = w->ranks[i];
    for (size_t at = 0; at < b->n; at++) {
        const struct store_record *record = &b->records[at];
        bool known = at < w->from[i];
        if (record->kind == STORE_RECORD_SHARD)
            TRY(write_shard(c, k, b, record, known, &w->results[i], e));
        else if (known)
            continue;
        else if (record->kind == STORE_RECORD_METRICS) {
            TRY(add_series(c, k, record, e));
            TRY(report_repeat_check(c, k, record, e));
        } else if (record->kind == STORE_RECORD_ARTIFACT)
            TRY(write_artifact(c, k, b, record, e));
        else if (record->kind == STORE_RECORD_NOTICE)
            TRY(write_notice(c, b, record, last_event, e));
        else if (record->kind == STORE_RECORD_END)
            TRY(write_end(c, b, record, e));
        else if (record->kind == STORE_RECORD_RESOLVED_PLAN)
            TRY(write_plan(c, k, b, record, e));
    }
    int64_t lines;
    TRY(log_write(c, b, w->from[i], &lines, e));
    w->lines += lines;
    return ST_OK;
}

/* ---- lost records ---- */

static int64_t first_step(const struct store_batch *b) {
    for (size_t i = 0; i < b->n; i++)
        if (b->records[i].kind == STORE_RECORD_METRICS)
            return b->records[i].metrics.step;
    return -1;
}

static void describe_loss(const struct store_batch *b, int64_t mark, int64_t stored_step, char *ret, size_t n) {
    const int64_t next = first_step(b), first = mark + 1, last = b->first_sequence - 1;
    char steps[80];
    if (next >= stored_step)
        snprintf(steps, sizeof steps, "its metrics of steps %lld to %lld are missing, in whole or in part",
                 (long long)stored_step, (long long)next);
    else
        snprintf(steps, sizeof steps, "its metrics from step %lld on may be missing", (long long)stored_step);
    snprintf(ret, n,
             "%lld records of rank %d (numbers %lld to %lld) are lost: the database had stored them and was then "
             "rolled back, "
             "and the executor's spool no longer holds them; %s",
             (long long)(last - first + 1), b->rank, (long long)first, (long long)last, steps);
}

/* Moves the mark over the records that the sender no longer has. */
static status_t skip_lost(struct connection *c, struct rank_memory *k, const struct store_batch *b, int64_t last_event,
                          struct store_batch_result *result, struct err *e) {
    char text[400];
    int64_t stored_step;
    TRY(sql_get(c, NULL, &RANK_STEP, ARGS(arg_int8(b->job), arg_int4(b->attempt), arg_int4(b->rank)), &stored_step,
                "PostgreSQL returned no last step of the rank", e));
    describe_loss(b, k->sequence, stored_step, text, sizeof text);
    result->lost = b->first_sequence - 1 - k->sequence;
    k->sequence = b->first_sequence - 1;
    TRY(sql_execute(c, &JOB_LOST, ARGS(arg_int8(b->job), arg_int8(result->lost)), NULL, e));
    return last_event < EVENTS_PER_JOB ? event_write(c, b->job, b->attempt, "records_lost", text, NULL, NULL, e)
                                       : ST_OK;
}

/* More than any rank reports. */
#define MAX_SEQUENCE (INT64_C(1) << 48)

/* Checks numbers from outside, so that no sum of them overflows. */
static bool numbers_possible(const struct store_batch *b) {
    return b->first_sequence >= 1 && b->lost >= 0 && b->lost < b->first_sequence && b->first_sequence <= MAX_SEQUENCE;
}

/* Decides whether a batch is fenced, a gap, or partly stored; then writes its rare records. */
static status_t take_batch(struct connection *c, struct write *w, size_t i, const struct jobs *jobs, struct err *e) {
    const struct store_batch *b = &w->batches[i];
    struct store_batch_result *result = &w->results[i];
    const struct job_events *job = find_job(jobs->all, jobs->n_all, sizeof *jobs->all, b->job);
    const struct open_attempt *open = find_job(jobs->open, jobs->n_open, sizeof *jobs->open, b->job);
    result->fenced = !job || !open || open->number != b->attempt;
    if (result->fenced)
        return ST_OK;
    struct rank_memory *k;
    TRY(rank_table_get(w->r->ranks, c, b, w->r->write, w->now_ms, &k, e));
    /* After a restore, an attempt that the database lost may have the number of a later one on other executors. Both
     * send records of the same rank. */
    result->fenced = !k->executor || strcmp(k->executor, b->executor) != 0;
    if (result->fenced)
        return ST_OK;
    result->gap = !numbers_possible(b) || b->first_sequence - b->lost > k->sequence + 1;
    result->sequence = k->sequence;
    if (result->gap)
        return ST_OK;
    if (b->first_sequence > k->sequence + 1)
        TRY(skip_lost(c, k, b, job->last_event, result, e));
    int64_t known = k->sequence - b->first_sequence + 1;
    w->from[i] = known > (int64_t)b->n ? b->n : (size_t)known;
    w->ranks[i] = k;
    k->sequence += (int64_t)(b->n - w->from[i]);
    result->sequence = k->sequence;
    w->records += (int64_t)(b->n - w->from[i]);
    for (size_t at = w->from[i]; at < b->n; at++)
        report_seconds_add(&k->time, k->of_program, k->repeats_until, &b->records[at]);
    return write_rare(c, w, i, job->last_event, e);
}

/* ---- metrics and marks, in one pipeline ---- */

struct pipe {
    struct connection *c;
    size_t sent;
    struct chunk_args chunk;
};

static status_t send_statement(struct pipe *p, const struct sql *q, const struct sql_arg *args, struct err *e) {
    p->sent++;
    return sql_pipeline_send(p->c, q, args, e);
}

static status_t send_chunk(struct pipe *p, const struct rank_memory *k, struct series *s, struct err *e) {
    TRY(send_statement(p, series_statement(s), series_arguments(k, s, &p->chunk), e));
    s->stored = true;
    s->unsaved = false;
    return ST_OK;
}

static status_t send_row(struct pipe *p, struct write *w, struct rank_memory *k, const struct store_record *record,
                         struct err *e) {
    for (size_t i = 0; i < record->metrics.n; i++) {
        struct series *s = rank_series_find(k, record->metrics.names[i], i);
        if (!s)
            continue;
        if (!series_fits(s, record->metrics.step, record->time_us)) {
            if (s->unsaved)
                TRY(send_chunk(p, k, s, e));
            series_next_chunk(s);
        }
        series_append(s, record->metrics.step, record->metrics.values[i], record->time_us);
        w->points++;
    }
    return ST_OK;
}

static status_t send_batch(struct pipe *p, struct write *w, size_t i, struct err *e) {
    const struct store_batch *b = &w->batches[i];
    struct store_batch_result *result = &w->results[i];
    for (size_t at = w->from[i]; at < b->n; at++) {
        const struct store_record *record = &b->records[at];
        if (record->kind != STORE_RECORD_METRICS)
            continue;
        TRY(send_row(p, w, w->ranks[i], record, e));
        if (record->metrics.step > result->step)
            result->step = record->metrics.step;
    }
    return ST_OK;
}

#define STEP_ARGS(job, step) ARGS(arg_int8(job), arg_int8(step))
#define ARGS_OF_RANK(k)      arg_int8((k)->job), arg_int4((k)->attempt), arg_int4((k)->rank)
#define MARK_ARGS(k)                                                                                                   \
    ARGS(ARGS_OF_RANK(k), arg_int8((k)->sequence), arg_int8((k)->time.joined_us), arg_int8((k)->time.begun_us),        \
         arg_int8((k)->time.until_us), arg_int8((k)->time.data_us), arg_int8((k)->time.compute_us),                    \
         arg_int8((k)->time.waiting_us), arg_int8((k)->time.checkpoint_us), arg_int8((k)->time.repeated_us))

/* The unfilled chunks of a rank, and its mark. */
static status_t send_rest(struct pipe *p, const struct write *w, size_t i, struct err *e) {
    struct rank_memory *k = w->ranks[i];
    for (size_t s = 0; s < k->n_series; s++)
        if (k->series[s]->unsaved)
            TRY(send_chunk(p, k, k->series[s], e));
    TRY(send_statement(p, &MARK_MOVE, MARK_ARGS(k), e));
    if (k->rank != 0 || w->results[i].step == 0)
        return ST_OK;
    return send_statement(p, &JOB_STEP, STEP_ARGS(k->job, w->results[i].step), e);
}

static status_t prepare(struct connection *c, struct err *e) {
    static const struct rank_memory rank;
    TRY(series_prepare(c, e));
    TRY(sql_pipeline_prepare(c, &MARK_MOVE, MARK_ARGS(&rank), e));
    return sql_pipeline_prepare(c, &JOB_STEP, STEP_ARGS(0, 0), e);
}

static status_t write_pipeline(struct connection *c, struct write *w, struct err *e) {
    TRY(prepare(c, e));
    CLEANUP(freep) struct pipe *p = alloc_zeroed(1, sizeof *p);
    p->c = c;
    TRY(sql_pipeline_begin(c, e));
    for (size_t i = 0; i < w->n; i++)
        if (w->ranks[i])
            TRY(send_batch(p, w, i, e));
    for (size_t i = 0; i < w->n; i++)
        if (w->ranks[i] && (w->from[i] < w->batches[i].n || w->results[i].lost > 0))
            TRY(send_rest(p, w, i, e));
    return sql_pipeline_end(c, p->sent, e);
}

/* ---- the transaction ---- */

static status_t read_events(struct connection *c, struct write *w, struct err *e) {
    for (size_t i = 0; i < w->n; i++) {
        if (!w->ranks[i])
            continue;
        if (i > 0 && w->ranks[i - 1] && w->batches[i].job == w->batches[i - 1].job) {
            w->results[i].last_event = w->results[i - 1].last_event;
            continue;
        }
        TRY(sql_get(c, NULL, &JOB_EVENT, ARGS(arg_int8(w->batches[i].job)), &w->results[i].last_event,
                    "the job does not exist", e));
    }
    return ST_OK;
}

static status_t write_all(struct connection *c, struct write *w, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct jobs jobs;
    if (!w->r->ranks_valid)
        rank_table_forget(w->r->ranks);
    w->r->ranks_valid = false;
    w->r->write++;
    w->now_ms = clock_mono_ms();
    w->records = w->points = w->lines = 0;
    memset(w->results, 0, w->n * sizeof *w->results);
    memset(w->ranks, 0, w->n * sizeof *w->ranks);
    memset(w->from, 0, w->n * sizeof *w->from);
    TRY(lock_jobs(c, m, w, &jobs, e));
    for (size_t i = 0; i < w->n; i++)
        TRY(take_batch(c, w, i, &jobs, e));
    TRY(write_pipeline(c, w, e));
    return read_events(c, w, e);
}

static void count(const struct write *w, int64_t took_ns) {
    struct store *s = w->r->store;
    histogram_add(&s->times.reports, took_ns);
    pthread_mutex_lock(&s->lock);
    s->stats.records += w->records;
    s->stats.points += w->points;
    s->stats.log_lines += w->lines;
    pthread_mutex_unlock(&s->lock);
}

static status_t write_once(struct store_report *r, const struct store_batch *batches, size_t n,
                           struct store_batch_result *results, struct err *e) {
    CLEANUP(freep) struct rank_memory **ranks = alloc_zeroed(n, sizeof *ranks);
    CLEANUP(freep) size_t *from = alloc_zeroed(n, sizeof *from);
    struct write w = { .r = r, .batches = batches, .n = n, .results = results, .ranks = ranks, .from = from };
    int64_t start = clock_mono_ns();
    TRY(STORE_WRITE(r->store, r->epoch, c, write_all(c, &w, e), e));
    r->ranks_valid = true;
    count(&w, clock_mono_ns() - start);
    return ST_OK;
}

status_t store_report_write(struct store_report *r, const struct store_batch *batches, size_t n,
                            struct store_batch_result *results, struct err *e) {
    if (n == 0)
        return ST_OK;
    status_t st = write_once(r, batches, n, results, e);
    return report_refused(st) ? report_write_split(r, write_once, batches, n, results, e) : st;
}
