/* The chunks of the series that reach the step are read in the order of attempts and steps, PAGE at a time, until one
 * of them has a point that the lineage shows. Visible points of a later attempt have later steps, so that the first one
 * is the one with the lowest step. */
#include "service/store/metric_at.h"

#include "service/store/metric_lineage.h"

#include <limits.h>

enum { PAGE = 32 };

struct at_chunk {
    int name, attempt, number, stride;
    int64_t first_step;
    struct sql_array values, offsets; /* offsets: empty if the steps are regular */
};
static const struct sql_query METRIC_AT = {
    { "metric_at",
      "SELECT {columns} FROM metric_chunk WHERE job = $1 AND name = (SELECT id FROM metric_name WHERE name = "
      "$2) AND rank = 0 AND last_step >= $3 AND (attempt, number) > ($4, $5) ORDER BY attempt, number "
      "LIMIT $6" },
    SQL_ROW(struct at_chunk, SQL_COLUMN(struct at_chunk, name, "name"), SQL_COLUMN(struct at_chunk, attempt, "attempt"),
            SQL_COLUMN(struct at_chunk, number, "number"), SQL_COLUMN(struct at_chunk, stride, "stride"),
            SQL_COLUMN(struct at_chunk, first_step, "first_step"), SQL_COLUMN(struct at_chunk, values, "values"),
            SQL_COLUMN(struct at_chunk, offsets, "offsets"))
};

static bool find_in(const struct at_chunk *k, const struct lineage *l, int64_t step, int64_t *ret_step,
                    double *ret_value) {
    const int64_t cutoff = k->attempt > l->attempts ? INT64_MIN : lineage_cutoff(l, k->name, 0, k->attempt);
    for (size_t i = 0; i < k->values.n; i++) {
        const int64_t at = k->first_step + (k->offsets.n ? sql_array_int4(&k->offsets, i) : (int64_t)i * k->stride);
        if (at > cutoff)
            return false;
        if (at >= step) {
            *ret_step = at;
            *ret_value = sql_array_double(&k->values, i);
            return true;
        }
    }
    return false;
}

static status_t find_at(struct connection *c, int64_t job, const char *name, int64_t step, bool *ret_found,
                        int64_t *ret_step, double *ret_value, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct lineage lineage;
    int attempt = 0, number = 0;
    size_t n = PAGE;
    *ret_found = false;
    TRY(lineage_read(c, m, job, INT_MAX, &lineage, e));
    while (!*ret_found && n == PAGE) {
        CLEANUP(store_memory_freep) struct store_memory *page = store_memory_new();
        struct at_chunk *chunks;
        TRY(sql_rows(
            c, page, &METRIC_AT,
            ARGS(arg_int8(job), arg_text(name), arg_int8(step), arg_int4(attempt), arg_int4(number), arg_int8(PAGE)),
            &chunks, &n, e));
        for (size_t i = 0; i < n && !*ret_found; i++) {
            *ret_found = find_in(&chunks[i], &lineage, step, ret_step, ret_value);
            attempt = chunks[i].attempt;
            number = chunks[i].number;
        }
    }
    return ST_OK;
}

status_t store_metric_at(struct store *s, int64_t job, const char *name, int64_t step, bool *ret_found,
                         int64_t *ret_step, double *ret_value, struct err *e) {
    return STORE_READ(s, c, find_at(c, job, name, step, ret_found, ret_step, ret_value, e), e);
}
