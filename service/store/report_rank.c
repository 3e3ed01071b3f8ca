/* The ranks that a writer knows, and how they are read back.
 *
 * The table is a hash of (job, attempt, rank) with chains. A rank that it lacks is read from two places: its row of
 * placement and rank_sequence (RANK_MARK: its executor, its mark, its time), and the last chunk of each of its series
 * (RANK_TAILS). An unfilled last chunk is decoded, so that new points are added to it; a full one only fixes the number
 * of the next chunk. The ranks are also in a list by their last use. When the table has too many bytes, those that were
 * unused for longest are evicted; so are those that were unused for RANK_UNUSED_MS, which usually have ended. Nothing
 * is lost, because their rows have everything.
 *
 * A name is interned when the first rank of a job uses it: a row of metric_name, which is locked against deletion until
 * the transaction ends, and a row of job_metric, which keeps it from then on. The table remembers the names of jobs, so
 * that the other ranks need no statement for them. */
#include "service/store/report_rank.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank_row {
    const char *executor;
    bool known; /* it has a mark */
    int64_t sequence;
    bool of_program;
    int64_t repeats_until;
    struct rank_time time;
};
static const struct sql_query RANK_MARK = {
    { "rank_mark", "SELECT {columns} FROM placement p JOIN job j ON j.id = p.job "
                   "JOIN attempt a ON a.job = p.job AND a.number = p.attempt LEFT JOIN rank_sequence s "
                   "ON s.job = p.job AND s.attempt = p.attempt AND s.rank = p.rank "
                   "WHERE p.job = $1 AND p.attempt = $2 AND p.rank = $3" },
    SQL_ROW(struct rank_row, SQL_COLUMN(struct rank_row, executor, "p.executor"),
            SQL_COLUMN(struct rank_row, known, "s.sequence IS NOT NULL"),
            SQL_COLUMN(struct rank_row, sequence, "s.sequence"), SQL_COLUMN(struct rank_row, of_program, "j.steps = 0"),
            SQL_COLUMN(struct rank_row, repeats_until, "a.repeats_until"),
            SQL_COLUMN(struct rank_row, time.joined_us, "s.joined_us"),
            SQL_COLUMN(struct rank_row, time.begun_us, "s.begun_us"),
            SQL_COLUMN(struct rank_row, time.until_us, "s.until_us"),
            SQL_COLUMN(struct rank_row, time.data_us, "s.data_us"),
            SQL_COLUMN(struct rank_row, time.compute_us, "s.compute_us"),
            SQL_COLUMN(struct rank_row, time.waiting_us, "s.waiting_us"),
            SQL_COLUMN(struct rank_row, time.checkpoint_us, "s.checkpoint_us"),
            SQL_COLUMN(struct rank_row, time.repeated_us, "s.repeated_us"))
};
/* The last chunk of each of the job's metrics is found by one search of the index. */
struct tail {
    int name_id;
    const char *name;
    int number, n, stride;
    int64_t first_step, first_time_us;
    struct sql_array values, offsets; /* offsets: empty if the steps are regular */
    const uint8_t *times;
    size_t times_bytes;
};
static const struct sql_query RANK_TAILS = {
    { "rank_tails", "SELECT {columns} FROM job_metric j JOIN metric_name m ON m.id = j.name "
                    "CROSS JOIN LATERAL (SELECT * FROM metric_chunk WHERE job = $1 AND name = j.name AND rank = $3 "
                    "AND attempt = $2 ORDER BY number DESC LIMIT 1) k WHERE j.job = $1" },
    SQL_ROW(struct tail, SQL_COLUMN(struct tail, name_id, "m.id"), SQL_COLUMN(struct tail, name, "m.name"),
            SQL_COLUMN(struct tail, number, "k.number"), SQL_COLUMN(struct tail, n, "k.n"),
            SQL_COLUMN(struct tail, stride, "k.stride"), SQL_COLUMN(struct tail, first_step, "k.first_step"),
            SQL_COLUMN(struct tail, first_time_us, "k.first_time"), SQL_COLUMN(struct tail, values, "k.values"),
            SQL_COLUMN(struct tail, offsets, "k.offsets"), SQL_COLUMN_BYTES(struct tail, times, times_bytes, "k.times"))
};
static const struct sql NAME_ADD = { "name_add", "INSERT INTO metric_name (name) SELECT $1 WHERE NOT EXISTS "
                                                 "(SELECT 1 FROM metric_name WHERE name = $1) ON CONFLICT DO NOTHING" };
static const struct sql_query NAME_ID = {
    { "name_id", "SELECT {columns} FROM metric_name WHERE name = $1 FOR KEY SHARE" }, SQL_SCALAR(int, "id")
};
static const struct sql JOB_NAME_ADD = { "job_name_add", "INSERT INTO job_metric (job, name) SELECT $1, $2 "
                                                         "WHERE NOT EXISTS (SELECT 1 FROM job_metric "
                                                         "WHERE job = $1 AND name = $2) ON CONFLICT DO NOTHING" };
