/* The CUDA table's timers over a runtime of the test, and its ranges as a tool of the test receives them. */
#include "kernels/cuda/ops.h"
#include "tests/kernels/tensor.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STREAM ((cudaStream_t)(uintptr_t)1)

struct timer {
    float ms; /* the device's clock when it was recorded */
};
static float clock_ms;
static cudaError_t answer;
static int timers;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    assert_int_equal(flags, cudaEventDefault); /* any other has no clock, or sleeps where it is waited for */
    timers++;
    *event = calloc(1, sizeof(struct timer));
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    timers--;
    free(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    assert_true(stream == STREAM);
    ((struct timer *)(void *)event)->ms = clock_ms;
    return answer;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = ((struct timer *)(void *)to)->ms - ((struct timer *)(void *)from)->ms;
    return answer;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "it does not like it"; }

static void timers_return_nanoseconds_of_the_devices_clock(void **state) {
    (void)state;
    struct cuda c = { .stream = STREAM };
    const struct kernels *k = &c.table;
    void *from = NULL, *to = NULL;
    int64_t ns = 0;
    struct err why = { "" };
    cuda_watch_table(&c.table);
    answer = cudaSuccess;
    OK(k->timer_new(k, &from, e));
    OK(k->timer_new(k, &to, e));
    clock_ms = 1.5f;
    OK(k->timer_record(k, from, e));
    clock_ms = 4.0f;
    OK(k->timer_record(k, to, e));
    OK(k->timer_between(k, from, to, &ns, e));
    assert_int_equal(ns, 2500000);
    answer = cudaErrorUnknown;
    assert_int_equal(k->timer_record(k, to, &why), ST_INTERNAL);
    assert_string_equal(why.msg, "marking a time in the queue: it does not like it");
    assert_int_equal(k->timer_between(k, from, to, &ns, &why), ST_INTERNAL);
    assert_string_equal(why.msg, "reading the device's clock: it does not like it");
    k->timer_free(k, from);
    k->timer_free(k, to);
    k->timer_free(k, NULL);
    assert_int_equal(timers, 0);
}

/* NVTX searches for a tool once in a process. */
static int ranges_come_to(const char *tool, const char *heard) {
    const pid_t child = fork();
    if (child == 0) {
        struct cuda c = { .stream = STREAM };
        const struct kernels *k = &c.table;
        if (!tool) {
            unsetenv("NVTX_INJECTION64_PATH");
            cuda_watch_table(&c.table);
            _exit(k->range_begin || k->range_end);
        }
        setenv("NVTX_INJECTION64_PATH", tool, 1);
        cuda_watch_table(&c.table);
        void *library = dlopen(tool, RTLD_NOW);
        const char *(*tool_heard)(void) = NULL;
        if (library)
            *(void **)&tool_heard = dlsym(library, "nvtx_tool_heard");
        if (!tool_heard || !k->range_begin)
            _exit(1);
        k->range_begin(k, "step 7");
        k->range_begin(k, "FORWARD head");
        k->range_end(k);
        k->range_end(k);
        _exit(strcmp(tool_heard(), heard) != 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_tool_receives_ranges_by_name_and_without_a_tool_there_are_none(void **state) {
    (void)state;
    assert_int_equal(ranges_come_to(NULL, ""), 0);
    assert_int_equal(ranges_come_to(NVTX_TOOL, "domain trainyard push step 7 push FORWARD head pop pop"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tool_receives_ranges_by_name_and_without_a_tool_there_are_none),
        cmocka_unit_test(timers_return_nanoseconds_of_the_devices_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
