/* Reading metrics as downsampled series.
 *
 * One query reads the headers of all chunks that match (CHUNK_HEADERS: steps, extremes and sums, without values),
 * ordered by series. Each series is then built in one of two ways:
 *   - A series of at most 240 points for each entry is read with its values (series_by_points). The points are decoded
 *     twice: to count those that the lineage shows, which fixes the number of points in an entry, and to add them.
 *   - A longer series is built from the headers alone (series_by_chunks): each chunk is one run of points. Only chunks
 *     that the range or the lineage shows in part, and the last one, whose last value must be exact, are read.
 * The headers stay in the caller's memory; the values of a series are freed after the series. */
#include "service/store/metric.h"

#include "service/store/metric_downsample.h"
#include "service/store/metric_lineage.h"
#include "service/store/report.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A series with more points for each entry than this is built from the headers of its chunks. */
#define POINTS_PER_ENTRY STORE_CHUNK_POINTS

struct chunk_header {
    int name_id;
    const char *name;
    int rank, attempt, number, n;
    int64_t first_step, last_step;
    double min, max, sum;
};
static const struct sql_query CHUNK_HEADERS = {
    { "chunk_headers",
      "SELECT {columns} FROM metric_chunk k JOIN metric_name m ON m.id = k.name WHERE k.job = $1 AND k.last_step > $2 "
      "AND (cardinality($3) = 0 OR m.name = ANY ($3)) AND ($4 < 0 OR k.rank = $4) "
      "ORDER BY m.name, k.rank, k.attempt, k.number" },
    SQL_ROW(struct chunk_header, SQL_COLUMN(struct chunk_header, name_id, "m.id"),
            SQL_COLUMN(struct chunk_header, name, "m.name"), SQL_COLUMN(struct chunk_header, rank, "k.rank"),
            SQL_COLUMN(struct chunk_header, attempt, "k.attempt"), SQL_COLUMN(struct chunk_header, number, "k.number"),
            SQL_COLUMN(struct chunk_header, n, "k.n"), SQL_COLUMN(struct chunk_header, first_step, "k.first_step"),
            SQL_COLUMN(struct chunk_header, last_step, "k.last_step"), SQL_COLUMN(struct chunk_header, min, "k.min"),
            SQL_COLUMN(struct chunk_header, max, "k.max"), SQL_COLUMN(struct chunk_header, sum, "k.sum"))
};
struct chunk_points {
    int attempt, stride;
    int64_t first_step;
    struct sql_array values, offsets; /* offsets: empty if the steps are regular */
};
static const struct sql_column CHUNK_COLUMNS[] = {
    SQL_COLUMN(struct chunk_points, attempt, "attempt"),       SQL_COLUMN(struct chunk_points, stride, "stride"),
    SQL_COLUMN(struct chunk_points, first_step, "first_step"), SQL_COLUMN(struct chunk_points, values, "values"),
    SQL_COLUMN(struct chunk_points, offsets, "offsets"),
};
static const struct sql_row CHUNK_POINTS = SQL_ROW_OF(struct chunk_points, CHUNK_COLUMNS);
static const struct sql_query CHUNK_VALUES = { { "chunk_values",
                                                 "SELECT {columns} FROM metric_chunk WHERE job = $1 AND name = $2 "
                                                 "AND rank = $3 AND last_step > $4 ORDER BY attempt, number" },
                                               &CHUNK_POINTS };
static const struct sql_query CHUNK_VALUE = { { "chunk_value",
                                                "SELECT {columns} FROM metric_chunk WHERE job = $1 AND name = $2 "
                                                "AND rank = $3 AND attempt = $4 AND number = $5" },
                                              &CHUNK_POINTS };
struct last_value {
    bool known;
    double value;
};
static const struct sql_query METRIC_LAST = {
    { "metric_last",
      "SELECT {columns} FROM unnest($2) WITH ORDINALITY AS w(name, position) "
      "LEFT JOIN LATERAL (SELECT k.values[k.n] AS value FROM metric_chunk k JOIN metric_name m ON m.id = k.name "
      "WHERE k.job = $1 AND m.name = w.name AND k.rank = 0 ORDER BY k.attempt DESC, k.number DESC LIMIT 1) v ON true "
      "ORDER BY w.position" },
    SQL_ROW(struct last_value, SQL_COLUMN(struct last_value, known, "v.value IS NOT NULL"),
            SQL_COLUMN(struct last_value, value, "v.value"))
};

