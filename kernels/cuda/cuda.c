/* The CUDA plugin: opens a device and creates the table of kernels for it.
 *
 * Opening checks the device, creates the CUDA streams and events and the memory for faults, loads the tuning cache,
 * and opens cuBLASLt and, if present, cuDNN. Then it fills the table. A table of a narrow precision owns a second
 * one for fp32, a copy that shares the streams, the libraries and the memory. Closing waits for both streams before
 * anything is freed.
 *
 * The numerics id contains everything on which bits depend: the device, the precision, the versions of the libraries
 * and of this project, and KERNELS_SOURCES. */
#include "kernels/cuda/cuda.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "kernels/cuda/lib/cudnn.h"
#include "kernels/cuda/lib/product.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/peak.h"
#include "kernels/plugin.h"
#include "kernels/sources.h" /* generated: KERNELS_SOURCES */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static status_t device_choose(struct cuda *c, int ordinal, struct err *e) {
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess || count == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "device 'cuda' is not usable on this host: %s",
                       found == cudaSuccess ? "the driver lists no device" : cudaGetErrorString(found));
    if (ordinal < 0 || ordinal >= count)
        return err_set(e, ST_INVALID_ARGUMENT, "CUDA device %d is none of the %d of this host", ordinal, count);
    struct cudaDeviceProp p;
    TRY(cuda_status(cudaGetDeviceProperties(&p, ordinal), "asking for the device's properties", e));
    c->ordinal = ordinal;
    c->processors = p.multiProcessorCount;
    c->capability = 10 * p.major + p.minor;
    c->shared_bytes = p.sharedMemPerBlockOptin;
    snprintf(c->name, sizeof c->name, "%.63s", p.name);
    if (cudaDeviceGetAttribute(&c->clock_khz, cudaDevAttrClockRate, ordinal) != cudaSuccess)
        c->clock_khz = 0;
    if (c->capability < LIMIT_MIN_CUDA_CAPABILITY)
        return err_set(e, ST_FAILED_PRECONDITION, "%s has compute capability %d.%d, but training needs %d.%d", c->name,
                       p.major, p.minor, LIMIT_MIN_CUDA_CAPABILITY / 10, LIMIT_MIN_CUDA_CAPABILITY % 10);
    return cuda_status(cudaSetDevice(ordinal), "choosing the device", e);
}

static status_t streams_new(struct cuda *c, struct err *e) {
    TRY(cuda_status(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "making a stream", e));
    TRY(cuda_status(cudaStreamCreateWithFlags(&c->ahead, cudaStreamNonBlocking), "making a stream", e));
    TRY(cuda_status(cudaEventCreateWithFlags(&c->arrived, cudaEventDisableTiming), "making an event", e));
    TRY(cuda_status(cudaEventCreateWithFlags(&c->released, cudaEventDisableTiming), "making an event", e));
    return cuda_status(cudaEventCreateWithFlags(&c->finished, cudaEventDisableTiming | cudaEventBlockingSync),
                       "making an event", e);
}

static void streams_free(struct cuda *c) {
    const cudaEvent_t events[] = { c->arrived, c->released, c->finished };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    if (c->ahead)
        (void)cudaStreamDestroy(c->ahead);
    (void)cudaStreamDestroy(c->stream);
}

static status_t state_new(struct cuda *c, int ordinal, struct err *e) {
    TRY(device_choose(c, ordinal, e));
    TRY(streams_new(c, e));
    void *faults = NULL;
    TRY(cuda_status(cudaHostAlloc(&faults, CUDA_FAULTS * sizeof *c->faults, cudaHostAllocMapped),
                    "reserving memory that host and device share", e));
    c->faults = faults;
    for (int i = 0; i < CUDA_FAULTS; i++)
        c->faults[i] = 0;
    return ST_OK;
}

static status_t partial_sums_new(struct cuda *c, struct err *e) {
    void *memory = NULL;
    TRY(cuda_status(cudaMalloc(&memory, CUDA_PARTIAL_SUMS * sizeof *c->partial_sums), "reserving memory of the device",
                    e));
    c->partial_sums = memory;
    return ST_OK;
}

static status_t staging_new(struct cuda *c, struct err *e) {
    void *memory = NULL;
    TRY(cuda_status(cudaMalloc(&memory, CUDA_STAGING * sizeof *c->staging), "reserving memory of the device", e));
    c->staging = memory;
    return ST_OK;
}

/* Opens cuBLASLt, and cuDNN if the host has it. If cuDNN is present but does not start, that is an error. */
static status_t libraries_open(struct cuda *c, struct err *e) {
    TRY(cuda_products_new(c, &c->products, e));
    const status_t st = cudnn_open(c->stream, &c->cudnn, e);
    if (st == ST_OK)
        cudnn_use_tuning_cache(c->cudnn, c->tuning_cache, c->table.fast);
    return st == ST_FAILED_PRECONDITION ? ST_OK : st;
}

