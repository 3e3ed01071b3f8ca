/* Channels are last: neighbouring threads have neighbouring channels of one pixel. */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/ops.h"

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

/* The input pixel (row * width + column) that is the first largest of the window at (row, column) of a sample's x. */
template <class E>
static __device__ __forceinline__ int largest(const struct pool &p, const E *x, int row, int column, int c) {
    int best = -1;
    float most = 0;
    for (int i = 0; i < p.kernel; i++)
        for (int j = 0; j < p.kernel; j++) {
            const int r = row * p.stride + i - p.padding, q = column * p.stride + j - p.padding;
            if (r < 0 || r >= p.height || q < 0 || q >= p.width)
                continue;
            const float a = float_of(x[(int64_t)(r * p.width + q) * p.channels + c]);
            if (best < 0 || a > most || a != a) {
                best = r * p.width + q;
                most = a;
            }
        }
    return best;
}

template <class E>
static __global__ void __launch_bounds__(THREADS) max_forward(E *y, const E *x, struct pool p, int64_t n) {
    for (int64_t to = first_pack<1>(); to < n; to += pack_stride<1>()) {
        const int c = (int)(to % p.channels);
        const int64_t at = to / p.channels, sample = at / (p.out_height * p.out_width);
        const E *from = x + sample * p.height * p.width * p.channels;
        const int best = largest(p, from, (int)(at / p.out_width % p.out_height), (int)(at % p.out_width), c);
        y[to] = from[(int64_t)best * p.channels + c];
    }
}

status_t cuda_max_pool_forward(const struct kernels *k, element_t *y, const element_t *x,
                               const struct convolution_dims *d, struct err *e) {
    const struct pool p = pool_of(d);
    const int64_t n = d->batch * p.out_height * p.out_width * d->in;
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, max_forward<E>, cuda_grid(k, n, THREADS), dim3(THREADS), (E *)y, (const E *)x, p, n);
    });
}

/* The first window along a side that a pixel is in. */
static __device__ __forceinline__ int first_window(int at, const struct pool &p) {
    const int past = at + p.padding - p.kernel;
    return past < 0 ? 0 : past / p.stride + 1;
}

/* A thread has an input: it asks each window that it is in whether it is the largest there. */
template <class E>
static __global__ void __launch_bounds__(THREADS, 4)
    max_backward(E *dx, const E *dy, const E *x, struct pool p, int64_t n) {
    for (int64_t to = first_pack<1>(); to < n; to += pack_stride<1>()) {
        const int c = (int)(to % p.channels), pixel = (int)(to / p.channels % (p.height * p.width));
        const int64_t sample = to / p.channels / (p.height * p.width);
        const E *from = x + sample * p.height * p.width * p.channels;
        const E *dy_of = dy + sample * p.out_height * p.out_width * p.channels;
        const int r = pixel / p.width, q = pixel % p.width;
        float sum = 0;
        for (int row = first_window(r, p); row < p.out_height && row * p.stride <= r + p.padding; row++)
            for (int column = first_window(q, p); column < p.out_width && column * p.stride <= q + p.padding; column++)
                if (largest(p, from, row, column, c) == pixel)
                    sum += float_of(dy_of[(int64_t)(row * p.out_width + column) * p.channels + c]);
        dx[to] = element_of<E>(sum);
    }
}

status_t cuda_max_pool_backward(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                const struct convolution_dims *d, struct err *e) {
    const int64_t n = d->batch * d->height * d->width * d->in;
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
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
