/* What arrives over NCCL joins what is there: swap.c's folds, on the device. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_NCCL_FOLD_H
#define EXECUTOR_ENGINE_COLLECTIVE_NCCL_FOLD_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* in (n) += arrived (n), in fp32, which is bit by bit what a processor makes of it. */
cudaError_t nccl_fold_add(float *in, const float *arrived, size_t n, cudaStream_t stream);
/* in (words) |= arrived (words), each of 64 bits. */
cudaError_t nccl_fold_or(unsigned long long *in, const unsigned long long *arrived, size_t words, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
