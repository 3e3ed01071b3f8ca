#include "kernels/cpu/plain/ops.h"

#include <math.h>

static double mean_square(const element *x, const float *reference, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)float_of(x[i]) - (double)reference[i];
        sum += a * a;
    }
    return sum / (double)n;
}

status_t PLAIN(squared_error)(const struct kernels *k, float *losses, element_t *x, const float *reference,
                              int64_t batch, int64_t n, const float *scale, struct err *e) {
    (void)e;
    const float factor = scale ? *scale * 2 / (float)n : 0;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t sample = 0; sample < batch; sample++) {
        losses[sample] = (float)mean_square(AT(x, sample * n), reference + sample * n, n);
        for (int64_t i = sample * n; scale && i < (sample + 1) * n; i++)
            *AT(x, i) = element_of(factor * (float_of(*AT(x, i)) - reference[i]));
    }
    return ST_OK;
}

status_t PLAIN(psnr)(const struct kernels *k, float *psnr, const element_t *x, const float *reference, int64_t batch,
                     int64_t n, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t sample = 0; sample < batch; sample++)
        /* Equal images have 200 dB, so that an average over samples stays finite. */
        psnr[sample] = (float)(-10 * log10(fmax(mean_square(AT(x, sample * n), reference + sample * n, n), 1e-20)));
    return ST_OK;
}
