#include "executor/engine/collective/internal.h"

#include "base/limits.h"

#include <assert.h>

/* A range of elements that a rank holds. */
struct range {
    int64_t first, end;
};

/* The half of r that the lower (or higher) rank of a pair keeps. */
static struct range range_half(struct range r, bool higher) {
    int64_t middle = r.first + (r.end - r.first) / 2;
    return higher ? (struct range){ middle, r.end } : (struct range){ r.first, middle };
}

status_t collective_reduce_ordered(struct collective *c, enum collective_channel channel, float *x, int64_t n,
                                   struct err *e) {
    enum { LEVELS = 10 };
    static_assert(1 << LEVELS == LIMIT_WORLD_SIZE, "one level for each bit of a rank");
    struct range held[LEVELS + 1] = { { 0, n } };
    int level = 0;

    /* Halving: after level k a rank holds the sums over its group of 2^(k+1) ranks, in its part of the elements. All
     * ranks that meet at a level hold the same range, because its earlier halves were chosen by the bits they share. */
    for (; 1 << level < c->world_size; level++) {
        bool higher = c->rank >> level & 1;
        struct range keep = range_half(held[level], higher), give = range_half(held[level], !higher);
        TRY(collective_swap(c, channel, c->rank ^ 1 << level, x + give.first,
                            (size_t)(give.end - give.first) * sizeof(float), x + keep.first,
                            (size_t)(keep.end - keep.first) * sizeof(float), true, e));
        held[level + 1] = keep;
    }
    /* The way back: each pair exchanges what both hold, until everyone holds everything. */
    while (level-- > 0) {
        bool higher = c->rank >> level & 1;
        struct range keep = held[level + 1], get = range_half(held[level], !higher);
        TRY(collective_swap(c, channel, c->rank ^ 1 << level, x + keep.first,
                            (size_t)(keep.end - keep.first) * sizeof(float), x + get.first,
                            (size_t)(get.end - get.first) * sizeof(float), false, e));
    }
    return ST_OK;
}
