/* A series' last chunk: filling it, and the row that it becomes. */
#include "service/store/report_rank.h"

#include <math.h>

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

static bool near(int64_t a, int64_t b, int64_t reach) {
    int64_t d;
    return !__builtin_sub_overflow(a, b, &d) && d > -reach && d < reach;
}

bool series_has_room(const struct series *s, int64_t step, int64_t time_us) {
    if (s->n == 0)
        return true;
    if (s->n == STORE_CHUNK_POINTS)
        return false;
    /* Offsets are 32 bits wide; those of steps are counted from the lowest, which may come after the first. */
    return near(step, s->steps[0], INT32_MAX / 4) && near(time_us, s->first_time_us, INT32_MAX * US_PER_MS);
}

void series_append(struct series *s, int64_t step, double value, int64_t time_us) {
    if (s->n == 0)
        s->first_time_us = time_us;
    s->steps[s->n] = step;
    s->values[s->n] = value;
    s->times_ms[s->n] = (int32_t)((time_us - s->first_time_us) / US_PER_MS);
    s->n++;
    s->dirty = true;
}

void series_turn(struct series *s) {
    s->number++;
    s->n = 0;
    s->stored = s->dirty = false;
}

const struct sql *series_statement(const struct series *s) { return s->stored ? &CHUNK_UPDATE : &CHUNK_INSERT; }

struct header {
    int64_t first, last;
    int stride; /* < 0: the steps are not regular */
    double min, max, sum;
};

/* NaN counts in the sum and not in the extremes; a chunk of NaN alone has NaN extremes. */
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

void series_arguments(const struct rank_memory *k, const struct series *s, struct chunk_args *ret) {
    struct header h = header_of(s);
    struct sql_args *a = &ret->args;
    a->n = 0;
    sql_add_int8(a, k->job);
    sql_add_int4(a, s->name_id);
    sql_add_int4(a, k->rank);
    sql_add_int4(a, k->attempt);
    sql_add_int4(a, s->number);
    sql_add_int2(a, s->n);
    if (h.stride >= 0)
        sql_add_int4(a, h.stride);
    else
        sql_add_null_int4(a);
    sql_add_int8(a, h.first);
    sql_add_int8(a, h.last);
    sql_add_double(a, h.min);
    sql_add_double(a, h.max);
    sql_add_double(a, h.sum);
    sql_add_double_array(a, ret->values, s->values, (size_t)s->n);
    int32_t offsets[STORE_CHUNK_POINTS];
    for (int i = 0; i < s->n; i++)
        offsets[i] = (int32_t)(s->steps[i] - h.first);
    if (h.stride >= 0)
        sql_add_int4_array_null(a);
    else
        sql_add_int4_array(a, ret->offsets, offsets, (size_t)s->n);
    sql_add_time(a, s->first_time_us);
    sql_add_bytes(a, ret->times, times_pack(s->times_ms, (size_t)s->n, ret->times));
}

status_t series_prepare(struct connection *c, struct err *e) {
    static const struct series like = { .n = 1 };
    static const struct rank_memory rank;
    struct chunk_args a;
    series_arguments(&rank, &like, &a);
    TRY(sql_prepare(c, &CHUNK_INSERT, &a.args, e));
    return sql_prepare(c, &CHUNK_UPDATE, &a.args, e);
}
