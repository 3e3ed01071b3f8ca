/* Ops on images that vectors speed up. See kernels.h; what is not here stays plain. */
#ifndef KERNELS_CPU_VECTOR_IMAGES_H
#define KERNELS_CPU_VECTOR_IMAGES_H

#include "kernels/cpu/vector/ops.h"

status_t VECTOR(batchnorm_forward)(const struct kernels *k, element_t *y, float *mean, float *variance,
                                   const element_t *x, const element_t *residual, const element_t *gamma,
                                   const element_t *beta, const struct batchnorm_dims *d, void *workspace,
                                   struct err *e);
status_t VECTOR(batchnorm_backward)(const struct kernels *k, element_t *dx, element_t *d_residual, float *dgamma,
                                    float *dbeta, float *measured_mean, float *measured_variance, const element_t *dy,
                                    const element_t *x, const element_t *y, const float *mean, const float *variance,
                                    const element_t *gamma, const struct batchnorm_dims *d, bool accumulate,
                                    void *workspace, struct err *e);

/* _pairs: where the processor multiplies bf16. */
status_t VECTOR(convolution_backward_weight)(const struct kernels *k, float *dw, const element_t *x,
                                             const element_t *dy, const struct convolution_dims *d, bool accumulate,
                                             void *workspace, struct err *e);
status_t VECTOR(convolution_backward_weight_pairs)(const struct kernels *k, float *dw, const element_t *x,
                                                   const element_t *dy, const struct convolution_dims *d,
                                                   bool accumulate, void *workspace, struct err *e);

#endif
