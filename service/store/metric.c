/* Reading metrics as downsampled series.
 *
 * One query reads the headers of all chunks that match (CHUNK_HEADERS: steps, extremes and sums, without values),
 * ordered by series. Each series is then built in one of two ways:
 *   - A series is read with its values (series_by_points) if headers are too coarse for it. The points are decoded
 *     twice: to count those that the lineage shows, which fixes the number of points in an entry, and to add them.
 *   - A longer series is built from the headers alone (series_by_chunks): each chunk is one run of points. Only chunks
 *     that the range or the lineage shows in part, and the last one, whose last value must be exact, are read.
 * Headers are fine enough if an entry would have more than 240 points, and also from 120 points on if each chunk
 * becomes an entry: the series then has more than half of the entries that it may have, and costs a tenth.
 * The headers stay in the caller's memory; the values of a series are freed after the series. */
#include "service/store/metric.h"

#include "service/store/metric_downsample.h"
#include "service/store/metric_lineage.h"
#include "service/store/metric_times.h"
#include "service/store/report.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct chunk_header {
    int name_id;
    const char *name;
    int rank, attempt, number, n;
    int64_t first_step, last_step, first_time_us;
    double min, max, sum;
};
static const struct sql_query CHUNK_HEADERS = {
    { "chunk_headers",
      "SELECT {columns} FROM metric_chunk k JOIN metric_name m ON m.id = k.name WHERE k.job = $1 AND k.last_step > $2 "
      "AND (cardinality($3) = 0 OR m.name = ANY ($3)) AND ($4 < 0 OR k.rank = $4) AND k.first_step <= $5 "
      "ORDER BY m.name, k.rank, k.attempt, k.number LIMIT $6" },
    SQL_ROW(struct chunk_header, SQL_COLUMN(struct chunk_header, name_id, "m.id"),
            SQL_COLUMN(struct chunk_header, name, "m.name"), SQL_COLUMN(struct chunk_header, rank, "k.rank"),
            SQL_COLUMN(struct chunk_header, attempt, "k.attempt"), SQL_COLUMN(struct chunk_header, number, "k.number"),
            SQL_COLUMN(struct chunk_header, n, "k.n"), SQL_COLUMN(struct chunk_header, first_step, "k.first_step"),
            SQL_COLUMN(struct chunk_header, last_step, "k.last_step"),
            SQL_COLUMN(struct chunk_header, first_time_us, "k.first_time"),
            SQL_COLUMN(struct chunk_header, min, "k.min"), SQL_COLUMN(struct chunk_header, max, "k.max"),
            SQL_COLUMN(struct chunk_header, sum, "k.sum"))
};
struct chunk_points {
    int attempt, stride;
    int64_t first_step, first_time_us;
    struct sql_array values, offsets; /* offsets: empty if the steps are regular */
    const uint8_t *times;             /* NULL: not wanted, or stored before times were */
    size_t times_bytes;
};
static const struct sql_column CHUNK_COLUMNS[] = {
    SQL_COLUMN(struct chunk_points, attempt, "attempt"),
    SQL_COLUMN(struct chunk_points, stride, "stride"),
    SQL_COLUMN(struct chunk_points, first_step, "first_step"),
    SQL_COLUMN(struct chunk_points, values, "values"),
    SQL_COLUMN(struct chunk_points, offsets, "offsets"),
    SQL_COLUMN(struct chunk_points, first_time_us, "first_time"),
    SQL_COLUMN_BYTES(struct chunk_points, times, times_bytes, "CASE WHEN $6 THEN times END"),
};
static const struct sql_row CHUNK_POINTS = SQL_ROW_OF(struct chunk_points, CHUNK_COLUMNS);
static const struct sql_query CHUNK_VALUES = {
    { "chunk_values", "SELECT {columns} FROM metric_chunk WHERE job = $1 AND name = $2 "
                      "AND rank = $3 AND last_step > $4 AND first_step <= $5 ORDER BY attempt, number" },
    &CHUNK_POINTS
};
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

static void take_point(struct sink *k, int64_t step, double value, int64_t time_us) {
    k->series->points++;
    k->series->last_step = step;
    k->series->last_value = value;
    struct point_run point = { 1, step, time_us, value, value, value };
    if (k->downsample) {
        downsample_add(k->downsample, &point);
    } else if (k->whole) {
        k->whole->n++;
        k->whole->last_step = step;
        k->whole->last_time_us = time_us;
        k->whole->sum += value;
        k->whole->min = k->whole->n == 1 ? value : fmin(k->whole->min, value);
        k->whole->max = k->whole->n == 1 ? value : fmax(k->whole->max, value);
    }
}

static int64_t until_of(const struct query *q) { return q->in->until_step > 0 ? q->in->until_step : INT64_MAX; }

