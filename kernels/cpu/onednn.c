#include "kernels/cpu/onednn.h"

#include <omp.h>

status_t onednn_check(dnnl_status_t st, const char *what, struct err *e) {
    if (st == dnnl_success)
        return ST_OK;
    return err_set(e, st == dnnl_out_of_memory ? ST_RESOURCE_EXHAUSTED : ST_INTERNAL, "oneDNN could not %s (%s)", what,
                   st == dnnl_out_of_memory   ? "out of memory"
                   : st == dnnl_unimplemented ? "it has no such primitive"
                                              : "internal error");
}

int onednn_threads(int threads) {
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}
