#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/product.h"

#include <assert.h>

static struct product_shape forward_shape(const struct linear_dims *d, bool bias) {
    return (struct product_shape){ .m = d->rows,
                                   .n = d->out,
                                   .k = d->in,
                                   .lda = d->in,
                                   .ldb = d->transposed ? d->in : d->out,
                                   .ldc = linear_stride(d),
                                   .b_transposed = d->transposed,
                                   .bias = bias };
}

static struct product_shape backward_input_shape(const struct linear_dims *d, bool accumulate) {
    return (struct product_shape){ .m = d->rows,
                                   .n = d->in,
                                   .k = d->out,
                                   .lda = linear_stride(d),
                                   .ldb = d->transposed ? d->in : d->out,
                                   .ldc = d->in,
                                   .b_transposed = !d->transposed,
                                   .accumulate = accumulate };
}

static struct product_shape backward_weight_shape(const struct linear_dims *d, bool accumulate) {
    return (struct product_shape){ .m = d->transposed ? d->out : d->in,
                                   .n = d->transposed ? d->in : d->out,
                                   .k = d->rows,
                                   .lda = d->transposed ? linear_stride(d) : d->in,
                                   .ldb = d->transposed ? d->in : linear_stride(d),
                                   .ldc = d->transposed ? d->in : d->out,
                                   .a_transposed = true,
                                   .accumulate = accumulate,
                                   .c_fp32 = true };
}

struct kernels_memory linear_memory(const struct kernels *k, const struct linear_dims *d) {
    const struct product_shape shapes[] = { forward_shape(d, false), backward_input_shape(d, false),
                                            backward_weight_shape(d, false) };
    struct kernels_memory all = { 0 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct kernels_memory one = products_memory(k, &shapes[i]);
        all.shared = one.shared > all.shared ? one.shared : all.shared;
        all.own += one.own;
    }
    return all;
}

/* The GELU is a separate pass: backward needs the pre-activation too, and a post-op of oneDNN would keep only one of
 * the two results. */
status_t linear_forward(const struct kernels *k, element_t *y, element_t *pre, const element_t *x, const element_t *w,
                        const element_t *bias, const struct linear_dims *d, struct err *e) {
    assert(d->rows > 0 && d->in > 0 && d->out > 0);
    assert(!pre || linear_stride(d) == d->out);
    const struct product_shape s = forward_shape(d, bias != NULL);
    TRY(products_run(k, &s, pre ? pre : y, x, w, bias, e));
    return pre ? k->gelu_forward(k, y, pre, d->rows * d->out, e) : ST_OK;
}

status_t linear_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                               const struct linear_dims *d, bool accumulate, struct err *e) {
    const struct product_shape s = backward_input_shape(d, accumulate);
    return products_run(k, &s, dx, dy, w, NULL, e);
}

status_t linear_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    (void)workspace;
    const struct product_shape s = backward_weight_shape(d, accumulate);
    return products_run(k, &s, dw, d->transposed ? dy : x, d->transposed ? x : dy, NULL, e);
}
