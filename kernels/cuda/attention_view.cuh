/* How the attention kernels of this folder address the packed tensors: one head of one sample at a time. */
#ifndef KERNELS_CUDA_ATTENTION_VIEW_CUH
#define KERNELS_CUDA_ATTENTION_VIEW_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/mask.cuh"

#include <math.h>

/* Passed by value to every kernel. */
struct attention {
    int time, heads, kv_heads, head;
    bool causal;
    int64_t stride, out_stride; /* elements from one position to the next, in qkv and in out */
    float scale;                /* 1 / sqrt(head) */
    struct mask mask;
};

static inline struct attention attention_of(const struct attention_dims *d, const struct dropout *dropout) {
    struct attention a = {};
    a.time = (int)d->time;
    a.heads = (int)d->heads;
    a.kv_heads = (int)d->kv_heads;
    a.head = (int)d->head;
    a.causal = d->causal;
    a.stride = (d->heads + 2 * d->kv_heads) * d->head;
    a.out_stride = d->heads * d->head;
    a.scale = 1.0f / sqrtf((float)d->head);
    a.mask = mask_of(dropout);
    return a;
}

__device__ __forceinline__ int lane() { return (int)threadIdx.x % 32; }

/* Offset of position 0 of sample b: query head h, key head g and value head g in qkv, and head h in out. */
__device__ __forceinline__ int64_t query_at(const struct attention &a, int b, int h) {
    return b * a.time * a.stride + h * a.head;
}
__device__ __forceinline__ int64_t key_at(const struct attention &a, int b, int g) {
    return b * a.time * a.stride + (a.heads + g) * a.head;
}
__device__ __forceinline__ int64_t value_at(const struct attention &a, int b, int g) {
    return b * a.time * a.stride + (a.heads + a.kv_heads + g) * a.head;
}
__device__ __forceinline__ int64_t out_at(const struct attention &a, int b, int h) {
    return b * a.time * a.out_stride + h * a.head;
}
__device__ __forceinline__ int64_t row_at(const struct attention &a, int b, int h) {
    return ((int64_t)b * a.heads + h) * a.time;
}

/* Dropout's factor for the probability of query t and key s in head h. */
__device__ __forceinline__ float kept(const struct attention &a, int b, int h, int t, int s) {
    return mask_factor(a.mask, (uint32_t)b, ((int64_t)h * a.time + t) * a.time + s);
}

__device__ __forceinline__ bool sees(const struct attention &a, int t, int s) {
    return t < a.time && s < a.time && (!a.causal || s <= t);
}

#endif
