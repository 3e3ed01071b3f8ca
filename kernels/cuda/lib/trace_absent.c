/* For builds without CUPTI's headers. */
#include "kernels/cuda/cuda.h"
#include "kernels/trace.h"

status_t cuda_trace_check(struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION, "this build was made without CUPTI");
}

static status_t absent(int64_t max_runs, struct trace **ret, struct err *e) {
    (void)max_runs, (void)ret;
    return cuda_trace_check(e);
}

const struct kernels_trace cuda_trace = { .open = absent };
