/* Pages of single points.
 *
 * A place (store_points_place) names the next point by the primary key of metric_chunk: name, rank, attempt, number,
 * then the points taken of that chunk. A page first reads the names of the job's metrics, then for each name the chunks
 * from the place on, and decodes them until the page is full of points or of chunks. The lineage hides the points that
 * a later attempt repeats; it is limited to the attempts that existed at the first page. */
#include "service/store/metric_points.h"

#include "service/store/metric_lineage.h"
#include "service/store/metric_times.h"
#include "service/store/report.h"

#include <limits.h>

struct point_name {
    int id;
    const char *name;
};
static const struct sql_query POINT_NAMES = {
    { "point_names", "SELECT {columns} FROM job_metric j JOIN metric_name m ON m.id = j.name "
                     "WHERE j.job = $1 AND (cardinality($2) = 0 OR m.name = ANY ($2)) ORDER BY m.name" },
    SQL_ROW(struct point_name, SQL_COLUMN(struct point_name, id, "m.id"), SQL_COLUMN(struct point_name, name, "m.name"))
};
struct point_chunk {
    int rank, attempt, number, stride;
    int64_t first_step, first_time_us;
    struct sql_array values, offsets; /* offsets: empty if the steps are regular */
    const uint8_t *times;             /* NULL: stored before times were */
    size_t times_bytes;
};
static const struct sql_query POINT_CHUNKS = {
    { "point_chunks", "SELECT {columns} FROM metric_chunk WHERE job = $1 AND name = $2 "
                      "AND (rank, attempt, number) >= ($3, $4, $5) AND rank <= $6 "
                      "ORDER BY rank, attempt, number LIMIT $7" },
    SQL_ROW(struct point_chunk, SQL_COLUMN(struct point_chunk, rank, "rank"),
            SQL_COLUMN(struct point_chunk, attempt, "attempt"), SQL_COLUMN(struct point_chunk, number, "number"),
            SQL_COLUMN(struct point_chunk, stride, "stride"), SQL_COLUMN(struct point_chunk, first_step, "first_step"),
            SQL_COLUMN(struct point_chunk, first_time_us, "first_time"),
            SQL_COLUMN(struct point_chunk, values, "values"), SQL_COLUMN(struct point_chunk, offsets, "offsets"),
            SQL_COLUMN_BYTES(struct point_chunk, times, times_bytes, "times"))
};

struct page {
    struct store_memory *m;
    struct store_points_query *in;
    struct store_points_place at; /* the next point */
    struct lineage lineage;
    struct store_points *runs; /* [STORE_POINTS_CHUNKS] */
    size_t n;
    int chunks, points; /* read and taken so far */
    bool more;
};

static bool page_full(const struct page *p) {
    return p->points == p->in->max_points || p->chunks == STORE_POINTS_CHUNKS;
}

/* Takes the chunk's points from at.taken on, as many as the page can hold, if the lineage shows them. True: no point of
 * the chunk is left. */
static bool take_chunk(struct page *p, const char *name, const struct point_chunk *k) {
    struct store_points_place *at = &p->at;
    const size_t n = k->values.n;
    size_t taken = 0, i = (size_t)at->taken;
    const int64_t cutoff = at->attempt > p->lineage.attempts
                               ? INT64_MIN
                               : lineage_cutoff(&p->lineage, at->name, at->rank, at->attempt);
    int64_t *step, *time_us;
    int32_t times_ms[STORE_CHUNK_POINTS];
    double *value;
    step = store_memory_get(p->m, n, sizeof *step);
    value = store_memory_get(p->m, n, sizeof *value);
    time_us = store_memory_get(p->m, n, sizeof *time_us);
    times_unpack(k->times, k->times_bytes, n, times_ms);
    for (; i < n && p->points < p->in->max_points; i++) {
        step[taken] = k->first_step + (k->offsets.n ? sql_array_int4(&k->offsets, i) : (int64_t)i * k->stride);
        value[taken] = sql_array_double(&k->values, i);
        time_us[taken] = k->times ? k->first_time_us + times_ms[i] * 1000LL : 0;
        if (step[taken] <= cutoff) {
            taken++;
            p->points++;
        }
    }
    at->taken = (int)i;
    if (taken)
        p->runs[p->n++] = (struct store_points){ name, at->rank, at->attempt, taken, step, value, time_us };
    return i >= n;
}

