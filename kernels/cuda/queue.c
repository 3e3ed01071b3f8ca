/* The table entries that exist because calls only queue work: events that mark a place in the queue for the host to
 * wait for, pinned memory that the device reads while the host continues, and captured steps that are launched
 * again. */
#include "kernels/cuda/ops.h"

static status_t host_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    (void)k;
    void *p = NULL;
    const cudaError_t error = cudaHostAlloc(&p, bytes > 0 ? bytes : 1, cudaHostAllocDefault);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no %zu bytes of memory that the device could read", bytes);
    }
    TRY(cuda_status(error, "reserving memory that the device reads", e));
    *ret = p;
    return ST_OK;
}

static void host_memory_free(const struct kernels *k, void *p) {
    (void)k;
    (void)cudaFreeHost(p);
}

static status_t event_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k;
    cudaEvent_t event = NULL;
    TRY(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event",
                    e));
    *ret = event;
    return ST_OK;
}

static void event_free(const struct kernels *k, void *event) {
    (void)k;
    if (event)
        (void)cudaEventDestroy(event);
}

static status_t event_record(const struct kernels *k, void *event, struct err *e) {
    return cuda_status(cudaEventRecord(event, cuda_of(k)->stream), "marking a place in the queue", e);
}

static status_t event_wait(const struct kernels *k, void *event, struct err *e) {
    TRY(cuda_status(cudaEventSynchronize(event), "running the queued kernels", e));
    return cuda_faults_take(cuda_of(k), e);
}

/* Capture restricts this thread alone: other threads may wait for events and reserve memory meanwhile. */
static status_t capture_begin(const struct kernels *k, struct err *e) {
    return cuda_status(cudaStreamBeginCapture(cuda_of(k)->stream, cudaStreamCaptureModeThreadLocal),
                       "beginning to note a step", e);
}

static status_t capture_end(const struct kernels *k, void **ret, struct err *e) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t step = NULL;
    TRY(cuda_status(cudaStreamEndCapture(cuda_of(k)->stream, &graph), "noting a step", e));
    const cudaError_t error = cudaGraphInstantiate(&step, graph, 0);
    (void)cudaGraphDestroy(graph);
    TRY(cuda_status(error, "making a graph of a step", e));
    *ret = step;
    return ST_OK;
}

static status_t launch(const struct kernels *k, void *capture, struct err *e) {
    return cuda_status(cudaGraphLaunch(capture, cuda_of(k)->stream), "launching a step", e);
}

static void capture_free(const struct kernels *k, void *capture) {
    (void)k;
    if (capture)
        (void)cudaGraphExecDestroy(capture);
}

void cuda_queue_table(struct kernels *t) {
    t->deferred = true;
    t->host_memory_new = host_memory_new;
    t->host_memory_free = host_memory_free;
    t->event_new = event_new;
    t->event_free = event_free;
    t->event_record = event_record;
    t->event_wait = event_wait;
    t->capture_begin = capture_begin;
    t->capture_end = capture_end;
    t->launch = launch;
    t->capture_free = capture_free;
}
