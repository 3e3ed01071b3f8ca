/* Convolutions: chooses the implementation of each pass.
 *
 * A 1 x 1 convolution with stride 1 and no padding is a product of the pixels and the weights. Otherwise cuDNN
 * computes the pass if it has an engine for the shape, the elements have 2 bytes, all addresses are aligned, and
 * forward has no bias. Otherwise the windows of some samples at a time become columns (convolution_columns.cu), and
 * cuBLASLt multiplies them; the count of samples is limited, so that the columns of a large batch need no huge
 * workspace. Weights are first packed with channels last, because images have channels last. */
#include "kernels/cuda/convolution_columns.h"
#include "kernels/cuda/lib/convolution_cudnn.h"
#include "kernels/cuda/lib/product.h"
#include "kernels/cuda/ops.h"

/* The product of the columns of `samples` samples with packed weights (out, window). */
static struct linear_dims product_of(const struct convolution_dims *d, int64_t samples) {
    return (struct linear_dims){
        .rows = samples * columns_pixels(d), .in = columns_width(d), .out = d->out, .transposed = true
    };
}

/* Whether cuDNN computes the pass, for tensors at x and y: its plans assume addresses on 16-byte boundaries. */
static status_t cudnn_does(const struct kernels *k, enum convolution_pass pass, const struct convolution_dims *d,
                           const void *x, const void *y, const void *workspace, bool *ret, struct err *e) {
    *ret = false;
    if (!cuda_of(k)->cudnn || k->precision == KERNELS_FP32 ||
        (((uintptr_t)x | (uintptr_t)y | (uintptr_t)workspace) & 15) != 0)
        return ST_OK;
    const status_t st = convolution_cudnn_find(cuda_of(k)->cudnn, pass, k->precision, d, e);
    *ret = st == ST_OK;
    return st == ST_UNIMPLEMENTED ? ST_OK : st;
}

/* The parts of the workspace, in the layout that workspace.h describes. */
struct workspace_layout {
    void *weights, *columns, *rest;
};
static struct workspace_layout workspace_layout_of(const struct convolution_dims *d, void *workspace, size_t columns) {
    char *at = workspace;
    char *behind = at + cuda_convolution_weights_bytes(d);
    return (struct workspace_layout){ at, behind, behind + columns };
}

/* --- passes ---*/

static const void *from_sample(const struct kernels *k, const element_t *a, int64_t elements) {
    return (const char *)a + (size_t)elements * kernels_element_bytes(k);
}
static void *to_sample(const struct kernels *k, element_t *a, int64_t elements) {
    return (char *)a + (size_t)elements * kernels_element_bytes(k);
}

static struct convolution_dims part_of(const struct convolution_dims *d, int64_t first) {
    struct convolution_dims part = *d;
    part.batch = d->batch - first < columns_samples(d) ? d->batch - first : columns_samples(d);
    return part;
}

static status_t pack(const struct kernels *k, const struct workspace_layout *r, const element_t *w,
                     const struct convolution_dims *d, struct err *e) {
    return k->channels_last(k, r->weights, w, d->out, d->in, d->kernel * d->kernel, e);
}

/* An error is reported by the first call that computes. */
size_t cuda_convolution_prepare(const struct kernels *k, const struct convolution_dims *d) {
    bool found;
    for (int pass = CONVOLUTION_FORWARD; !cuda_convolution_is_product(d) && pass < CONVOLUTION_PASSES; pass++)
        status_ignore(cudnn_does(k, (enum convolution_pass)pass, d, NULL, NULL, NULL, &found, NULL));
    return cuda_convolution_workspace(k, d);
}

/* cuDNN's forward has no bias. Only the first and last convolutions of small networks have one. */
status_t cuda_convolution_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                                  const element_t *bias, const struct convolution_dims *d, void *workspace,
                                  struct err *e) {
    const struct linear_dims whole = product_of(d, d->batch);
    const struct workspace_layout r = workspace_layout_of(d, workspace, 0);
    bool cudnn = false;
    if (cuda_convolution_is_product(d))
        return cuda_linear_forward(k, y, NULL, x, w, bias, &whole, e);
    TRY(pack(k, &r, w, d, e));
    if (!bias)
        TRY(cudnn_does(k, CONVOLUTION_FORWARD, d, x, y, workspace, &cudnn, e));
    if (cudnn)
        return convolution_cudnn_run(cuda_of(k)->cudnn, CONVOLUTION_FORWARD, k->precision, d, (void *)x, r.weights, y,
                                     r.rest, e);
    for (int64_t first = 0; first < d->batch; first += columns_samples(d)) {
        const struct convolution_dims part = part_of(d, first);
        const struct linear_dims l = product_of(d, part.batch);
        TRY(columns_of(k, r.columns, from_sample(k, x, first * d->height * d->width * d->in), &part, e));
        TRY(cuda_linear_forward(k, to_sample(k, y, first * columns_pixels(d) * d->out), NULL, r.columns, r.weights,
                                bias, &l, e));
    }
    return ST_OK;
}

