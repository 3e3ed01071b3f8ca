/* Runs CUDA kernels on the host, one block after another.
 *
 * `run` checks the grid, shuffles the blocks by a seeded generator, and runs each block. run_block gives every thread
 * of the block a fibre with its own stack, shuffles the fibres, and switches to each of them in turn until all have
 * returned. A fibre that reaches a barrier or a shuffle switches back to the scheduler until its last member has
 * arrived. If no fibre makes progress in a whole turn, some threads wait at a barrier that others never reach, and the
 * program aborts.
 *
 * Shared memory is filled with NaNs between blocks. Each lane keeps a list of its background copies, and each copy is
 * made at once or when its group is waited for. With TSan every fibre is a thread of TSan's, and each barrier, block
 * and launch has an address at which TSan's threads synchronize (races.h). */
#include "tests/kernels/cuda/shim/cuda_runtime.h"
#include "tests/kernels/cuda/shim/races.h"
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

/* An H100's limits: a block's own shared memory, the dynamic shared memory that a launch may ask for, and their sum. */
enum { MAX_SHARED = 48 << 10, MAX_DYNAMIC = 227 << 10, SHARED_ALL = MAX_SHARED + MAX_DYNAMIC };
enum { STACK = 128 << 10, WARP = 32, MAX_SHOWN = 32, MAX_COPIES = 64 };
/* TSan's threads for fibres. Each takes 1 MB of TSan's memory. */
enum { MAX_THREADS = 1024 };
/* The bytes of an address that stands for an order: the granularity at which TSan tells addresses apart. */
enum { PLACE = 8 };

/* Threads that wait for each other. All must be at the same place of the source as the first. The last one opens it. */
struct barrier {
    unsigned arrived, generation;
    struct where where;
    char (*order)[PLACE]; /* two in turn, for races.h: after a barrier, a thread sees all that came before it */
};

/* Where a fibre continues. The first switch to a fibre uses its ucontext. Later switches use longjmp, because
 * swapcontext makes a system call for the signal mask each time, which takes longer than most threads' work. ASan does
 * not support jumps between stacks. */
struct context {
    ucontext_t entry;
    jmp_buf jump;
    bool left;
    void *thread; /* the thread of races.h */
};

static void go(struct context *from, struct context *to) {
    race_thread_goes_on(to->thread);
    if (SANITIZED || RACES) {
        swapcontext(&from->entry, &to->entry);
    } else if (!_setjmp(from->jump)) {
        from->left = true;
        if (to->left)
            _longjmp(to->jump, 1);
        setcontext(&to->entry);
    }
}

/* A background copy of 16 bytes. A kernel may not read them before it has waited for their group. */
struct copy {
    void *to;
    const void *from;
    bool exist;
    unsigned group;
};

struct fibre {
    struct context context;
    std::unique_ptr<char[]> stack; /* allocated once: a thread that has ended waits there for its next block */
    dim3 thread;
    unsigned lane, warp;
    unsigned shuffles, shows;
    unsigned groups; /* complete groups of copies */
    struct copy copies[MAX_COPIES];
    unsigned first_copy, copies_end;
    bool done;
};

struct warp {
    struct barrier barrier;
    unsigned lanes;
    uint64_t exchanged[2][WARP]; /* two in turn, so that a shuffle needs only one barrier */
    char shown[2][WARP][MAX_SHOWN];
};

static std::deque<fibre> fibres; /* a deque, because contexts must not move */
static std::vector<warp> warps;
static std::function<void()> kernel;
static struct context scheduler;
static size_t running, living;
static bool progress;
static struct barrier block_barrier;
static std::mt19937_64 order;

alignas(256) static char shared_memory_of_all[SHARED_ALL];
static char *shared_memory;
static size_t shared_used, dynamic_bytes;
static std::unique_ptr<char[][PLACE]> block_order, launch_order;
static std::vector<void *> threads;
static size_t blocks_run;
static uint64_t launches;
static bool only_grids;

