#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/product.h"

#include <assert.h>

/* The GELU is a pass of its own: backward needs the pre-activation too, and oneDNN's post-op would keep only one. */
status_t linear_forward(const struct kernels *k, float *y, float *pre, const float *x, const float *w,
                        const float *bias, const struct linear_dims *d, struct err *e) {
    assert(d->rows > 0 && d->in > 0 && d->out > 0);
    const struct product_shape s = {
        .m = d->rows, .n = d->out, .k = d->in, .b_transposed = d->transposed, .bias = bias != NULL
    };
    TRY(products_run(cpu_of(k)->products, &s, pre ? pre : y, x, w, bias, e));
    return pre ? k->gelu_forward(k, y, pre, d->rows * d->out, e) : ST_OK;
}

status_t linear_backward_input(const struct kernels *k, float *dx, const float *dy, const float *w,
                               const struct linear_dims *d, bool accumulate, struct err *e) {
    const struct product_shape s = {
        .m = d->rows, .n = d->in, .k = d->out, .b_transposed = !d->transposed, .accumulate = accumulate
    };
    return products_run(cpu_of(k)->products, &s, dx, dy, w, NULL, e);
}

status_t linear_backward_weight(const struct kernels *k, float *dw, const float *x, const float *dy,
                                const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    (void)workspace;
    const struct product_shape s = { .m = d->transposed ? d->out : d->in,
                                     .n = d->transposed ? d->in : d->out,
                                     .k = d->rows,
                                     .a_transposed = true,
                                     .accumulate = accumulate };
    return products_run(cpu_of(k)->products, &s, dw, d->transposed ? dy : x, d->transposed ? x : dy, NULL, e);
}
