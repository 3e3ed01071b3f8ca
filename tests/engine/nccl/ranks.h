/* Ranks of nccl_transport.c without a device: threads of a process, over stand-ins for CUDA and NCCL (device.h,
 * threads.c). */
#ifndef TESTS_ENGINE_NCCL_RANKS_H
#define TESTS_ENGINE_NCCL_RANKS_H

#include "engine/collective/internal.h"
#include "engine/collective/plugin.h"
#include "tests/engine/device_ranks.h"
#include "tests/engine/nccl/device.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PATIENCE_MS = 30000 };

extern const struct collective_plugin collective_plugin;

struct task {
    bool native;
    int data;            /* ranks of a stage; 0: all, or one where all are no power of two */
    const char *failing; /* a call of NCCL, on rank 1 */
    int (*body)(struct gang *g, int rank, struct collective *c, const struct kernels *k);
};

static inline int on_device(struct gang *g, int rank, struct collective *c) {
    const struct task *task = g->arg;
    const int all = g->world_size & (g->world_size - 1) ? 1 : g->world_size;
    struct cuda *cuda = device_new();
    const struct collective_device device = { .kernels = &cuda->table,
                                              .data = task->data ? task->data : all,
                                              .native = task->native };
    struct err e = { "" };
    DEVICE_MUST(collective_attach_plugin(c, &collective_plugin, &device, &e) == ST_OK);
    int line = task->body(g, rank, c, &cuda->table);
    collective_detach(c);
    device_free(cuda);
    return line;
}

static inline void assert_all_well(int ranks, struct task task) {
    assert_int_equal(gang_end(gang_start_threads(ranks, PATIENCE_MS, on_device, &task)), 0);
    assert_int_equal(device_communicators(), 0);
}

/* What a rank gives to a thread of its own. */
struct caller {
    struct gang *g;
    int rank;
    struct collective *c;
    char *there;
};

static inline int join_ring_of_two(struct collective *c, int rank) {
    struct err e = { "" };
    const struct collective_link links[] = { { COLLECTIVE_FORWARD, 1 - rank, true },
                                             { COLLECTIVE_FORWARD, 1 - rank, false } };
    DEVICE_MUST(collective_connect(c, links, 2, &e) == ST_OK);
    return 0;
}

#endif
