#include "service/store/metric_points.h"

#include "service/store/metric_story.h"
#include "service/store/metric_times.h"
#include "service/store/report.h"

#include <limits.h>

/* A step into the index for each name, whatever the job's length. */
static const struct sql POINT_NAMES = {
    "point_names",
    "WITH RECURSIVE used AS ((SELECT name FROM metric_chunk WHERE job = $1 ORDER BY name LIMIT 1) UNION ALL "
    "SELECT (SELECT k.name FROM metric_chunk k WHERE k.job = $1 AND k.name > u.name ORDER BY k.name LIMIT 1) "
    "FROM used u WHERE u.name IS NOT NULL) "
    "SELECT m.id, m.name FROM used u JOIN metric_name m ON m.id = u.name "
    "WHERE cardinality($2) = 0 OR m.name = ANY ($2) ORDER BY m.name"
};
static const struct sql POINT_CHUNKS = {
    "point_chunks", "SELECT rank, attempt, number, stride, first_step, values, offsets, first_time, times "
                    "FROM metric_chunk WHERE job = $1 AND name = $2 AND (rank, attempt, number) >= ($3, $4, $5) "
                    "AND rank <= $6 ORDER BY rank, attempt, number LIMIT $7"
};

struct page {
    struct store_memory *m;
    struct store_points_query *in;
    struct store_points_place at; /* the next point */
    struct story story;
    struct store_points *runs; /* [STORE_POINTS_CHUNKS] */
    size_t n;
    int chunks, points; /* read and taken so far */
    bool more;
};

static bool page_full(const struct page *p) {
    return p->points == p->in->max_points || p->chunks == STORE_POINTS_CHUNKS;
}

/* The chunk's points from at.taken on, as far as the page has room, that the story shows. *ret_all: the chunk has no
 * others. */
static status_t take_chunk(struct page *p, const char *name, const PGresult *r, int row, bool *ret_all, struct err *e) {
    struct store_points_place *at = &p->at;
    size_t n, n_offsets, taken = 0, i = (size_t)at->taken;
    const char *values = sql_array(r, row, 5, &n), *offsets = sql_array(r, row, 6, &n_offsets);
    int64_t stride = sql_int4(r, row, 3), first = sql_int8(r, row, 4), first_us = sql_time(r, row, 7);
    int64_t cutoff = at->attempt > p->story.attempts ? INT64_MIN : story_cutoff(&p->story, at->attempt);
    int64_t *step, *time_us;
    int32_t times_ms[STORE_CHUNK_POINTS];
    double *value;
    TRY(store_memory_get(p->m, n, sizeof *step, &step, e));
    TRY(store_memory_get(p->m, n, sizeof *value, &value, e));
    TRY(store_memory_get(p->m, n, sizeof *time_us, &time_us, e));
    times_unpack((const uint8_t *)PQgetvalue(r, row, 8), (size_t)PQgetlength(r, row, 8), n, times_ms);
    for (; i < n && p->points < p->in->max_points; i++) {
        step[taken] = first + (offsets ? sql_array_int4(offsets, i) : (int64_t)i * stride);
        value[taken] = sql_array_double(values, i);
        time_us[taken] = sql_is_null(r, row, 8) ? 0 : first_us + times_ms[i] * 1000LL;
        if (step[taken] <= cutoff) {
            taken++;
            p->points++;
        }
    }
    at->taken = (int)i;
    *ret_all = i >= n;
    if (taken)
        p->runs[p->n++] = (struct store_points){ name, at->rank, at->attempt, taken, step, value, time_us };
    return ST_OK;
}

static void move_to(struct store_points_place *at, int rank, int attempt, int chunk) {
    if (at->rank != rank || at->attempt != attempt || at->chunk != chunk)
        at->taken = 0;
    at->rank = rank;
    at->attempt = attempt;
    at->chunk = chunk;
}

/* The series of one name, from p->at. */
static status_t take_name(struct connection *c, struct page *p, const char *name, struct err *e) {
    int limit = STORE_POINTS_CHUNKS - p->chunks, rank = p->in->rank;
    struct sql_args a = { 0 };
    sql_add_int8(&a, p->in->job);
    sql_add_int4(&a, p->at.name);
    sql_add_int4(&a, rank > p->at.rank ? rank : p->at.rank);
    sql_add_int4(&a, p->at.attempt);
    sql_add_int4(&a, p->at.chunk);
    sql_add_int4(&a, rank < 0 ? INT_MAX : rank);
    sql_add_int8(&a, limit);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &POINT_CHUNKS, &a, &r, e));
    int rows = PQntuples(r);
    p->more = rows == limit;
    for (int row = 0; row < rows; row++, p->chunks++) {
        bool all;
        move_to(&p->at, sql_int4(r, row, 0), sql_int4(r, row, 1), sql_int4(r, row, 2));
        TRY(take_chunk(p, name, r, row, &all, e));
        p->more = p->more || !all;
        if (!all)
            break;
    }
    return ST_OK;
}

static int row_of_name(const PGresult *names, int id) {
    for (int row = 0; row < PQntuples(names); row++)
        if (sql_int4(names, row, 0) == id)
            return row;
    return -1;
}

static status_t read_names(struct connection *c, const struct page *p, PGresult **ret, struct err *e) {
    struct sql_args a = { 0 };
    CLEANUP(freep) char *wanted = NULL;
    sql_add_int8(&a, p->in->job);
    TRY(sql_add_text_array(&a, p->in->names, p->in->names ? p->in->n_names : 0, &wanted, e));
    return sql_run(c, &POINT_NAMES, &a, ret, e);
}

static status_t page_body(struct connection *c, void *ctx, struct err *e) {
    struct page *p = ctx;
    p->at = p->in->from;
    p->n = 0;
    p->chunks = p->points = 0;
    p->more = false;
    TRY(story_read(c, p->m, p->in->job, p->at.attempts ? p->at.attempts : INT_MAX, &p->story, e));
    p->at.attempts = p->story.attempts;
    CLEANUP(sql_clearp) PGresult *names = NULL;
    TRY(read_names(c, p, &names, e));
    TRY(store_memory_get(p->m, STORE_POINTS_CHUNKS, sizeof *p->runs, &p->runs, e));
    int row = p->at.name ? row_of_name(names, p->at.name) : 0;
    if (row < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "jobs/%lld has no metric of number %d", (long long)p->in->job,
                       p->at.name);
    for (; row < PQntuples(names) && !p->more; row++) {
        int id = sql_int4(names, row, 0);
        if (id != p->at.name)
            p->at = (struct store_points_place){ .attempts = p->story.attempts, .name = id };
        p->more = page_full(p);
        if (!p->more)
            TRY(take_name(c, p, sql_text(names, row, 1), e));
    }
    return store_memory_keep(p->m, &names, e);
}

status_t store_points_list(struct store *s, struct store_memory *m, struct store_points_query *query,
                           struct store_points **ret, size_t *ret_n, bool *ret_more, struct err *e) {
    if (query->max_points < 1 || query->max_points > STORE_POINTS_MOST)
        return err_set(e, ST_INVALID_ARGUMENT, "max_points: %d is not in 1..%d", query->max_points, STORE_POINTS_MOST);
    struct page p = { .m = m, .in = query };
    TRY(store_query(s, page_body, &p, e));
    query->from = p.at;
    *ret = p.runs;
    *ret_n = p.n;
    *ret_more = p.more;
    return ST_OK;
}
