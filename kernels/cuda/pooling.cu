/* Pooling of images with channels last, so that adjacent threads have adjacent channels of one pixel.
 *
 * Max pooling forward: one thread has a pack of channels of one pixel of y and visits the window's pixels row by
 * row. The maximum of a window is its first largest pixel, or its last NaN.
 *
 * Max pooling backward has one thread for each input instead of each window, because windows overlap: the thread
 * visits the windows that contain its input, finds the maximum of each again, and adds the gradients of those whose
 * maximum is its own input. No atomic additions are needed, and forward stores nothing for backward.
 *
 * Average pooling averages all pixels of a sample: one thread per channel sums them in order. */
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/ops.h"

#include <math.h>

enum { THREADS = 256 };

struct pool {
    int height, width, channels, kernel, stride, padding, out_height, out_width;
};

static struct pool pool_of(const struct convolution_dims *d) {
    return { (int)d->height,
             (int)d->width,
             (int)d->in,
             (int)d->kernel,
             (int)d->stride,
             (int)d->padding,
             (int)convolution_side(d, d->height),
             (int)convolution_side(d, d->width) };
}

/* The maxima of one window for a pack of channels, and the input pixel (row * width + column) of each: the first
 * pixel that has the maximum. */
template <class E> struct largest {
    float value[PACK<E>];
    int pixel[PACK<E>];

    /* Visits the window at (row, column) of y. x: the sample, from the first channel of the pack on. */
    __device__ __forceinline__ largest(const struct pool &p, const E *x, int row, int column, int64_t n_valid) {
        const int top = row * p.stride - p.padding, left = column * p.stride - p.padding;
        const int r_begin = top > 0 ? top : 0, q_begin = left > 0 ? left : 0;
        const int r_end = top + p.kernel < p.height ? top + p.kernel : p.height;
        const int q_end = left + p.kernel < p.width ? left + p.kernel : p.width;
#pragma unroll
        for (int c = 0; c < PACK<E>; c++) {
            value[c] = -INFINITY;
            pixel[c] = r_begin * p.width + q_begin;
        }
        for (int r = r_begin; r < r_end; r++)
            for (int q = q_begin; q < q_end; q++) {
                float a[PACK<E>];
                read(a, x + (int64_t)(r * p.width + q) * p.channels, n_valid);
#pragma unroll
                for (int c = 0; c < PACK<E>; c++)
                    if (a[c] > value[c] || a[c] != a[c]) {
                        value[c] = a[c];
                        pixel[c] = r * p.width + q;
                    }
            }
    }
};

/* One thread has a pack of channels of a pixel of y. */
template <class E>
static __global__ void __launch_bounds__(THREADS) max_forward(E *y, const E *x, struct pool p, int64_t n) {
    for (int64_t pack = first_pack<1>(); pack < n; pack += pack_stride<1>()) {
        const struct row_pack<E> at(pack, p.channels);
        const int64_t line = at.row / p.out_width, sample = line / p.out_height;
        const E *from = x + sample * p.height * p.width * p.channels + at.column;
        const struct largest<E> of(p, from, (int)(line % p.out_height), (int)(at.row % p.out_width), at.n_valid);
        write(y + at.row * p.channels + at.column, of.value, at.n_valid);
    }
}

status_t cuda_max_pool_forward(const struct kernels *k, element_t *y, const element_t *x,
                               const struct convolution_dims *d, struct err *e) {
    const struct pool p = pool_of(d);
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const int64_t n = row_packs<E>(d->batch * p.out_height * p.out_width, d->in);
        return launch(k, e, max_forward<E>, cuda_grid(k, n, THREADS), dim3(THREADS), (E *)y, (const E *)x, p, n);
    });
}

/* The first window along a side that contains a pixel. */
static __device__ __forceinline__ int first_window(int at, const struct pool &p) {
    const int past = at + p.padding - p.kernel;
    return past < 0 ? 0 : past / p.stride + 1;
}

/* One thread has a pack of channels of an input pixel. It checks for each window with this pixel whether the pixel
 * is the maximum. */
template <class E>
static __global__ void __launch_bounds__(THREADS)
    max_backward(E *dx, const E *dy, const E *x, struct pool p, int64_t n) {
    for (int64_t pack = first_pack<1>(); pack < n; pack += pack_stride<1>()) {
        const struct row_pack<E> at(pack, p.channels);
        const int64_t sample = at.row / (p.height * p.width);
        const int pixel = (int)(at.row % (p.height * p.width)), r = pixel / p.width, q = pixel % p.width;
        const E *x_of = x + sample * p.height * p.width * p.channels + at.column;
        const E *dy_of = dy + sample * p.out_height * p.out_width * p.channels + at.column;
        float sum[PACK<E>] = {};
        for (int row = first_window(r, p); row < p.out_height && row * p.stride <= r + p.padding; row++)
            for (int column = first_window(q, p); column < p.out_width && column * p.stride <= q + p.padding;
                 column++) {
                const struct largest<E> of(p, x_of, row, column, at.n_valid);
                float d[PACK<E>];
                read(d, dy_of + (int64_t)(row * p.out_width + column) * p.channels, at.n_valid);
#pragma unroll
                for (int c = 0; c < PACK<E>; c++)
                    sum[c] += of.pixel[c] == pixel ? d[c] : 0.0f;
            }
        write(dx + at.row * p.channels + at.column, sum, at.n_valid);
    }
}

status_t cuda_max_pool_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                const struct convolution_dims *d, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        const int64_t n = row_packs<E>(d->batch * d->height * d->width, d->in);
        return launch(k, e, max_backward<E>, cuda_grid(k, n, THREADS), dim3(THREADS), (E *)dx, (const E *)dy,
                      (const E *)x, pool_of(d), n);
    });
}

template <class E>
static __global__ void __launch_bounds__(THREADS)
    average_forward(E *y, const E *x, int64_t pixels, int64_t width, int64_t n) {
    for (int64_t to = first_pack<1>(); to < n; to += pack_stride<1>()) {
        const E *from = x + to / width * pixels * width + to % width;
        float sum = 0;
        for (int64_t p = 0; p < pixels; p++)
            sum += float_of(from[p * width]);
        y[to] = element_of<E>(sum / (float)pixels);
    }
}

status_t cuda_average_pool_forward(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                   int64_t pixels, int64_t width, struct err *e) {
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, average_forward<E>, cuda_grid(k, batch * width, THREADS), dim3(THREADS), (E *)y,
                      (const E *)x, pixels, width, batch * width);
    });
}

template <class E>
static __global__ void __launch_bounds__(THREADS)
    average_backward(E *dx, const E *dy, int64_t pixels, int64_t width, int64_t n) {
    for (int64_t to = first_pack<1>(); to < n; to += pack_stride<1>())
        dx[to] = element_of<E>(float_of(dy[to / width / pixels * width + to % width]) / (float)pixels);
}

status_t cuda_average_pool_backward(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch,
                                    int64_t pixels, int64_t width, struct err *e) {
    const int64_t n = batch * pixels * width;
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, average_backward<E>, cuda_grid(k, n, THREADS), dim3(THREADS), (E *)dx, (const E *)dy,
                      pixels, width, n);
    });
}
