/* Each series of a later attempt keeps one chunk of an earlier attempt: the one that covers the step of the last point.
 * For a step outside of its window first the following chunk of the same attempt is read by its key (EARLIER_CHUNK).
 * Otherwise EARLIER_FIND finds, in each of the last ATTEMPTS attempts, the first chunk that ends at the step or behind
 * it: chunks are numbered in the order of their steps, so that bisecting the number reads some 16 rows of a series of
 * any length. (A series whose steps go back and forth may hide a chunk from this search: its points are not compared.)
 * The newest attempt whose chunk covers the step counts. The window ends before the first step that a newer one of the
 * earlier attempts has again. If no attempt covers the step, the series remembers up to where there is none, so that
 * points behind the last repeated step cost one comparison.
 *
 * A point that differs is compared with the chunks around (EARLIER_STEP), because a step may have several points; if
 * that step has even more chunks, nothing is concluded. Then the event is written, in the transaction that stores the
 * point, under the lock of the job's row; the rank is not compared any more. */
#include "service/store/report_repeat.h"

#include "base/alloc.h"
#include "service/store/job_lock.h"
#include "service/store/metric_repeatable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Queries of one series: so many, and one more for so many points. */
enum { QUERIES_FREE = 16, QUERY_POINTS = 16 };
/* Earlier attempts that are searched; chunks on each side that may have the same step. */
#define ATTEMPTS 32
#define AROUND   8
#define TEXT_(n) #n
#define TEXT(n)  TEXT_(n)

#define NO_STEP INT64_MAX

struct earlier_chunk {
    int number, stride;
    int64_t first_step, last_step;
    struct sql_array values, offsets; /* offsets: empty if the steps are regular */
};
#define EARLIER_ROW                                                                                                    \
    SQL_ROW(struct earlier_chunk, SQL_COLUMN(struct earlier_chunk, number, "number"),                                  \
            SQL_COLUMN(struct earlier_chunk, stride, "stride"),                                                        \
            SQL_COLUMN(struct earlier_chunk, first_step, "first_step"),                                                \
            SQL_COLUMN(struct earlier_chunk, last_step, "last_step"),                                                  \
            SQL_COLUMN(struct earlier_chunk, values, "values"), SQL_COLUMN(struct earlier_chunk, offsets, "offsets"))
#define KEY "job = $1 AND name = $2 AND rank = $3 AND "

/* The newest attempt comes first. */
struct earlier_place {
    int attempt, number;
    int64_t first_step;
};
static const struct sql_query EARLIER_FIND = {
    { "earlier_find",
      "WITH RECURSIVE search AS ("
      "SELECT a AS attempt, 0 AS low, k.number AS high "
      "FROM generate_series(greatest($4 - " TEXT(
          ATTEMPTS) ", 1), $4 - 1) a CROSS JOIN LATERAL "
                    "(SELECT number, last_step FROM metric_chunk WHERE " KEY
                    "attempt = a ORDER BY number DESC LIMIT 1) k "
                    "WHERE k.last_step >= $5 "
                    "UNION ALL SELECT s.attempt, CASE WHEN k.last_step < $5 THEN k.number + 1 ELSE s.low END, "
                    "CASE WHEN k.last_step < $5 THEN s.high ELSE k.number END FROM search s CROSS JOIN LATERAL "
                    "(SELECT number, last_step FROM metric_chunk WHERE " KEY "attempt = s.attempt "
                    "AND number = (s.low + s.high) / 2) k WHERE s.low < s.high) "
                    "SELECT {columns} FROM search s CROSS JOIN LATERAL "
                    "(SELECT first_step FROM metric_chunk WHERE " KEY "attempt = s.attempt AND number = s.low) k "
                    "WHERE s.low = s.high ORDER BY s.attempt DESC" },
    SQL_ROW(struct earlier_place, SQL_COLUMN(struct earlier_place, attempt, "s.attempt"),
            SQL_COLUMN(struct earlier_place, number, "s.low"),
            SQL_COLUMN(struct earlier_place, first_step, "k.first_step"))
};
static const struct sql_query EARLIER_CHUNK = {
    { "earlier_chunk", "SELECT {columns} FROM metric_chunk WHERE " KEY "attempt = $4 AND number = $5" }, EARLIER_ROW
};
static const struct sql_query EARLIER_STEP = { { "earlier_step",
                                                 "SELECT {columns} FROM metric_chunk WHERE " KEY "attempt = $4 "
                                                 "AND number BETWEEN $5 - " TEXT(AROUND) " AND $5 + " TEXT(
                                                     AROUND) " "
                                                             "AND first_step <= $6 AND last_step >= $6" },
                                               EARLIER_ROW };
