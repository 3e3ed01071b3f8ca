/* How a .cu file starts a kernel on a table's stream:
 *
 *     return launch(k, e, gelu<E>, cuda_grid(k, n, 256 * 8), 256, (element *)y, (const element *)x, n);
 *
 * A grid may depend on the device only if the work of a block does not. Sums are divided by shape alone
 * (piece_count). */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/cuda.h"

#include <cuda_runtime.h>

/* Blocks per multiprocessor. More blocks would only wait. */
enum { CUDA_BLOCKS_EACH = 16 };

/* As many blocks as there are pieces of `each` in n, but no more than keep the device busy. For kernels whose blocks
 * continue with a stride of the grid. */
static inline dim3 cuda_grid(const struct kernels *k, int64_t n, int64_t each) {
    const int64_t wanted = (n + each - 1) / each, limit = (int64_t)cuda_of(k)->processors * CUDA_BLOCKS_EACH;
    return dim3((unsigned)(wanted < 1 ? 1 : wanted < limit ? wanted : limit));
}

/* Like launch, with dynamic shared memory (shared.cuh: dynamic_shared) for each block beside its static shared
 * memory, at most cuda_of(k)->shared_bytes. */
template <class... P, class... A>
status_t launch_with_shared(const struct kernels *k, struct err *e, size_t bytes, void (*kernel)(P...), dim3 grid,
                            dim3 block, A... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = bytes;
    config.stream = cuda_of(k)->stream;
    TRY(cuda_status(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                    "reserving shared memory", e));
    return cuda_status(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), "launching a kernel", e);
}

template <class... P, class... A>
status_t launch(const struct kernels *k, struct err *e, void (*kernel)(P...), dim3 grid, dim3 block, A... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = cuda_of(k)->stream;
    return cuda_status(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), "launching a kernel", e);
}

#endif