static void stop(const char *why) {
    fprintf(stderr, "block (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y, blockIdx.z, why);
    abort();
}

static void yield() { go(&fibres[running].context, &scheduler); }

static void wait(struct barrier *b, const size_t *members, const struct where &where, bool orders) {
    const unsigned generation = b->generation;
    if (b->arrived++ == 0)
        b->where = where;
    else if (b->where.line != where.line || strcmp(b->where.file, where.file) != 0)
        stop("its threads meet at two places of the source at once");
    progress = true;
    if (orders)
        race_before(b->order[generation % 2]);
    while (b->generation == generation) {
        if (b->arrived == *members) {
            b->arrived = 0;
            b->generation++;
            progress = true;
            break;
        }
        yield();
    }
    if (orders)
        race_after(b->order[generation % 2]);
}

void wait_for_block(const struct where &where) { wait(&block_barrier, &living, where, true); }

static void wait_for_lanes(const struct where &where, bool orders) {
    warp &w = warps[fibres[running].warp];
    const size_t lanes = w.lanes;
    wait(&w.barrier, &lanes, where, orders);
}

void wait_for_warp(const struct where &where) { wait_for_lanes(where, true); }

unsigned lane() { return fibres[running].lane; }

uint64_t exchange(uint64_t mine, unsigned from, const struct where &where) {
    fibre &f = fibres[running];
    warp &w = warps[f.warp];
    uint64_t *at = w.exchanged[f.shuffles++ % 2];
    at[f.lane] = mine;
    wait_for_lanes(where, false);
    if (from >= w.lanes)
        stop("a shuffle reads a lane that is not there");
    return at[from];
}

void show(const void *mine, size_t bytes, void *all, const struct where &where) {
    fibre &f = fibres[running];
    auto &at = warps[f.warp].shown[f.shows++ % 2];
    if (bytes > MAX_SHOWN || warps[f.warp].lanes < WARP)
        stop("what lanes show each other is of a whole warp, and short");
    race_look_away();
    memcpy(at[f.lane], mine, bytes);
    race_look_again();
    wait_for_lanes(where, false);
    race_look_away();
    for (unsigned i = 0; i < WARP; i++)
        memcpy((char *)all + i * bytes, at[i], bytes);
    race_look_again();
}

void copy_begin(void *to, const void *from, bool exist, void (*make)(void *, const void *, bool)) {
    fibre &f = fibres[running];
    if (order() % 2)
        make(to, from, exist);
    else if (f.copies_end == MAX_COPIES)
        stop("a thread has more copies on their way than the shim keeps");
    else
        f.copies[f.copies_end++] = { to, from, exist, f.groups };
}

void copy_commit() { fibres[running].groups++; }

void copy_wait(unsigned newest, void (*make)(void *, const void *, bool)) {
    fibre &f = fibres[running];
    for (; f.first_copy < f.copies_end; f.first_copy++) {
        const struct copy &c = f.copies[f.first_copy];
        if (c.group + newest >= f.groups)
            return;
        make(c.to, c.from, c.exist);
    }
    f.first_copy = f.copies_end = 0;
}

void *place_memory(struct place *p, size_t bytes, size_t alignment) {
    if (p->launch != launches) {
        p->launch = launches;
        p->at = (shared_used + alignment - 1) / alignment * alignment;
        shared_used = p->at + bytes;
        if (shared_used > MAX_SHARED)
            stop("more shared memory than a block has");
    }
    return shared_memory + p->at;
}

void *dynamic_shared() { return shared_memory + MAX_SHARED; }

static void live() {
    for (;;) {
        race_after(launch_order[0]);
        kernel();
        race_before(launch_order[1]);
        fibres[running].done = true;
        living--;
        progress = true;
        yield();
    }
}

static void fibre_begin(size_t i, void *thread) {
    fibre &f = fibres[i];
    f.thread = dim3((unsigned)i % blockDim.x, (unsigned)i / blockDim.x % blockDim.y,
                    (unsigned)i / (blockDim.x * blockDim.y));
    f.lane = (unsigned)i % WARP;
    f.warp = (unsigned)i / WARP;
    f.shuffles = f.shows = f.groups = 0;
    f.first_copy = f.copies_end = 0;
    f.done = false;
    f.context.thread = thread;
    if (f.stack)
        return;
    f.stack.reset(new char[STACK]);
    race_never(f.stack.get(), STACK);
    getcontext(&f.context.entry);
    f.context.entry.uc_stack.ss_sp = f.stack.get();
    f.context.entry.uc_stack.ss_size = STACK;
    makecontext(&f.context.entry, live, 0);
}

/* The orders of the next block only: no block is ordered after the one before. */
static void orders_begin() {
    block_order.reset(new char[2 * (1 + warps.size())][PLACE]);
    block_barrier = { 0, 0, {}, block_order.get() };
    for (size_t w = 0; w < warps.size(); w++)
        warps[w].barrier = { 0, 0, {}, block_order.get() + 2 * (1 + w) };
    if (RACES) {
        shared_memory = (char *)aligned_alloc(256, SHARED_ALL);
        memset(shared_memory, 0xff, SHARED_ALL);
    }
    race_before(launch_order[0]);
}

static void orders_end() {
    if (!RACES)
        return;
    race_look_away();
    free(shared_memory);
    race_look_again();
}

/* The TSan thread for thread i of n. Some blocks in a row use different ones, so that TSan can tell the blocks apart.
 */
static void *thread_of(size_t i, size_t n) {
    const size_t at = blocks_run % (MAX_THREADS / n) * n + i;
    while (RACES && threads.size() <= at)
        threads.push_back(race_thread_new());
    return RACES ? threads[at] : NULL;
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
    orders_begin();
    for (size_t i = 0; i < n; i++)
        fibre_begin(i, thread_of(i, n));
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
    if (!RACES) { /* the next block must not find this block's data */
        memset(shared_memory, 0xff, shared_used);
        memset(shared_memory + MAX_SHARED, 0xff, dynamic_bytes);
    }
    orders_end();
    blocks_run++;
}

void run(const cudaLaunchConfig_t *c, std::function<void()> body) {
    const dim3 grid = c->gridDim;
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    kernel = body;
    gridDim = grid;
    blockDim = c->blockDim;
    launches++;
    shared_used = 0;
    dynamic_bytes = c->dynamicSmemBytes;
    if (dynamic_bytes > MAX_DYNAMIC)
        stop("a launch asks for more shared memory than a block can have");
    if (blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        stop("a grid has at least one block, and at most 2147483647 in x and 65535 in y and z");
    if (only_grids)
        return;
    shared_memory = shared_memory_of_all;
    memset(shared_memory, 0xff, MAX_SHARED + dynamic_bytes);
    scheduler.thread = race_thread_mine();
    launch_order.reset(new char[2][PLACE]);
    std::vector<size_t> turn(blocks);
    std::iota(turn.begin(), turn.end(), 0);
    std::shuffle(turn.begin(), turn.end(), order);
    for (size_t i : turn) {
        blockIdx = dim3((unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y));
        run_block();
    }
    race_after(launch_order[1]);
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

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride, size_t bytes,
                              size_t rows, enum cudaMemcpyKind, cudaStream_t) {
    for (size_t r = 0; r < rows && !shim::only_grids; r++)
        memcpy((char *)to + r * to_stride, (const char *)from + r * from_stride, bytes);
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
