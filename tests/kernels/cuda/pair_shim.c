#include "tests/kernels/cuda/pair.h"

#include "kernels/cuda/ops.h"

#include <stdlib.h>

enum { ALIGNMENT = 256 };

/* Grids for a device of one multiprocessor and of many. The first one has no dynamic shared memory. */
static const int PROCESSORS[SIDES] = { [ONE] = 1, [MANY] = 132 };
static const size_t SHARED_BYTES[SIDES] = { [ONE] = 0, [MANY] = 163 << 10 };

struct tables {
    struct cuda cuda[SIDES], fp32[SIDES];
    uint64_t faults[CUDA_FAULTS];
    float staging[CUDA_STAGING];
    double partial_sums[CUDA_PARTIAL_SUMS];
};

void *pair_memory(size_t bytes) {
    void *p = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!p)
        abort();
    return p;
}

void pair_memory_free(void *p) { free(p); }

void pair_tables_open(struct pair *p) {
    struct tables *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    p->tables = t;
    for (int s = ONE; s < SIDES; s++) {
        t->cuda[s] = (struct cuda){ .table = { .device = "cuda", .threads = 1, .precision = p->precision },
                                    .faults = t->faults,
                                    .staging = t->staging,
                                    .partial_sums = t->partial_sums,
                                    .processors = PROCESSORS[s],
                                    .shared_bytes = SHARED_BYTES[s],
                                    .cudnn = (struct cudnn *)t };
        cuda_table(&t->cuda[s].table);
        cuda_library_table(&t->cuda[s].table);
        t->fp32[s] = t->cuda[s];
        t->fp32[s].table.precision = KERNELS_FP32;
        t->fp32[s].table.fp32 = t->cuda[s].table.fp32 = &t->fp32[s].table;
        p->k[s] = &t->cuda[s].table;
    }
}

void pair_tables_close(struct pair *p) { free(p->tables); }

void pair_order(uint64_t seed) { shim_seed(seed); }