static const struct sql_query REPEAT_KNOWN = {
    { "repeat_known", "SELECT {columns} FROM event WHERE job = $1 AND attempt = $2 AND kind = 'not_repeatable'" },
    SQL_SCALAR(bool, "count(*) > 0")
};

struct repeated {
    int64_t points, queries;
    int64_t none_from, none_to; /* no earlier attempt has a step s of none_from <= s < none_to */
    int attempt, number;        /* of the chunk; attempt 0: none */
    int64_t newer;              /* the first step behind it that a newer attempt has again */
    int64_t first, last;        /* the steps for which the chunk counts; first > last: none is read */
};

struct repeated_points {
    size_t n, next; /* next: after the last one that was found */
    int64_t steps[STORE_CHUNK_POINTS];
    double values[STORE_CHUNK_POINTS];
};

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static int64_t step_at(const struct earlier_chunk *chunk, size_t i) {
    return chunk->first_step + (chunk->offsets.n ? sql_array_int4(&chunk->offsets, i) : (int64_t)i * chunk->stride);
}

/* NULL: the metric is none that repeats. */
static struct repeated *repeated_of(struct series *s) {
    if (s->repeated || s->never_repeated)
        return s->repeated;
    s->never_repeated = !metric_repeatable(s->name);
    if (s->never_repeated)
        return NULL;
    s->repeated = alloc_zeroed(1, sizeof *s->repeated);
    s->repeated->first = 1;
    return s->repeated;
}

/* ---- the chunk of an earlier attempt ---- */

static void chunk_drop(struct series *s) {
    s->repeated->first = 1;
    s->repeated->last = 0;
    s->repeated->attempt = 0;
    free(s->repeated_points);
    s->repeated_points = NULL;
}

static void chunk_take(struct series *s, const struct earlier_chunk *chunk) {
    struct repeated *r = s->repeated;
    if (!s->repeated_points)
        s->repeated_points = alloc_zeroed(1, sizeof *s->repeated_points);
    struct repeated_points *p = s->repeated_points;
    r->number = chunk->number;
    r->first = chunk->first_step;
    r->last = r->newer <= chunk->last_step ? r->newer - 1 : chunk->last_step;
    p->next = 0;
    for (p->n = 0; p->n < chunk->values.n && p->n < STORE_CHUNK_POINTS; p->n++) {
        p->steps[p->n] = step_at(chunk, p->n);
        p->values[p->n] = sql_array_double(&chunk->values, p->n);
    }
}

static bool covers(const struct repeated *r, int64_t step) { return r->first <= step && step <= r->last; }

static status_t chunk_read(struct connection *c, const struct rank_memory *k, struct series *s, int number,
                           struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct earlier_chunk chunk;
    bool found;
    TRY(sql_find(c, m, &EARLIER_CHUNK,
                 ARGS(arg_int8(k->job), arg_int4(s->name_id), arg_int4(k->rank), arg_int4(s->repeated->attempt),
                      arg_int4(number)),
                 &chunk, &found, e));
    if (found)
        chunk_take(s, &chunk);
    return ST_OK;
}

static status_t chunk_find(struct connection *c, const struct rank_memory *k, struct series *s, int64_t step,
                           struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct repeated *r = s->repeated;
    struct earlier_place *places;
    size_t n;
    r->queries++;
    if (r->attempt > 0 && r->last < step && step < r->newer) {
        TRY(chunk_read(c, k, s, r->number + 1, e));
        if (covers(r, step))
            return ST_OK;
    }
    TRY(sql_rows(c, m, &EARLIER_FIND,
                 ARGS(arg_int8(k->job), arg_int4(s->name_id), arg_int4(k->rank), arg_int4(k->attempt), arg_int8(step)),
                 &places, &n, e));
    r->newer = NO_STEP;
    for (size_t i = 0; i < n; i++) {
        if (places[i].first_step <= step) {
            r->attempt = places[i].attempt;
            TRY(chunk_read(c, k, s, places[i].number, e));
            if (covers(r, step))
                return ST_OK;
        } else if (places[i].first_step < r->newer) {
            r->newer = places[i].first_step;
        }
    }
    r->none_from = step;
    r->none_to = r->newer > step ? r->newer : step + 1;
    chunk_drop(s);
    return ST_OK;
}

