/* Convolutions by loops over the window: the readable reference. */
#include "kernels/cpu/plain/ops.h"

/* The input pixel that window element `i` of output pixel `o` reads. A result that is negative or not below the side is
 * padding. */
static int64_t source(const struct convolution_dims *d, int64_t o, int64_t i) { return o * d->stride + i - d->padding; }

static bool inside(int64_t at, int64_t side) { return at >= 0 && at < side; }

static int64_t pixel(const struct convolution_dims *d, int64_t sample, int64_t row, int64_t column) {
    return ((sample * d->height + row) * d->width + column) * d->in;
}

static int64_t weight(const struct convolution_dims *d, int64_t out, int64_t in, int64_t i, int64_t j) {
    return ((out * d->in + in) * d->kernel + i) * d->kernel + j;
}

static float output(const struct convolution_dims *d, const element *x, const element *w, int64_t sample, int64_t row,
                    int64_t column, int64_t out) {
    float sum = 0;
    for (int64_t i = 0; i < d->kernel; i++)
        for (int64_t j = 0; j < d->kernel; j++) {
            const int64_t r = source(d, row, i), c = source(d, column, j);
            for (int64_t in = 0; inside(r, d->height) && inside(c, d->width) && in < d->in; in++)
                sum += float_of(x[pixel(d, sample, r, c) + in]) * float_of(w[weight(d, out, in, i, j)]);
        }
    return sum;
}

status_t PLAIN(convolution_forward)(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                                    const element_t *bias, const struct convolution_dims *d, void *workspace,
                                    struct err *e) {
    (void)workspace, (void)e;
    const int64_t height = convolution_side(d, d->height), width = convolution_side(d, d->width);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < d->batch * height * width; at++)
        for (int64_t out = 0; out < d->out; out++) {
            const float sum = output(d, AT(x, 0), AT(w, 0), at / (height * width), at / width % height, at % width,
                                     out);
            *AT(y, at * d->out + out) = element_of(sum + (bias ? float_of(*AT(bias, out)) : 0));
        }
    return ST_OK;
}

/* The gradient of one input number: the sum over all window elements that read it. */
static float input_gradient(const struct convolution_dims *d, const element *dy, const element *w, int64_t sample,
                            int64_t row, int64_t column, int64_t in) {
    const int64_t height = convolution_side(d, d->height), width = convolution_side(d, d->width);
    float sum = 0;
    for (int64_t i = 0; i < d->kernel; i++)
        for (int64_t j = 0; j < d->kernel; j++) {
            const int64_t r = row + d->padding - i, c = column + d->padding - j;
            if (r % d->stride || c % d->stride || !inside(r / d->stride, height) || !inside(c / d->stride, width) ||
                r < 0 || c < 0)
                continue;
            const element *from = dy + ((sample * height + r / d->stride) * width + c / d->stride) * d->out;
            for (int64_t out = 0; out < d->out; out++)
                sum += float_of(from[out]) * float_of(w[weight(d, out, in, i, j)]);
        }
    return sum;
}

status_t PLAIN(convolution_backward_input)(const struct kernels *k, element_t *dx, const element_t *dy,
                                           const element_t *w, const struct convolution_dims *d, bool accumulate,
                                           void *workspace, struct err *e) {
    (void)workspace, (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < d->batch * d->height * d->width; at++)
        for (int64_t in = 0; in < d->in; in++) {
            element *to = AT(dx, at * d->in + in);
            const float sum = input_gradient(d, AT(dy, 0), AT(w, 0), at / (d->height * d->width),
                                             at / d->width % d->height, at % d->width, in);
            *to = element_of(accumulate ? float_of(*to) + sum : sum);
        }
    return ST_OK;
}

static float weight_gradient(const struct convolution_dims *d, const element *x, const element *dy, int64_t out,
                             int64_t in, int64_t i, int64_t j) {
    const int64_t height = convolution_side(d, d->height), width = convolution_side(d, d->width);
    float sum = 0;
    for (int64_t sample = 0; sample < d->batch; sample++)
        for (int64_t row = 0; row < height; row++)
            for (int64_t column = 0; column < width; column++) {
                const int64_t r = source(d, row, i), c = source(d, column, j);
                if (inside(r, d->height) && inside(c, d->width))
                    sum += float_of(x[pixel(d, sample, r, c) + in]) *
                           float_of(dy[((sample * height + row) * width + column) * d->out + out]);
            }
    return sum;
}

status_t PLAIN(convolution_backward_weight)(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                            const struct convolution_dims *d, bool accumulate, void *workspace,
                                            struct err *e) {
    (void)workspace, (void)e;
    const int64_t window = d->kernel * d->kernel;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < d->out * d->in * window; at++) {
        const float sum = weight_gradient(d, AT(x, 0), AT(dy, 0), at / window / d->in, at / window % d->in,
                                          at % window / d->kernel, at % d->kernel);
        dw[at] = accumulate ? dw[at] + sum : sum;
    }
    return ST_OK;
}
