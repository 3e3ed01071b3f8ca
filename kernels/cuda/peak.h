/* The peak rate of matrix products of a device, from its own attributes: the divisor of `mfu`.
 *
 *     peak = multiprocessors x highest clock x FLOPs of a multiprocessor per cycle
 *
 * Dense; a multiply-add counts as two. Products of bf16 and fp16 use the tensor cores, which add in fp32. Products
 * of fp32 use the fp32 units: no product is computed as TF32 (product_layout.c). Data sheets state the rate of
 * tensor cores at a clock below the highest one, so their peak can be some percent less.
 *
 * Plain C without CUDA's headers: tests/kernels/cuda/test_peak.c compares it with data sheets, among them those of
 * share/profiles. */
#ifndef KERNELS_CUDA_PEAK_H
#define KERNELS_CUDA_PEAK_H

#include "kernels/kernels.h"

/* Values as the driver reports them. name: "NVIDIA H200"; capability: 90. */
struct cuda_peak {
    const char *name;
    int capability, processors;
    double clock_hz;
};

/* FLOP/s; 0 if the capability is unknown. */
double cuda_peak_flops(const struct cuda_peak *p, enum kernels_precision precision);

#endif
