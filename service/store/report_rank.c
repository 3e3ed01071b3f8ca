#include "service/store/report_rank.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const struct sql RANK_MARK = {
    "rank_mark", "SELECT sequence FROM rank_sequence WHERE job = $1 AND attempt = $2 AND rank = $3"
};
/* Names are few, and each one's last chunk is one step into the index. */
static const struct sql RANK_TAILS = {
    "rank_tails", "SELECT m.id, m.name, k.number, k.n, k.stride, k.first_step, k.values, k.offsets, "
                  "k.first_time, k.times FROM metric_name m "
                  "CROSS JOIN LATERAL (SELECT * FROM metric_chunk WHERE job = $1 AND name = m.id AND rank = $3 "
                  "AND attempt = $2 ORDER BY number DESC LIMIT 1) k"
};
static const struct sql NAME_ADD = { "name_add", "INSERT INTO metric_name (name) SELECT $1 WHERE NOT EXISTS "
                                                 "(SELECT 1 FROM metric_name WHERE name = $1) ON CONFLICT DO NOTHING" };
static const struct sql NAME_ID = { "name_id", "SELECT id FROM metric_name WHERE name = $1" };

/* ---- memory ---- */

enum { BUCKETS = 4096 };
struct rank_table {
    struct rank_memory *buckets[BUCKETS];
    size_t n;
};

static void rank_free(struct rank_memory *k) {
    for (size_t i = 0; i < k->n_series; i++)
        free(k->series[i]);
    free(k->series);
    free(k);
}

struct rank_table *rank_table_new(void) {
    return calloc(1, sizeof(struct rank_table));
}

void rank_table_forget(struct rank_table *t) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct rank_memory *k = t->buckets[i], *next; k; k = next) {
            next = k->next;
            rank_free(k);
        }
    memset(t, 0, sizeof *t);
}

struct rank_table *rank_table_free(struct rank_table *t) {
    if (t)
        rank_table_forget(t);
    free(t);
    return NULL;
}

static struct rank_memory **bucket_of(struct rank_table *t, int64_t job, int attempt, int rank) {
    uint64_t h = (uint64_t)job * 0x9e3779b97f4a7c15u + (uint64_t)attempt * 0xc2b2ae3d27d4eb4fu + (uint64_t)rank;
    return &t->buckets[(h ^ h >> 29) * 0xbf58476d1ce4e5b9u >> 52];
}

/* The least recently used one goes, unless this write uses it. */
static void make_room(struct rank_table *t, uint64_t now) {
    struct rank_memory **oldest = NULL;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct rank_memory **at = &t->buckets[i]; *at; at = &(*at)->next)
            if (!oldest || (*at)->used < (*oldest)->used)
                oldest = at;
    if (!oldest || (*oldest)->used == now)
        return;
    struct rank_memory *gone = *oldest;
    *oldest = gone->next;
    rank_free(gone);
    t->n--;
}

/* ---- series ---- */

static struct series *series_grow(struct rank_memory *k) {
    if (k->n_series == k->series_cap) {
        size_t cap = k->series_cap ? k->series_cap * 2 : 8;
        struct series **grown = realloc(k->series, cap * sizeof *grown);
        if (!grown)
            return NULL;
        k->series = grown;
        k->series_cap = cap;
    }
    struct series *s = calloc(1, sizeof *s);
    if (s)
        k->series[k->n_series++] = s;
    return s;
}

struct series *rank_series_find(const struct rank_memory *k, const char *name, size_t hint) {
    if (hint < k->n_series && strcmp(k->series[hint]->name, name) == 0)
        return k->series[hint];
    for (size_t i = 0; i < k->n_series; i++)
        if (strcmp(k->series[i]->name, name) == 0)
            return k->series[i];
    return NULL;
}

static status_t name_intern(struct connection *c, const char *name, int *ret, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_text(&a, name);
    TRY(sql_run(c, &NAME_ADD, &a, NULL, e));
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &NAME_ID, &a, &r, "a metric's name was not stored", e));
    *ret = sql_int4(r, 0, 0);
    return ST_OK;
}

