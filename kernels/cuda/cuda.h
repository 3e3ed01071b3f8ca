/* The CUDA side of the table: its state, and the parts that its folder is made of.
 *
 *   cuda.c            opens the table, names the numerics; table.c: fills it; memory.c: the memory functions
 *   ops.h             every function that enters the table
 *   launch.h          how a .cu file starts a kernel; element.cuh, reduce.cuh: what kernels are written with
 *   <op>.cu           kernels, all three precisions in one file, under the names that the CPU's files have
 *
 * Work goes to one stream, and a table of a narrow precision shares it with its fp32; what is uploaded ahead goes to
 * another. Kernels report what only they can find, such as a token outside its vocabulary, in `faults`: memory of the
 * host that the device writes, read by finish.
 *
 * The device is that of the thread that opens the table; another thread that takes the table over calls cudaSetDevice
 * with its ordinal first.
 *
 * C files see CUDA through cuda_runtime_api.h. A .cu file is also compiled by the host's compiler, against
 * tests/kernels/cuda/shim, which runs it without a device: it uses nothing that the shim lacks. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct choices;  /* choices.h */
struct products; /* product.c */
struct cudnn;    /* cudnn.c */
struct kernels_trace;

/* What a kernel may find. The device writes (row + 1) << 32 | the value's bits; 0: nothing found. */
enum cuda_fault { CUDA_FAULT_TOKEN, CUDA_FAULT_TARGET, CUDA_FAULTS };

/* Floats that are on their way to becoming elements. */
enum { CUDA_STAGING = 1 << 18 };

struct cuda {
    struct kernels table; /* first: the functions of the table cast back */
    struct cuda *fp32;    /* owned; NULL where the precision is fp32. It borrows all below */
    cudaStream_t stream;
    cudaStream_t ahead;            /* of upload_ahead */
    cudaEvent_t arrived, released; /* the newest ahead_await's place in it, and ahead_release's in the other */
    cudaEvent_t finished;          /* blocks who waits for it */
    uint64_t *faults;              /* (CUDA_FAULTS), as both the host and the device see it */
    float *staging;                /* (CUDA_STAGING), of the device; NULL where the precision is fp32 */
    int ordinal;
    int processors;          /* streaming multiprocessors: how many blocks a grid has, never how a sum is cut */
    int capability;          /* 80, 90, ... */
    int clock_khz;           /* the highest of the processors; 0: the driver does not say */
    char name[64];           /* the device's */
    struct choices *choices; /* those that products and cudnn have made, and begin from */
    struct products *products;
    struct cudnn *cudnn; /* NULL: the host has none */
};

static inline const struct cuda *cuda_of(const struct kernels *k) { return (const struct cuda *)k; }

extern const struct kernels_trace cuda_trace;        /* trace.c; kernels/trace.h */
MUST_CHECK status_t cuda_trace_check(struct err *e); /* whether its open would find CUPTI */

MUST_CHECK status_t cuda_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *cuda_close(struct kernels *k);
void cuda_numerics_id(const struct kernels *k, char *buf, size_t n);
MUST_CHECK status_t cuda_check(char *ret_without, size_t n, struct err *e);

/* record.c: choices of this device, library and `fast`, and those of an earlier part of the run, of one rank or of
 * several, where there is a record (NULL: none). Choices made on another device, by another library or for another
 * `fast` are left alone: here they cannot be repeated, or break what is promised, and the numerics id, which differs,
 * has told so. DATA_LOSS when the text is no record. cuda_choices_close also follows a failure. */
MUST_CHECK status_t cuda_choices_open(struct cuda *c, const char *record, struct err *e);
void cuda_choices_close(struct cuda *c);

/* cudaError_t as ours: OK, RESOURCE_EXHAUSTED for memory, else INTERNAL; "<what>: <CUDA's text>". Clears an error that
 * is not sticky. */
MUST_CHECK status_t cuda_status(cudaError_t error, const char *what, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
