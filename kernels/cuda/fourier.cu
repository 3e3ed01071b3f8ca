/* The Fourier transform of small images, and the data-consistency step of a reconstruction: y = x - eta Re F* M (F x
 * - measured) + change.
 *
 * A block has one sample, whose complex image lies in the workspace. A transform works on all rows, then on all
 * columns: it puts each line into bit-reversed order and combines halves of growing length (radix 2, Cooley and
 * Tukey, 1965), with a barrier after each level. It is scaled by 1 / sqrt(length), so that the inverse is the
 * adjoint. residual() transforms x, subtracts the measurements, applies the mask and transforms back.
 *
 * Backward applies the same operator to dy, without measurements. The gradient of eta is one number per sample; a
 * single thread adds these numbers in order. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

#include <math.h>

enum { THREADS = 512 };

/* An image re and im (height, width). row_bits and column_bits: log2 of the length of a row and of a column. */
struct image {
    float *re, *im;
    int height, width, row_bits, column_bits;
    __device__ __forceinline__ int size() const { return height * width; }
};

/* Puts all lines of 1 << bits numbers into bit-reversed order. at(line, i) is the index of number i of a line. */
template <class F> static __device__ __forceinline__ void reverse_lines(const struct image &a, int bits, F at) {
    for (int t = (int)threadIdx.x; t < a.size(); t += THREADS) {
        const int i = t & ((1 << bits) - 1), line = t >> bits, j = (int)(__brev((unsigned)i) >> (31 - bits) >> 1);
        if (i < j) {
            const int p = at(line, i), q = at(line, j);
            const float re = a.re[p], im = a.im[p];
            a.re[p] = a.re[q], a.im[p] = a.im[q];
            a.re[q] = re, a.im[q] = im;
        }
    }
    __syncthreads();
}

/* sign: -1 forward, 1 inverse. The result is multiplied by 1 / sqrt(length of a line). */
template <class F>
static __device__ __forceinline__ void transform_lines(const struct image &a, int bits, int sign, F at) {
    reverse_lines(a, bits, at);
    for (int level = 0; level < bits; level++) {
        const int half = 1 << level;
        for (int t = (int)threadIdx.x; t < a.size() / 2; t += THREADS) {
            const int i = t & ((1 << (bits - 1)) - 1), line = t >> (bits - 1), k = i & (half - 1);
            const int p = at(line, 2 * (i - k) + k), q = at(line, 2 * (i - k) + k + half);
            const double turn = (double)k / half;
            const float wr = (float)cospi(turn), wi = sign * (float)sinpi(turn);
            const float re = wr * a.re[q] - wi * a.im[q], im = wr * a.im[q] + wi * a.re[q];
            a.re[q] = a.re[p] - re, a.im[q] = a.im[p] - im;
            a.re[p] += re, a.im[p] += im;
        }
        __syncthreads();
    }
    const float scale = 1.0f / sqrtf((float)(1 << bits));
    for (int t = (int)threadIdx.x; t < a.size(); t += THREADS)
        a.re[t] *= scale, a.im[t] *= scale;
    __syncthreads();
}

static __device__ __forceinline__ void transform(const struct image &a, int sign) {
    transform_lines(a, a.row_bits, sign, [&](int line, int i) { return line * a.width + i; });
    transform_lines(a, a.column_bits, sign, [&](int line, int i) { return i * a.width + line; });
}

/* a.re = Re F* M (F x - measured) of one sample. x NULL counts as 0, measured NULL as 0. */
template <class E>
static __device__ __forceinline__ void residual(const struct image &a, const E *x, const float *measured,
                                                const float *mask) {
    for (int i = (int)threadIdx.x; i < a.size(); i += THREADS) {
        a.re[i] = x ? float_of(x[i]) : 0;
        a.im[i] = 0;
    }
    __syncthreads();
    if (x)
        transform(a, -1);
    for (int i = (int)threadIdx.x; i < a.size(); i += THREADS) {
        a.re[i] = mask[i] * (a.re[i] - (measured ? measured[i] : 0));
        a.im[i] = mask[i] * (a.im[i] - (measured ? measured[a.size() + i] : 0));
    }
    __syncthreads();
    transform(a, 1);
}

/* One sample of a call: pointers to its own data. */
struct sample {
    struct image image;
    int64_t first;
    const float *measured, *mask;
};

