/* Events and captures of the CUDA table over a runtime that only records its calls: no graph is leaked, and a fault
 * that a kernel found is reported where the host waits. */
#include "kernels/cuda/ops.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char asked[400]; /* the calls of the runtime, in order */
static const char *failing = "";
static uint64_t faults[CUDA_FAULTS];

static cudaError_t ask(const char *what) {
    strcat(asked, *asked ? " " : "");
    strcat(asked, what);
    return strcmp(what, failing) == 0 ? cudaErrorUnknown : cudaSuccess;
}

#define STREAM ((cudaStream_t)(uintptr_t)1)
#define GRAPH  ((cudaGraph_t)(uintptr_t)2)
#define EXEC   ((cudaGraphExec_t)(uintptr_t)3)
#define EVENT  ((cudaEvent_t)(uintptr_t)4)
/* The stream of uploads ahead. */
#define AHEAD    ((cudaStream_t)(uintptr_t)5)
#define ARRIVED  ((cudaEvent_t)(uintptr_t)6)
#define RELEASED ((cudaEvent_t)(uintptr_t)7)

/* Records a call for a stream. */
static cudaError_t ask_of(cudaStream_t stream, const char *what, const char *of_ahead) {
    assert_true(stream == STREAM || stream == AHEAD);
    return ask(stream == STREAM ? what : of_ahead);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    assert_true(stream == STREAM && mode == cudaStreamCaptureModeThreadLocal);
    return ask("begin");
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    assert_true(stream == STREAM);
    *graph = GRAPH;
    return ask("end");
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    assert_true(graph == GRAPH && flags == 0);
    *exec = EXEC;
    return ask("instantiate");
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    assert_true(graph == GRAPH);
    return ask("destroy");
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    assert_true(exec == EXEC && stream == STREAM);
    return ask("launch");
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    assert_true(exec == EXEC);
    return ask("free");
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    assert_int_equal(flags, cudaEventDisableTiming | cudaEventBlockingSync);
    *event = EVENT;
    return ask("event");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    assert_true(event == (stream == AHEAD ? ARRIVED : EVENT) || event == RELEASED);
    return ask_of(stream, "record", "record-ahead");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    assert_true(flags == 0 && event == (stream == AHEAD ? RELEASED : ARRIVED));
    return ask_of(stream, "await", "await-ahead");
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    assert_true(event == EVENT);
    return ask("wait");
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    assert_true(event == EVENT);
    return ask("free");
}
cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned flags) {
    assert_int_equal(flags, cudaHostAllocDefault);
    *ret = malloc(bytes);
    return ask("alloc");
}
cudaError_t cudaFreeHost(void *p) {
    free(p);
    return ask("free");
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "it does not like it"; }
cudaError_t cudaSetDevice(int ordinal) {
    (void)ordinal;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **ret, size_t bytes) {
    (void)ret, (void)bytes;
    return ask("malloc");
}
cudaError_t cudaFree(void *p) {
    (void)p;
    return ask("free");
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)to, (void)from, (void)bytes, (void)kind;
    return ask_of(stream, "copy", "copy-ahead");
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride, size_t bytes,
                              size_t rows, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)to, (void)to_stride, (void)from, (void)from_stride, (void)bytes, (void)rows, (void)kind;
    return ask_of(stream, "copy-rows", "copy-rows-ahead");
}
static struct cuda opened(void) {
    struct cuda c = {
        .stream = STREAM, .ahead = AHEAD, .arrived = ARRIVED, .released = RELEASED, .finished = EVENT, .faults = faults
    };
    cuda_queue_table(&c.table);
    *asked = 0;
    failing = "";
    return c;
}

static void a_captured_step_is_launched_on_the_tables_stream_and_freed(void **state) {
    (void)state;
    const struct cuda c = opened();
    const struct kernels *k = &c.table;
    void *step = NULL;
    assert_true(k->deferred);
    OK(k->capture_begin(k, e));
    OK(k->capture_end(k, &step, e));
    OK(k->launch(k, step, e));
    OK(k->launch(k, step, e));
    k->capture_free(k, step);
    k->capture_free(k, NULL);
    assert_string_equal(asked, "begin end instantiate destroy launch launch free");
}

