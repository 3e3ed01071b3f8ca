#include "kernels/cuda/pieces.h"

#include "kernels/cuda/reduce.cuh"

/* Blocks of (32 columns, DEEP) threads: each thread adds every DEEP-th piece, then the DEEP sums are added in order. */
static __global__ void add_pieces(float *sum, float *second, const float *partial, int64_t pieces, int64_t stride,
                                  int64_t width, bool accumulate) {
    const int64_t column = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float a[1] = { 0 };
    if (blockIdx.y == 1) { /* the second sum */
        sum = second;
        partial += width;
    }
    if (column < width) {
#pragma unroll 4
        for (int64_t i = threadIdx.y; i < pieces; i += DEEP)
            a[0] += partial[i * stride + column];
    }
    walk_sum(a);
    if (threadIdx.y == 0 && column < width)
        sum[column] = accumulate ? sum[column] + a[0] : a[0];
}

status_t pieces_add(const struct kernels *k, float *sum, float *second, const float *partial, int64_t pieces,
                    int64_t stride, int64_t width, bool accumulate, struct err *e) {
    return launch(k, e, add_pieces, dim3((unsigned)((width + WARP - 1) / WARP), second ? 2 : 1), dim3(WARP, DEEP), sum,
                  second, partial, pieces, stride, width, accumulate);
}
