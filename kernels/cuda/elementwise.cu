/* Ops that treat each element alone. One kernel goes over the packs; what it does with a pack is a struct's. */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/mask.cuh"
#include "kernels/cuda/ops.h"

enum { THREADS = 256 };

template <int N, class Op> static __global__ void __launch_bounds__(THREADS) each_pack(Op op, int64_t n) {
    for (int64_t at = first_pack<N>(); at < n; at += pack_stride<N>())
        op(at, n - at);
}

template <int N, class Op> static status_t run(const struct kernels *k, Op op, int64_t n, struct err *e) {
    return launch(k, e, each_pack<N, Op>, cuda_grid(k, n, THREADS * N), dim3(THREADS), op, n);
}

/* y = f(a) and y = f(a, b). */
template <class E, class F> struct of_one {
    E *y;
    const E *a;
    __device__ __forceinline__ void operator()(int64_t at, int64_t room) const {
        float x[PACK<E>];
        read(x, a + at, room);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            x[j] = F::of(x[j]);
        write(y + at, x, room);
    }
};

template <class E, class F> struct of_two {
    E *y;
    const E *a, *b;
    __device__ __forceinline__ void operator()(int64_t at, int64_t room) const {
        float x[PACK<E>], z[PACK<E>];
        read(x, a + at, room);
        read(z, b + at, room);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            x[j] = F::of(x[j], z[j]);
        write(y + at, x, room);
    }
};

template <class F>
static status_t run_one(const struct kernels *k, element_t *y, const element_t *a, int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run<PACK<E>>(k, of_one<E, F>{ (E *)y, (const E *)a }, n, e);
    });
}

template <class F>
static status_t run_two(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                        struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run<PACK<E>>(k, of_two<E, F>{ (E *)y, (const E *)a, (const E *)b }, n, e);
    });
}

struct gelu_of {
    static __device__ __forceinline__ float of(float x) { return gelu(x); }
};
struct gelu_gradient {
    static __device__ __forceinline__ float of(float dy, float x) { return dy * gelu_slope(x); }
};
struct relu_of {
    static __device__ __forceinline__ float of(float x) { return x < 0 ? 0.0f : x; }
};
struct relu_gradient {
    static __device__ __forceinline__ float of(float dy, float y) { return y > 0 ? dy : 0.0f; }
};
struct sum_of {
    static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};

status_t cuda_gelu_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    return run_one<gelu_of>(k, y, x, n, e);
}

status_t cuda_gelu_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x, int64_t n,
                            struct err *e) {
    return run_two<gelu_gradient>(k, dx, dy, x, n, e);
}

status_t cuda_relu_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    return run_one<relu_of>(k, y, x, n, e);
}

status_t cuda_relu_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *y, int64_t n,
                            struct err *e) {
    return run_two<relu_gradient>(k, dx, dy, y, n, e);
}

status_t cuda_add(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                  struct err *e) {
    return run_two<sum_of>(k, y, a, b, n, e);
}

/* --- conversions, and fp32 alone -----------------------------------------------------------------------------------*/
template <class To, class From, int N> struct conversion {
    To *to;
    const From *from;
    __device__ __forceinline__ void operator()(int64_t at, int64_t room) const {
        float x[N];
        read(x, from + at, room);
        write(to + at, x, room);
    }
};

status_t cuda_convert(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run<PACK<E>>(k, conversion<E, float, PACK<E>>{ (E *)to, from }, n, e);
    });
}

status_t cuda_widen(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run<PACK<E>>(k, conversion<float, E, PACK<E>>{ to, (const E *)from }, n, e);
    });
}

struct filling {
    float *a, value;
    __device__ __forceinline__ void operator()(int64_t at, int64_t room) const {
        float x[PACK<float>];
#pragma unroll
        for (int j = 0; j < PACK<float>; j++)
            x[j] = value;
        write(a + at, x, room);
    }
};

status_t cuda_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e) {
    return run<PACK<float>>(k, of_two<float, sum_of>{ a, a, b }, n, e);
}

