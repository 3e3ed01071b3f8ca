#include "service/store/log.h"

#include "service/store/pool.h"

#include <string.h>

/* Text of one page: more than one row has, and far below the 4 MiB of a message. */
#define PAGE_BYTES (1 << 20)
/* A cursor is the number of a chunk and, in the low bits, how many of its lines were read. */
#define CURSOR_SHIFT 16

struct log_chunk {
    int64_t number;
    int attempt, rank;
    struct sql_array times, streams, lines;
};
struct log_begin {
    int64_t number;
};
static const struct sql_query LOG_LIST = {
    { "log_list",
      "SELECT {columns} FROM "
      "(SELECT k.*, sum(bytes) OVER (ORDER BY number) AS upto FROM (SELECT * FROM log_chunk WHERE job = $1 "
      "AND number >= $2 AND ($3 < 0 OR rank = $3) AND ($4 < 0 OR attempt = $4) ORDER BY number LIMIT $5) k) q "
      "WHERE upto - bytes < $6 ORDER BY number" },
    SQL_ROW(struct log_chunk, SQL_COLUMN(struct log_chunk, number, "number"),
            SQL_COLUMN(struct log_chunk, attempt, "attempt"), SQL_COLUMN(struct log_chunk, rank, "rank"),
            SQL_COLUMN(struct log_chunk, times, "times"), SQL_COLUMN(struct log_chunk, streams, "streams"),
            SQL_COLUMN(struct log_chunk, lines, "lines"))
};

/* Where lines of a time begin, and the last lines: the number of a chunk. The first statement reads the times of all
 * chunks, the second only as many chunks as it needs. Without such a chunk: the last one. */
static const struct sql_query LOG_FROM_TIME = {
    { "log_from_time",
      "SELECT {columns} FROM log_chunk WHERE job = $1 AND ($2 < 0 OR rank = $2) AND ($3 < 0 OR attempt = $3) "
      "AND times[cardinality(times)] >= $4" },
    SQL_ROW(struct log_begin, SQL_COLUMN(struct log_begin, number, "coalesce(min(number), 0)"))
};
static const struct sql_query LOG_LAST_LINES = {
    { "log_last_lines",
      "SELECT {columns} FROM (SELECT number, sum(cardinality(lines)) OVER (ORDER BY number DESC) - cardinality(lines) "
      "AS newer FROM (SELECT number, lines FROM log_chunk WHERE job = $1 AND ($2 < 0 OR rank = $2) "
      "AND ($3 < 0 OR attempt = $3) ORDER BY number DESC LIMIT $4) k) q WHERE newer < $4" },
    SQL_ROW(struct log_begin, SQL_COLUMN(struct log_begin, number, "coalesce(min(number), 0)"))
};

struct page {
    struct store_memory *m;
    const struct store_log_query *in;
    struct store_log_line *lines;
    size_t n;
    int64_t cursor;
};

static void take_chunk(struct page *p, const struct log_chunk *k) {
    const char *const *streams = sql_array_texts(&k->streams, p->m);
    const char *const *texts = sql_array_texts(&k->lines, p->m);
    const bool begun = k->number == p->in->cursor >> CURSOR_SHIFT;
    size_t i = begun ? (size_t)(p->in->cursor & ((1 << CURSOR_SHIFT) - 1)) : 0;
    for (; i < k->times.n && p->n < (size_t)p->in->limit; i++) {
        p->lines[p->n++] = (struct store_log_line){ k->attempt, k->rank, sql_array_time(&k->times, i), streams[i],
                                                    texts[i] };
        p->cursor = (k->number << CURSOR_SHIFT) + (int64_t)i + 1;
    }
}

static status_t find_begin(struct store *s, const struct store_log_query *query, int64_t *ret_cursor, struct err *e) {
    struct log_begin begin = { 0 };
    bool found = false;
    if (query->from_time_us > 0)
        TRY(store_find(
            s, NULL, &LOG_FROM_TIME,
            ARGS(arg_int8(query->job), arg_int4(query->rank), arg_int4(query->attempt), arg_time(query->from_time_us)),
            &begin, &found, e));
    else if (query->last_lines > 0)
        TRY(store_find(
            s, NULL, &LOG_LAST_LINES,
            ARGS(arg_int8(query->job), arg_int4(query->rank), arg_int4(query->attempt), arg_int8(query->last_lines)),
            &begin, &found, e));
    *ret_cursor = begin.number << CURSOR_SHIFT;
    return ST_OK;
}

status_t store_log_list(struct store *s, struct store_memory *m, const struct store_log_query *query,
                        struct store_log_line **ret, size_t *ret_n, int64_t *ret_cursor, struct err *e) {
    if (query->cursor < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "cursor: %lld is negative; use a cursor that a previous page returned",
                       (long long)query->cursor);
    struct store_log_query from = *query;
    if (from.cursor == 0)
        TRY(find_begin(s, query, &from.cursor, e));
    struct page p = { .m = m, .in = &from, .cursor = from.cursor };
    CLEANUP(store_memory_freep) struct store_memory *rows = store_memory_new();
    struct log_chunk *chunks;
    size_t n;
    /* One more than the lines that are wanted, because the cursor's chunk may have been read to its end. */
    TRY(store_rows(s, rows, &LOG_LIST,
                   ARGS(arg_int8(query->job), arg_int8(from.cursor >> CURSOR_SHIFT), arg_int4(query->rank),
                        arg_int4(query->attempt), arg_int8((int64_t)query->limit + 1), arg_int8(PAGE_BYTES)),
                   &chunks, &n, e));
    p.lines = store_memory_get(m, (size_t)query->limit, sizeof *p.lines);
    for (size_t i = 0; i < n && p.n < (size_t)query->limit; i++)
        take_chunk(&p, &chunks[i]);
    *ret = p.lines;
    *ret_n = p.n;
    *ret_cursor = p.cursor;
    return ST_OK;
}