/* The state of one query. */
struct query {
    struct store_memory *m;
    const struct store_metric_query *in;
    struct lineage lineage;
    struct store_series *series;
    size_t n;
};

/* ---- points ---- */

struct sink {
    const struct query *q;
    int name_id, rank;
    struct store_series *series;
    struct downsample *downsample; /* NULL: points are only counted */
    struct point_run *whole;       /* not NULL: points are merged into this run */
};

static void take_point(struct sink *k, int64_t step, double value) {
    k->series->points++;
    k->series->last_step = step;
    k->series->last_value = value;
    struct point_run point = { 1, step, value, value, value };
    if (k->downsample) {
        downsample_add(k->downsample, &point);
    } else if (k->whole) {
        k->whole->n++;
        k->whole->last_step = step;
        k->whole->sum += value;
        k->whole->min = k->whole->n == 1 ? value : fmin(k->whole->min, value);
        k->whole->max = k->whole->n == 1 ? value : fmax(k->whole->max, value);
    }
}

/* Takes the points of a chunk that the lineage shows and that lie in the requested range. */
static void take_chunk(struct sink *k, const struct chunk_points *chunk) {
    const int64_t cutoff = lineage_cutoff(&k->q->lineage, k->name_id, k->rank, chunk->attempt);
    const int64_t after = k->q->in->after_step;
    for (size_t i = 0; i < chunk->values.n; i++) {
        int64_t step = chunk->first_step +
                       (chunk->offsets.n ? sql_array_int4(&chunk->offsets, i) : (int64_t)i * chunk->stride);
        if (step > after && step <= cutoff)
            take_point(k, step, sql_array_double(&chunk->values, i));
    }
}

/* ---- one series ---- */

static void begin_entries(struct query *q, struct downsample *d, size_t runs, size_t max_entries) {
    d->runs_per_entry = downsample_runs_per_entry(runs, max_entries);
    d->capacity = runs ? (runs + d->runs_per_entry - 1) / d->runs_per_entry : 0;
    d->step = store_memory_get(q->m, d->capacity, sizeof *d->step);
    d->mean = store_memory_get(q->m, d->capacity, sizeof *d->mean);
    d->min = store_memory_get(q->m, d->capacity, sizeof *d->min);
    d->max = store_memory_get(q->m, d->capacity, sizeof *d->max);
}

static void take_entries(struct downsample *d, struct store_series *s) {
    downsample_end(d);
    s->n = d->n;
    s->step = d->step;
    s->mean = d->mean;
    s->min = d->min;
    s->max = d->max;
}

/* From the values. Their number is counted in the snapshot of their own statement, which may be later than the
 * headers'. h: the series' first header. */
static status_t series_by_points(struct connection *c, struct query *q, const struct chunk_header *h,
                                 size_t max_entries, struct store_series *s, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct chunk_points *chunks;
    size_t n;
    TRY(sql_rows(c, m, &CHUNK_VALUES,
                 ARGS(arg_int8(q->in->job), arg_int4(h->name_id), arg_int4(h->rank), arg_int8(q->in->after_step)),
                 &chunks, &n, e));
    struct store_series counted = { 0 };
    struct sink counter = { .q = q, .name_id = h->name_id, .rank = h->rank, .series = &counted };
    for (size_t i = 0; i < n; i++)
        take_chunk(&counter, &chunks[i]);
    struct downsample downsample = { 0 };
    begin_entries(q, &downsample, (size_t)counted.points, max_entries);
    struct sink sink = { .q = q, .name_id = h->name_id, .rank = h->rank, .series = s, .downsample = &downsample };
    for (size_t i = 0; i < n; i++)
        take_chunk(&sink, &chunks[i]);
    take_entries(&downsample, s);
    return ST_OK;
}

/* A chunk that is shown in part, or whose last value is wanted: its points, as one run. */
static status_t read_run(struct connection *c, struct query *q, const struct chunk_header *h, struct store_series *s,
                         struct point_run *ret, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct chunk_points chunk;
    TRY(sql_get(
        c, m, &CHUNK_VALUE,
        ARGS(arg_int8(q->in->job), arg_int4(h->name_id), arg_int4(h->rank), arg_int4(h->attempt), arg_int4(h->number)),
        &chunk, "a chunk of the series was deleted during the query", e));
    struct sink sink = { .q = q, .name_id = h->name_id, .rank = h->rank, .series = s, .whole = ret };
    take_chunk(&sink, &chunk);
    return ST_OK;
}

