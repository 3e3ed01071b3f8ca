/* Ops that treat each element alone.
 *
 * Each op is a small struct with the arithmetic for one pack of elements (or for one element). run_each (each.cuh)
 * visits all packs with a grid that depends on the device, which cannot change bits, because no element depends on
 * another. Elements become fp32 when they are read and are rounded once when they are written (element.cuh). Dropout
 * does not store its mask: backward draws the same numbers again from the seed, the step and the element's index
 * (mask.cuh). */
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/mask.cuh"
#include "kernels/cuda/ops.h"

/* y = f(a) and y = f(a, b). */
template <class E, class F> struct of_one {
    E *y;
    const E *a;
    __device__ __forceinline__ void operator()(int64_t at, int64_t n_valid) const {
        float x[PACK<E>];
        read(x, a + at, n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            x[j] = F::template of<E>(x[j]);
        write(y + at, x, n_valid);
    }
};

template <class E, class F> struct of_two {
    E *y;
    const E *a, *b;
    __device__ __forceinline__ void operator()(int64_t at, int64_t n_valid) const {
        float x[PACK<E>], z[PACK<E>];
        read(x, a + at, n_valid);
        read(z, b + at, n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            x[j] = F::template of<E>(x[j], z[j]);
        write(y + at, x, n_valid);
    }
};

template <class F>
static status_t run_one(const struct kernels *k, element_t *y, const element_t *a, int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<PACK<E>>(k, of_one<E, F>{ (E *)y, (const E *)a }, n, e);
    });
}

template <class F>
static status_t run_two(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                        struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<PACK<E>>(k, of_two<E, F>{ (E *)y, (const E *)a, (const E *)b }, n, e);
    });
}

struct gelu_of {
    template <class E> static __device__ __forceinline__ float of(float x) { return gelu<E>(x); }
};
struct gelu_gradient {
    template <class E> static __device__ __forceinline__ float of(float dy, float x) { return dy * gelu_slope<E>(x); }
};
struct gelu_erf_of {
    template <class E> static __device__ __forceinline__ float of(float x) { return gelu_erf<E>(x); }
};
struct gelu_erf_gradient {
    template <class E> static __device__ __forceinline__ float of(float dy, float x) {
        return dy * gelu_erf_slope<E>(x);
    }
};
struct relu_of {
    template <class E> static __device__ __forceinline__ float of(float x) { return x < 0 ? 0.0f : x; }
};
struct relu_gradient {
    template <class E> static __device__ __forceinline__ float of(float dy, float y) { return y > 0 ? dy : 0.0f; }
};
struct sum_of {
    template <class E> static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};

status_t cuda_gelu_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    return run_one<gelu_of>(k, y, x, n, e);
}

status_t cuda_gelu_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x, int64_t n,
                            struct err *e) {
    return run_two<gelu_gradient>(k, dx, dy, x, n, e);
}

status_t cuda_gelu_erf_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t n, struct err *e) {
    return run_one<gelu_erf_of>(k, y, x, n, e);
}

status_t cuda_gelu_erf_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                int64_t n, struct err *e) {
    return run_two<gelu_erf_gradient>(k, dx, dy, x, n, e);
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
    __device__ __forceinline__ void operator()(int64_t at, int64_t n_valid) const {
        float x[N];
        read(x, from + at, n_valid);
        write(to + at, x, n_valid);
    }
};

status_t cuda_convert(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<PACK<E>>(k, conversion<E, float, PACK<E>>{ (E *)to, from }, n, e);
    });
}

status_t cuda_convert_to_fp32(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<PACK<E>>(k, conversion<float, E, PACK<E>>{ to, (const E *)from }, n, e);
    });
}

struct filling {
    float *a, value;
    __device__ __forceinline__ void operator()(int64_t at, int64_t n_valid) const {
        float x[PACK<float>];
#pragma unroll
        for (int j = 0; j < PACK<float>; j++)
            x[j] = value;
        write(a + at, x, n_valid);
    }
};

status_t cuda_accumulate(const struct kernels *k, float *a, const float *b, int64_t n, struct err *e) {
    return run_each<PACK<float>>(k, of_two<float, sum_of>{ a, a, b }, n, e);
}

struct exchanging {
    float *a, *b;
    __device__ __forceinline__ void operator()(int64_t at, int64_t n_valid) const {
        float x[PACK<float>], y[PACK<float>];
        read(x, a + at, n_valid);
        read(y, b + at, n_valid);
        write(a + at, y, n_valid);
        write(b + at, x, n_valid);
    }
};

status_t cuda_exchange(const struct kernels *k, float *a, float *b, int64_t n, struct err *e) {
    return run_each<PACK<float>>(k, exchanging{ a, b }, n, e);
}

status_t cuda_fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e) {
    return run_each<PACK<float>>(k, filling{ a, value }, n, e);
}

/* --- SwiGLU --------------------------------------------------------------------------------------------------------*/
template <class E> struct swiglu {
    int width;
    E *y;
    const E *gate_up;
    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const row_pack<E> p(pack, width);
        float g[PACK<E>], u[PACK<E>];
        read(g, gate_up + 2 * p.row * width + p.column, p.n_valid);
        read(u, gate_up + (2 * p.row + 1) * width + p.column, p.n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++)
            g[j] = g[j] * sigmoid<E>(g[j]) * u[j];
        write(y + p.row * width + p.column, g, p.n_valid);
    }
};

/* silu' = s (1 + x (1 - s)), s = sigmoid(x). */
template <class E> struct swiglu_gradient {
    int width;
    E *d_gate_up;
    const E *dy, *gate_up;
    __device__ __forceinline__ void operator()(int64_t pack, int64_t) const {
        const row_pack<E> p(pack, width);
        const int64_t gate = 2 * p.row * width + p.column, up = gate + width;
        float g[PACK<E>], u[PACK<E>], of_y[PACK<E>];
        read(g, gate_up + gate, p.n_valid);
        read(u, gate_up + up, p.n_valid);
        read(of_y, dy + p.row * width + p.column, p.n_valid);
#pragma unroll
        for (int j = 0; j < PACK<E>; j++) {
            const float s = sigmoid<E>(g[j]), silu = g[j] * s;
            g[j] = of_y[j] * u[j] * s * (1.0f + g[j] * (1.0f - s));
            u[j] = of_y[j] * silu;
        }
        write(d_gate_up + gate, g, p.n_valid);
        write(d_gate_up + up, u, p.n_valid);
    }
};

status_t cuda_swiglu_forward(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                             int64_t width, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return run_each<1>(k, swiglu<E>{ (int)width, (E *)y, (const E *)gate_up }, row_packs<E>(rows, width), e);
    });
}

status_t cuda_swiglu_backward(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                              const element_t *gate_up, int64_t rows, int64_t width, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const swiglu_gradient<E> f = { (int)width, (E *)d_gate_up, (const E *)dy, (const E *)gate_up };
        return run_each<1>(k, f, row_packs<E>(rows, width), e);
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
        return run_each<1>(k, dropping<E>{ (E *)y, (const E *)x, n, packs, mask_of(dropout) }, samples * packs, e);
    });
}