enum { INTERN_TRIES = 5 };

/* ---- memory ---- */

enum { BUCKET_BITS = 14, BUCKETS = 1 << BUCKET_BITS };
struct rank_table {
    struct rank_memory *buckets[BUCKETS];
    struct rank_memory *oldest, *newest;
    size_t bytes, max_bytes; /* of ranks and series, without what report_repeat.c keeps */
    void *names;             /* a tsearch(3) tree of struct job_name */
    size_t n_names;
};

/* A name that the job has. */
struct job_name {
    int64_t job;
    int id;
    char name[LIMIT_METRIC_NAME_BYTES + 1];
};
/* Beyond so many names all are forgotten, and found again when they are used. */
enum { NAMES_MAX = 1 << 16 };

static void rank_free(struct rank_memory *k) {
    for (size_t i = 0; i < k->n_series; i++) {
        free(k->series[i]->repeated);
        free(k->series[i]->repeated_points);
        free(k->series[i]);
    }
    k->table->bytes -= sizeof *k + k->n_series * sizeof(struct series);
    free(k->series);
    free(k->executor);
    free(k);
}

struct rank_table *rank_table_new(size_t max_bytes) {
    struct rank_table *t = alloc_zeroed(1, sizeof *t);
    t->max_bytes = max_bytes;
    return t;
}

size_t rank_table_bytes(const struct rank_table *t) { return t->bytes; }

static int by_job_and_name(const void *a, const void *b) {
    const struct job_name *x = a, *y = b;
    return x->job != y->job ? (x->job > y->job) - (x->job < y->job) : strcmp(x->name, y->name);
}

static void names_forget(struct rank_table *t) {
    tdestroy(t->names, free);
    t->names = NULL;
    t->n_names = 0;
}

void rank_table_forget(struct rank_table *t) {
    names_forget(t);
    for (struct rank_memory *k = t->oldest, *next; k; k = next) {
        next = k->newer;
        rank_free(k);
    }
    memset(t->buckets, 0, sizeof t->buckets);
    t->oldest = t->newest = NULL;
}

struct rank_table *rank_table_free(struct rank_table *t) {
    if (t)
        rank_table_forget(t);
    free(t);
    return NULL;
}

static struct rank_memory **bucket_of(struct rank_table *t, int64_t job, int attempt, int rank) {
    uint64_t h = (uint64_t)job * 0x9e3779b97f4a7c15u + (uint64_t)attempt * 0xc2b2ae3d27d4eb4fu + (uint64_t)rank;
    return &t->buckets[(h ^ h >> 29) * 0xbf58476d1ce4e5b9u >> (64 - BUCKET_BITS)];
}

static void list_remove(struct rank_table *t, struct rank_memory *k) {
    *(k->older ? &k->older->newer : &t->oldest) = k->newer;
    *(k->newer ? &k->newer->older : &t->newest) = k->older;
}

static void list_append(struct rank_table *t, struct rank_memory *k) {
    k->older = t->newest;
    k->newer = NULL;
    *(t->newest ? &t->newest->newer : &t->oldest) = k;
    t->newest = k;
}

static void evict_oldest(struct rank_table *t) {
    struct rank_memory *gone = t->oldest;
    struct rank_memory **at = bucket_of(t, gone->job, gone->attempt, gone->rank);
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    list_remove(t, gone);
    rank_free(gone);
}

/* Never evicts a rank that this write uses. */
static void evict(struct rank_table *t, uint64_t write, int64_t now_ms) {
    while (t->oldest && t->oldest->used != write &&
           (t->bytes > t->max_bytes || t->oldest->used_ms < now_ms - RANK_UNUSED_MS))
        evict_oldest(t);
}

/* ---- series ---- */

static struct series *series_grow(struct rank_memory *k) {
    k->series = alloc_grow(k->series, k->n_series, sizeof *k->series);
    k->table->bytes += sizeof(struct series);
    return k->series[k->n_series++] = alloc_zeroed(1, sizeof(struct series));
}

struct series *rank_series_find(const struct rank_memory *k, const char *name, size_t hint) {
    if (hint < k->n_series && strcmp(k->series[hint]->name, name) == 0)
        return k->series[hint];
    for (size_t i = 0; i < k->n_series; i++)
        if (strcmp(k->series[i]->name, name) == 0)
            return k->series[i];
    return NULL;
}

static int name_known(const struct rank_table *t, int64_t job, const char *name) {
    struct job_name key = { .job = job };
    snprintf(key.name, sizeof key.name, "%s", name);
    struct job_name *const *node = tfind(&key, &t->names, by_job_and_name);
    return node ? (*node)->id : 0;
}

static void name_remember(struct rank_table *t, int64_t job, const char *name, int id) {
    if (t->n_names >= NAMES_MAX)
        names_forget(t);
    struct job_name *entry = alloc_zeroed(1, sizeof *entry);
    entry->job = job;
    entry->id = id;
    snprintf(entry->name, sizeof entry->name, "%s", name);
    alloc_tree_node(entry, &t->names, by_job_and_name);
    t->n_names++;
}

