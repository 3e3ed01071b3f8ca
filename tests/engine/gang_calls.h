/* The calls of a collective, tried over every transport, and calls that ranks repeat until one of the ranks is lost. */
#ifndef TESTS_ENGINE_GANG_CALLS_H
#define TESTS_ENGINE_GANG_CALLS_H

#include "tests/engine/gang.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A gang without messages gives up after PATIENCE_MS. A rank that is notified of the end knows it within TOLD_MS, also
 * on a busy machine. */
enum { PATIENCE_MS = 80000, TOLD_MS = PATIENCE_MS / 4 };

/* In a rank: a check that fails ends the rank and prints the line. */
#define MUST(cond)                                                                                                     \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "# rank %d, line %d: %s (%s)\n", rank, __LINE__, #cond, e.msg);                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Every call is tried over Gloo with and without the shared memory of a common host, and over threads. */
typedef struct gang *gang_starter(int world_size, int timeout_ms, gang_main *body, void *arg);
static gang_starter *const STARTERS[] = { gang_start, gang_start_apart, gang_start_threads };

static inline void assert_all_well(int world_size, gang_main *body, void *arg) {
    for (size_t i = 0; i < sizeof STARTERS / sizeof *STARTERS; i++)
        assert_int_equal(gang_end(STARTERS[i](world_size, PATIENCE_MS, body, arg)), 0);
}

/* The calls during which a peer may be lost. */
enum call { CALL_REDUCE, CALL_SCATTER, CALL_GATHER, CALL_OR, CALL_OR_LONG, CALL_POSTED, CALLS };

static inline status_t call_once(struct collective *c, enum call call, float *x, int64_t n, struct err *e) {
    const struct collective_group world = collective_world(c);
    const int P = world.count, rank = collective_rank(c);
    int64_t cut[GANG_RANKS + 1];
    for (int j = 0; j <= P; j++)
        cut[j] = n * j / P;
    if (call == CALL_REDUCE)
        return collective_reduce_ordered(c, COLLECTIVE_DATA, &world, x, cut, e);
    if (call == CALL_SCATTER)
        return collective_reduce_scatter_ordered(c, COLLECTIVE_DATA, &world, x, cut, e);
    if (call == CALL_GATHER)
        return collective_all_gather_shards(c, COLLECTIVE_DATA, &world, x, sizeof *x, cut, e);
    if (call == CALL_OR || call == CALL_OR_LONG)
        return collective_or(c, COLLECTIVE_DATA, &world, (uint64_t *)(void *)x, call == CALL_OR ? 9 : n / 2, e);
    int send, recv;
    TRY(collective_post_recv(c, COLLECTIVE_FORWARD, (rank + P - 1) % P, x, (size_t)n, &recv, e));
    TRY(collective_post_send(c, COLLECTIVE_FORWARD, (rank + 1) % P, x + n / 2, (size_t)n, &send, e));
    TRY(collective_finish(c, COLLECTIVE_FORWARD, recv, e));
    return collective_finish(c, COLLECTIVE_FORWARD, send, e);
}

/* Repeats a call until it fails, and records the time and the error of the failure. */
static inline int call_until_failure(struct gang *g, int rank, struct collective *c) {
    enum { N = 1 << 20 };
    const enum call call = *(const enum call *)g->arg;
    CLEANUP(freep) float *x = calloc(N, sizeof *x);
    struct err e = { "" };
    status_t st = ST_OK;
    while (st == ST_OK) {
        gang_advance(g, rank);
        st = call_once(c, call, x, N, &e);
    }
    gang_note(g, rank, st, &e);
    return 0;
}

#endif