static void table_fill(struct cuda *c, enum kernels_precision precision) {
    struct kernels *t = &c->table;
    t->device = "cuda";
    t->threads = 1;
    t->precision = precision;
    t->peak_flops = cuda_peak_flops(&(struct cuda_peak){ c->name, c->capability, c->processors, 1e3 * c->clock_khz },
                                    precision);
    cuda_table(t);
    cuda_library_table(t);
    cuda_queue_table(t);
    cuda_watch_table(t);
}

static struct cuda *cuda_free(struct cuda *c) {
    if (!c)
        return NULL;
    if (c->stream) {
        (void)cudaStreamSynchronize(c->ahead);
        (void)cudaStreamSynchronize(c->stream);
        cudnn_close(c->cudnn);
        cuda_products_free(c->products);
        streams_free(c);
    }
    cuda_tuning_cache_close(c);
    (void)cudaFree(c->staging);
    (void)cudaFree(c->partial_sums);
    (void)cudaFreeHost(c->faults);
    free(c->fp32);
    free(c);
    return NULL;
}
CLEANUP_DEFINE(struct cuda *, cuda_free)

status_t cuda_open(const struct kernels_config *config, struct kernels **ret, struct err *e) {
    if (config->precision < KERNELS_FP32 || config->precision > KERNELS_FP16)
        return err_set(e, ST_INVALID_ARGUMENT, "precision %d is none of fp32, bf16 and fp16", (int)config->precision);
    CLEANUP(cuda_freep) struct cuda *c = alloc_zeroed(1, sizeof *c);
    c->table.fast = config->fast;
    TRY(state_new(c, config->ordinal, e));
    TRY(cuda_tuning_cache_open(c, config->tuning_cache, e));
    TRY(libraries_open(c, e));
    TRY(partial_sums_new(c, e));
    table_fill(c, config->precision);
    c->table.fp32 = &c->table;
    if (config->precision != KERNELS_FP32) {
        struct cuda *fp32 = alloc_zeroed(1, sizeof *fp32);
        c->fp32 = fp32;
        TRY(staging_new(c, e));
        *fp32 = *c;
        fp32->fp32 = NULL;
        table_fill(fp32, KERNELS_FP32);
        fp32->table.fp32 = &fp32->table;
        c->table.fp32 = &fp32->table;
    }
    *ret = &take_ptr(&c)->table;
    return ST_OK;
}

struct kernels *cuda_close(struct kernels *k) {
    (void)cuda_free((struct cuda *)k);
    return NULL;
}

/* version is 0 without a driver. A driver runs programs built with any release of its own major version. */
static status_t driver_check(struct err *e) {
    int version = 0;
    TRY(cuda_status(cudaDriverGetVersion(&version), "asking for the driver's version", e));
    if (version == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "the driver has no libcuda.so.1 here");
    if (version / 1000 < CUDART_VERSION / 1000)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the driver is too old: it runs CUDA %d.%d, and this build is of %d.%d", version / 1000,
                       version % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return ST_OK;
}

static void without(char *ret, size_t n, const char *consequence, const struct err *why) {
    const size_t used = strlen(ret);
    snprintf(ret + used, n - used, "%s%s: %s", used ? "; " : "", consequence, why->msg);
}

status_t cuda_check(char *ret_without, size_t n, struct err *e) {
    struct err why;
    if (cuda_products_version() == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "this build's CUDA kernels were made without cuBLASLt");
    TRY(driver_check(e));
    *ret_without = '\0';
    if (cudnn_check(&why) != ST_OK)
        without(ret_without, n, "slower attention and convolutions", &why);
    if (cuda_trace_check(&why) != ST_OK)
        without(ret_without, n, "no names of kernels in profiles", &why);
    return ST_OK;
}

void cuda_numerics_id(const struct kernels *k, char *buf, size_t n) {
    static const char *const PRECISION[] = { "fp32", "bf16", "fp16" };
    const struct cuda *c = cuda_of(k);
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    snprintf(buf, n, "cuda %s sm_%d %d, %s, runtime %d.%d, cuBLASLt %zu, cuDNN %zu, trainyard %s %s", c->name,
             c->capability, c->processors, PRECISION[k->precision], runtime / 1000, runtime % 1000 / 10,
             cuda_products_version(), c->cudnn ? cudnn_version(c->cudnn) : 0, TRAINYARD_VERSION, KERNELS_SOURCES);
}

__attribute__((visibility("default"))) extern const struct kernels_plugin kernels_plugin;
const struct kernels_plugin kernels_plugin = {
    .sources = KERNELS_SOURCES,
    .open = cuda_open,
    .close = cuda_close,
    .numerics_id = cuda_numerics_id,
    .trace = &cuda_trace,
    .check = cuda_check,
};