/* A name that exists may be deleted, with the last job that had it, before it is locked. Then it is added again. */
static status_t name_intern(struct connection *c, int64_t job, const char *name, int *ret, struct err *e) {
    bool found = false;
    for (int i = 0; i < INTERN_TRIES && !found; i++) {
        TRY(sql_execute(c, &NAME_ADD, ARGS(arg_text(name)), NULL, e));
        TRY(sql_find(c, NULL, &NAME_ID, ARGS(arg_text(name)), ret, &found, e));
    }
    if (!found)
        return err_set(e, ST_UNAVAILABLE, "the metric's name '%s' was deleted whenever it was added", name);
    return sql_execute(c, &JOB_NAME_ADD, ARGS(arg_int8(job), arg_int4(*ret)), NULL, e);
}

status_t rank_series_add(struct rank_memory *k, struct connection *c, const char *name, struct series **ret,
                         struct err *e) {
    size_t len = strlen(name);
    if (len == 0 || len > LIMIT_METRIC_NAME_BYTES || !utf8_valid(name, len))
        return err_set(e, ST_INVALID_ARGUMENT, "a metric's name has 1 to %d bytes of UTF-8", LIMIT_METRIC_NAME_BYTES);
    if (k->n_series == STORE_SERIES_PER_RANK)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "rank %d reports more than %d metrics", k->rank,
                       STORE_SERIES_PER_RANK);
    int id = name_known(k->table, k->job, name);
    if (!id) {
        TRY(name_intern(c, k->job, name, &id, e));
        name_remember(k->table, k->job, name, id);
    }
    struct series *s = series_grow(k);
    memcpy(s->name, name, len + 1);
    s->name_id = id;
    *ret = s;
    return ST_OK;
}

/* ---- loading ---- */

static void load_tail(struct rank_memory *k, const struct tail *tail) {
    struct series *s = series_grow(k);
    s->name_id = tail->name_id;
    snprintf(s->name, sizeof s->name, "%s", tail->name);
    s->number = tail->number;
    s->n = tail->n;
    s->stored = true;
    for (size_t i = 0; i < tail->values.n && i < STORE_CHUNK_POINTS; i++) {
        s->values[i] = sql_array_double(&tail->values, i);
        s->steps[i] = tail->first_step +
                      (tail->offsets.n ? sql_array_int4(&tail->offsets, i) : (int64_t)i * tail->stride);
    }
    s->first_time_us = tail->first_time_us;
    times_unpack(tail->times, tail->times_bytes, (size_t)s->n, s->times_ms);
    /* A chunk that was stored before times were is left as it is. */
    if (s->n == STORE_CHUNK_POINTS || !tail->times)
        series_next_chunk(s);
}

static status_t rank_load(struct rank_memory *k, struct connection *c, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    const struct sql_arg *key = ARGS(arg_int8(k->job), arg_int4(k->attempt), arg_int4(k->rank));
    struct rank_row row;
    struct tail *tails;
    size_t n;
    bool found;
    TRY(sql_find(c, m, &RANK_MARK, key, &row, &found, e));
    if (!found)
        return ST_OK;
    k->executor = alloc_copy_text(row.executor);
    k->of_program = row.of_program;
    k->repeats_until = row.repeats_until;
    if (!row.known)
        return ST_OK;
    k->sequence = row.sequence;
    k->time = row.time;
    TRY(sql_rows(c, m, &RANK_TAILS, key, &tails, &n, e));
    for (size_t i = 0; i < n; i++)
        load_tail(k, &tails[i]);
    return ST_OK;
}

static void use(struct rank_memory *k, uint64_t write, int64_t now_ms) {
    k->used = write;
    k->used_ms = now_ms;
    list_append(k->table, k);
}

status_t rank_table_get(struct rank_table *t, struct connection *c, const struct store_batch *batch, uint64_t write,
                        int64_t now_ms, struct rank_memory **ret, struct err *e) {
    struct rank_memory **bucket = bucket_of(t, batch->job, batch->attempt, batch->rank);
    for (struct rank_memory *k = *bucket; k; k = k->next)
        if (k->job == batch->job && k->attempt == batch->attempt && k->rank == batch->rank) {
            list_remove(t, k);
            use(k, write, now_ms);
            evict(t, write, now_ms);
            *ret = k;
            return ST_OK;
        }
    evict(t, write, now_ms);
    struct rank_memory *k = alloc_zeroed(1, sizeof *k);
    k->table = t;
    t->bytes += sizeof *k;
    k->job = batch->job;
    k->attempt = batch->attempt;
    k->rank = batch->rank;
    status_t st = rank_load(k, c, e);
    if (st != ST_OK) {
        rank_free(k);
        return st;
    }
    k->next = *bucket;
    *bucket = k;
    use(k, write, now_ms);
    *ret = k;
    return ST_OK;
}