static void a_step_that_cannot_be_captured_leaves_no_graph(void **state) {
    (void)state;
    const struct cuda c = opened();
    const struct kernels *k = &c.table;
    struct err why = { "" };
    void *step = NULL;
    failing = "instantiate";
    OK(k->capture_begin(k, e));
    assert_int_equal(k->capture_end(k, &step, &why), ST_INTERNAL);
    assert_string_equal(why.msg, "making a graph of a step: it does not like it");
    assert_null(step);
    assert_string_equal(asked, "begin end instantiate destroy");
    *asked = 0;
    failing = "end";
    OK(k->capture_begin(k, e));
    assert_int_equal(k->capture_end(k, &step, &why), ST_INTERNAL);
    assert_null(step);
    assert_string_equal(asked, "begin end");
}

static void a_wait_for_an_event_returns_a_kernels_fault_once(void **state) {
    (void)state;
    const struct cuda c = opened();
    const struct kernels *k = &c.table;
    struct err why = { "" };
    void *event = NULL;
    OK(k->event_new(k, &event, e));
    OK(k->event_record(k, event, e));
    faults[CUDA_FAULT_TOKEN] = (uint64_t)(3 + 1) << 32 | 77;
    assert_int_equal(k->event_wait(k, event, &why), ST_INVALID_ARGUMENT);
    assert_string_equal(why.msg, "token 77 at position 3 is outside the vocabulary");
    OK(k->event_wait(k, event, e));
    k->event_free(k, event);
    k->event_free(k, NULL);
    assert_string_equal(asked, "event record wait wait free");
    failing = "wait";
    assert_int_equal(k->event_wait(k, event, &why), ST_INTERNAL);
}

/* A wait by the stream itself would spin in CUDA. This runtime has no call that waits for a stream. */
static void who_waits_for_all_that_was_queued_leaves_the_processor(void **state) {
    (void)state;
    const struct cuda c = opened();
    struct err why = { "" };
    OK(cuda_finish(&c.table, e));
    assert_string_equal(asked, "record-ahead await record wait");
    faults[CUDA_FAULT_TARGET] = (uint64_t)(2 + 1) << 32 | 9;
    assert_int_equal(cuda_finish(&c.table, &why), ST_INVALID_ARGUMENT);
    OK(cuda_finish(&c.table, e));
    failing = "record";
    assert_int_equal(cuda_finish(&c.table, &why), ST_INTERNAL);
}

static void what_is_uploaded_ahead_and_the_calls_wait_for_each_other_by_events(void **state) {
    (void)state;
    const struct cuda c = opened();
    const struct kernels *k = &c.table;
    struct err why = { "" };
    char buffer[8];
    OK(cuda_upload_ahead(k, buffer, "1234567", sizeof buffer, e));
    OK(cuda_ahead_await(k, e));
    OK(cuda_ahead_release(k, e));
    assert_string_equal(asked, "copy-ahead record-ahead await record await-ahead");
    failing = "record-ahead";
    assert_int_equal(cuda_ahead_await(k, &why), ST_INTERNAL);
    failing = "await-ahead";
    assert_int_equal(cuda_ahead_release(k, &why), ST_INTERNAL);
}

static void memory_that_the_device_reads_is_the_runtimes(void **state) {
    (void)state;
    const struct cuda c = opened();
    const struct kernels *k = &c.table;
    void *p = NULL;
    OK(k->host_memory_new(k, 100, &p, e));
    memset(p, 1, 100);
    k->host_memory_free(k, p);
    assert_string_equal(asked, "alloc free");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_captured_step_is_launched_on_the_tables_stream_and_freed),
        cmocka_unit_test(a_step_that_cannot_be_captured_leaves_no_graph),
        cmocka_unit_test(a_wait_for_an_event_returns_a_kernels_fault_once),
        cmocka_unit_test(who_waits_for_all_that_was_queued_leaves_the_processor),
        cmocka_unit_test(what_is_uploaded_ahead_and_the_calls_wait_for_each_other_by_events),
        cmocka_unit_test(memory_that_the_device_reads_is_the_runtimes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
