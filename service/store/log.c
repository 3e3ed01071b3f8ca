#include "service/store/log.h"

#include "service/store/pool.h"

#include <string.h>

/* A page's text: some rows beyond one, and far below a message's limit of 4 MiB. */
#define PAGE_BYTES (1 << 20)
/* A cursor is a chunk's number and how many of its lines were read. */
#define CURSOR_SHIFT 16

static const struct sql LOG_LIST = {
    "log_list",
    "SELECT number, attempt, rank, times, streams, lines FROM "
    "(SELECT k.*, sum(bytes) OVER (ORDER BY number) AS upto FROM (SELECT * FROM log_chunk WHERE job = $1 "
    "AND number >= $2 AND ($3 < 0 OR rank = $3) AND ($4 < 0 OR attempt = $4) ORDER BY number LIMIT $5) k) q "
    "WHERE upto - bytes < $6 ORDER BY number"
};

struct list {
    struct store_memory *m;
    const struct store_log_query *in;
    struct store_log_line *lines;
    size_t n;
    int64_t cursor;
};

/* An array's texts have no NULs between them: copied, each with its own. */
static status_t copy_texts(struct store_memory *m, const PGresult *r, int row, int col, const char ***ret,
                           struct err *e) {
    size_t n;
    const char *at = sql_array(r, row, col, &n);
    char *text;
    TRY(store_memory_get(m, n, sizeof **ret, ret, e));
    TRY(store_memory_get(m, (size_t)PQgetlength(r, row, col), 1, &text, e));
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *from = sql_array_next_text(&at, &len);
        (*ret)[i] = text;
        memcpy(text, from, len);
        text[len] = '\0';
        text += len + 1;
    }
    return ST_OK;
}

static status_t take_chunk(struct list *x, const PGresult *r, int row, struct err *e) {
    int64_t number = sql_int8(r, row, 0);
    size_t n;
    const char *times = sql_array(r, row, 3, &n);
    const char **streams = NULL, **texts = NULL;
    TRY(copy_texts(x->m, r, row, 4, &streams, e));
    TRY(copy_texts(x->m, r, row, 5, &texts, e));
    size_t i = number == x->in->cursor >> CURSOR_SHIFT ? (size_t)(x->in->cursor & ((1 << CURSOR_SHIFT) - 1)) : 0;
    for (; i < n && x->n < (size_t)x->in->limit; i++) {
        x->lines[x->n++] = (struct store_log_line){ sql_int4(r, row, 1), sql_int4(r, row, 2), sql_array_time(times, i),
                                                    streams[i], texts[i] };
        x->cursor = (number << CURSOR_SHIFT) + (int64_t)i + 1;
    }
    return ST_OK;
}

static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct list *x = ctx;
    x->n = 0;
    x->cursor = x->in->cursor;
    struct sql_args a = { 0 };
    sql_add_int8(&a, x->in->job);
    sql_add_int8(&a, x->in->cursor >> CURSOR_SHIFT);
    sql_add_int4(&a, x->in->rank);
    sql_add_int4(&a, x->in->attempt);
    /* The chunk of the cursor may have been read to its end. */
    sql_add_int8(&a, (int64_t)x->in->limit + 1);
    sql_add_int8(&a, PAGE_BYTES);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &LOG_LIST, &a, &r, e));
    TRY(store_memory_get(x->m, (size_t)x->in->limit, sizeof *x->lines, &x->lines, e));
    for (int row = 0; row < PQntuples(r) && x->n < (size_t)x->in->limit; row++)
        TRY(take_chunk(x, r, row, e));
    return ST_OK;
}

status_t store_log_list(struct store *s, struct store_memory *m, const struct store_log_query *query,
                        struct store_log_line **ret, size_t *ret_n, int64_t *ret_cursor, struct err *e) {
    if (query->cursor < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "cursor: %lld is none of this job's", (long long)query->cursor);
    struct list x = { .m = m, .in = query };
    TRY(store_query(s, list_body, &x, e));
    *ret = x.lines;
    *ret_n = x.n;
    *ret_cursor = x.cursor;
    return ST_OK;
}
