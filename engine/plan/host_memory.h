/* What a rank's process holds in the memory of its host beside the arena of its plan, by family. Who knows the data,
 * the kernels and the program fills it in for a plan (run/host_memory.h); plan/ only adds it up.
 *
 * On a CPU the arena is host memory, too, and a limit of a rank's memory covers both. On a GPU the limit is that of the
 * device, which holds the arena alone. */
#ifndef ENGINE_PLAN_HOST_MEMORY_H
#define ENGINE_PLAN_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct plan;

enum host_family {
    HOST_SNAPSHOT,      /* the copy of this rank's state from which checkpoints are written, and digests of it */
    HOST_DATA,          /* tokens, pixels and labels in memory, names of files, a tokenizer */
    HOST_BATCHES,       /* the loader's ring, and the batch of an evaluation */
    HOST_KERNELS,       /* packed weights, code and scratch memory of matrix products */
    HOST_COMMUNICATION, /* staging of reductions; connections */
    HOST_PLANS,         /* the plans, the graph, and what the verifier needs beyond what is allocated after it */
    HOST_PROGRAM,       /* code, libraries and heap of the program; stacks of its threads */
    HOST_FAMILIES,
};

struct host_memory {
    size_t bytes[HOST_FAMILIES];
};

struct host_memory_rule {
    void (*weigh)(void *ctx, const struct plan *plan, struct host_memory *ret);
    void *ctx;
    bool limited; /* a limit covers host memory, too */
};

const char *host_family_name(enum host_family family);
size_t host_memory_bytes(const struct host_memory *m);

/* Bytes of a plan's rank that a limit covers. rule NULL: the arena. */
size_t host_memory_limited(const struct host_memory_rule *rule, const struct plan *plan);

#endif
