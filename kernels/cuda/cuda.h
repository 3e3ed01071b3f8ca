/* The CUDA side of the table: its state, and an overview of this folder.
 *
 *   cuda.c            opens the table, builds the numerics id; table.c: fills it; memory.c: the memory functions
 *   ops.h             every function that enters the table
 *   launch.h          how a .cu file starts a kernel; element.cuh, reduce.cuh: building blocks of kernels
 *   <op>.cu           kernels, all three precisions in one file, under the names of the CPU's files
 *
 * Work is queued on one stream, which a table of a narrow precision shares with its fp32 table. Uploads ahead of
 * time use another stream. Kernels report errors that only they can find, such as a token outside its vocabulary, in
 * `faults`: host memory that the device writes and finish reads.
 *
 * The device is that of the thread that opens the table. Another thread that takes over the table first calls
 * cudaSetDevice with the table's ordinal.
 *
 * C files see CUDA through cuda_runtime_api.h. A .cu file is also compiled by the host's compiler, against
 * tests/kernels/cuda/shim, which runs it without a device, so it uses only what the shim has. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tuning_cache; /* tuning_cache.h */
struct products;     /* product.c */
struct cudnn;        /* cudnn.c */
struct kernels_trace;

/* Errors that a kernel may find. The device writes (row + 1) << 32 | the value's bits; 0 means no error. */
enum cuda_fault { CUDA_FAULT_TOKEN, CUDA_FAULT_TARGET, CUDA_FAULTS };

/* Capacity of the staging for the conversion of floats to elements. */
enum { CUDA_STAGING = 1 << 18 };
/* Maximum count of parts of a sum in two stages (sums.cuh). */
enum { CUDA_PARTIAL_SUMS = 128 };

struct cuda {
    struct kernels table; /* first: the functions of the table cast back */
    struct cuda *fp32;    /* owned; NULL if the precision is fp32. It borrows everything below */
    cudaStream_t stream;
    cudaStream_t ahead;            /* used by upload_ahead */
    cudaEvent_t arrived, released; /* records of the newest ahead_await and ahead_release */
    cudaEvent_t finished;          /* a blocking event: a waiting thread sleeps */
    uint64_t *faults;              /* (CUDA_FAULTS), mapped for host and device */
    float *staging;                /* (CUDA_STAGING), in device memory; NULL if the precision is fp32 */
    double *partial_sums;          /* (CUDA_PARTIAL_SUMS), in device memory: passes sums from one kernel to the next */
    int ordinal;
    int processors;      /* streaming multiprocessors: they set the size of a grid, never the division of a sum */
    int capability;      /* 80, 90, ... */
    size_t shared_bytes; /* dynamic shared memory that a block may request at its launch */
    int clock_khz;       /* the highest clock of the multiprocessors; 0: the driver does not report it */
    char name[64];       /* the device's */
    struct tuning_cache *tuning_cache; /* the choices of products and cudnn: earlier ones, and those made since */
    struct products *products;
    struct cudnn *cudnn; /* NULL: the host has no cuDNN */
};

static inline const struct cuda *cuda_of(const struct kernels *k) { return (const struct cuda *)k; }

extern const struct kernels_trace cuda_trace;        /* trace.c; kernels/trace.h */
MUST_CHECK status_t cuda_trace_check(struct err *e); /* whether its open would find CUPTI */

MUST_CHECK status_t cuda_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *cuda_close(struct kernels *k);
void cuda_numerics_id(const struct kernels *k, char *buf, size_t n);
MUST_CHECK status_t cuda_check(char *ret_without, size_t n, struct err *e);

/* tuning_record.c: the choices of this device, library and `fast`. `record` contains those of an earlier part of the
 * run, of one rank or of several; NULL: there are none. Choices of another device, library or `fast` are ignored,
 * because they could not be repeated here or would break a promise; the numerics id, which differs, has reported
 * that. DATA_LOSS if the text is invalid. Call cuda_tuning_cache_close also after a failure. */
MUST_CHECK status_t cuda_tuning_cache_open(struct cuda *c, const char *record, struct err *e);
void cuda_tuning_cache_close(struct cuda *c);

/* Converts a cudaError_t: OK, RESOURCE_EXHAUSTED for memory, else INTERNAL, with the message "<what>: <CUDA's
 * text>". Clears an error that is not sticky. */
MUST_CHECK status_t cuda_status(cudaError_t error, const char *what, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
