/* Matrix products by cuBLASLt, cached by shape, on one stream.
 *
 * Each product's algorithm is chosen once in a run and entered in a table (gemm_table.h): from the record of an earlier
 * part of the run where there is one, else cuBLASLt's first choice among those that add in a fixed order, else, where
 * speed goes before the same bits, the fastest of its choices by measurement. Nothing is added by atomic operations
 * except by such a fastest one. */
#ifndef KERNELS_CUDA_PRODUCT_H
#define KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm_table.h"

/* Of the device, the stream and the table's `fast` of c; reserves cuBLASLt's workspace on the device. */
MUST_CHECK status_t cuda_products_new(const struct cuda *c, struct products **ret, struct err *e);
struct products *cuda_products_free(struct products *s);
/* cuBLASLt's, 130100 for 13.1.0: a part of the numerics id. */
size_t cuda_products_version(void);

/* The choices so far, as text that the caller frees; and those of an earlier part of the run, of one rank or of several
 * (gemm_table_take), before the first product. Choices made on another device, by another library or for another `fast`
 * are left alone: here they cannot be repeated, or break what is promised, and the numerics id, which differs, has told
 * so. DATA_LOSS when the text is none. */
MUST_CHECK status_t cuda_products_record(const struct products *s, char **ret, struct err *e);
MUST_CHECK status_t cuda_products_replay(struct products *s, const char *text, size_t n, struct err *e);

/* Where the choices stand: others of the same run are entered and looked for there, too. Borrowed until
 * cuda_products_free. */
struct gemm_table *cuda_products_table(struct products *s);

/* c = a b, as flags of p say; p's precision and alignment are found here. bias and pre where the flags ask for them:
 * pre (m, ldc) gets what goes into gelu. UNIMPLEMENTED where cuBLASLt has no algorithm: only of products with gelu. */
MUST_CHECK status_t cuda_products_run(const struct kernels *k, struct gemm_product p, void *c, element_t *pre,
                                      const element_t *a, const element_t *b, const element_t *bias, struct err *e);

#endif