/* The value of the step that the chunk has; *ret is it, or `value` if one of several equals that. */
static bool point_find(struct repeated_points *r, int64_t step, double value, double *ret) {
    bool found = false;
    if (r->next < r->n && r->steps[r->next] == step && same_bits(r->values[r->next], value)) {
        *ret = r->values[r->next++];
        return true;
    }
    for (size_t i = 0; i < r->n; i++) {
        if (r->steps[i] != step)
            continue;
        found = true;
        *ret = r->values[i];
        r->next = i + 1;
        if (same_bits(*ret, value))
            return true;
    }
    return found;
}

/* ---- a point that differs ---- */

/* *ret is also true if chunks beyond those that are read may have the step. */
static status_t has_equal(struct connection *c, const struct rank_memory *k, const struct series *s, int64_t step,
                          double value, bool *ret, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    const struct repeated *r = s->repeated;
    struct earlier_chunk *chunks;
    size_t n;
    *ret = false;
    TRY(sql_rows(c, m, &EARLIER_STEP,
                 ARGS(arg_int8(k->job), arg_int4(s->name_id), arg_int4(k->rank), arg_int4(r->attempt),
                      arg_int4(r->number), arg_int8(step)),
                 &chunks, &n, e));
    for (size_t i = 0; i < n && !*ret; i++) {
        *ret = chunks[i].number == r->number + AROUND || chunks[i].number == r->number - AROUND;
        for (size_t p = 0; p < chunks[i].values.n && !*ret; p++)
            *ret = step_at(&chunks[i], p) == step && same_bits(sql_array_double(&chunks[i].values, p), value);
    }
    return ST_OK;
}

/* The bits too if they are all that differs: two values of NaN. */
static void describe(double value, bool bits, char *ret, size_t n) {
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    if (bits)
        snprintf(ret, n, "%.17g (bits 0x%016llx)", value, (unsigned long long)word);
    else
        snprintf(ret, n, "%.17g", value);
}

static status_t write_event(struct connection *c, struct rank_memory *k, const struct series *s, int64_t step,
                            double before, double now, struct err *e) {
    char was[64], is[64], text[500];
    bool known;
    k->repeat_reported = true;
    TRY(sql_get(c, NULL, &REPEAT_KNOWN, ARGS(arg_int8(k->job), arg_int4(k->attempt)), &known,
                "PostgreSQL returned no count of events", e));
    if (known)
        return ST_OK;
    const bool nan = before != before && now != now;
    describe(before, nan, was, sizeof was);
    describe(now, nan, is, sizeof is);
    snprintf(
        text, sizeof text,
        "the metric '%s' of rank %d at step %lld was %s in attempt %d and is %s in attempt %d: the attempt does not "
        "repeat the earlier one with the same bits; other metrics and steps may differ too",
        s->name, k->rank, (long long)step, was, s->repeated->attempt, is, k->attempt);
    return event_write(c, k->job, k->attempt, "not_repeatable", text, NULL, NULL, e);
}

/* ---- a point ---- */

static status_t check_point(struct connection *c, struct rank_memory *k, struct series *s, int64_t step, double value,
                            struct err *e) {
    struct repeated *r = repeated_of(s);
    double before;
    bool equal;
    if (!r)
        return ST_OK;
    r->points++;
    if (r->none_from <= step && step < r->none_to)
        return ST_OK;
    if (!covers(r, step)) {
        if (r->queries >= QUERIES_FREE + r->points / QUERY_POINTS)
            return ST_OK;
        TRY(chunk_find(c, k, s, step, e));
        if (!covers(r, step))
            return ST_OK;
    }
    if (!point_find(s->repeated_points, step, value, &before) || same_bits(before, value))
        return ST_OK;
    if (r->queries >= QUERIES_FREE + r->points / QUERY_POINTS)
        return ST_OK;
    r->queries++;
    TRY(has_equal(c, k, s, step, value, &equal, e));
    return equal ? ST_OK : write_event(c, k, s, step, before, value, e);
}

status_t report_repeat_check(struct connection *c, struct rank_memory *k, const struct store_record *record,
                             struct err *e) {
    if (k->attempt < 2)
        return ST_OK;
    for (size_t i = 0; i < record->metrics.n && !k->repeat_reported; i++) {
        struct series *s = rank_series_find(k, record->metrics.names[i], i);
        if (s)
            TRY(check_point(c, k, s, record->metrics.step, record->metrics.values[i], e));
    }
    return ST_OK;
}
