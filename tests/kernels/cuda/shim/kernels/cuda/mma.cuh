/* The matrix units of kernels/cuda/mma.cuh on the CPU. The lanes of a warp exchange their operands, and each lane adds
 * its own four sums over the 16 products in order. Whether a copy is made at once or when it is waited for is drawn at
 * random for each copy, so a kernel may rely on neither. */
#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/element.cuh"

namespace shim {

enum { LANES = 32 };

/* The values of all lanes of the warp, by lane. */
template <class T> struct shown { T of[LANES]; };
template <class T> shown<T> show_all(const T &mine, where at) {
    shown<T> all;
    show(&mine, sizeof mine, &all, at);
    return all;
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

/* a (row, k) and b (k, column), read from the lanes that hold them. */
template <class E> float a_at(const operands *held, unsigned row, unsigned k) {
    return half_of<E>(held[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
}
template <class E> float b_at(const operands *held, unsigned k, unsigned column) {
    return half_of<E>(held[column * 4 + k % 8 / 2].b[k / 8], k % 2);
}

} // namespace shim

template <class E>
void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, E, shim::where where = SHIM_HERE) {
    const shim::operands mine = { { a[0], a[1], a[2], a[3] }, { b0, b1 } };
    const shim::shown<shim::operands> all = shim::show_all(mine, where);
    const shim::operands *held = all.of;
    const unsigned g = shim::lane() / 4, t = shim::lane() % 4;
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++)
            c[i] += shim::a_at<E>(held, g + i / 2 * 8, k) * shim::b_at<E>(held, k, 2 * t + i % 2);
}

static inline void load_matrices(uint32_t (&to)[4], const void *row, shim::where where = SHIM_HERE) {
    const shim::shown<const void *> rows = shim::show_all(row, where);
    for (unsigned m = 0; m < 4; m++)
        memcpy(&to[m], (const char *)rows.of[8 * m + shim::lane() / 4] + shim::lane() % 4 * 4, 4);
}

static inline void load_transposed(uint32_t (&to)[4], const void *row, shim::where where = SHIM_HERE) {
    const shim::shown<const void *> rows = shim::show_all(row, where);
    for (unsigned m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (unsigned i = 0; i < 2; i++)
            memcpy(&pair[i], (const char *)rows.of[8 * m + shim::lane() % 4 * 2 + i] + shim::lane() / 4 * 2, 2);
        to[m] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
    }
}

namespace shim {
static inline void copy_make(void *to, const void *from, bool exist) {
    if (exist)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
} // namespace shim

static inline void copy_16(void *to, const void *from, bool exist) {
    if (((uintptr_t)to | (uintptr_t)from) % 16 != 0)
        abort();
    shim::copy_begin(to, from, exist, shim::copy_make);
}
static inline void copy_commit() { shim::copy_commit(); }
template <int N> void copy_wait() { shim::copy_wait(N, shim::copy_make); }

template <class E> uint32_t pack(float low, float high, E) {
    const E pair[2] = { element_of<E>(low), element_of<E>(high) };
    uint32_t both;
    memcpy(&both, pair, sizeof both);
    return both;
}

#endif
