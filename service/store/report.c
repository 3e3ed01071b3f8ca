#include "service/store/report.h"

#include "base/clock.h"
#include "service/store/checkpoint_shard.h"
#include "service/store/job_lock.h"
#include "service/store/pool.h"
#include "service/store/report_apart.h"
#include "service/store/report_log.h"
#include "service/store/report_rank.h"
#include "service/store/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Events of one job that workers may cause by notices: what comes after is dropped. */
#define EVENTS_PER_JOB 100000

static const struct sql JOBS_LOCK = { "jobs_lock", "SELECT id, last_event FROM job WHERE id = ANY ($1) "
                                                   "ORDER BY id FOR NO KEY UPDATE" };
/* A statement of its own: its snapshot is taken after the locks. */
static const struct sql JOBS_OPEN = {
    "jobs_open", "SELECT job, number FROM attempt WHERE job = ANY ($1) AND state < " SQL_ATTEMPT_ENDED " "
                 "ORDER BY job"
};
static const struct sql JOB_EVENT = { "job_event", "SELECT last_event FROM job WHERE id = $1" };
static const struct sql JOB_STEP = { "job_step", "UPDATE job SET step = $2 WHERE id = $1 AND step < $2" };
static const struct sql JOB_RESULT = { "job_result", "UPDATE job SET weights_sha256 = $2 WHERE id = $1" };
static const struct sql RANK_WORD = { "rank_word", "UPDATE placement SET word_cause = $4, word_message = $5 "
                                                   "WHERE job = $1 AND attempt = $2 AND rank = $3" };
static const struct sql SPEC_GET = { "spec_get", "SELECT body FROM job_spec WHERE job = $1" };
static const struct sql SPEC_SET = { "spec_set", "UPDATE job_spec SET body = $2 WHERE job = $1" };
static const struct sql MARK_MOVE = {
    "mark_move", "INSERT INTO rank_sequence AS s (job, attempt, rank, sequence) VALUES ($1, $2, $3, $4) "
                 "ON CONFLICT (job, attempt, rank) DO UPDATE SET sequence = $4 WHERE s.sequence < $4"
};

struct store_report {
    struct store *store;
    int64_t epoch;
    struct rank_table *ranks;
    bool sure;      /* the ranks' memory is what the rows say */
    uint64_t write; /* counts calls */
};

/* One call's state. */
struct write {
    struct store_report *r;
    const struct store_batch *batches;
    size_t n;
    struct store_batch_result *results;
    struct rank_memory **ranks; /* [n] NULL: the batch stores nothing */
    size_t *from;               /* [n] its first record that is new */
    int64_t records, points, lines;
};

struct store_report *store_report_close(struct store_report *r) {
    if (r)
        rank_table_free(r->ranks);
    free(r);
    return NULL;
}

status_t store_report_open(struct store *s, int64_t epoch, struct store_report **ret, struct err *e) {
    CLEANUP(store_report_closep) struct store_report *r = calloc(1, sizeof *r);
    if (r)
        r->ranks = rank_table_new();
    if (!r || !r->ranks)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a writer of reports");
    r->store = s;
    r->epoch = epoch;
    *ret = take_ptr(&r);
    return ST_OK;
}

/* ---- the jobs ---- */

struct jobs {
    PGresult *all;  /* id, last event: locked, in ascending order, so that two writers never wait for each other */
    PGresult *open; /* job, number of its attempt that has not ended */
};

static void jobs_done(struct jobs *j) {
    PQclear(j->all);
    PQclear(j->open);
}

static status_t lock_jobs(struct connection *c, const struct write *w, struct jobs *ret, struct err *e) {
    CLEANUP(freep) int64_t *ids = calloc(w->n, sizeof *ids);
    CLEANUP(freep) char *buffer = malloc(sql_array_bytes_8(w->n));
    if (!ids || !buffer)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu batches", w->n);
    for (size_t i = 0; i < w->n; i++)
        ids[i] = w->batches[i].job;
    struct sql_args a = { 0 };
    sql_add_int8_array(&a, buffer, ids, w->n);
    TRY(sql_run(c, &JOBS_LOCK, &a, &ret->all, e));
    return sql_run(c, &JOBS_OPEN, &a, &ret->open, e);
}

