/* The matrix units of kernels/cuda/mma.cuh on the CPU: the lanes of a warp show each other what they hold, and each
 * adds up its own four sums, along the 16 in order. Copies are made at once. */
#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/element.cuh"

namespace shim {

enum { LANES = 32, WARPS_MOST = 32 };

/* What each lane of the warp shows, lane by lane. Two boards in turn: who shows again has seen that all have read. */
template <class T> const T *show(const T &mine) {
    static T board[2][WARPS_MOST][LANES];
    static unsigned turn[WARPS_MOST][LANES];
    const unsigned warp = threadIdx.x / LANES;
    T *at = board[turn[warp][lane()]++ % 2][warp];
    at[lane()] = mine;
    __syncwarp();
    return at;
}

struct operands {
    uint32_t a[4], b[2];
};

template <class E> float half_of(uint32_t both, int which) {
    const uint16_t bits = (uint16_t)(both >> 16 * which);
    E x;
    memcpy(&x, &bits, sizeof x);
    return float_of(x);
}

/* a (row, k) and b (k, column), from the lanes that hold them. */
template <class E> float a_at(const operands *held, unsigned row, unsigned k) {
    return half_of<E>(held[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
}
template <class E> float b_at(const operands *held, unsigned k, unsigned column) {
    return half_of<E>(held[column * 4 + k % 8 / 2].b[k / 8], k % 2);
}

} // namespace shim

template <class E> void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, E) {
    const shim::operands mine = { { a[0], a[1], a[2], a[3] }, { b0, b1 } }, *held = shim::show(mine);
    const unsigned g = shim::lane() / 4, t = shim::lane() % 4;
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++)
            c[i] += shim::a_at<E>(held, g + i / 2 * 8, k) * shim::b_at<E>(held, k, 2 * t + i % 2);
}

static inline void load_matrices(uint32_t (&to)[4], const void *row) {
    const void *const *rows = shim::show(row);
    for (unsigned m = 0; m < 4; m++)
        memcpy(&to[m], (const char *)rows[8 * m + shim::lane() / 4] + shim::lane() % 4 * 4, 4);
}

static inline void load_transposed(uint32_t (&to)[4], const void *row) {
    const void *const *rows = shim::show(row);
    for (unsigned m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (unsigned i = 0; i < 2; i++)
            memcpy(&pair[i], (const char *)rows[8 * m + shim::lane() % 4 * 2 + i] + shim::lane() / 4 * 2, 2);
        to[m] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
    }
}

static inline void copy_16(void *to, const void *from, bool exist) {
    if (exist)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
static inline void copy_commit() {}
template <int N> void copy_wait() {}

template <class E> uint32_t pack(float low, float high, E) {
    const E pair[2] = { element_of<E>(low), element_of<E>(high) };
    uint32_t both;
    memcpy(&both, pair, sizeof both);
    return both;
}

#endif