status_t rank_series_add(struct rank_memory *k, struct connection *c, const char *name, struct series **ret,
                         struct err *e) {
    size_t len = strlen(name);
    if (len == 0 || len > LIMIT_METRIC_NAME_BYTES || !utf8_valid(name, len))
        return err_set(e, ST_INVALID_ARGUMENT, "a metric's name has 1 to %d bytes of UTF-8", LIMIT_METRIC_NAME_BYTES);
    if (k->n_series == STORE_SERIES_PER_RANK)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "rank %d reports more than %d metrics", k->rank,
                       STORE_SERIES_PER_RANK);
    int id;
    TRY(name_intern(c, name, &id, e));
    struct series *s = series_grow(k);
    if (!s)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a series");
    memcpy(s->name, name, len + 1);
    s->name_id = id;
    *ret = s;
    return ST_OK;
}

/* ---- loading ---- */

static status_t load_tail(struct rank_memory *k, const PGresult *r, int row, struct err *e) {
    struct series *s = series_grow(k);
    if (!s)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a series");
    size_t n_values, n_offsets;
    const char *values = sql_array(r, row, 6, &n_values), *offsets = sql_array(r, row, 7, &n_offsets);
    s->name_id = sql_int4(r, row, 0);
    memcpy(s->name, sql_text(r, row, 1), (size_t)PQgetlength(r, row, 1) + 1);
    s->number = sql_int4(r, row, 2);
    s->n = sql_int2(r, row, 3);
    s->stored = true;
    int64_t first = sql_int8(r, row, 5), stride = sql_int4(r, row, 4);
    for (size_t i = 0; i < n_values && i < STORE_CHUNK_POINTS; i++) {
        s->values[i] = sql_array_double(values, i);
        s->steps[i] = first + (offsets ? sql_array_int4(offsets, i) : (int64_t)i * stride);
    }
    s->first_time_us = sql_time(r, row, 8);
    times_unpack((const uint8_t *)PQgetvalue(r, row, 9), (size_t)PQgetlength(r, row, 9), (size_t)s->n, s->times_ms);
    /* One from before there were times is left as it is. */
    if (s->n == STORE_CHUNK_POINTS || sql_is_null(r, row, 9))
        series_turn(s);
    return ST_OK;
}

static status_t rank_load(struct rank_memory *k, struct connection *c, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, k->job);
    sql_add_int4(&a, k->attempt);
    sql_add_int4(&a, k->rank);
    CLEANUP(sql_clearp) PGresult *mark = NULL;
    TRY(sql_run(c, &RANK_MARK, &a, &mark, e));
    if (PQntuples(mark) == 0)
        return ST_OK;
    k->sequence = sql_int8(mark, 0, 0);
    CLEANUP(sql_clearp) PGresult *tails = NULL;
    TRY(sql_run(c, &RANK_TAILS, &a, &tails, e));
    for (int row = 0; row < PQntuples(tails); row++)
        TRY(load_tail(k, tails, row, e));
    return ST_OK;
}

status_t rank_table_get(struct rank_table *t, struct connection *c, const struct store_batch *batch, uint64_t now,
                        struct rank_memory **ret, struct err *e) {
    struct rank_memory **bucket = bucket_of(t, batch->job, batch->attempt, batch->rank);
    for (struct rank_memory *k = *bucket; k; k = k->next)
        if (k->job == batch->job && k->attempt == batch->attempt && k->rank == batch->rank) {
            k->used = now;
            *ret = k;
            return ST_OK;
        }
    if (t->n >= STORE_REPORT_RANKS)
        make_room(t, now);
    struct rank_memory *k = calloc(1, sizeof *k);
    if (!k)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a rank");
    k->job = batch->job;
    k->attempt = batch->attempt;
    k->rank = batch->rank;
    k->used = now;
    status_t st = rank_load(k, c, e);
    if (st != ST_OK) {
        rank_free(k);
        return st;
    }
    k->next = *bucket;
    *bucket = k;
    t->n++;
    *ret = k;
    return ST_OK;
}