/* Takes the points of a chunk that the lineage shows and that lie in the requested range. */
static void take_chunk(struct sink *k, const struct chunk_points *chunk) {
    const int64_t cutoff = lineage_cutoff(&k->q->lineage, k->name_id, k->rank, chunk->attempt);
    const int64_t after = k->q->in->after_step, until = until_of(k->q);
    int32_t times_ms[STORE_CHUNK_POINTS];
    times_unpack(chunk->times, chunk->times_bytes, chunk->values.n, times_ms);
    for (size_t i = 0; i < chunk->values.n; i++) {
        int64_t step = chunk->first_step +
                       (chunk->offsets.n ? sql_array_int4(&chunk->offsets, i) : (int64_t)i * chunk->stride);
        if (step > after && step <= until && step <= cutoff)
            take_point(k, step, sql_array_double(&chunk->values, i),
                       chunk->times ? chunk->first_time_us + times_ms[i] * 1000LL : 0);
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
    d->time_us = q->in->with_time ? store_memory_get(q->m, d->capacity, sizeof *d->time_us) : NULL;
}

static void take_entries(struct downsample *d, struct store_series *s) {
    downsample_end(d);
    s->n = d->n;
    s->step = d->step;
    s->mean = d->mean;
    s->min = d->min;
    s->max = d->max;
    s->time_us = d->time_us;
}

/* From the values. Their number is counted in the snapshot of their own statement, which may be later than the
 * headers'. h: the series' first header. */
static status_t series_by_points(struct connection *c, struct query *q, const struct chunk_header *h,
                                 size_t max_entries, struct store_series *s, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct chunk_points *chunks;
    size_t n;
    TRY(sql_rows(c, m, &CHUNK_VALUES,
                 ARGS(arg_int8(q->in->job), arg_int4(h->name_id), arg_int4(h->rank), arg_int8(q->in->after_step),
                      arg_int8(until_of(q)), arg_bool(q->in->with_time)),
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
    TRY(sql_get(c, m, &CHUNK_VALUE,
                ARGS(arg_int8(q->in->job), arg_int4(h->name_id), arg_int4(h->rank), arg_int4(h->attempt),
                     arg_int4(h->number), arg_bool(q->in->with_time)),
                &chunk, "a chunk of the series was deleted during the query", e));
    struct sink sink = { .q = q, .name_id = h->name_id, .rank = h->rank, .series = s, .whole = ret };
    take_chunk(&sink, &chunk);
    return ST_OK;
}

static int64_t cutoff_of(const struct query *q, const struct chunk_header *h) {
    return lineage_cutoff(&q->lineage, h->name_id, h->rank, h->attempt);
}

/* When the last point of chunk h[i] was reported, as far as the headers say it: when the next point was. */
static int64_t end_time(const struct chunk_header *h, size_t n, size_t i) {
    return i + 1 < n && h[i + 1].attempt == h[i].attempt ? h[i + 1].first_time_us : h[i].first_time_us;
}

/* From the headers: each chunk is one run. */
static status_t series_by_chunks(struct connection *c, struct query *q, const struct chunk_header *h, size_t n,
                                 size_t max_entries, struct store_series *s, struct err *e) {
    struct downsample downsample = { 0 };
    begin_entries(q, &downsample, n, max_entries);
    const int64_t until = until_of(q);
    size_t last = n - 1;
    while (last > 0 && h[last].first_step > cutoff_of(q, &h[last]))
        last--;
    for (size_t i = 0; i <= last; i++) {
        const int64_t cutoff = cutoff_of(q, &h[i]);
        struct point_run run = { 0 };
        if (h[i].first_step > cutoff)
            continue;
        if (i == last || h[i].last_step > cutoff || h[i].last_step > until || h[i].first_step <= q->in->after_step) {
            TRY(read_run(c, q, &h[i], s, &run, e));
        } else {
            run = (struct point_run){ h[i].n, h[i].last_step, end_time(h, n, i), h[i].sum, h[i].min, h[i].max };
            s->points += run.n;
        }
        if (run.n)
            downsample_add(&downsample, &run);
    }
    take_entries(&downsample, s);
    return ST_OK;
}

/* Whether the headers give more than half of max_entries entries, or as many as the values would give. */
static bool headers_suffice(int64_t points, size_t chunks, size_t max_entries) {
    const int64_t limit = (int64_t)max_entries * STORE_CHUNK_POINTS;
    return points > limit || (points > limit / 2 && chunks <= max_entries);
}

/* h: [n] the headers of one series. */
static status_t read_series(struct connection *c, struct query *q, const struct chunk_header *h, size_t n,
                            size_t max_entries, struct err *e) {
    struct store_series *s = &q->series[q->n];
    *s = (struct store_series){ .name = h->name, .rank = h->rank };
    int64_t points = 0;
    for (size_t i = 0; i < n; i++)
        points += h[i].n;
    if (headers_suffice(points, n, max_entries))
        TRY(series_by_chunks(c, q, h, n, max_entries, s, e));
    else
        TRY(series_by_points(c, q, h, max_entries, s, e));
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
                      arg_int4(in->rank), arg_int8(until_of(q)), arg_int8(STORE_METRIC_MAX_CHUNKS + 1)),
                 &h, &n, e));
    for (size_t i = 0; i < n; i++)
        count += i == 0 || !same_series(&h[i], &h[i - 1]);
    if (n > STORE_METRIC_MAX_CHUNKS || count > STORE_METRIC_MAX_SERIES)
        return err_set(
            e, ST_RESOURCE_EXHAUSTED,
            "jobs/%lld has more points or series of what is asked for than one reply is made from (%d points, "
            "%d series): name fewer metrics, a rank, or a range of steps",
            (long long)in->job, STORE_METRIC_MAX_CHUNKS * STORE_CHUNK_POINTS, STORE_METRIC_MAX_SERIES);
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
