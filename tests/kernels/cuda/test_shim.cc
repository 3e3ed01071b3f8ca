/* The shim ends a program whose kernel would fail on every device, and may make background copies only when they are
 * waited for. With TSan it reports accesses that no barrier orders, even if the result happens to be correct. */
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/shared.cuh"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

enum { LANES = 32, THREADS = 64, BLOCKS = 4 };

template <class K, class... A> static void run(K kernel, unsigned blocks, unsigned threads, A... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    assert_int_equal(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
}

/* Runs f in a child that prints its error to stderr. Returns how the child ended. */
template <class F> static int end_of(F f) {
    const pid_t child = fork();
    int how = 0;
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        f();
        exit(0); /* TSan replaces the status if it has reported a race */
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFSIGNALED(how) ? WTERMSIG(how) : -WEXITSTATUS(how);
}

static void part_meets(int) {
    if (threadIdx.x < LANES)
        __syncthreads();
    (void)__shfl_sync(~0u, 1, 0);
    if (threadIdx.x < LANES)
        (void)__shfl_sync(~0u, 1, 0);
    __syncthreads();
}
static void parts_meet_apart(int) {
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncthreads();
}
static void lanes_meet_apart(int) {
    if (threadIdx.x % 2)
        (void)__shfl_sync(~0u, 1, 0);
    else
        (void)__shfl_sync(~0u, 1, 0);
}

static void threads_that_do_not_meet_in_one_place_end_the_program(void **) {
    assert_int_equal(end_of([] { run(parts_meet_apart, 1, THREADS, 0); }), SIGABRT);
    assert_int_equal(end_of([] { run(lanes_meet_apart, 1, LANES, 0); }), SIGABRT);
    assert_int_equal(end_of([] { run(part_meets, 1, THREADS, 0); }), SIGABRT);
}

struct copies_buffer {
    alignas(16) char at[LANES][16];
};

/* ret[lane]: whether the lane saw its copy before the wait, and after it. */
static void copies(int (*ret)[2], const char *from) {
    auto &to = shared<copies_buffer>();
    const unsigned i = threadIdx.x;
    copy_16(to.at[i], from, true);
    copy_commit();
    ret[i][0] = to.at[i][0] == from[0];
    copy_wait<1>();
    ret[i][0] += to.at[i][0] == from[0];
    copy_wait<0>();
    ret[i][1] = to.at[i][0] == from[0];
}

static void a_copy_in_the_background_is_there_when_its_group_was_waited_for_and_may_be_no_sooner(void **) {
    alignas(16) char from[16] = "fifteen letters";
    int seen[LANES][2], early = 0;
    run(copies, 1, LANES, seen, (const char *)from);
    for (int i = 0; i < LANES; i++) {
        assert_true(seen[i][1]);
        early += seen[i][0] == 2;
    }
    assert_in_range(early, 1, LANES - 1);
}

/* Each is correct in any order of threads and blocks. */
static void neighbours(int *ret) {
    auto &of = shared<int[LANES]>();
    of[threadIdx.x] = 1;
    const int all = __ballot_sync(~0u, 1) == ~0u;
    ret[threadIdx.x] = all ? of[threadIdx.x ^ 1] : 0;
}
static void neighbours_in_order(int *ret) {
    auto &of = shared<int[LANES]>();
    of[threadIdx.x] = 1;
    __syncwarp();
    ret[threadIdx.x] = of[threadIdx.x ^ 1];
}
static void all_write(int *ret) {
    if (threadIdx.x == 0)
        *ret = 1;
}
static void each_writes_its_own(int *ret) { ret[blockIdx.x * THREADS + threadIdx.x] = 1; }

static void what_no_barrier_orders_is_told_of(void **) {
    static int ret[BLOCKS * THREADS];
    const int told = -66; /* TSAN_OPTIONS's */
    assert_int_equal(end_of([] { run(neighbours, 1, LANES, ret); }), told);
    assert_int_equal(end_of([] { run(all_write, BLOCKS, THREADS, ret); }), told);
    assert_int_equal(end_of([] { run(neighbours_in_order, BLOCKS, LANES, ret); }),
                     told); /* its blocks write the same */
    assert_int_equal(end_of([] {
                         run(neighbours_in_order, 1, LANES, ret);
                         run(each_writes_its_own, BLOCKS, THREADS, ret);
                         run(each_writes_its_own, BLOCKS, THREADS, ret);
                     }),
                     0);
}

int main(void) {
    const struct CMUnitTest by_tsan[] = {
        cmocka_unit_test(what_no_barrier_orders_is_told_of),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_do_not_meet_in_one_place_end_the_program),
        cmocka_unit_test(a_copy_in_the_background_is_there_when_its_group_was_waited_for_and_may_be_no_sooner),
    };
    /* Runs before this process has threads, because TSan cannot fork a process with threads. */
    const int failed = SANITIZED_THREADS ? cmocka_run_group_tests(by_tsan, NULL, NULL) : 0;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
