/* The matrix units of sm_80 and later, from the view of a warp: c (16, 8) += a (16, 16) b (16, 8); and the copies
 * from shared memory to operands and from global memory to shared memory.
 *
 * The numbers of each lane, with g = lane / 4 and t = lane % 4. A register has two neighbours along the dimension of
 * 16 that is summed:
 *
 *     a[0] (g, 2t)   a[1] (g + 8, 2t)   a[2] (g, 2t + 8)   a[3] (g + 8, 2t + 8)
 *     b[0] (2t, g)   b[1] (2t + 8, g)
 *     c[0], c[1] (g, 2t), (g, 2t + 1)   c[2], c[3] (g + 8, 2t), (g + 8, 2t + 1)
 *
 * So the sums of two adjacent products, rounded, have the layout of the first operand of another product.
 *
 * Tests run the kernels that use this on the CPU, against tests/kernels/cuda/shim/kernels/cuda/mma.cuh. */
#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/element.cuh"

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, fp16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Loads four matrices of 8 x 8 from shared memory. Lane i points to row i % 8 of matrix i / 8. A lane receives (g,
 * 2t) and (g, 2t + 1) of each matrix, or of each matrix's transpose. */
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}
__device__ __forceinline__ void load_transposed(uint32_t (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

/* Copies 16 bytes to shared memory in the background, or writes zeros if the source does not exist. All copies
 * before a copy_commit form one group. copy_wait<N> waits until at most the N newest groups are unfinished. `from`
 * must be a valid address in any case. */
__device__ __forceinline__ void copy_16(void *to, const void *from, bool exist) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(exist ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Two numbers, rounded, in one register: the first in the lower half. */
__device__ __forceinline__ uint32_t pack(float low, float high, bf16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&both;
}
__device__ __forceinline__ uint32_t pack(float low, float high, fp16) {
    const __half2 both = __floats2half2_rn(low, high);
    return *(const uint32_t *)&both;
}

#endif