status_t cuda_fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e) {
    return run<PACK<float>>(k, filling{ a, value }, n, e);
}

/* --- SwiGLU --------------------------------------------------------------------------------------------------------*/
/* Packs of the (rows, width) results, numbered row by row. */
template <class E> struct swiglu_rows {
    int width, packs; /* packs of one row */
    __device__ __forceinline__ int64_t row(int64_t pack) const { return pack / packs; }
    __device__ __forceinline__ int column(int64_t pack) const { return (int)(pack % packs) * PACK<E>; }
};

template <class E> struct swiglu {
    swiglu_rows<E> d;
    E *y;
    const E *gate_up;
    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const int64_t row = d.row(pack);
        const int column = d.column(pack), room = d.width - column;
        float g[PACK<E>], u[PACK<E>];
        read(g, gate_up + 2 * row * d.width + column, room);
        read(u, gate_up + (2 * row + 1) * d.width + column, room);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            g[j] = g[j] / (1.0f + expf(-g[j])) * u[j];
        write(y + row * d.width + column, g, room);
    }
};

/* silu' = s (1 + x (1 - s)), s = sigmoid(x). */
template <class E> struct swiglu_gradient {
    swiglu_rows<E> d;
    E *d_gate_up;
    const E *dy, *gate_up;
    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const int64_t row = d.row(pack), gate = 2 * row * d.width + d.column(pack), up = gate + d.width;
        const int room = d.width - d.column(pack);
        float g[PACK<E>], u[PACK<E>], of_y[PACK<E>];
        read(g, gate_up + gate, room);
        read(u, gate_up + up, room);
        read(of_y, dy + row * d.width + d.column(pack), room);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++) {
            const float s = 1.0f / (1.0f + expf(-g[j])), silu = g[j] * s;
            g[j] = of_y[j] * u[j] * s * (1.0f + g[j] * (1.0f - s));
            u[j] = of_y[j] * silu;
        }
        write(d_gate_up + gate, g, room);
        write(d_gate_up + up, u, room);
    }
};

template <class E> static swiglu_rows<E> swiglu_rows_of(int64_t width) {
    return { (int)width, (int)((width + PACK<E> - 1) / PACK<E>)};
}

status_t cuda_swiglu_forward(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                             int64_t width, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const swiglu_rows<E> d = swiglu_rows_of<E>(width);
        return run<1>(k, swiglu<E>{ d, (E *)y, (const E *)gate_up }, rows * d.packs, e);
    });
}

status_t cuda_swiglu_backward(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                              const element_t *gate_up, int64_t rows, int64_t width, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const swiglu_rows<E> d = swiglu_rows_of<E>(width);
        return run<1>(k, swiglu_gradient<E>{ d, (E *)d_gate_up, (const E *)dy, (const E *)gate_up }, rows * d.packs, e);
    });
}

/* --- dropout -------------------------------------------------------------------------------------------------------*/
template <class E> struct dropping {
    E *y;
    const E *x;
    int64_t n, packs; /* elements and packs of a sample */
    struct mask mask;
    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const int64_t sample = pack / packs, first = pack % packs * PACK<E>;
        float a[PACK<E>];
        read(a, x + sample * n + first, n - first);
#pragma unroll
        for (int group = 0; mask.threshold && group < PACK<E> / 4; group++) {
            uint32_t number[4];
            mask_numbers(mask, (uint32_t)sample, first / 4 + group, number);
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[group * 4 + i] *= number[i] < mask.threshold ? 0.0f : mask.kept;
        }
        write(y + sample * n + first, a, n - first);
    }
};

status_t cuda_dropout(const struct kernels *k, element_t *y, const element_t *x, int64_t samples, int64_t n,
                      const struct dropout *dropout, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const int64_t packs = (n + PACK<E> - 1) / PACK<E>;
        return run<1>(k, dropping<E>{ (E *)y, (const E *)x, n, packs, mask_of(dropout) }, samples * packs, e);
    });
}
