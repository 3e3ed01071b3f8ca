#include "service/store/metric.h"

#include "service/store/metric_fold.h"
#include "service/store/metric_story.h"
#include "service/store/report.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A series longer than this many points an entry is folded from its chunks' headers, without reading its values. */
#define POINTS_PER_ENTRY STORE_CHUNK_POINTS

static const struct sql CHUNK_HEADERS = {
    "chunk_headers",
    "SELECT m.id, m.name, k.rank, k.attempt, k.number, k.n, k.first_step, k.last_step, k.min, k.max, k.sum "
    "FROM metric_chunk k JOIN metric_name m ON m.id = k.name WHERE k.job = $1 AND k.last_step > $2 "
    "AND (cardinality($3) = 0 OR m.name = ANY ($3)) AND ($4 < 0 OR k.rank = $4) "
    "ORDER BY m.name, k.rank, k.attempt, k.number"
};
static const struct sql CHUNK_VALUES = {
    "chunk_values",
    "SELECT attempt, stride, first_step, values, offsets FROM metric_chunk WHERE job = $1 AND name = $2 "
    "AND rank = $3 AND last_step > $4 ORDER BY attempt, number"
};
static const struct sql CHUNK_VALUE = {
    "chunk_value", "SELECT attempt, stride, first_step, values, offsets FROM metric_chunk WHERE job = $1 AND name = $2 "
                   "AND rank = $3 AND attempt = $4 AND number = $5"
};
static const struct sql METRIC_LAST = {
    "metric_last",
    "SELECT (SELECT k.values[k.n] FROM metric_chunk k JOIN metric_name m ON m.id = k.name WHERE k.job = $1 "
    "AND m.name = w.name AND k.rank = 0 ORDER BY k.attempt DESC, k.number DESC LIMIT 1) "
    "FROM unnest($2) WITH ORDINALITY AS w(name, position) ORDER BY w.position"
};

/* Of one query. */
struct query {
    struct store_memory *m;
    const struct store_metric_query *in;
    struct story story;
    struct store_series *series;
    size_t n;
};

/* ---- points ---- */

struct sink {
    const struct query *q;
    struct store_series *series;
    struct fold *fold;   /* NULL: points are counted only */
    struct piece *whole; /* not NULL: points are gathered into this one */
};

static void take_point(struct sink *k, int64_t step, double value) {
    k->series->points++;
    k->series->last_step = step;
    k->series->last_value = value;
    struct piece point = { 1, step, value, value, value };
    if (k->fold) {
        fold_add(k->fold, &point);
    } else if (k->whole) {
        k->whole->n++;
        k->whole->last_step = step;
        k->whole->sum += value;
        k->whole->min = k->whole->n == 1 ? value : fmin(k->whole->min, value);
        k->whole->max = k->whole->n == 1 ? value : fmax(k->whole->max, value);
    }
}

/* A row of CHUNK_VALUES: its points that the story shows, in the range that is asked for. */
static void take_chunk(struct sink *k, const PGresult *r, int row) {
    int64_t cutoff = story_cutoff(&k->q->story, sql_int4(r, row, 0)), after = k->q->in->after_step;
    int64_t stride = sql_int4(r, row, 1), first = sql_int8(r, row, 2);
    size_t n, n_offsets;
    const char *values = sql_array(r, row, 3, &n), *offsets = sql_array(r, row, 4, &n_offsets);
    for (size_t i = 0; i < n; i++) {
        int64_t step = first + (offsets ? sql_array_int4(offsets, i) : (int64_t)i * stride);
        if (step > after && step <= cutoff)
            take_point(k, step, sql_array_double(values, i));
    }
}

/* ---- one series ---- */

/* Rows [from, to) of CHUNK_HEADERS. */
struct headers {
    const PGresult *r;
    int from, to;
};

