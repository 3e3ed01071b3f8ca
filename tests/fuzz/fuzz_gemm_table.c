/* The record of a run's matrix products: what is read is written back as it was, and taken once however often it stands
 * there. */
#include "kernels/cuda/gemm_table.h"

#include <stdlib.h>
#include <string.h>

/* From text of several tables, a choice of each product. */
static void take(const char *text, size_t n) {
    struct gemm_table t = { .device = "a device" };
    const status_t st = gemm_table_take(&t, text, n, NULL);
    const size_t taken = t.n;
    if (st == ST_OK && (gemm_table_take(&t, text, n, NULL) != ST_OK || t.n != taken))
        abort();
    gemm_table_done(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    CLEANUP(gemm_table_donep) struct gemm_table t = { 0 }, again = { 0 };
    CLEANUP(freep) char *text = NULL;
    take((const char *)data, n);
    if (gemm_table_parse((const char *)data, n, &t, NULL) != ST_OK)
        return 0;
    if (gemm_table_write(&t, &text, NULL) != ST_OK || gemm_table_parse(text, strlen(text), &again, NULL) != ST_OK ||
        again.n != t.n)
        abort();
    gemm_table_done(&again);
    return 0;
}
