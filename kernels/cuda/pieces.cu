#include "kernels/cuda/pieces.h"

#include "kernels/cuda/reduce.cuh"

/* Threads (32 columns, DEEP): each adds every DEEP-th piece, then their sums are added in order. */
static __global__ void add_pieces(float *sum, const float *partial, int64_t pieces, int64_t stride, int64_t width,
                                  bool accumulate) {
    const int64_t column = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float a[1] = { 0 };
    if (column < width) {
#pragma unroll 4
        for (int64_t i = threadIdx.y; i < pieces; i += DEEP)
            a[0] += partial[i * stride + column];
    }
    walk_sum(a);
    if (threadIdx.y == 0 && column < width)
        sum[column] = accumulate ? sum[column] + a[0] : a[0];
}

status_t pieces_add(const struct kernels *k, float *sum, const float *partial, int64_t pieces, int64_t stride,
                    int64_t width, bool accumulate, struct err *e) {
    return launch(k, e, add_pieces, dim3((unsigned)((width + WARP - 1) / WARP)), dim3(WARP, DEEP), sum, partial, pieces,
                  stride, width, accumulate);
}
