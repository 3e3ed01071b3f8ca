/* Matrix products by cuBLASLt, cached by shape, on one stream.
 *
 * The algorithm of each product is selected once per run and recorded in the tuning cache (tuning_cache.h). It is
 * the algorithm that an earlier part of the run recorded, if there is one. Otherwise it is cuBLASLt's first choice
 * among those that add in a fixed order, or with `fast`, the fastest of cuBLASLt's choices by measurement. Only the
 * latter may use atomic additions. */
#ifndef KERNELS_CUDA_PRODUCT_H
#define KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lib/gemm.h"

/* Uses the device, the stream, the `fast` setting and the tuning cache of c, which are borrowed until
 * cuda_products_free. Reserves cuBLASLt's workspace on the device. */
MUST_CHECK status_t cuda_products_new(const struct cuda *c, struct products **ret, struct err *e);
struct products *cuda_products_free(struct products *s);
/* cuBLASLt's version, 130100 for 13.1.0. Part of the numerics id. */
size_t cuda_products_version(void);

/* c = a b, as p.flags describe. The function fills in p's precision and alignment. bias and pre are used if the
 * flags say so: pre (m, ldc) receives the input of gelu. UNIMPLEMENTED if cuBLASLt has no algorithm, which only
 * occurs with gelu. */
MUST_CHECK status_t cuda_products_run(const struct kernels *k, struct gemm p, void *c, element_t *pre,
                                      const element_t *a, const element_t *b, const element_t *bias, struct err *e);

#endif