static void move_to(struct store_points_place *at, int rank, int attempt, int chunk) {
    if (at->rank != rank || at->attempt != attempt || at->chunk != chunk)
        at->taken = 0;
    at->rank = rank;
    at->attempt = attempt;
    at->chunk = chunk;
}

/* Takes the series of one name, from p->at on. */
static status_t take_name(struct connection *c, struct page *p, const char *name, struct err *e) {
    const int limit = STORE_POINTS_CHUNKS - p->chunks, rank = p->in->rank;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct point_chunk *chunks;
    size_t n;
    TRY(sql_rows(c, m, &POINT_CHUNKS,
                 ARGS(arg_int8(p->in->job), arg_int4(p->at.name), arg_int4(rank > p->at.rank ? rank : p->at.rank),
                      arg_int4(p->at.attempt), arg_int4(p->at.chunk), arg_int4(rank < 0 ? INT_MAX : rank),
                      arg_int8(limit)),
                 &chunks, &n, e));
    p->more = n == (size_t)limit;
    for (size_t i = 0; i < n; i++, p->chunks++) {
        move_to(&p->at, chunks[i].rank, chunks[i].attempt, chunks[i].number);
        const bool all = take_chunk(p, name, &chunks[i]);
        p->more = p->more || !all;
        if (!all)
            break;
    }
    return ST_OK;
}

static status_t read_page(struct connection *c, struct page *p, struct err *e) {
    const struct store_points_query *in = p->in;
    struct point_name *names;
    size_t n, i = 0;
    p->at = in->from;
    p->n = 0;
    p->chunks = p->points = 0;
    p->more = false;
    TRY(lineage_read(c, p->m, in->job, p->at.attempts ? p->at.attempts : INT_MAX, &p->lineage, e));
    p->at.attempts = p->lineage.attempts;
    TRY(sql_rows(c, p->m, &POINT_NAMES, ARGS(arg_int8(in->job), arg_texts(in->names, in->names ? in->n_names : 0)),
                 &names, &n, e));
    p->runs = store_memory_get(p->m, STORE_POINTS_CHUNKS, sizeof *p->runs);
    while (p->at.name && i < n && names[i].id != p->at.name)
        i++;
    if (p->at.name && i == n)
        return err_set(e, ST_INVALID_ARGUMENT, "jobs/%lld has no metric of number %d", (long long)in->job, p->at.name);
    for (; i < n && !p->more; i++) {
        if (names[i].id != p->at.name)
            p->at = (struct store_points_place){ .attempts = p->lineage.attempts, .name = names[i].id };
        p->more = page_full(p);
        if (!p->more)
            TRY(take_name(c, p, names[i].name, e));
    }
    return ST_OK;
}

status_t store_points_list(struct store *s, struct store_memory *m, struct store_points_query *query,
                           struct store_points **ret, size_t *ret_n, bool *ret_more, struct err *e) {
    if (query->max_points < 1 || query->max_points > STORE_MAX_POINTS)
        return err_set(e, ST_INVALID_ARGUMENT, "max_points: %d is not in 1..%d", query->max_points, STORE_MAX_POINTS);
    struct page p = { .m = m, .in = query };
    TRY(STORE_READ(s, c, read_page(c, &p, e), e));
    query->from = p.at;
    *ret = p.runs;
    *ret_n = p.n;
    *ret_more = p.more;
    return ST_OK;
}