static status_t cudnn_backward_input(const struct kernels *k, element_t *dx, const element_t *dy,
                                     const struct convolution_dims *d, bool accumulate, void *workspace,
                                     struct err *e) {
    const struct workspace_layout r = workspace_layout_of(d, workspace,
                                                          accumulate ? cuda_convolution_dx_bytes(d, k->precision) : 0);
    TRY(convolution_cudnn_run(cuda_of(k)->cudnn, CONVOLUTION_BACKWARD_INPUT, k->precision, d,
                              accumulate ? r.columns : dx, r.weights, (void *)dy, r.rest, e));
    return accumulate ? k->add(k, dx, dx, r.columns, d->batch * d->height * d->width * d->in, e) : ST_OK;
}

status_t cuda_convolution_backward_input(const struct kernels *k, element_t *dx, const element_t *dy,
                                         const element_t *w, const struct convolution_dims *d, bool accumulate,
                                         void *workspace, struct err *e) {
    const struct linear_dims whole = product_of(d, d->batch);
    const struct workspace_layout r = workspace_layout_of(d, workspace, 0);
    bool cudnn;
    if (cuda_convolution_is_product(d))
        return cuda_linear_backward_input(k, dx, dy, w, &whole, accumulate, e);
    TRY(pack(k, &r, w, d, e));
    TRY(cudnn_does(k, CONVOLUTION_BACKWARD_INPUT, d, dx, dy, workspace, &cudnn, e));
    if (cudnn)
        return cudnn_backward_input(k, dx, dy, d, accumulate, workspace, e);
    for (int64_t first = 0; first < d->batch; first += columns_samples(d)) {
        const struct convolution_dims part = part_of(d, first);
        const struct gemm p = { .m = part.batch * columns_pixels(d),
                                .n = columns_width(d),
                                .k = d->out,
                                .lda = d->out,
                                .ldb = columns_width(d),
                                .ldc = columns_width(d),
                                .flags = GEMM_C_FP32 };
        TRY(cuda_products_run(k, p, r.columns, NULL, from_sample(k, dy, first * columns_pixels(d) * d->out), r.weights,
                              NULL, e));
        TRY(columns_back(k, to_sample(k, dx, first * d->height * d->width * d->in), r.columns, &part, accumulate, e));
    }
    return ST_OK;
}

status_t cuda_convolution_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                          const struct convolution_dims *d, bool accumulate, void *workspace,
                                          struct err *e) {
    const struct linear_dims whole = product_of(d, d->batch);
    const struct workspace_layout r = workspace_layout_of(d, workspace, 0);
    bool cudnn;
    if (cuda_convolution_is_product(d))
        return cuda_linear_backward_weight(k, dw, x, dy, &whole, accumulate, NULL, e);
    TRY(cudnn_does(k, CONVOLUTION_BACKWARD_WEIGHT, d, x, dy, workspace, &cudnn, e));
    if (cudnn) {
        TRY(convolution_cudnn_run(cuda_of(k)->cudnn, CONVOLUTION_BACKWARD_WEIGHT, k->precision, d, (void *)x, r.weights,
                                  (void *)dy, r.rest, e));
        return columns_weight(k, dw, r.weights, d, accumulate, e);
    }
    for (int64_t first = 0; first < d->batch; first += columns_samples(d)) {
        const struct convolution_dims part = part_of(d, first);
        const struct linear_dims l = product_of(d, part.batch);
        TRY(columns_of(k, r.columns, from_sample(k, x, first * d->height * d->width * d->in), &part, e));
        TRY(cuda_linear_backward_weight(k, r.weights, r.columns, from_sample(k, dy, first * columns_pixels(d) * d->out),
                                        &l, first > 0, NULL, e));
    }
    return columns_weight(k->fp32, dw, r.weights, d, accumulate, e);
}
