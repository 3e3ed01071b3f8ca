/* The step's verdict: one block adds, one of its threads decides. Compiled without contraction, as optimizer.cu is. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/decide.h"

enum { THREADS = 256 };

static __global__ void __launch_bounds__(THREADS)
    verdict(struct decision *decision, const double *losses, int64_t n_losses, const double *sums, int64_t n_sums,
            struct decide o) {
    double squares = 0, not_finite = 0;
    for (int64_t i = threadIdx.x; i < n_losses; i += THREADS)
        not_finite += losses[i] - losses[i] == 0 ? 0 : 1;
    for (int64_t i = threadIdx.x; i < n_sums; i += THREADS)
        squares += sums[i];
    not_finite = block_sum(not_finite, 0);
    squares = block_sum(squares, 1);
    if (threadIdx.x == 0)
        decide_step(decision, squares, not_finite == 0, &o);
}

status_t cuda_decide(const struct kernels *k, struct decision *decision, const double *losses, int64_t n_losses,
                     const double *sums, int64_t n_sums, const struct decide *o, struct err *e) {
    return launch(k, e, verdict, dim3(1), dim3(THREADS), decision, losses, n_losses, sums, n_sums, *o);
}
