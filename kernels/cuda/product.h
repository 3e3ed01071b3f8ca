/* Matrix products by cuBLASLt, cached by shape, on one stream.
 *
 * Each product's algorithm is chosen once in a run and entered in the run's choices (choices.h): what an earlier part
 * of the run has chosen where there is one, else cuBLASLt's first choice among those that add in a fixed order, else,
 * where speed goes before the same bits, the fastest of its choices by measurement. Nothing is added by atomic
 * operations except by such a fastest one. */
#ifndef KERNELS_CUDA_PRODUCT_H
#define KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"

/* Of the device, the stream, the table's `fast` and the choices of c, which are borrowed until cuda_products_free;
 * reserves cuBLASLt's workspace on the device. */
MUST_CHECK status_t cuda_products_new(const struct cuda *c, struct products **ret, struct err *e);
struct products *cuda_products_free(struct products *s);
/* cuBLASLt's, 130100 for 13.1.0: a part of the numerics id. */
size_t cuda_products_version(void);

/* c = a b, as flags of p say; p's precision and alignment are found here. bias and pre where the flags ask for them:
 * pre (m, ldc) gets what goes into gelu. UNIMPLEMENTED where cuBLASLt has no algorithm: only of products with gelu. */
MUST_CHECK status_t cuda_products_run(const struct kernels *k, struct gemm p, void *c, element_t *pre,
                                      const element_t *a, const element_t *b, const element_t *bias, struct err *e);

#endif
