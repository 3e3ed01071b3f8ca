/* What a kernel is called where people see it. */
#ifndef KERNELS_CUDA_KERNEL_NAME_H
#define KERNELS_CUDA_KERNEL_NAME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A symbol as its source has it, without result and parameters: "cutlass::Kernel2<cutlass_80_gemm_relu>" of
 * "_ZN7cutlass7Kernel2I20cutlass_80_gemm_reluEEvNT_6ParamsE". A C name stays as it is, and so does what the C++ runtime
 * cannot read, such as a symbol of much more than a thousand bytes, or what would have more than 65,536. What has no
 * room loses its middle; what cannot be printed becomes '?'. n >= 16.
 *
 * A symbol is of code that this process has loaded and runs: one that was made to take for ever to read is not
 * guarded against. */
void cuda_kernel_name(const char *symbol, char *ret, size_t n);

#ifdef __cplusplus
}
#endif

#endif
