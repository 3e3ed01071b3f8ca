/* Reductions over a group of ranks: the ordered sum and the bitwise OR.
 *
 * Ordered sum: recursive halving (Thakur, Rabenseifner, Gropp 2005). At level k a rank exchanges with rank number xor
 * 2^k: it sends one half of the shards that it still holds, and adds the other half as it arrives. After the last level
 * each rank holds the sum of one shard. Level 0 pairs neighbours, so the sum of every element is the tree
 * ((0+1)+(2+3))+..., whichever rank computes it. The all-gather of shards goes the same way back without adding.
 *
 * Bitwise OR: recursive doubling for small arrays of a power of two of ranks, else a ring.
 *
 * This file decides which ranks exchange which bytes. A transport that implements an operation as one call (NCCL) does
 * it instead. */
#include "engine/collective/internal.h"

#include "base/limits.h"

#include <assert.h>

enum { LEVELS = 10 };
static_assert(1 << LEVELS == LIMIT_WORLD_SIZE, "one level for each bit of a rank");

int collective_shard(int j, int count) {
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

void group_peers(const struct collective *c, const struct collective_group *g, bool *peers) {
    const int number = group_number(c, g), P = g->count;
    for (int bit = 1; bit < P && !(P & (P - 1)); bit *= 2)
        peers[g->first + (number ^ bit) * g->stride] = true;
    if (P > 1)
        peers[g->first + (number + 1) % P * g->stride] = peers[g->first + (number + P - 1) % P * g->stride] = true;
}

/* Shards [first, end) that a rank holds. */
struct range {
    int first, end;
};

/* The half of r that the lower (or higher) rank of a pair keeps. */
static struct range range_half(struct range r, bool higher) {
    int middle = (r.first + r.end) / 2;
    return higher ? (struct range){ middle, r.end } : (struct range){ r.first, middle };
}

/* What both ranks of a pair hold before `level`: lower levels chose halves by the bits that the two ranks share. */
static struct range range_at_level(int number, int count, int level) {
    struct range r = { 0, count };
    for (int k = 0; k < level; k++)
        r = range_half(r, number >> k & 1);
    return r;
}

/* One level: sends the range `give` of x to rank number xor 2^level of the group, and receives the range `get`. */
static status_t exchange_level(struct collective *c, enum collective_stream stream, const struct collective_group *g,
                               int level, void *x, size_t element_bytes, const int64_t *offsets, struct range give,
                               struct range get, enum exchange_kind kind, struct err *e) {
    int peer = g->first + (group_number(c, g) ^ 1 << level) * g->stride;
    struct exchange w = { .to = peer,
                          .from = peer,
                          .out = (char *)x + (size_t)offsets[give.first] * element_bytes,
                          .n_out = (size_t)(offsets[give.end] - offsets[give.first]) * element_bytes,
                          .in = (char *)x + (size_t)offsets[get.first] * element_bytes,
                          .n_in = (size_t)(offsets[get.end] - offsets[get.first]) * element_bytes,
                          .kind = kind };
    return collective_exchange(c, stream, &w, e);
}

/* Returns true if the transport implements the operation; *ret is its result then. */
static bool run_on_transport(struct collective *c, enum collective_stream stream, const struct collective_group *g,
                             enum transport_collective what, void *x, size_t element_bytes, const int64_t *offsets,
                             status_t *ret, struct err *e) {
    struct collective_transport *t = g->count > 1 ? transport_of(c, stream) : NULL;
    if (!t || !t->ops->supports || !t->ops->supports(t, what, g))
        return false;
    *ret = t->ops->run(t, what, x, element_bytes, offsets, e);
    return true;
}

status_t collective_reduce_scatter_ordered(struct collective *c, enum collective_stream stream,
                                           const struct collective_group *g, float *x, const int64_t *offsets,
                                           struct err *e) {
    int number = group_number(c, g);
    status_t st;
    assert(!(g->count & (g->count - 1)));
    if (run_on_transport(c, stream, g, TRANSPORT_REDUCE_SCATTER, x, sizeof *x, offsets, &st, e))
        return st;
    /* After level k a rank holds the sums over its 2^(k+1) nearest ranks, in its range of shards. */
    for (int level = 0; 1 << level < g->count; level++) {
        struct range owned = range_at_level(number, g->count, level);
        bool higher = number >> level & 1;
        TRY(exchange_level(c, stream, g, level, x, sizeof *x, offsets, range_half(owned, !higher),
                           range_half(owned, higher), EXCHANGE_ADD, e));
    }
    return ST_OK;
}

status_t collective_all_gather_shards(struct collective *c, enum collective_stream stream,
                                      const struct collective_group *g, void *x, size_t element_bytes,
                                      const int64_t *offsets, struct err *e) {
    int number = group_number(c, g), levels = 0;
    status_t st;
    assert(!(g->count & (g->count - 1)));
    if (run_on_transport(c, stream, g, TRANSPORT_ALL_GATHER, x, element_bytes, offsets, &st, e))
        return st;
    while (1 << levels < g->count)
        levels++;
    /* Each pair exchanges the shards of both ranks, until all ranks hold all shards. */
    for (int level = levels - 1; level >= 0; level--) {
        struct range owned = range_at_level(number, g->count, level);
        bool higher = number >> level & 1;
        TRY(exchange_level(c, stream, g, level, x, element_bytes, offsets, range_half(owned, higher),
                           range_half(owned, !higher), EXCHANGE_STORE, e));
    }
    return ST_OK;
}

status_t collective_reduce_ordered(struct collective *c, enum collective_stream stream,
                                   const struct collective_group *g, float *x, const int64_t *offsets, struct err *e) {
    status_t st;
    if (run_on_transport(c, stream, g, TRANSPORT_ALL_REDUCE, x, sizeof *x, offsets, &st, e))
        return st;
    TRY(collective_reduce_scatter_ordered(c, stream, g, x, offsets, e));
    return collective_all_gather_shards(c, stream, g, x, sizeof *x, offsets, e);
}

/* Recursive doubling. x fits in one segment, so that an exchange sends all of x before it changes x. */
static status_t or_small(struct collective *c, enum collective_stream stream, const struct collective_group *g,
                         uint64_t *x, size_t bytes, struct err *e) {
    for (int group = 1; group < g->count; group *= 2) {
        int peer = g->first + (group_number(c, g) ^ group) * g->stride;
        struct exchange w = { peer, peer, x, bytes, x, bytes, EXCHANGE_OR };
        TRY(collective_exchange(c, stream, &w, e));
    }
    return ST_OK;
}

status_t collective_or(struct collective *c, enum collective_stream stream, const struct collective_group *g,
                       uint64_t *x, int64_t n, struct err *e) {
    const int number = group_number(c, g), P = g->count;
    if (!(P & (P - 1)) && (size_t)n * sizeof *x <= COLLECTIVE_SEGMENT_BYTES)
        return or_small(c, stream, g, x, (size_t)n * sizeof *x, e);
    int next = g->first + (number + 1) % P * g->stride, before = g->first + (number + P - 1) % P * g->stride;
    /* Each round a rank passes on the part that it received last. After P - 1 rounds each rank holds the OR of one
     * part; P - 1 more rounds distribute these parts. */
    for (int round = 0; round < 2 * (P - 1); round++) {
        int64_t give = (number - round + 2 * P) % P, get = (give + P - 1) % P;
        struct exchange w = { .to = next,
                              .from = before,
                              .out = x + n * give / P,
                              .n_out = (size_t)(n * (give + 1) / P - n * give / P) * sizeof *x,
                              .in = x + n * get / P,
                              .n_in = (size_t)(n * (get + 1) / P - n * get / P) * sizeof *x,
                              .kind = round < P - 1 ? EXCHANGE_OR : EXCHANGE_STORE };
        TRY(collective_exchange(c, stream, &w, e));
    }
    return ST_OK;
}
