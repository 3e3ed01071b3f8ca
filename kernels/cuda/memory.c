#include "kernels/cuda/ops.h"

status_t cuda_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    (void)k;
    void *p = NULL;
    const cudaError_t error = cudaMalloc(&p, bytes > 0 ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes on %s", bytes, cuda_of(k)->name);
    }
    TRY(cuda_status(error, "reserving memory of the device", e));
    *ret = p;
    return ST_OK;
}

void cuda_memory_free(const struct kernels *k, void *p) {
    (void)k;
    (void)cudaFree(p);
}

status_t cuda_upload(const struct kernels *k, void *to, const void *from_host, size_t bytes, struct err *e) {
    return cuda_status(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, cuda_of(k)->stream),
                       "copying to the device", e);
}

status_t cuda_download(const struct kernels *k, void *to_host, const void *from, size_t bytes, struct err *e) {
    return cuda_status(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, cuda_of(k)->stream),
                       "copying from the device", e);
}

/* Piece by piece through a staging buffer on the device. The order of the stream protects the buffer from the next
 * piece. */
status_t cuda_upload_elements(const struct kernels *k, element_t *to, const float *from_host, int64_t n,
                              struct err *e) {
    if (k->precision == KERNELS_FP32)
        return cuda_upload(k, to, from_host, (size_t)n * sizeof(float), e);
    float *staging = cuda_of(k)->staging;
    for (int64_t at = 0; at < n; at += CUDA_STAGING) {
        const int64_t piece = n - at < CUDA_STAGING ? n - at : CUDA_STAGING;
        TRY(cuda_upload(k, staging, from_host + at, (size_t)piece * sizeof(float), e));
        TRY(k->convert(k, (char *)to + (size_t)at * kernels_element_bytes(k), staging, piece, e));
    }
    return ST_OK;
}

/* The device copies while its multiprocessors compute. from_host: memory from host_memory_new. */
status_t cuda_upload_ahead(const struct kernels *k, void *to, const void *from_host, size_t bytes, struct err *e) {
    return cuda_status(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, cuda_of(k)->ahead),
                       "copying to the device", e);
}

/* A wait refers to the newest record at the time when it is queued. Later records do not change it, so the event can
 * be reused. */
static status_t order(cudaStream_t first, cudaEvent_t event, cudaStream_t then, struct err *e) {
    TRY(cuda_status(cudaEventRecord(event, first), "marking a place in the queue", e));
    return cuda_status(cudaStreamWaitEvent(then, event, 0), "ordering two streams", e);
}

status_t cuda_ahead_await(const struct kernels *k, struct err *e) {
    const struct cuda *c = cuda_of(k);
    return order(c->ahead, c->arrived, c->stream, e);
}

status_t cuda_ahead_release(const struct kernels *k, struct err *e) {
    const struct cuda *c = cuda_of(k);
    return order(c->stream, c->released, c->ahead, e);
}

status_t cuda_move(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    (void)cudaSetDevice(cuda_of(k)->ordinal); /* the current device belongs to the calling thread */
    return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_of(k)->stream),
                       "copying within the device", e);
}

status_t cuda_move_rows(const struct kernels *k, void *to, size_t to_stride, const void *from, size_t from_stride,
                        size_t bytes, int64_t rows, struct err *e) {
    return cuda_status(cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, (size_t)rows,
                                         cudaMemcpyDeviceToDevice, cuda_of(k)->stream),
                       "copying rows within the device", e);
}

status_t cuda_copy(const struct kernels *k, element_t *to, const element_t *from, int64_t n, struct err *e) {
    return cuda_move(k, to, from, (size_t)n * kernels_element_bytes(k), e);
}

status_t cuda_faults_take(const struct cuda *c, struct err *e) {
    static const char *const WHAT[] = { [CUDA_FAULT_TOKEN] = "token %d at position %lld is outside the vocabulary",
                                        [CUDA_FAULT_TARGET] = "target %d at row %lld is outside the vocabulary" };
    for (int i = 0; i < CUDA_FAULTS; i++) {
        const uint64_t found = c->faults[i];
        if (!found)
            continue;
        c->faults[i] = 0; /* only if found: a kernel of the next step may write it at any time */
        return err_set(e, ST_INVALID_ARGUMENT, WHAT[i], (int)(int32_t)(uint32_t)found, (long long)(found >> 32) - 1);
    }
    return ST_OK;
}

/* Waits for a blocking event, because a wait for a stream would spin on a processor that a loader may need. */
status_t cuda_finish(const struct kernels *k, struct err *e) {
    const struct cuda *c = cuda_of(k);
    TRY(cuda_ahead_await(k, e));
    TRY(cuda_status(cudaEventRecord(c->finished, c->stream), "marking a place in the queue", e));
    TRY(cuda_status(cudaEventSynchronize(c->finished), "running the queued kernels", e));
    return cuda_faults_take(c, e);
}
