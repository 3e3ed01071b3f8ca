/* CUDA C++ for the host's compiler: a .cu file of kernels/cuda runs unchanged, one block after another. The threads of
 * a block are fibres that stop at barriers and shuffles.
 *
 * The shim finds more than wrong results. Threads and blocks run in an order drawn at random, so that a missing barrier
 * or an unordered sum changes results. Shared memory is full of NaNs when a block begins. A background copy may be made
 * as late as the kernel waits for it. The program aborts if some threads of a barrier or a shuffle never reach it, or
 * reach it at another place of the source, or if a kernel uses more shared memory than every device has. With TSan
 * (races.h) the shim finds each pair of accesses that nothing orders, within a warp and between blocks too.
 *
 * The shim cannot find errors of memory visibility between accesses that are ordered. It has no tensor cores and no
 * atomics. */
#ifndef TESTS_KERNELS_CUDA_SHIM_RUNTIME_H
#define TESTS_KERNELS_CUDA_SHIM_RUNTIME_H

#include "tests/kernels/cuda/shim/cuda_runtime_api.h"

#include <math.h>
#include <string.h>

#include <functional>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
static inline cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }

/* The built-in variables of the running thread. */
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace shim {
void run(const cudaLaunchConfig_t *c, std::function<void()> kernel);
/* The place of a call in the source: the default argument is evaluated at the caller. */
struct where {
    const char *file;
    int line;
};
#define SHIM_HERE                                                                                                      \
    { __builtin_FILE(), __builtin_LINE() }
void wait_for_block(const struct where &where);
void wait_for_warp(const struct where &where);
/* Passes this lane's number to the warp, and returns the number of lane `from`. */
uint64_t exchange(uint64_t mine, unsigned from, const struct where &where);
/* Passes this lane's bytes to the warp, at most 32, and returns those of all 32 lanes. */
void show(const void *mine, size_t bytes, void *all, const struct where &where);
unsigned lane();
/* Starts a background copy. `make` copies the bytes, at once or when the kernel waits for the copy. */
void copy_begin(void *to, const void *from, bool exist, void (*make)(void *, const void *, bool));
void copy_commit();
void copy_wait(unsigned newest, void (*make)(void *, const void *, bool));
/* An address in the block's shared memory, the same for all its threads. `at` is fixed during a launch. */
struct place {
    uint64_t launch;
    size_t at;
};
void *place_memory(struct place *p, size_t bytes, size_t alignment);

/* The dynamic shared memory of the launch, on a 16-byte boundary. */
void *dynamic_shared();

template <class T> T &shared() {
    static struct place at;
    return *(T *)place_memory(&at, sizeof(T), alignof(T));
}

template <class T> T shuffle(T x, unsigned from, const struct where &where) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = exchange(bits, from, where);
    memcpy(&x, &bits, sizeof x);
    return x;
}
} // namespace shim

static inline void __syncthreads(shim::where where = SHIM_HERE) { shim::wait_for_block(where); }
static inline void __syncwarp(shim::where where = SHIM_HERE) { shim::wait_for_warp(where); }

template <class T> T __shfl_xor_sync(unsigned, T x, unsigned mask, shim::where where = SHIM_HERE) {
    return shim::shuffle(x, shim::lane() ^ mask, where);
}
template <class T> T __shfl_sync(unsigned, T x, unsigned from, shim::where where = SHIM_HERE) {
    return shim::shuffle(x, from, where);
}
template <class T> T __shfl_up_sync(unsigned, T x, unsigned by, shim::where where = SHIM_HERE) {
    return shim::shuffle(x, shim::lane() >= by ? shim::lane() - by : shim::lane(), where);
}
static inline unsigned __ballot_sync(unsigned, int yes, shim::where where = SHIM_HERE) {
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; i++)
        bits |= (shim::shuffle(yes ? 1u : 0u, i, where)) << i;
    return bits;
}
template <class T> unsigned __match_any_sync(unsigned, T x, shim::where where = SHIM_HERE) {
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; i++)
        bits |= (shim::shuffle(x, i, where) == x ? 1u : 0u) << i;
    return bits;
}
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1) << (31 - i);
    return y;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
#if !__GLIBC_PREREQ(2, 41) /* glibc 2.41 and later has them in math.h */
static inline double cospi(double x) { return cos(M_PI * x); }
static inline double sinpi(double x) { return sin(M_PI * x); }
#endif

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...arguments) {
    shim::run(c, [=] { kernel(arguments...); });
    return cudaSuccess;
}

#endif