static status_t fold_room(struct query *q, struct fold *f, size_t pieces, size_t most, struct err *e) {
    f->per = fold_per(pieces, most);
    f->cap = pieces ? (pieces + f->per - 1) / f->per : 0;
    TRY(store_memory_get(q->m, f->cap, sizeof *f->step, &f->step, e));
    TRY(store_memory_get(q->m, f->cap, sizeof *f->mean, &f->mean, e));
    TRY(store_memory_get(q->m, f->cap, sizeof *f->min, &f->min, e));
    return store_memory_get(q->m, f->cap, sizeof *f->max, &f->max, e);
}

static void fold_take(struct fold *f, struct store_series *s) {
    fold_end(f);
    s->n = f->n;
    s->step = f->step;
    s->mean = f->mean;
    s->min = f->min;
    s->max = f->max;
}

static void add_series_key(struct sql_args *a, const struct query *q, const struct headers *h) {
    sql_add_int8(a, q->in->job);
    sql_add_int4(a, sql_int4(h->r, h->from, 0));
    sql_add_int4(a, sql_int4(h->r, h->from, 2));
}

/* From the values. They are counted in their own snapshot, which may be later than the headers'. */
static status_t series_by_points(struct connection *c, struct query *q, const struct headers *h, size_t most,
                                 struct store_series *s, struct err *e) {
    struct sql_args a = { 0 };
    add_series_key(&a, q, h);
    sql_add_int8(&a, q->in->after_step);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &CHUNK_VALUES, &a, &r, e));
    struct store_series counted = { 0 };
    struct sink counter = { .q = q, .series = &counted };
    for (int row = 0; row < PQntuples(r); row++)
        take_chunk(&counter, r, row);
    struct fold fold = { 0 };
    TRY(fold_room(q, &fold, (size_t)counted.points, most, e));
    struct sink sink = { .q = q, .series = s, .fold = &fold };
    for (int row = 0; row < PQntuples(r); row++)
        take_chunk(&sink, r, row);
    fold_take(&fold, s);
    return ST_OK;
}

/* A chunk that is shown in part, or whose last value is wanted: its points, as one piece. */
static status_t read_piece(struct connection *c, struct query *q, const struct headers *h, int row,
                           struct store_series *s, struct piece *ret, struct err *e) {
    struct sql_args a = { 0 };
    add_series_key(&a, q, h);
    sql_add_int4(&a, sql_int4(h->r, row, 3));
    sql_add_int4(&a, sql_int4(h->r, row, 4));
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run_one(c, &CHUNK_VALUE, &a, &r, "a chunk of the series is gone", e));
    struct sink sink = { .q = q, .series = s, .whole = ret };
    take_chunk(&sink, r, 0);
    return ST_OK;
}

/* From the headers, a chunk a piece. */
static status_t series_by_chunks(struct connection *c, struct query *q, const struct headers *h, size_t most,
                                 struct store_series *s, struct err *e) {
    struct fold fold = { 0 };
    TRY(fold_room(q, &fold, (size_t)(h->to - h->from), most, e));
    int last = h->to - 1;
    while (last > h->from && sql_int8(h->r, last, 6) > story_cutoff(&q->story, sql_int4(h->r, last, 3)))
        last--;
    for (int row = h->from; row <= last; row++) {
        int64_t first = sql_int8(h->r, row, 6), last_step = sql_int8(h->r, row, 7);
        int64_t cutoff = story_cutoff(&q->story, sql_int4(h->r, row, 3));
        struct piece piece = { 0 };
        if (first > cutoff)
            continue;
        if (row == last || last_step > cutoff || first <= q->in->after_step) {
            TRY(read_piece(c, q, h, row, s, &piece, e));
        } else {
            piece = (struct piece){ sql_int2(h->r, row, 5), last_step, sql_double(h->r, row, 10),
                                    sql_double(h->r, row, 8), sql_double(h->r, row, 9) };
            s->points += piece.n;
        }
        if (piece.n)
            fold_add(&fold, &piece);
    }
    fold_take(&fold, s);
    return ST_OK;
}

