#include "tests/kernels/cuda/shim/cuda_runtime.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace shim {

/* What every device gives a block; what sm_80 gives one that asks for it; a fibre's stack. */
enum { SHARED_MOST = 48 << 10, STACK = 128 << 10, WARP = 32 };

/* Threads that meet: the last one to come opens it. */
struct barrier {
    unsigned arrived, generation;
};

/* Where a stack goes on. It is entered by its context; from then on one jumps, since swapcontext asks the kernel for
 * the signals' mask each time, which takes longer than most threads' work. ASan does not know jumps between stacks. */
struct context {
    ucontext_t entry;
    jmp_buf jump;
    bool left;
};

static void go(struct context *from, struct context *to) {
    if (SANITIZED) {
        swapcontext(&from->entry, &to->entry);
    } else if (!_setjmp(from->jump)) {
        from->left = true;
        if (to->left)
            _longjmp(to->jump, 1);
        setcontext(&to->entry);
    }
}

struct fibre {
    struct context context;
    std::unique_ptr<char[]> stack; /* made once: a thread that is done waits there for its next block */
    dim3 thread;
    unsigned lane, warp;
    unsigned shuffles;
    bool done;
};

struct warp {
    struct barrier barrier;
    unsigned lanes;
    uint64_t exchanged[2][WARP]; /* two in turn, so that one barrier a shuffle is enough */
};

static std::deque<fibre> fibres; /* contexts must not move */
static std::vector<warp> warps;
static std::function<void()> kernel;
static struct context scheduler;
static size_t running, living;
static bool progress;
static struct barrier block_barrier;
static std::mt19937_64 order;

alignas(256) static char shared_memory[SHARED_MOST];
static size_t shared_used;
static uint64_t launches;
static bool only_grids;

static void stop(const char *why) {
    fprintf(stderr, "block (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y, blockIdx.z, why);
    abort();
}

static void yield() { go(&fibres[running].context, &scheduler); }

static void wait(struct barrier *b, const size_t *members) {
    const unsigned generation = b->generation;
    b->arrived++;
    progress = true;
    while (b->generation == generation) {
        if (b->arrived == *members) {
            b->arrived = 0;
            b->generation++;
            progress = true;
            return;
        }
        yield();
    }
}

void wait_for_block() { wait(&block_barrier, &living); }

unsigned lane() { return fibres[running].lane; }

uint64_t exchange(uint64_t mine, unsigned from) {
    fibre &f = fibres[running];
    warp &w = warps[f.warp];
    const size_t lanes = w.lanes;
    uint64_t *at = w.exchanged[f.shuffles++ % 2];
    at[f.lane] = mine;
    wait(&w.barrier, &lanes);
    if (from >= lanes)
        stop("a shuffle reads a lane that is not there");
    return at[from];
}

void *room(struct place *p, size_t bytes, size_t alignment) {
    if (p->launch != launches) {
        p->launch = launches;
        p->at = (shared_used + alignment - 1) / alignment * alignment;
        shared_used = p->at + bytes;
        if (shared_used > SHARED_MOST)
            stop("more shared memory than a block has");
    }
    return shared_memory + p->at;
}

static void live() {
    for (;;) {
        kernel();
        fibres[running].done = true;
        living--;
        progress = true;
        yield();
    }
}

static void fibre_begin(size_t i) {
    fibre &f = fibres[i];
    f.thread = dim3((unsigned)i % blockDim.x, (unsigned)i / blockDim.x % blockDim.y,
                    (unsigned)i / (blockDim.x * blockDim.y));
    f.lane = (unsigned)i % WARP;
    f.warp = (unsigned)i / WARP;
    f.shuffles = 0;
    f.done = false;
    if (f.stack)
        return;
    f.stack.reset(new char[STACK]);
    getcontext(&f.context.entry);
    f.context.entry.uc_stack.ss_sp = f.stack.get();
    f.context.entry.uc_stack.ss_size = STACK;
    makecontext(&f.context.entry, live, 0);
}

static void run_block() {
    const size_t n = (size_t)blockDim.x * blockDim.y * blockDim.z;
    if (n == 0 || n > 1024)
        stop("a block has 1 to 1024 threads");
    if (fibres.size() < n)
        fibres.resize(n);
    warps.assign((n + WARP - 1) / WARP, warp());
    for (size_t w = 0; w < warps.size(); w++)
        warps[w].lanes = (unsigned)std::min<size_t>(WARP, n - w * WARP);
    block_barrier = barrier();
    for (size_t i = 0; i < n; i++)
        fibre_begin(i);
    std::vector<size_t> turn(n);
    std::iota(turn.begin(), turn.end(), 0);
    std::shuffle(turn.begin(), turn.end(), order);
    for (living = n; living > 0;) {
        progress = false;
        for (size_t i : turn)
            if (!fibres[i].done) {
                running = i;
                threadIdx = fibres[i].thread;
                go(&scheduler, &fibres[i].context);
            }
        if (!progress)
            stop("threads wait at a barrier or in a shuffle that others of theirs never reach");
    }
    memset(shared_memory, 0xff, shared_used); /* the next one finds nothing of this one's */
}

void run(const cudaLaunchConfig_t *c, std::function<void()> body) {
    const dim3 grid = c->gridDim;
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    kernel = body;
    gridDim = grid;
    blockDim = c->blockDim;
    launches++;
    shared_used = 0;
    if (blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        stop("a grid has at least one block, and at most 2147483647 in x and 65535 in y and z");
    if (only_grids)
        return;
    memset(shared_memory, 0xff, sizeof shared_memory);
    std::vector<size_t> turn(blocks);
    std::iota(turn.begin(), turn.end(), 0);
    std::shuffle(turn.begin(), turn.end(), order);
    for (size_t i : turn) {
        blockIdx = dim3((unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y));
        run_block();
    }
}

} // namespace shim

void shim_seed(uint64_t seed) { shim::order.seed(seed); }
void shim_only_grids(bool yes) { shim::only_grids = yes; }
uint64_t shim_launches(void) { return shim::launches; }

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "out of memory"; }

cudaError_t cudaMalloc(void **ret, size_t bytes) {
    *ret = bytes < (size_t)1 << 40 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    return *ret ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p) {
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind, cudaStream_t) {
    if (!shim::only_grids)
        memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t) {
    if (!shim::only_grids)
        memset(p, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
