/* The record of a run's choices: what is read is written back as it was, and taken once however often it stands
 * there. */
#include "kernels/cuda/lib/tuning_cache.h"

#include <stdlib.h>
#include <string.h>

/* From text of several tables, a choice of each product and convolution. */
static void take(const char *text, size_t n) {
    struct tuning_cache t = { .device = "a device" };
    const status_t st = tuning_cache_take(&t, text, n, NULL);
    const int taken = t.n_products + t.n_engines;
    if (st == ST_OK && (tuning_cache_take(&t, text, n, NULL) != ST_OK || t.n_products + t.n_engines != taken))
        abort();
    tuning_cache_done(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    CLEANUP(tuning_cache_donep) struct tuning_cache t = { 0 }, again = { 0 };
    CLEANUP(freep) char *text = NULL;
    take((const char *)data, n);
    if (tuning_cache_parse((const char *)data, n, &t, NULL) != ST_OK)
        return 0;
    text = tuning_cache_write(&t);
    if (tuning_cache_parse(text, strlen(text), &again, NULL) != ST_OK || again.n_products != t.n_products ||
        again.n_engines != t.n_engines)
        abort();
    tuning_cache_done(&again);
    return 0;
}