/* The row whose first column is the job; -1 when there is none. */
static int row_of(const PGresult *rows, int64_t job) {
    int low = 0, high = PQntuples(rows) - 1;
    while (low <= high) {
        int mid = (low + high) / 2;
        int64_t id = sql_int8(rows, mid, 0);
        if (id == job)
            return mid;
        if (id < job)
            low = mid + 1;
        else
            high = mid - 1;
    }
    return -1;
}

/* ---- records that are rare, each by statements of its own ---- */

/* Event kinds are names; a worker's own that is none is told under one. */
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
    struct sentence said;
    struct sql_args a = { 0 };
    sql_add_int8(&a, b->job);
    sql_add_int4(&a, b->attempt);
    sql_add_int4(&a, b->rank);
    sql_add_int2(&a, record->end.cause);
    sql_add_text(&a, sentence_of(record->end.message, &said));
    TRY(sql_run(c, &RANK_WORD, &a, NULL, e));
    if (!sha256_hex_valid(record->end.weights_sha256))
        return ST_OK;
    struct sql_args result = { 0 };
    sql_add_int8(&result, b->job);
    sql_add_text(&result, record->end.weights_sha256);
    return sql_run(c, &JOB_RESULT, &result, NULL, e);
}

static status_t tell_dropped(struct connection *c, struct rank_memory *k, const char *why, struct err *e) {
    if (k->dropped_told)
        return ST_OK;
    k->dropped_told = true;
    return event_write(c, k->job, k->attempt, "records_dropped", why, NULL, NULL, e);
}

/* The job's row is locked, so that the spec which is read is the one that is replaced. */
static status_t write_chosen(struct connection *c, struct rank_memory *k, const struct store_batch *b,
                             const struct store_record *record, struct err *e) {
    struct sql_args key = { 0 }, a = { 0 };
    sql_add_int8(&key, b->job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    CLEANUP(freep) void *spec = NULL;
    size_t n = 0;
    struct err why;
    if (b->rank != 0)
        return tell_dropped(c, k, "a plan is chosen by rank 0 alone", e);
    TRY(sql_run_one(c, &SPEC_GET, &key, &r, "the job has no spec", e));
    status_t st = record->chosen.apply(record->chosen.plan, PQgetvalue(r, 0, 0), (size_t)PQgetlength(r, 0, 0), &spec,
                                       &n, &why);
    if (st == ST_INVALID_ARGUMENT)
        return tell_dropped(c, k, why.msg, e);
    if (st != ST_OK)
        return err_set(e, st, "%s", why.msg);
    if (!spec)
        return ST_OK;
    sql_add_int8(&a, b->job);
    sql_add_bytes(&a, spec, n);
    return sql_run(c, &SPEC_SET, &a, NULL, e);
}

/* A checkpoint that is COMMITTED is told for a repeated report too: the answer to the first one may have been lost. */
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
        return tell_dropped(c, k, why.msg, e);
    if (st != ST_OK)
        return known ? st : err_set(e, st, "%s", why.msg);
    note_committed(&o, record->shard.step, result);
    return ST_OK;
}

/* Makes every name known to the rank, so that the second walk needs no answers from the server. */
static status_t name_columns(struct connection *c, struct rank_memory *k, const struct store_record *record,
                             struct err *e) {
    for (size_t i = 0; i < record->metrics.n; i++) {
        if (rank_series_find(k, record->metrics.names[i], i))
            continue;
        struct series *s = NULL;
        struct err why;
        status_t st = rank_series_add(k, c, record->metrics.names[i], &s, &why);
        if (st == ST_INVALID_ARGUMENT || (st == ST_RESOURCE_EXHAUSTED && k->n_series == STORE_SERIES_PER_RANK))
            TRY(tell_dropped(c, k, why.msg, e));
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
        else if (record->kind == STORE_RECORD_METRICS)
            TRY(name_columns(c, k, record, e));
        else if (record->kind == STORE_RECORD_NOTICE)
            TRY(write_notice(c, b, record, last_event, e));
        else if (record->kind == STORE_RECORD_END)
            TRY(write_end(c, b, record, e));
        else if (record->kind == STORE_RECORD_CHOSEN)
            TRY(write_chosen(c, k, b, record, e));
    }
    int64_t lines;
    TRY(log_write(c, b, w->from[i], &lines, e));
    w->lines += lines;
    return ST_OK;
}

