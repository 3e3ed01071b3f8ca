/* For builds without cuBLASLt's header: the kernels compile, but no table opens. */
#include "kernels/cuda/lib/product.h"

static status_t absent(struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION, "this build's CUDA kernels were made without cuBLASLt");
}

status_t cuda_products_new(const struct cuda *c, struct products **ret, struct err *e) {
    (void)c, (void)ret;
    return absent(e);
}

struct products *cuda_products_free(struct products *s) {
    return s;
}
size_t cuda_products_version(void) { return 0; }

status_t cuda_products_run(const struct kernels *k, struct gemm p, void *c, element_t *pre, const element_t *a,
                           const element_t *b, const element_t *bias, struct err *e) {
    (void)k, (void)p, (void)c, (void)pre, (void)a, (void)b, (void)bias;
    return absent(e);
}
