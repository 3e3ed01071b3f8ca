/* How a .cu file starts a kernel on a table's stream:
 *
 *     return launch(k, e, gelu<E>, cuda_grid(k, n, 256 * 8), 256, (element *)y, (const element *)x, n);
 *
 * Grids depend on the device where the work of a block does not; sums are cut by shape alone (piece_count). */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/cuda.h"

#include <cuda_runtime.h>

/* Blocks of one multiprocessor beyond which more only queue up. */
enum { CUDA_BLOCKS_EACH = 16 };

/* As many blocks as there are pieces of `each` in n, but no more than keep the device busy: for kernels whose blocks
 * go on with a stride of the grid. */
static inline dim3 cuda_grid(const struct kernels *k, int64_t n, int64_t each) {
    const int64_t wanted = (n + each - 1) / each, most = (int64_t)cuda_of(k)->processors * CUDA_BLOCKS_EACH;
    return dim3((unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most));
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
