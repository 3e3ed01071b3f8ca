/* Names of kernels for users. */
#ifndef KERNELS_CUDA_KERNEL_NAME_H
#define KERNELS_CUDA_KERNEL_NAME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Converts a symbol to the name in its source, without result and parameters:
 * "cutlass::Kernel2<cutlass_80_gemm_relu>" from "_ZN7cutlass7Kernel2I20cutlass_80_gemm_reluEEvNT_6ParamsE".
 * Unchanged: a C name, and a symbol that the C++ runtime cannot demangle, such as one of much more than a thousand
 * bytes, or whose name would have more than 65,536 bytes. A name that does not fit in n bytes loses its middle.
 * Characters that cannot be printed become '?'. n >= 16.
 *
 * A symbol belongs to code that this process has loaded and runs, so there is no protection against symbols that
 * were made to take very long. */
void cuda_kernel_name(const char *symbol, char *ret, size_t n);

#ifdef __cplusplus
}
#endif

#endif
