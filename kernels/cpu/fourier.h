/* The workspace of fourier_*: one complex image for each sample, followed by one float for each sample. */
#ifndef KERNELS_CPU_FOURIER_H
#define KERNELS_CPU_FOURIER_H

#include "kernels/kernels.h"

static inline float *fourier_scratch(void *workspace, int64_t sample, const struct fourier_dims *d) {
    return (float *)workspace + sample * 2 * d->height * d->width;
}

static inline float *fourier_shares(void *workspace, const struct fourier_dims *d) {
    return fourier_scratch(workspace, d->batch, d);
}

static inline size_t fourier_workspace(const struct kernels *k, const struct fourier_dims *d) {
    (void)k;
    return sizeof(float) * (size_t)(d->batch * (2 * d->height * d->width + 1));
}

#endif