/* Fenced, gap, or how many of its records are known; then its rare records. */
static status_t take_batch(struct connection *c, struct write *w, size_t i, const struct jobs *jobs, struct err *e) {
    const struct store_batch *b = &w->batches[i];
    struct store_batch_result *result = &w->results[i];
    int row = row_of(jobs->all, b->job), open = row_of(jobs->open, b->job);
    result->fenced = row < 0 || open < 0 || sql_int4(jobs->open, open, 1) != b->attempt;
    if (result->fenced)
        return ST_OK;
    struct rank_memory *k;
    TRY(rank_table_get(w->r->ranks, c, b, w->r->write, &k, e));
    result->gap = b->n > 0 && b->first_sequence > k->sequence + 1;
    result->sequence = k->sequence;
    if (result->gap)
        return ST_OK;
    int64_t known = k->sequence - b->first_sequence + 1;
    w->from[i] = known > (int64_t)b->n ? b->n : (size_t)known;
    w->ranks[i] = k;
    k->sequence += (int64_t)(b->n - w->from[i]);
    result->sequence = k->sequence;
    w->records += (int64_t)(b->n - w->from[i]);
    return write_rare(c, w, i, sql_int8(jobs->all, row, 1), e);
}

/* ---- metrics and marks, in one pipeline ---- */

struct pipe {
    struct connection *c;
    size_t sent;
    struct chunk_args chunk;
};

static status_t send_chunk(struct pipe *p, const struct rank_memory *k, struct series *s, struct err *e) {
    series_arguments(k, s, &p->chunk);
    p->sent++;
    TRY(sql_pipeline_send(p->c, series_statement(s), &p->chunk.args, e));
    s->stored = true;
    s->dirty = false;
    return ST_OK;
}