static int64_t cutoff_of(const struct query *q, const struct chunk_header *h) {
    return lineage_cutoff(&q->lineage, h->name_id, h->rank, h->attempt);
}

/* From the headers: each chunk is one run. */
static status_t series_by_chunks(struct connection *c, struct query *q, const struct chunk_header *h, size_t n,
                                 size_t max_entries, struct store_series *s, struct err *e) {
    struct downsample downsample = { 0 };
    begin_entries(q, &downsample, n, max_entries);
    size_t last = n - 1;
    while (last > 0 && h[last].first_step > cutoff_of(q, &h[last]))
        last--;
    for (size_t i = 0; i <= last; i++) {
        const int64_t cutoff = cutoff_of(q, &h[i]);
        struct point_run run = { 0 };
        if (h[i].first_step > cutoff)
            continue;
        if (i == last || h[i].last_step > cutoff || h[i].first_step <= q->in->after_step) {
            TRY(read_run(c, q, &h[i], s, &run, e));
        } else {
            run = (struct point_run){ h[i].n, h[i].last_step, h[i].sum, h[i].min, h[i].max };
            s->points += run.n;
        }
        if (run.n)
            downsample_add(&downsample, &run);
    }
    take_entries(&downsample, s);
    return ST_OK;
}

/* h: [n] the headers of one series. */
static status_t read_series(struct connection *c, struct query *q, const struct chunk_header *h, size_t n,
                            size_t max_entries, struct err *e) {
    struct store_series *s = &q->series[q->n];
    *s = (struct store_series){ .name = h->name, .rank = h->rank };
    int64_t points = 0;
    for (size_t i = 0; i < n; i++)
        points += h[i].n;
    if (points <= (int64_t)(max_entries * POINTS_PER_ENTRY))
        TRY(series_by_points(c, q, h, max_entries, s, e));
    else
        TRY(series_by_chunks(c, q, h, n, max_entries, s, e));
    q->n += s->points > 0;
    return ST_OK;
}

/* ---- the query ---- */

static bool same_series(const struct chunk_header *a, const struct chunk_header *b) {
    return a->name_id == b->name_id && a->rank == b->rank;
}

static status_t read_lineage(struct connection *c, struct query *q, struct err *e) {
    const struct store_metric_query *in = q->in;
    struct chunk_header *h;
    size_t n, count = 0;
    q->n = 0;
    TRY(lineage_read(c, q->m, in->job, INT_MAX, &q->lineage, e));
    TRY(sql_rows(c, q->m, &CHUNK_HEADERS,
                 ARGS(arg_int8(in->job), arg_int8(in->after_step), arg_texts(in->names, in->names ? in->n_names : 0),
                      arg_int4(in->rank)),
                 &h, &n, e));
    for (size_t i = 0; i < n; i++)
        count += i == 0 || !same_series(&h[i], &h[i - 1]);
    q->series = store_memory_get(q->m, count, sizeof *q->series);
    size_t max_entries = (size_t)in->max_points;
    if (count * max_entries > STORE_METRIC_MAX_TOTAL)
        max_entries = STORE_METRIC_MAX_TOTAL / count + 1;
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && same_series(&h[to], &h[from]); to++)
            ;
        TRY(read_series(c, q, &h[from], to - from, max_entries, e));
    }
    return ST_OK;
}

status_t store_metric_query(struct store *s, struct store_memory *m, const struct store_metric_query *query,
                            struct store_series **ret, size_t *ret_n, struct err *e) {
    if (query->max_points < 1 || query->max_points > STORE_METRIC_MAX_POINTS)
        return err_set(e, ST_INVALID_ARGUMENT, "max_points: %d is not in 1..%d", query->max_points,
                       STORE_METRIC_MAX_POINTS);
    struct query q = { .m = m, .in = query };
    TRY(STORE_READ(s, c, read_lineage(c, &q, e), e));
    *ret = q.series;
    *ret_n = q.n;
    return ST_OK;
}

status_t store_metric_last(struct store *s, int64_t job, const char *const *names, size_t n, double *ret,
                           struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct last_value *values;
    TRY(store_rows(s, m, &METRIC_LAST, ARGS(arg_int8(job), arg_texts(names, n)), &values, &n, e));
    for (size_t i = 0; i < n; i++)
        ret[i] = values[i].known ? values[i].value : (double)NAN;
    return ST_OK;
}
