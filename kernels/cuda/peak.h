/* What a device's units could do of matrix products in a second, by what it says of itself: what `mfu` divides by.
 *
 *     peak = multiprocessors x highest clock x FLOPs of a multiprocessor in a cycle
 *
 * Dense, a multiply-add being two. Products of bf16 and fp16 are the tensor cores', which add in fp32; those of fp32
 * are the fp32 units': no product is computed as TF32 (product_layout.c). Data sheets state tensor cores at a lower
 * clock than the highest one, so that their peak can be some percent less.
 *
 * In plain C, without CUDA's headers: tests/kernels/cuda/test_peak.c compares it with data sheets, those of
 * share/profiles among them. */
#ifndef KERNELS_CUDA_PEAK_H
#define KERNELS_CUDA_PEAK_H

#include "kernels/kernels.h"

/* As the driver states them. name: "NVIDIA H200"; capability: 90. */
struct cuda_peak {
    const char *name;
    int capability, processors;
    double clock_hz;
};

/* FLOP/s; 0: nothing is known of the capability. */
double cuda_peak_flops(const struct cuda_peak *p, enum kernels_precision precision);

#endif
