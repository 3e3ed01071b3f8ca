#include "kernels/cpu/plain/ops.h"

/* The index of the first largest number of channel c in the window at (row, column). A NaN counts as the largest. */
static int64_t largest(const struct convolution_dims *d, const element *x, int64_t sample, int64_t row, int64_t column,
                       int64_t c) {
    int64_t best = -1;
    for (int64_t i = 0; i < d->kernel; i++)
        for (int64_t j = 0; j < d->kernel; j++) {
            const int64_t r = row * d->stride + i - d->padding, q = column * d->stride + j - d->padding;
            if (r < 0 || r >= d->height || q < 0 || q >= d->width)
                continue;
            const int64_t at = ((sample * d->height + r) * d->width + q) * d->in + c;
            if (best < 0 || float_of(x[at]) > float_of(x[best]) || float_of(x[at]) != float_of(x[at]))
                best = at;
        }
    return best;
}

status_t PLAIN(max_pool_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                 const struct convolution_dims *d, struct err *e) {
    (void)e;
    const int64_t height = convolution_side(d, d->height), width = convolution_side(d, d->width);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < d->batch * height * width; at++)
        for (int64_t c = 0; c < d->in; c++)
            *AT(y, at * d->in +
                       c) = *AT(x, largest(d, AT(x, 0), at / (height * width), at / width % height, at % width, c));
    return ST_OK;
}

/* The windows of a sample overlap, so that one thread computes a whole sample. */
status_t PLAIN(max_pool_backward)(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *x,
                                  const struct convolution_dims *d, struct err *e) {
    (void)e;
    const int64_t height = convolution_side(d, d->height), width = convolution_side(d, d->width);
    const int64_t n = d->height * d->width * d->in;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t sample = 0; sample < d->batch; sample++) {
        for (int64_t i = 0; i < n; i++)
            *AT(dx, sample * n + i) = element_of(0);
        for (int64_t at = 0; at < height * width; at++)
            for (int64_t c = 0; c < d->in; c++) {
                element *to = AT(dx, largest(d, AT(x, 0), sample, at / width, at % width, c));
                *to = element_of(float_of(*to) + float_of(*AT(dy, (sample * height * width + at) * d->in + c)));
            }
    }
    return ST_OK;
}

status_t PLAIN(average_pool_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                     int64_t pixels, int64_t width, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t sample = 0; sample < batch; sample++)
        for (int64_t c = 0; c < width; c++) {
            float sum = 0;
            for (int64_t p = 0; p < pixels; p++)
                sum += float_of(*AT(x, (sample * pixels + p) * width + c));
            *AT(y, sample * width + c) = element_of(sum / (float)pixels);
        }
    return ST_OK;
}

status_t PLAIN(average_pool_backward)(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch,
                                      int64_t pixels, int64_t width, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < batch * pixels; at++)
        for (int64_t c = 0; c < width; c++)
            *AT(dx, at * width + c) = element_of(float_of(*AT(dy, at / pixels * width + c)) / (float)pixels);
    return ST_OK;
}

status_t PLAIN(channels_last)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                              int64_t channels, int64_t pixels, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < batch * pixels; at++)
        for (int64_t c = 0; c < channels; c++)
            *AT(y, at * channels + c) = *AT(x, (at / pixels * channels + c) * pixels + at % pixels);
    return ST_OK;
}
