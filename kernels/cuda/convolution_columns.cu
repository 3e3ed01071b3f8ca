#include "kernels/cuda/convolution_columns.h"
#include "kernels/cuda/element.cuh"

static constexpr int THREADS = 256;
/* Channels that one thread processes at once. */
static constexpr int PACKED = 8;

/* Passed by value to every kernel: the dimensions of kernels.h, and the sides of y. */
struct windows {
    int height, width, in, out, kernel, stride, padding, y_height, y_width;
    int packs; /* of channels */
};

static struct windows windows_of(const struct convolution_dims *d) {
    struct windows w = {};
    w.height = (int)d->height;
    w.width = (int)d->width;
    w.in = (int)d->in;
    w.out = (int)d->out;
    w.kernel = (int)d->kernel;
    w.stride = (int)d->stride;
    w.padding = (int)d->padding;
    w.y_height = (int)convolution_side(d, d->height);
    w.y_width = (int)convolution_side(d, d->width);
    w.packs = (w.in + PACKED - 1) / PACKED;
    return w;
}

/* One thread for each window element of each pixel of y and each pack of channels. */
template <class E>
__global__ void __launch_bounds__(THREADS, 1) columns_kernel(E *columns, const E *x, struct windows w, int64_t n) {
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < n; at += step) {
        const int channel = (int)(at % w.packs) * PACKED;
        const int64_t element = at / w.packs, pixel = element / (w.kernel * w.kernel);
        const int window = (int)(element - pixel * (w.kernel * w.kernel));
        const int64_t line = pixel / w.y_width, sample = line / w.y_height;
        const int row = (int)(line - sample * w.y_height) * w.stride + window / w.kernel - w.padding,
                  column = (int)(pixel - line * w.y_width) * w.stride + window % w.kernel - w.padding;
        float a[PACKED] = {};
        if (row >= 0 && row < w.height && column >= 0 && column < w.width)
            read(a, x + ((sample * w.height + row) * w.width + column) * w.in + channel, w.in - channel);
        write(columns + element * w.in + channel, a, w.in - channel);
    }
}

/* One thread for each pixel of x and each pack of channels. */
template <class E>
__global__ void __launch_bounds__(THREADS, 1)
    columns_back_kernel(E *dx, const float *columns, struct windows w, int64_t n, bool accumulate) {
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < n; at += step) {
        const int channel = (int)(at % w.packs) * PACKED;
        const int64_t pixel = at / w.packs, line = pixel / w.width, sample = line / w.height;
        const int row = (int)(line - sample * w.height) + w.padding, column = (int)(pixel - line * w.width) + w.padding;
        float sum[PACKED] = {}, a[PACKED];
        for (int window = 0; window < w.kernel * w.kernel; window++) {
            const int r = row - window / w.kernel, c = column - window % w.kernel;
            if (r < 0 || c < 0 || r % w.stride || c % w.stride || r / w.stride >= w.y_height ||
                c / w.stride >= w.y_width)
                continue;
            const int64_t from = (sample * w.y_height + r / w.stride) * w.y_width + c / w.stride;
            read(a, columns + (from * w.kernel * w.kernel + window) * w.in + channel, w.in - channel);
#pragma unroll
            for (int i = 0; i < PACKED; i++)
                sum[i] += a[i];
        }
        if (accumulate) {
            read(a, dx + pixel * w.in + channel, w.in - channel);
#pragma unroll
            for (int i = 0; i < PACKED; i++)
                sum[i] += a[i];
        }
        write(dx + pixel * w.in + channel, sum, w.in - channel);
    }
}

template <class E>
__global__ void __launch_bounds__(THREADS, 1)
    columns_weight_kernel(float *dw, const E *packed, struct windows w, int64_t n, bool accumulate) {
    const int64_t step = (int64_t)gridDim.x * THREADS;
    const int area = w.kernel * w.kernel;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < n; at += step) {
        const int64_t filter = at / area, out = filter / w.in;
        const float x = float_of(packed[(out * area + at % area) * w.in + filter % w.in]);
        dw[at] = accumulate ? dw[at] + x : x;
    }
}

status_t columns_of(const struct kernels *k, element_t *columns, const element_t *x, const struct convolution_dims *d,
                    struct err *e) {
    const struct windows w = windows_of(d);
    const int64_t n = d->batch * w.y_height * w.y_width * d->kernel * d->kernel * w.packs;
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, columns_kernel<E>, cuda_grid(k, n, THREADS), THREADS, (E *)columns, (const E *)x, w, n);
    });
}

status_t columns_back(const struct kernels *k, element_t *dx, const float *columns, const struct convolution_dims *d,
                      bool accumulate, struct err *e) {
    const struct windows w = windows_of(d);
    const int64_t n = d->batch * d->height * d->width * w.packs;
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, columns_back_kernel<E>, cuda_grid(k, n, THREADS), THREADS, (E *)dx, columns, w, n,
                      accumulate);
    });
}

status_t columns_weight(const struct kernels *k, float *dw, const element_t *packed, const struct convolution_dims *d,
                        bool accumulate, struct err *e) {
    const int64_t n = d->out * d->in * d->kernel * d->kernel;
    return by_precision(k, [&](auto zero) {
        typedef decltype(zero) E;
        return launch(k, e, columns_weight_kernel<E>, cuda_grid(k, n, THREADS), THREADS, dw, (const E *)packed,
                      windows_of(d), n, accumulate);
    });
}
