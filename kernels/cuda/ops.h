/* The functions that enter the table, one for each of its entries; kernels.h says what they do. C files define them as
 * they stand, .cu files too: the names are C's. */
#ifndef KERNELS_CUDA_OPS_H
#define KERNELS_CUDA_OPS_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- memory.c ------------------------------------------------------------------------------------------------------*/
status_t cuda_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e);
void cuda_memory_free(const struct kernels *k, void *p);
status_t cuda_upload(const struct kernels *k, void *to, const void *from_host, size_t bytes, struct err *e);
status_t cuda_download(const struct kernels *k, void *to_host, const void *from, size_t bytes, struct err *e);
status_t cuda_move(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e);
status_t cuda_finish(const struct kernels *k, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
