#include "kernels/cpu/rope.h"

#include "base/alloc.h"

#include "kernels/cpu/cpu.h"
#include "kernels/rope.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Only the latest setting is kept, because a model has one setting. */
struct rope_table {
    struct rope rope;
    int64_t time, head;
    float *angles; /* (2, time, head / 2): cosines, sines; NULL: not computed yet */
};

struct rope_table *rope_table_new(void) {
    return alloc_zeroed(1, sizeof(struct rope_table));
}

struct rope_table *rope_table_free(struct rope_table *t) {
    if (t)
        free(t->angles);
    free(t);
    return NULL;
}

static bool same(const struct rope *a, const struct rope *b) {
    return a->theta == b->theta && a->scaling.factor == b->scaling.factor &&
           a->scaling.low_frequency == b->scaling.low_frequency &&
           a->scaling.high_frequency == b->scaling.high_frequency && a->scaling.context == b->scaling.context;
}

static status_t fill(struct rope_table *t, const struct rope *r, int64_t time, int64_t head, struct err *e) {
    const int64_t half = head / 2, n = time * half;
    float *angles = realloc(t->angles, (size_t)(2 * n) * sizeof *angles);
    if (!angles)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the rotary angles of %lld positions", (long long)time);
    for (int64_t i = 0; i < half; i++) {
        const double frequency = rope_frequency(r, i, head);
        for (int64_t position = 0; position < time; position++) {
            angles[position * half + i] = (float)cos((double)position * frequency);
            angles[n + position * half + i] = (float)sin((double)position * frequency);
        }
    }
    *t = (struct rope_table){ .rope = *r, .time = time, .head = head, .angles = angles };
    return ST_OK;
}

status_t rope_angles(const struct kernels *k, const struct rope *r, int64_t time, int64_t head, const float **cosine,
                     const float **sine, struct err *e) {
    struct rope_table *t = cpu_of(k)->rope;
    assert(head % 2 == 0);
    if (!t->angles || t->time < time || t->head != head || !same(&t->rope, r))
        TRY(fill(t, r, time, head, e));
    *cosine = t->angles;
    *sine = t->angles + t->time * head / 2;
    return ST_OK;
}
