/* The step decision: many blocks add the chunks' sums of squares (1.5 million doubles for a model of 1.5 billion
 * parameters), one block adds the partial sums of these blocks, and one of its threads decides. Compiled without
 * contraction, as optimizer.cu is, so that the bits are the CPU's. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sums.cuh"
#include "kernels/step_decision.h"

static __global__ void __launch_bounds__(SUM_THREADS)
    step_decision(struct decision *decision, const double *losses, int64_t n_losses, const double *parts,
                  int64_t n_parts, struct decision_rules o) {
    double not_finite = 0;
    for (int64_t i = threadIdx.x; i < n_losses; i += SUM_THREADS)
        not_finite += losses[i] - losses[i] == 0 ? 0 : 1;
    not_finite = block_sum(not_finite, 0);
    const double squares = add_up_parts(parts, n_parts, 1);
    if (threadIdx.x == 0)
        decide_step(decision, squares, not_finite == 0, &o);
}

status_t cuda_decide(const struct kernels *k, struct decision *decision, const double *losses, int64_t n_losses,
                     const double *sums, int64_t n_sums, const struct decision_rules *o, struct err *e) {
    double *parts = cuda_of(k)->partial_sums;
    const int64_t n_parts = sum_parts(n_sums);
    TRY(launch(k, e, add_parts<double>, dim3((unsigned)n_parts), dim3(SUM_THREADS), parts, sums, n_sums));
    return launch(k, e, step_decision, dim3(1), dim3(SUM_THREADS), decision, losses, n_losses, parts, n_parts, *o);
}
