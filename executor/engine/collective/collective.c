#include "executor/engine/collective/collective.h"

#include "base/limits.h"
#include "executor/engine/collective/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert((size_t)COLLECTIVE_STAGING_BYTES >= LIMIT_WORLD_SIZE * COLLECTIVE_SMALL * sizeof(double),
              "every rank's small values fit in the staging");

struct collective *collective_close(struct collective *c) {
    if (!c)
        return NULL;
    if (c->transport)
        c->transport->ops->close(c->transport);
    for (int i = 0; i < COLLECTIVE_CHANNELS; i++)
        free(c->staging[i]);
    free(c);
    return NULL;
}

static status_t collective_new(int rank, int world_size, struct collective **ret, struct err *e) {
    CLEANUP(collective_closep) struct collective *c = calloc(1, sizeof *c);
    if (!c)
        return err_errno(e, "allocate a collective");
    c->rank = rank;
    c->world_size = world_size;
    for (int i = 0; world_size > 1 && i < COLLECTIVE_CHANNELS; i++)
        if ((errno = posix_memalign((void **)&c->staging[i], 64, COLLECTIVE_STAGING_BYTES)))
            return err_errno(e, "allocate %d bytes of staging", COLLECTIVE_STAGING_BYTES);
    *ret = take_ptr(&c);
    return ST_OK;
}

status_t collective_open_alone(struct collective **ret, struct err *e) { return collective_new(0, 1, ret, e); }

status_t collective_open_gloo(const struct collective_config *config, struct collective **ret, struct err *e) {
    int P = config->world_size;
    if (P < 1 || P > LIMIT_WORLD_SIZE)
        return err_set(e, ST_INVALID_ARGUMENT, "world size %d is outside 1 to %d", P, LIMIT_WORLD_SIZE);
    if (P & (P - 1))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "world size %d is not a power of two: gradients are summed by a binary tree over the ranks", P);
    if (config->rank < 0 || config->rank >= P)
        return err_set(e, ST_INVALID_ARGUMENT, "rank %d is outside a world size of %d", config->rank, P);
    CLEANUP(collective_closep) struct collective *c = NULL;
    TRY(collective_new(config->rank, P, &c, e));
    if (P > 1)
        TRY(transport_open_gloo(config, &c->transport, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

int collective_rank(const struct collective *c) { return c->rank; }
int collective_world_size(const struct collective *c) { return c->world_size; }

void collective_abort(struct collective *c, const char *reason) {
    if (c->transport)
        c->transport->ops->abort(c->transport, reason);
}

status_t collective_send(struct collective *c, enum collective_channel channel, int peer, const void *data, size_t n,
                         struct err *e) {
    assert(peer >= 0 && peer < c->world_size && peer != c->rank);
    return collective_swap(c, channel, peer, data, n, NULL, 0, false, e);
}

status_t collective_recv(struct collective *c, enum collective_channel channel, int peer, void *data, size_t n,
                         struct err *e) {
    assert(peer >= 0 && peer < c->world_size && peer != c->rank);
    return collective_swap(c, channel, peer, NULL, 0, data, n, false, e);
}

/* Recursive doubling: at level k the pairs exchange the 2^k blocks that each group has gathered so far. */
status_t collective_all_gather(struct collective *c, enum collective_channel channel, const void *mine, size_t n,
                               void *all, struct err *e) {
    char *blocks = all;
    if (n && mine != blocks + (size_t)c->rank * n)
        memmove(blocks + (size_t)c->rank * n, mine, n);
    for (int group = 1; group < c->world_size; group *= 2) {
        int peer = c->rank ^ group;
        size_t have = (size_t)(c->rank & ~(group - 1)), get = (size_t)(peer & ~(group - 1));
        TRY(collective_swap(c, channel, peer, blocks + have * n, (size_t)group * n, blocks + get * n, (size_t)group * n,
                            false, e));
    }
    return ST_OK;
}

status_t collective_exchange(struct collective *c, enum collective_channel channel, const void *mine, size_t n,
                             struct bytes *all, struct err *e) {
    CLEANUP(freep) uint64_t *sizes = calloc((size_t)c->world_size, sizeof *sizes);
    if (!sizes)
        return err_errno(e, "allocate the sizes of %d blobs", c->world_size);
    uint64_t size = n;
    TRY(collective_all_gather(c, channel, &size, sizeof size, sizes, e));
    TRY(bytes_append(&all[c->rank], mine, n, e));
    for (int hop = 1; hop < c->world_size; hop++) {
        int peer = c->rank ^ hop;
        struct bytes *to = &all[peer];
        status_t st = bytes_reserve(to, sizes[peer], e);
        if (st != ST_OK) {
            collective_abort(c, "a blob is too large");
            return err_prefix(e, st, "the blob of rank %d: ", peer);
        }
        TRY(collective_swap(c, channel, peer, mine, n, to->data + to->len, sizes[peer], false, e));
        to->len += sizes[peer];
        to->data[to->len] = '\0';
    }
    return ST_OK;
}

/* A binomial tree over the ranks as counted from the root. */
status_t collective_broadcast(struct collective *c, enum collective_channel channel, int root, void *data, size_t n,
                              struct err *e) {
    assert(root >= 0 && root < c->world_size);
    int P = c->world_size, from_root = (c->rank - root + P) % P;
    for (int group = 1; group < P; group *= 2) {
        if (from_root < group)
            TRY(collective_send(c, channel, (c->rank + group) % P, data, n, e));
        else if (from_root < 2 * group)
            TRY(collective_recv(c, channel, (c->rank - group + P) % P, data, n, e));
    }
    return ST_OK;
}

status_t collective_barrier(struct collective *c, enum collective_channel channel, struct err *e) {
    uint64_t none = 0;
    return collective_or(c, channel, &none, e);
}

status_t collective_sum_ordered(struct collective *c, enum collective_channel channel, double *values, int n,
                                struct err *e) {
    assert(n >= 0 && n <= COLLECTIVE_SMALL);
    if (c->world_size == 1)
        return ST_OK;
    double *all = (double *)(void *)c->staging[channel];
    TRY(collective_all_gather(c, channel, values, (size_t)n * sizeof *values, all, e));
    memcpy(values, all, (size_t)n * sizeof *values);
    for (int rank = 1; rank < c->world_size; rank++)
        for (int i = 0; i < n; i++)
            values[i] += all[rank * n + i];
    return ST_OK;
}

status_t collective_or(struct collective *c, enum collective_channel channel, uint64_t *flags, struct err *e) {
    for (int group = 1; group < c->world_size; group *= 2) {
        uint64_t theirs = 0;
        TRY(collective_swap(c, channel, c->rank ^ group, flags, sizeof *flags, &theirs, sizeof theirs, false, e));
        *flags |= theirs;
    }
    return ST_OK;
}
