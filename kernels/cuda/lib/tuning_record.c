/* The tuning cache of an open table: filled from the record of an earlier part of the run, and returned as text. */
#include "kernels/cuda/lib/product.h"

#include "base/alloc.h"
#include "kernels/cuda/lib/tuning_cache.h"
#include "kernels/cuda/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status_t cuda_tuning_cache_open(struct cuda *c, const char *record, struct err *e) {
    c->tuning_cache = alloc_zeroed(1, sizeof *c->tuning_cache);
    snprintf(c->tuning_cache->device, sizeof c->tuning_cache->device, "%s, %d processors, cuBLASLt %zu%s", c->name,
             c->processors, cuda_products_version(), c->table.fast ? ", fast" : "");
    const status_t st = record ? tuning_cache_take(c->tuning_cache, record, strlen(record), e) : ST_OK;
    return st == ST_INVALID_ARGUMENT ? err_prefix(e, ST_DATA_LOSS, "the run's record: ") : st;
}

void cuda_tuning_cache_close(struct cuda *c) {
    if (c->tuning_cache)
        tuning_cache_done(c->tuning_cache);
    free(c->tuning_cache);
    c->tuning_cache = NULL;
}

char *cuda_tuning_cache(const struct kernels *k) { return tuning_cache_write(cuda_of(k)->tuning_cache); }