static status_t read_series(struct connection *c, struct query *q, const struct headers *h, size_t most,
                            struct err *e) {
    struct store_series *s = &q->series[q->n];
    *s = (struct store_series){ .name = sql_text(h->r, h->from, 1), .rank = sql_int4(h->r, h->from, 2) };
    int64_t points = 0;
    for (int row = h->from; row < h->to; row++)
        points += sql_int2(h->r, row, 5);
    if (points <= (int64_t)(most * POINTS_PER_ENTRY))
        TRY(series_by_points(c, q, h, most, s, e));
    else
        TRY(series_by_chunks(c, q, h, most, s, e));
    q->n += s->points > 0;
    return ST_OK;
}

/* ---- the query ---- */

static bool same_series(const PGresult *r, int a, int b) {
    return sql_int4(r, a, 0) == sql_int4(r, b, 0) && sql_int4(r, a, 2) == sql_int4(r, b, 2);
}

static status_t read_headers(struct connection *c, const struct query *q, PGresult **ret, struct err *e) {
    struct sql_args a = { 0 };
    CLEANUP(freep) char *names = NULL;
    sql_add_int8(&a, q->in->job);
    sql_add_int8(&a, q->in->after_step);
    TRY(sql_add_text_array(&a, q->in->names, q->in->names ? q->in->n_names : 0, &names, e));
    sql_add_int4(&a, q->in->rank);
    return sql_run(c, &CHUNK_HEADERS, &a, ret, e);
}

static status_t query_body(struct connection *c, void *ctx, struct err *e) {
    struct query *q = ctx;
    q->n = 0;
    TRY(story_read(c, q->m, q->in->job, INT_MAX, &q->story, e));
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(read_headers(c, q, &r, e));
    int rows = PQntuples(r);
    size_t count = 0;
    for (int row = 0; row < rows; row++)
        count += row == 0 || !same_series(r, row, row - 1);
    TRY(store_memory_get(q->m, count, sizeof *q->series, &q->series, e));
    size_t most = (size_t)q->in->max_points;
    if (count * most > STORE_METRIC_MAX_TOTAL)
        most = STORE_METRIC_MAX_TOTAL / count + 1;
    for (int from = 0, to; from < rows; from = to) {
        for (to = from + 1; to < rows && same_series(r, to, from); to++)
            ;
        TRY(read_series(c, q, &(struct headers){ r, from, to }, most, e));
    }
    return store_memory_keep(q->m, &r, e);
}

status_t store_metric_query(struct store *s, struct store_memory *m, const struct store_metric_query *query,
                            struct store_series **ret, size_t *ret_n, struct err *e) {
    if (query->max_points < 1 || query->max_points > STORE_METRIC_MAX_POINTS)
        return err_set(e, ST_INVALID_ARGUMENT, "max_points: %d is not in 1..%d", query->max_points,
                       STORE_METRIC_MAX_POINTS);
    struct query q = { .m = m, .in = query };
    TRY(store_query(s, query_body, &q, e));
    *ret = q.series;
    *ret_n = q.n;
    return ST_OK;
}

struct last {
    int64_t job;
    const char *const *names;
    size_t n;
    double *ret;
};

static status_t last_body(struct connection *c, void *ctx, struct err *e) {
    struct last *x = ctx;
    struct sql_args a = { 0 };
    CLEANUP(freep) char *names = NULL;
    sql_add_int8(&a, x->job);
    TRY(sql_add_text_array(&a, x->names, x->n, &names, e));
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &METRIC_LAST, &a, &r, e));
    for (int row = 0; row < PQntuples(r); row++)
        x->ret[row] = sql_is_null(r, row, 0) ? (double)NAN : sql_double(r, row, 0);
    return ST_OK;
}

status_t store_metric_last(struct store *s, int64_t job, const char *const *names, size_t n, double *ret,
                           struct err *e) {
    return store_query(s, last_body, &(struct last){ job, names, n, ret }, e);
}
