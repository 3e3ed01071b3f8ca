#include "kernels/cuda/peak.h"

#include <string.h>

/* FLOPs per cycle of a multiprocessor. fp32: twice the fp32 lanes, "Throughput of Native Arithmetic Instructions" in
 * NVIDIA's CUDA C++ Programming Guide. Tensor cores: the whitepapers "NVIDIA A100 Tensor Core GPU Architecture"
 * (8.0), "NVIDIA Ampere GA102 GPU Architecture" (8.6), "NVIDIA Ada GPU Architecture" (8.9), "NVIDIA H100 Tensor Core
 * GPU Architecture" (9.0), "NVIDIA RTX Blackwell GPU Architecture" (12.0). 10.0 and 10.3 follow from 2.25 PFLOP/s of
 * 148 multiprocessors, in the data sheets of HGX B200 and B300, without sparsity. */
static const struct rate {
    int capability;
    double fp32, tensor; /* tensor: a GeForce, adding in fp32, has half of it (same whitepapers) */
} RATES[] = {
    { 80, 128, 2048 },  { 86, 256, 1024 },  { 89, 256, 1024 },  { 90, 256, 4096 },
    { 100, 256, 8192 }, { 103, 256, 8192 }, { 120, 256, 1024 },
};

double cuda_peak_flops(const struct cuda_peak *p, enum kernels_precision precision) {
    for (size_t i = 0; i < sizeof RATES / sizeof *RATES; i++) {
        const struct rate *r = &RATES[i];
        const double tensor = strstr(p->name, "GeForce") ? r->tensor / 2 : r->tensor;
        if (r->capability == p->capability)
            return p->processors * p->clock_hz * (precision == KERNELS_FP32 ? r->fp32 : tensor);
    }
    return 0;
}