static __device__ __forceinline__ struct sample sample_of(struct image a, const float *measured, const float *mask) {
    const int64_t n = a.size(), s = blockIdx.x;
    a.re += s * 2 * n;
    a.im = a.re + n;
    return { a, s * n, measured + s * 2 * n, mask + s * n };
}

static int bits_of(int64_t side) {
    int bits = 0;
    while ((int64_t)1 << bits < side)
        bits++;
    return bits;
}

static struct image image_of(void *workspace, const struct fourier_dims *d) {
    return { (float *)workspace, NULL, (int)d->height, (int)d->width, bits_of(d->width), bits_of(d->height) };
}

template <class E>
static __global__ void __launch_bounds__(THREADS, 1)
    adjoint(E *x, const float *measured, const float *mask, struct image all) {
    const struct sample s = sample_of(all, measured, mask);
    /* With x = 0 the residual is minus the adjoint of the measurements. */
    residual(s.image, (const E *)NULL, s.measured, s.mask);
    for (int i = (int)threadIdx.x; i < s.image.size(); i += THREADS)
        x[s.first + i] = element_of<E>(-s.image.re[i]);
}

status_t cuda_fourier_adjoint(const struct kernels *k, element_t *x, const float *measured, const float *mask,
                              const struct fourier_dims *d, void *workspace, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, adjoint<E>, dim3((unsigned)d->batch), dim3(THREADS), (E *)x, measured, mask,
                      image_of(workspace, d));
    });
}

template <class E>
static __global__ void __launch_bounds__(THREADS, 1)
    step_forward(E *y, const E *x, const E *change, const E *eta, const float *measured, const float *mask,
                 struct image all) {
    const struct sample s = sample_of(all, measured, mask);
    const float step = float_of(*eta);
    residual(s.image, x + s.first, s.measured, s.mask);
    for (int i = (int)threadIdx.x; i < s.image.size(); i += THREADS)
        y[s.first + i] = element_of<E>(float_of(x[s.first + i]) - step * s.image.re[i] + float_of(change[s.first + i]));
}

status_t cuda_fourier_step_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *update,
                                   const element_t *eta, const float *measured, const float *mask,
                                   const struct fourier_dims *d, void *workspace, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, step_forward<E>, dim3((unsigned)d->batch), dim3(THREADS), (E *)y, (const E *)x,
                      (const E *)update, (const E *)eta, measured, mask, image_of(workspace, d));
    });
}

/* share (batch) receives the part of deta of each sample. */
template <class E>
static __global__ void __launch_bounds__(THREADS, 1)
    step_backward(E *dx, float *share, const E *dy, const E *x, const E *eta, const float *measured, const float *mask,
                  struct image all) {
    const struct sample s = sample_of(all, measured, mask);
    const float step = float_of(*eta);
    double sum = 0;
    residual(s.image, x + s.first, s.measured, s.mask);
    for (int i = (int)threadIdx.x; i < s.image.size(); i += THREADS)
        sum -= (double)s.image.re[i] * float_of(dy[s.first + i]);
    sum = block_sum(sum, 0);
    if (threadIdx.x == 0)
        share[blockIdx.x] = (float)sum;
    if (!dx)
        return;
    /* Re F* M F is symmetric, so dx uses the operator of forward. */
    residual(s.image, dy + s.first, NULL, s.mask);
    for (int i = (int)threadIdx.x; i < s.image.size(); i += THREADS)
        dx[s.first + i] = element_of<E>(float_of(dy[s.first + i]) - step * s.image.re[i]);
}

static __global__ void add_shares(float *deta, const float *share, int64_t batch, bool accumulate) {
    float sum = 0;
    for (int64_t s = 0; s < batch; s++)
        sum += share[s];
    *deta = accumulate ? *deta + sum : sum;
}

status_t cuda_fourier_step_backward(const struct kernels *k, element_t *dx, float *deta, const element_t *dy,
                                    const element_t *x, const element_t *eta, const float *measured, const float *mask,
                                    const struct fourier_dims *d, bool accumulate, void *workspace, struct err *e) {
    float *share = (float *)workspace + d->batch * 2 * d->height * d->width;
    TRY(by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, step_backward<E>, dim3((unsigned)d->batch), dim3(THREADS), (E *)dx, share, (const E *)dy,
                      (const E *)x, (const E *)eta, measured, mask, image_of(workspace, d));
    }));
    return launch(k, e, add_shares, dim3(1), dim3(1), deta, (const float *)share, d->batch, accumulate);
}
