/* CUDA C++ for the host's compiler: a .cu file of kernels/cuda runs as it stands, one block after another, a block's
 * threads as fibres that stop at barriers and shuffles.
 *
 * What it finds beyond wrong results: threads and blocks run in an order drawn at random, so that a missing barrier or
 * an unordered sum shows; shared memory is full of NaNs when a block begins; a copy in the background may be made as
 * late as it is waited for; a barrier or a shuffle that part of its threads never reach, or reach at another place of
 * the source, aborts, as does more shared memory than a device has for certain. With TSan (races.h) it finds every two
 * accesses that nothing orders, within a warp and between blocks too. What it cannot find: what the memory model lets
 * others see late where there is an order. It has no tensor cores and no atomics. */
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
    cudaStream_t stream;
};

/* What the running thread sees. */
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace shim {
void run(const cudaLaunchConfig_t *c, std::function<void()> kernel);
/* Of a call in the source: its default argument is the caller's. */
struct where {
    const char *file;
    int line;
};
#define SHIM_HERE                                                                                                      \
    { __builtin_FILE(), __builtin_LINE() }
void wait_for_block(const struct where &where);
void wait_for_warp(const struct where &where);
/* Gives this lane's number, and returns that of the lane `from`. */
uint64_t exchange(uint64_t mine, unsigned from, const struct where &where);
/* Gives this lane's bytes, 32 at most, and returns those of all 32 lanes. */
void show(const void *mine, size_t bytes, void *all, const struct where &where);
unsigned lane();
/* Copies in the background: `make` makes them, at once or when they are waited for. */
void copy_begin(void *to, const void *from, bool exist, void (*make)(void *, const void *, bool));
void copy_commit();
void copy_wait(unsigned newest, void (*make)(void *, const void *, bool));
/* Room in the block's shared memory, the same for all its threads: `at` keeps its place during a launch. */
struct place {
    uint64_t launch;
    size_t at;
};
void *room(struct place *p, size_t bytes, size_t alignment);

template <class T> T &shared() {
    static struct place at;
    return *(T *)room(&at, sizeof(T), alignof(T));
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
static inline double cospi(double x) { return cos(M_PI * x); }
static inline double sinpi(double x) { return sin(M_PI * x); }

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...arguments) {
    shim::run(c, [=] { kernel(arguments...); });
    return cudaSuccess;
}

#endif
