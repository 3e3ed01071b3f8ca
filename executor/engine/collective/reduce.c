/* The ordered sum by recursive halving, its way back, and the union by a ring: who swaps what, and nothing else. */
#include "executor/engine/collective/internal.h"

#include "base/limits.h"

#include <assert.h>

enum { LEVELS = 10 };
static_assert(1 << LEVELS == LIMIT_WORLD_SIZE, "one level for each bit of a rank");

int collective_piece(int j, int count) {
    int reversed = 0;
    for (int bit = 1; bit < count; bit *= 2, j /= 2)
        reversed = reversed * 2 + (j & 1);
    return reversed;
}

int group_number(const struct collective *c, const struct collective_group *g) {
    int number = g->stride ? (c->rank - g->first) / g->stride : 0;
    assert(number >= 0 && number < g->count && g->first + number * g->stride == c->rank);
    return number;
}

void group_swaps(const struct collective *c, const struct collective_group *g, bool *swaps) {
    const int number = group_number(c, g), P = g->count;
    for (int bit = 1; bit < P && !(P & (P - 1)); bit *= 2)
        swaps[g->first + (number ^ bit) * g->stride] = true;
    if (P > 1)
        swaps[g->first + (number + 1) % P * g->stride] = swaps[g->first + (number + P - 1) % P * g->stride] = true;
}

/* Pieces [first, end) that a rank holds. */
struct range {
    int first, end;
};

/* The half of r that the lower (or higher) rank of a pair keeps. */
static struct range range_half(struct range r, bool higher) {
    int middle = (r.first + r.end) / 2;
    return higher ? (struct range){ middle, r.end } : (struct range){ r.first, middle };
}

/* What all ranks that meet at `level` hold: their halves before were chosen by the bits that they share. */
static struct range held_at(int number, int count, int level) {
    struct range r = { 0, count };
    for (int k = 0; k < level; k++)
        r = range_half(r, number >> k & 1);
    return r;
}

/* One level: with the group's rank number xor 2^level, give this range of x and get that one. */
static status_t trade(struct collective *c, enum collective_channel channel, const struct collective_group *g,
                      int level, void *x, size_t element_bytes, const int64_t *cut, struct range give, struct range get,
                      enum swap_kind kind, struct err *e) {
    int peer = g->first + (group_number(c, g) ^ 1 << level) * g->stride;
    struct swap w = { .to = peer,
                      .from = peer,
                      .out = (char *)x + (size_t)cut[give.first] * element_bytes,
                      .n_out = (size_t)(cut[give.end] - cut[give.first]) * element_bytes,
                      .in = (char *)x + (size_t)cut[get.first] * element_bytes,
                      .n_in = (size_t)(cut[get.end] - cut[get.first]) * element_bytes,
                      .kind = kind };
    return collective_swap(c, channel, &w, e);
}

/* True: the transport does it in one, and *ret is how that went. */
static bool done_whole(struct collective *c, enum collective_channel channel, const struct collective_group *g,
                       enum transport_whole what, void *x, size_t element_bytes, const int64_t *cut, status_t *ret,
                       struct err *e) {
    struct transport *t = g->count > 1 ? transport_of(c, channel) : NULL;
    if (!t || !t->ops->does || !t->ops->does(t, what, g))
        return false;
    *ret = t->ops->whole(t, what, x, element_bytes, cut, e);
    return true;
}

status_t collective_reduce_scatter_ordered(struct collective *c, enum collective_channel channel,
                                           const struct collective_group *g, float *x, const int64_t *cut,
                                           struct err *e) {
    int number = group_number(c, g);
    status_t st;
    assert(!(g->count & (g->count - 1)));
    if (done_whole(c, channel, g, TRANSPORT_SUM_PIECES, x, sizeof *x, cut, &st, e))
        return st;
    /* After level k a rank holds the sums over its 2^(k+1) nearest ranks, in its part of the pieces. */
    for (int level = 0; 1 << level < g->count; level++) {
        struct range held = held_at(number, g->count, level);
        bool higher = number >> level & 1;
        TRY(trade(c, channel, g, level, x, sizeof *x, cut, range_half(held, !higher), range_half(held, higher),
                  SWAP_ADD, e));
    }
    return ST_OK;
}

status_t collective_all_gather_pieces(struct collective *c, enum collective_channel channel,
                                      const struct collective_group *g, void *x, size_t element_bytes,
                                      const int64_t *cut, struct err *e) {
    int number = group_number(c, g), levels = 0;
    status_t st;
    assert(!(g->count & (g->count - 1)));
    if (done_whole(c, channel, g, TRANSPORT_GATHER, x, element_bytes, cut, &st, e))
        return st;
    while (1 << levels < g->count)
        levels++;
    /* The way back: each pair exchanges what both hold, until everyone holds everything. */
    for (int level = levels - 1; level >= 0; level--) {
        struct range held = held_at(number, g->count, level);
        bool higher = number >> level & 1;
        TRY(trade(c, channel, g, level, x, element_bytes, cut, range_half(held, higher), range_half(held, !higher),
                  SWAP_STORE, e));
    }
    return ST_OK;
}

status_t collective_reduce_ordered(struct collective *c, enum collective_channel channel,
                                   const struct collective_group *g, float *x, const int64_t *cut, struct err *e) {
    status_t st;
    if (done_whole(c, channel, g, TRANSPORT_SUM, x, sizeof *x, cut, &st, e))
        return st;
    TRY(collective_reduce_scatter_ordered(c, channel, g, x, cut, e));
    return collective_all_gather_pieces(c, channel, g, x, sizeof *x, cut, e);
}

/* Recursive doubling, in one segment: the swap sends all of x before it ors to it. */
static status_t or_small(struct collective *c, enum collective_channel channel, const struct collective_group *g,
                         uint64_t *x, size_t bytes, struct err *e) {
    for (int group = 1; group < g->count; group *= 2) {
        int peer = g->first + (group_number(c, g) ^ group) * g->stride;
        struct swap w = { peer, peer, x, bytes, x, bytes, SWAP_OR };
        TRY(collective_swap(c, channel, &w, e));
    }
    return ST_OK;
}

status_t collective_or(struct collective *c, enum collective_channel channel, const struct collective_group *g,
                       uint64_t *x, int64_t n, struct err *e) {
    const int number = group_number(c, g), P = g->count;
    if (!(P & (P - 1)) && (size_t)n * sizeof *x <= COLLECTIVE_SEGMENT_BYTES)
        return or_small(c, channel, g, x, (size_t)n * sizeof *x, e);
    int next = g->first + (number + 1) % P * g->stride, before = g->first + (number + P - 1) % P * g->stride;
    /* Round after round each rank passes on the part that it got last: P - 1 rounds make one part of each rank whole,
     * P - 1 more bring it round. */
    for (int round = 0; round < 2 * (P - 1); round++) {
        int64_t give = (number - round + 2 * P) % P, get = (give + P - 1) % P;
        struct swap w = { .to = next,
                          .from = before,
                          .out = x + n * give / P,
                          .n_out = (size_t)(n * (give + 1) / P - n * give / P) * sizeof *x,
                          .in = x + n * get / P,
                          .n_in = (size_t)(n * (get + 1) / P - n * get / P) * sizeof *x,
                          .kind = round < P - 1 ? SWAP_OR : SWAP_STORE };
        TRY(collective_swap(c, channel, &w, e));
    }
    return ST_OK;
}
