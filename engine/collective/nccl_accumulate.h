/* exchange_accumulate on the device: adds or ors a segment that arrived over NCCL. */
#ifndef ENGINE_COLLECTIVE_NCCL_ACCUMULATE_H
#define ENGINE_COLLECTIVE_NCCL_ACCUMULATE_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* in (n) += arrived (n) in fp32: the same bits as on the CPU. */
cudaError_t nccl_accumulate_add(float *in, const float *arrived, size_t n, cudaStream_t stream);
/* in (words) |= arrived (words), 64-bit words. */
cudaError_t nccl_accumulate_or(unsigned long long *in, const unsigned long long *arrived, size_t words,
                               cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