static status_t send_row(struct pipe *p, struct write *w, struct rank_memory *k, const struct store_record *record,
                         struct err *e) {
    for (size_t i = 0; i < record->metrics.n; i++) {
        struct series *s = rank_series_find(k, record->metrics.names[i], i);
        if (!s)
            continue;
        if (!series_has_room(s, record->metrics.step, record->time_us)) {
            if (s->dirty)
                TRY(send_chunk(p, k, s, e));
            series_turn(s);
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

static void step_arguments(struct sql_args *a, int64_t job, int64_t step) {
    sql_add_int8(a, job);
    sql_add_int8(a, step);
}

static void mark_arguments(struct sql_args *a, const struct rank_memory *k) {
    sql_add_int8(a, k->job);
    sql_add_int4(a, k->attempt);
    sql_add_int4(a, k->rank);
    sql_add_int8(a, k->sequence);
}

/* The unfilled chunks of a rank, and its mark. */
static status_t send_rest(struct pipe *p, const struct write *w, size_t i, struct err *e) {
    struct rank_memory *k = w->ranks[i];
    for (size_t s = 0; s < k->n_series; s++)
        if (k->series[s]->dirty)
            TRY(send_chunk(p, k, k->series[s], e));
    struct sql_args mark = { 0 };
    mark_arguments(&mark, k);
    p->sent++;
    TRY(sql_pipeline_send(p->c, &MARK_MOVE, &mark, e));
    if (k->rank != 0 || w->results[i].step == 0)
        return ST_OK;
    struct sql_args step = { 0 };
    step_arguments(&step, k->job, w->results[i].step);
    p->sent++;
    return sql_pipeline_send(p->c, &JOB_STEP, &step, e);
}

static status_t prepare(struct connection *c, struct err *e) {
    static const struct rank_memory rank;
    struct sql_args mark = { 0 }, step = { 0 };
    mark_arguments(&mark, &rank);
    step_arguments(&step, 0, 0);
    TRY(series_prepare(c, e));
    TRY(sql_prepare(c, &MARK_MOVE, &mark, e));
    return sql_prepare(c, &JOB_STEP, &step, e);
}

static status_t write_pipeline(struct connection *c, struct write *w, struct err *e) {
    TRY(prepare(c, e));
    CLEANUP(freep) struct pipe *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a pipeline");
    p->c = c;
    TRY(sql_pipeline_begin(c, e));
    for (size_t i = 0; i < w->n; i++)
        if (w->ranks[i])
            TRY(send_batch(p, w, i, e));
    for (size_t i = 0; i < w->n; i++)
        if (w->ranks[i] && w->from[i] < w->batches[i].n)
            TRY(send_rest(p, w, i, e));
    return sql_pipeline_end(c, p->sent, NULL, e);
}

/* ---- the whole ---- */

static status_t read_events(struct connection *c, struct write *w, struct err *e) {
    for (size_t i = 0; i < w->n; i++) {
        if (!w->ranks[i])
            continue;
        if (i > 0 && w->ranks[i - 1] && w->batches[i].job == w->batches[i - 1].job) {
            w->results[i].last_event = w->results[i - 1].last_event;
            continue;
        }
        struct sql_args a = { 0 };
        sql_add_int8(&a, w->batches[i].job);
        CLEANUP(sql_clearp) PGresult *r = NULL;
        TRY(sql_run_one(c, &JOB_EVENT, &a, &r, "the job does not exist", e));
        w->results[i].last_event = sql_int8(r, 0, 0);
    }
    return ST_OK;
}

static status_t write_body(struct connection *c, void *ctx, struct err *e) {
    struct write *w = ctx;
    if (!w->r->sure)
        rank_table_forget(w->r->ranks);
    w->r->sure = false;
    w->r->write++;
    w->records = w->points = w->lines = 0;
    memset(w->results, 0, w->n * sizeof *w->results);
    memset(w->ranks, 0, w->n * sizeof *w->ranks);
    memset(w->from, 0, w->n * sizeof *w->from);
    CLEANUP(jobs_done) struct jobs jobs = { 0 };
    TRY(lock_jobs(c, w, &jobs, e));
    for (size_t i = 0; i < w->n; i++)
        TRY(take_batch(c, w, i, &jobs, e));
    TRY(write_pipeline(c, w, e));
    return read_events(c, w, e);
}

static void count(const struct write *w, int64_t took_ns) {
    struct store *s = w->r->store;
    pthread_mutex_lock(&s->lock);
    s->stats.records += w->records;
    s->stats.points += w->points;
    s->stats.log_lines += w->lines;
    s->stats.report_transactions++;
    s->stats.report_ns += took_ns;
    pthread_mutex_unlock(&s->lock);
}

static status_t write_once(struct store_report *r, const struct store_batch *batches, size_t n,
                           struct store_batch_result *results, struct err *e) {
    CLEANUP(freep) struct rank_memory **ranks = calloc(n, sizeof *ranks);
    CLEANUP(freep) size_t *from = calloc(n, sizeof *from);
    if (!ranks || !from)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu batches", n);
    struct write w = { .r = r, .batches = batches, .n = n, .results = results, .ranks = ranks, .from = from };
    int64_t start = clock_mono_ns();
    TRY(store_transact(r->store, r->epoch, write_body, &w, e));
    r->sure = true;
    count(&w, clock_mono_ns() - start);
    return ST_OK;
}

status_t store_report_write(struct store_report *r, const struct store_batch *batches, size_t n,
                            struct store_batch_result *results, struct err *e) {
    if (n == 0)
        return ST_OK;
    status_t st = write_once(r, batches, n, results, e);
    return report_refused(st) ? report_write_apart(r, write_once, batches, n, results, e) : st;
}
