/* The Fourier transform of small images, and the step of the reconstruction towards its measurements. All sums are
 * fp32. One thread computes one sample. */
#include "kernels/cpu/fourier.h"

#include "kernels/cpu/plain/ops.h"
#define RADIX2_NUMBER float
#include "kernels/radix2.h"

#include <math.h>

/* Times 1 / sqrt(n). */
static void transform_line(float *re, float *im, int64_t n, int64_t stride, int sign) {
    radix2_line(re, im, n, stride, sign, NULL);
    const float scale = 1.0f / sqrtf((float)n);
    for (int64_t i = 0; i < n; i++)
        re[i * stride] *= scale, im[i * stride] *= scale;
}

static void transform(float *re, float *im, const struct fourier_dims *d, int sign) {
    for (int64_t row = 0; row < d->height; row++)
        transform_line(re + row * d->width, im + row * d->width, d->width, 1, sign);
    for (int64_t column = 0; column < d->width; column++)
        transform_line(re + column, im + column, d->height, d->width, sign);
}

/* re = Re F* M (F x - measured) of one sample. x NULL: 0; measured NULL: 0. */
static void residual(float *re, float *im, const element *x, const float *measured, const float *mask,
                     const struct fourier_dims *d) {
    const int64_t n = d->height * d->width;
    for (int64_t i = 0; i < n; i++) {
        re[i] = x ? float_of(x[i]) : 0;
        im[i] = 0;
    }
    if (x)
        transform(re, im, d, -1);
    for (int64_t i = 0; i < n; i++) {
        re[i] = mask[i] * (re[i] - (measured ? measured[i] : 0));
        im[i] = mask[i] * (im[i] - (measured ? measured[n + i] : 0));
    }
    transform(re, im, d, 1);
}

status_t PLAIN(fourier_adjoint)(const struct kernels *k, element_t *x, const float *measured, const float *mask,
                                const struct fourier_dims *d, void *workspace, struct err *e) {
    (void)e;
    const int64_t n = d->height * d->width;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t sample = 0; sample < d->batch; sample++) {
        float *re = fourier_scratch(workspace, sample, d);
        residual(re, re + n, NULL, measured + sample * 2 * n, mask + sample * n, d);
        for (int64_t i = 0; i < n; i++)
            *AT(x, sample * n + i) = element_of(-re[i]);
    }
    return ST_OK;
}

status_t PLAIN(fourier_step_forward)(const struct kernels *k, element_t *y, const element_t *x, const element_t *update,
                                     const element_t *eta, const float *measured, const float *mask,
                                     const struct fourier_dims *d, void *workspace, struct err *e) {
    (void)e;
    const int64_t n = d->height * d->width;
    const float step = float_of(*AT(eta, 0));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t sample = 0; sample < d->batch; sample++) {
        float *re = fourier_scratch(workspace, sample, d);
        residual(re, re + n, AT(x, sample * n), measured + sample * 2 * n, mask + sample * n, d);
        for (int64_t i = sample * n; i < (sample + 1) * n; i++)
            *AT(y, i) = element_of(float_of(*AT(x, i)) - step * re[i - sample * n] + float_of(*AT(update, i)));
    }
    return ST_OK;
}

status_t PLAIN(fourier_step_backward)(const struct kernels *k, element_t *dx, float *deta, const element_t *dy,
                                      const element_t *x, const element_t *eta, const float *measured,
                                      const float *mask, const struct fourier_dims *d, bool accumulate, void *workspace,
                                      struct err *e) {
    (void)e;
    const int64_t n = d->height * d->width;
    const float step = float_of(*AT(eta, 0));
    float *share = fourier_shares(workspace, d);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t sample = 0; sample < d->batch; sample++) {
        float *re = fourier_scratch(workspace, sample, d);
        double sum = 0;
        residual(re, re + n, AT(x, sample * n), measured + sample * 2 * n, mask + sample * n, d);
        for (int64_t i = 0; i < n; i++)
            sum -= (double)re[i] * float_of(*AT(dy, sample * n + i));
        share[sample] = (float)sum;
        if (!dx)
            continue;
        residual(re, re + n, AT(dy, sample * n), NULL, mask + sample * n, d);
        for (int64_t i = sample * n; i < (sample + 1) * n; i++)
            *AT(dx, i) = element_of(float_of(*AT(dy, i)) - step * re[i - sample * n]);
    }
    float sum = 0;
    for (int64_t sample = 0; sample < d->batch; sample++)
        sum += share[sample];
    *deta = accumulate ? *deta + sum : sum;
    return ST_OK;
}
