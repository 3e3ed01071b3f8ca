/* The cases of tests/kernels/cuda on a device: pinned memory has one address for the host, which looks at it, and for
 * the device, which works on it. PAIR_MEMORY=managed takes memory that moves between them instead, should a library's
 * kernels want what they work on in the device's own. ONE and MANY are the same device twice: its bits must repeat. */
#include "tests/kernels/cuda/pair.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = 77 };

static bool is_managed(void) {
    const char *kind = getenv("PAIR_MEMORY");
    return kind && strcmp(kind, "managed") == 0;
}

void *pair_memory(size_t bytes) {
    void *p = NULL;
    const cudaError_t error = is_managed() ? cudaMallocManaged(&p, bytes, cudaMemAttachGlobal)
                                           : cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) {
        fprintf(stderr, "# %zu bytes for host and device: %s\n", bytes, cudaGetErrorString(error));
        abort();
    }
    return p;
}

void pair_memory_free(void *p) { (void)(is_managed() ? cudaFree(p) : cudaFreeHost(p)); }

/* All cases share them: a table's libraries take a while to begin. */
static struct kernels *tables[KERNELS_FP16 + 1][SIDES];

void pair_tables_open(struct pair *p) {
    const struct kernels_config config = { .device = "cuda", .threads = 1, .precision = p->precision };
    for (int s = ONE; s < SIDES; s++) {
        struct kernels **k = &tables[p->precision][s];
        struct err e;
        if (!*k && kernels_open(&config, k, &e) != ST_OK) {
            fprintf(stderr, "# %s\n", e.msg);
            exit(NO_DEVICE);
        }
        p->k[s] = *k;
    }
}

void pair_tables_close(struct pair *p) { (void)p; }

void pair_order(uint64_t seed) { (void)seed; }
