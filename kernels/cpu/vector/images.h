/* Ops on images that are faster with vectors. See kernels.h. Other ops on images stay plain. */
#ifndef KERNELS_CPU_VECTOR_IMAGES_H
#define KERNELS_CPU_VECTOR_IMAGES_H

#include "kernels/cpu/vector/ops.h"

#define VECTOR_IMAGE_OPS(OP)                                                                                           \
    OP(batchnorm_forward);                                                                                             \
    OP(batchnorm_backward);                                                                                            \
    OP(convolution_backward_weight)
VECTOR_IMAGE_OPS(VECTOR_DECLARE);

/* _pairs: for processors that multiply bf16. */
KERNEL_OP(VECTOR(convolution_backward_weight_pairs), convolution_backward_weight);

#endif
