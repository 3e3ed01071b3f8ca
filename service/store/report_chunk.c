/* The last chunk of a series: adding points, and the row that stores the chunk. */
#include "service/store/report_rank.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define US_PER_MS 1000LL

#define CHUNK_ARGUMENTS                                                                                                \
    "job, name, rank, attempt, number, n, stride, first_step, last_step, min, max, sum, values, offsets, first_time, " \
    "times"

static const struct sql CHUNK_INSERT = {
    "chunk_insert", "INSERT INTO metric_chunk (" CHUNK_ARGUMENTS
                    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
};
static const struct sql CHUNK_UPDATE = {
    "chunk_update",
    "UPDATE metric_chunk SET n = $6, stride = $7, first_step = $8, last_step = $9, min = $10, max = $11, "
    "sum = $12, values = $13, offsets = $14, first_time = $15, times = $16 "
    "WHERE job = $1 AND name = $2 AND rank = $3 AND attempt = $4 AND number = $5"
};

static bool within(int64_t a, int64_t b, int64_t reach) {
    int64_t d;
    return !__builtin_sub_overflow(a, b, &d) && d > -reach && d < reach;
}

bool series_fits(const struct series *s, int64_t step, int64_t time_us) {
    if (s->n == 0)
        return true;
    if (s->n == STORE_CHUNK_POINTS)
        return false;
    /* Offsets are 32 bits wide. Those of steps count from the lowest step, which may come after the first one. */
    return within(step, s->steps[0], INT32_MAX / 4) && within(time_us, s->first_time_us, INT32_MAX * US_PER_MS);
}

void series_append(struct series *s, int64_t step, double value, int64_t time_us) {
    if (s->n == 0)
        s->first_time_us = time_us;
    s->steps[s->n] = step;
    s->values[s->n] = value;
    s->times_ms[s->n] = (int32_t)((time_us - s->first_time_us) / US_PER_MS);
    s->n++;
    s->unsaved = true;
}

void series_next_chunk(struct series *s) {
    s->number++;
    s->n = 0;
    s->stored = s->unsaved = false;
}

const struct sql *series_statement(const struct series *s) { return s->stored ? &CHUNK_UPDATE : &CHUNK_INSERT; }

struct header {
    int64_t first, last;
    int stride; /* < 0: the steps are not regular */
    double min, max, sum;
};

/* NaN counts in the sum but not in the extremes. A chunk of only NaN has NaN extremes. */
static struct header header_of(const struct series *s) {
    struct header h = { s->steps[0], s->steps[0], 0, s->values[0], s->values[0], 0 };
    int64_t stride = s->n > 1 ? s->steps[1] - s->steps[0] : 1;
    bool regular = stride >= 0;
    for (int i = 0; i < s->n; i++) {
        h.first = s->steps[i] < h.first ? s->steps[i] : h.first;
        h.last = s->steps[i] > h.last ? s->steps[i] : h.last;
        regular = regular && s->steps[i] == s->steps[0] + i * stride;
        h.min = fmin(h.min, s->values[i]);
        h.max = fmax(h.max, s->values[i]);
        h.sum += s->values[i];
    }
    h.stride = regular ? (int)stride : -1;
    return h;
}

const struct sql_arg *series_arguments(const struct rank_memory *k, const struct series *s, struct chunk_args *a) {
    const struct header h = header_of(s);
    const size_t n = (size_t)s->n;
    for (size_t i = 0; i < n; i++)
        a->offsets[i] = (int32_t)(s->steps[i] - h.first);
    const struct sql_arg args[] = { arg_int8(k->job),
                                    arg_int4(s->name_id),
                                    arg_int4(k->rank),
                                    arg_int4(k->attempt),
                                    arg_int4(s->number),
                                    arg_int2(s->n),
                                    arg_if(h.stride >= 0, arg_int4(h.stride)),
                                    arg_int8(h.first),
                                    arg_int8(h.last),
                                    arg_double(h.min),
                                    arg_double(h.max),
                                    arg_double(h.sum),
                                    arg_doubles(s->values, n),
                                    arg_if(h.stride < 0, arg_int4s(a->offsets, n)),
                                    arg_time(s->first_time_us),
                                    arg_bytes(a->times, times_pack(s->times_ms, n, a->times)),
                                    { 0 } };
    static_assert(sizeof args == sizeof a->args, "one argument for each column");
    memcpy(a->args, args, sizeof args);
    return a->args;
}

status_t series_prepare(struct connection *c, struct err *e) {
    static const struct series like = { .n = 1 };
    static const struct rank_memory rank;
    struct chunk_args a;
    TRY(sql_pipeline_prepare(c, &CHUNK_INSERT, series_arguments(&rank, &like, &a), e));
    return sql_pipeline_prepare(c, &CHUNK_UPDATE, a.args, e);
}
