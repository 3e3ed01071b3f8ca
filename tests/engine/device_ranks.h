/* The checks of ranks on a device, for both transports: NCCL between processes on a GPU (tests/gpu/ranks.c), and the
 * stand-in for NCCL between threads (test_nccl_ranks.c). Each function returns 0, or the number of the line that
 * failed. */
#ifndef TESTS_ENGINE_DEVICE_RANKS_H
#define TESTS_ENGINE_DEVICE_RANKS_H

#include "kernels/kernels.h"
#include "tests/engine/gang.h"
#include "tests/engine/ordered_sum.h"

#include <math.h>

#define DEVICE_MUST(cond)                                                                                              \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "# rank %d, line %d: %s (%s)\n", rank, __LINE__, #cond, e.msg);                            \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

/* Makes later kernels run after the collectives that the DATA stream already has. */
static inline status_t device_follow(struct collective *c, struct err *e) {
    int ticket;
    TRY(collective_mark(c, &ticket, e));
    return collective_finish(c, COLLECTIVE_DATA, ticket, e);
}

/* Checks sums over a group bit by bit, then checks that all-gather gives every shard to every rank. */
static inline int device_sum_over(struct collective *c, const struct kernels *k, int rank,
                                  const struct collective_group *group, int64_t n, uint32_t *state) {
    struct err e = { "" };
    int64_t cut[GANG_RANKS + 1];
    void *there = NULL;
    int number = (rank - group->first) / group->stride, piece = collective_shard(number, group->count);
    const size_t bytes = ((size_t)n + 1) * sizeof(float);
    draw_cuts(state, n, group->count, cut);
    CLEANUP(freep) float *x = malloc(bytes);
    for (int64_t i = 0; i < n; i++)
        x[i] = value_of(rank, i, n);
    x[n] = 42;
    DEVICE_MUST(k->memory_new(k, bytes, &there, &e) == ST_OK && k->upload(k, there, x, bytes, &e) == ST_OK);
    DEVICE_MUST(collective_reduce_scatter_ordered(c, COLLECTIVE_DATA, group, there, cut, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    DEVICE_MUST(k->download(k, x, there, bytes, &e) == ST_OK && k->finish(k, &e) == ST_OK);
    for (int64_t i = cut[piece]; i < cut[piece + 1]; i++) {
        float want = tree_over(group, 0, group->count, i, n);
        DEVICE_MUST(memcmp(&x[i], &want, sizeof want) == 0);
    }
    for (int64_t i = 0; i < n; i++)
        if (i < cut[piece] || i >= cut[piece + 1])
            x[i] = -1;
    DEVICE_MUST(k->upload(k, there, x, bytes, &e) == ST_OK);
    DEVICE_MUST(collective_all_gather_shards(c, COLLECTIVE_DATA, group, there, sizeof *x, cut, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    DEVICE_MUST(k->download(k, x, there, bytes, &e) == ST_OK && k->finish(k, &e) == ST_OK);
    for (int64_t i = 0; i < n; i++) {
        float want = tree_over(group, 0, group->count, i, n);
        DEVICE_MUST(memcmp(&x[i], &want, sizeof want) == 0);
    }
    DEVICE_MUST(x[n] == 42);
    k->memory_free(k, there);
    return 0;
}

/* `most` elements: a size that needs several segments in nccl_transport.c. Groups are neighbouring ranks,
 * and ranks a stride apart. */
static inline int device_sums(struct gang *g, int rank, struct collective *c, const struct kernels *k, int64_t most) {
    const int64_t sizes[] = { 0, 1, 3, 1000, 10003, most };
    uint32_t state = 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int count = 2; count <= g->world_size; count *= 2) {
            struct collective_group near = { .first = rank / count * count, .stride = 1, .count = count };
            int stride = g->world_size / count;
            struct collective_group far = { .first = rank % stride, .stride = stride, .count = count };
            int line = device_sum_over(c, k, rank, &near, sizes[s], &state);
            if (!line && sizes[s] < most)
                line = device_sum_over(c, k, rank, &far, sizes[s], &state);
            if (line)
                return line;
        }
    return 0;
}

/* NCCL's own sum is correct, but its order of addition is not fixed: a tolerance, not equal bits. */
static inline int device_native_sum(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    enum { N = 100003 };
    struct err e = { "" };
    const struct collective_group world = collective_world(c);
    int64_t cut[GANG_RANKS + 1];
    uint32_t state = 2;
    void *there = NULL;
    draw_cuts(&state, N, g->world_size, cut);
    CLEANUP(freep) float *x = malloc(N * sizeof *x);
    for (int64_t i = 0; i < N; i++)
        x[i] = value_of(rank, i, N);
    DEVICE_MUST(k->memory_new(k, N * sizeof *x, &there, &e) == ST_OK);
    DEVICE_MUST(k->upload(k, there, x, N * sizeof *x, &e) == ST_OK);
    DEVICE_MUST(collective_reduce_ordered(c, COLLECTIVE_DATA, &world, there, cut, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    DEVICE_MUST(k->download(k, x, there, N * sizeof *x, &e) == ST_OK && k->finish(k, &e) == ST_OK);
    for (int64_t i = 0; i < N; i++)
        DEVICE_MUST(fabsf(x[i] - tree_over(&world, 0, world.count, i, N)) <= 0.1f);
    k->memory_free(k, there);
    return 0;
}

/* The union of all ranks' flags, in words of device memory. */
static inline int device_union(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    enum { N = 4099 };
    struct err e = { "" };
    const struct collective_group world = collective_world(c);
    CLEANUP(freep) uint64_t *x = calloc(N, sizeof *x);
    void *there = NULL;
    for (int i = rank; i < N; i += g->world_size)
        x[i] = (uint64_t)i * 0x9e3779b97f4a7c15ULL + 1;
    DEVICE_MUST(k->memory_new(k, N * sizeof *x, &there, &e) == ST_OK);
    DEVICE_MUST(k->upload(k, there, x, N * sizeof *x, &e) == ST_OK);
    DEVICE_MUST(collective_or(c, COLLECTIVE_DATA, &world, there, N, &e) == ST_OK);
    DEVICE_MUST(device_follow(c, &e) == ST_OK);
    DEVICE_MUST(k->download(k, x, there, N * sizeof *x, &e) == ST_OK && k->finish(k, &e) == ST_OK);
    for (int i = 0; i < N; i++)
        DEVICE_MUST(x[i] == (uint64_t)i * 0x9e3779b97f4a7c15ULL + 1);
    k->memory_free(k, there);
    return 0;
}

/* Neighbours of a pipeline, in a ring. Receives are posted long before their sends, in both directions at once. */
static inline int device_transfers(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    enum { POSTED = 12, N = 20000 };
    struct err e = { "" };
    const int P = g->world_size, next = (rank + 1) % P, before = (rank + P - 1) % P;
    const struct collective_link links[] = { { COLLECTIVE_FORWARD, next, true },
                                             { COLLECTIVE_FORWARD, before, false },
                                             { COLLECTIVE_BACKWARD, before, true },
                                             { COLLECTIVE_BACKWARD, next, false } };
    const size_t bytes = N * sizeof(float);
    CLEANUP(freep) float *x = malloc(bytes);
    char *out = NULL, *in[2] = { NULL };
    int sends[2][POSTED], recvs[2][POSTED];
    for (int i = 0; i < N; i++)
        x[i] = value_of(rank, i, N);
    DEVICE_MUST(collective_connect(c, links, 4, &e) == ST_OK);
    DEVICE_MUST(k->memory_new(k, bytes, (void **)&out, &e) == ST_OK && k->upload(k, out, x, bytes, &e) == ST_OK);
    for (int way = 0; way < 2; way++) /* before any post: an allocation may wait for the whole device */
        DEVICE_MUST(k->memory_new(k, POSTED * bytes, (void **)&in[way], &e) == ST_OK);
    for (int way = 0; way < 2; way++) {
        const enum collective_stream stream = way ? COLLECTIVE_BACKWARD : COLLECTIVE_FORWARD;
        for (int i = 0; i < POSTED; i++)
            DEVICE_MUST(collective_post_recv(c, stream, way ? next : before, in[way] + (size_t)i * bytes,
                                             bytes - (size_t)i * sizeof(float), &recvs[way][i], &e) == ST_OK);
    }
    for (int i = 0; i < POSTED; i++)
        for (int way = 0; way < 2; way++)
            DEVICE_MUST(collective_post_send(c, way ? COLLECTIVE_BACKWARD : COLLECTIVE_FORWARD, way ? before : next,
                                             out, bytes - (size_t)i * sizeof(float), &sends[way][i], &e) == ST_OK);
    for (int way = 0; way < 2; way++)
        for (int i = POSTED - 1; i >= 0; i--) {
            const enum collective_stream stream = way ? COLLECTIVE_BACKWARD : COLLECTIVE_FORWARD;
            DEVICE_MUST(collective_finish(c, stream, recvs[way][i], &e) == ST_OK);
            DEVICE_MUST(collective_finish(c, stream, sends[way][i], &e) == ST_OK);
            DEVICE_MUST(k->download(k, x, in[way] + (size_t)i * bytes, bytes, &e) == ST_OK);
            DEVICE_MUST(k->finish(k, &e) == ST_OK);
            for (int j = 0; j < N - i; j++)
                DEVICE_MUST(x[j] == value_of(way ? next : before, j, N));
        }
    k->memory_free(k, out);
    k->memory_free(k, in[0]);
    k->memory_free(k, in[1]);
    return 0;
}

/* Adds until a sum fails, and records the time and the error of the failure. */
static inline int device_sum_until_failure(struct gang *g, int rank, struct collective *c, const struct kernels *k) {
    enum { N = 1 << 18 };
    struct err e = { "" };
    const struct collective_group world = collective_world(c);
    int64_t cut[GANG_RANKS + 1];
    void *there = NULL;
    status_t st = ST_OK;
    for (int j = 0; j <= world.count; j++)
        cut[j] = (int64_t)N * j / world.count;
    DEVICE_MUST(k->memory_new(k, N * sizeof(float), &there, &e) == ST_OK);
    DEVICE_MUST(k->fill(k, there, 0, N, &e) == ST_OK);
    while (st == ST_OK) {
        gang_advance(g, rank);
        st = collective_reduce_ordered(c, COLLECTIVE_DATA, &world, there, cut, &e);
        if (st == ST_OK)
            st = device_follow(c, &e);
        if (st == ST_OK)
            st = k->finish(k, &e);
    }
    gang_note(g, rank, st, &e);
    k->memory_free(k, there);
    return 0;
}

#endif
