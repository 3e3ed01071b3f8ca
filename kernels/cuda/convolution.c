#include "kernels/cuda/convolution_columns.h"
#include "kernels/cuda/convolution_cudnn.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"

/* Columns are laid out for as many samples at a time as take this many bytes, at least for one. */
static const size_t columns_most = (size_t)256 << 20;

/* Pixels are rows of a product as they stand. */
static bool is_product(const struct convolution_dims *d) { return d->kernel == 1 && d->stride == 1 && d->padding == 0; }

static int64_t window(const struct convolution_dims *d) { return d->kernel * d->kernel * d->in; }
static int64_t y_pixels(const struct convolution_dims *d) {
    return convolution_side(d, d->height) * convolution_side(d, d->width);
}

/* The product of `samples` samples' columns with packed weights (out, window). */
static struct linear_dims product_of(const struct convolution_dims *d, int64_t samples) {
    return (struct linear_dims){ .rows = samples * y_pixels(d), .in = window(d), .out = d->out, .transposed = true };
}

static size_t aligned(int64_t n, size_t each) { return ((size_t)n * each + 255) / 256 * 256; }

static int64_t chunk(const struct convolution_dims *d) {
    const int64_t n = (int64_t)(columns_most / ((size_t)(y_pixels(d) * window(d)) * sizeof(float)));
    return n < 1 ? 1 : n < d->batch ? n : d->batch;
}

/* Bytes of cuDNN's workspace; false where it does not do the pass. */
static bool cudnn_has(const struct kernels *k, enum convolution_pass pass, const struct convolution_dims *d,
                      size_t *ret) {
    struct err ignored;
    return cuda_of(k)->cudnn && k->precision != KERNELS_FP32 && !is_product(d) &&
           convolution_cudnn_workspace(cuda_of(k)->cudnn, pass, k->precision, d, ret, &ignored) == ST_OK;
}

/* On 16-byte boundaries, as cuDNN is told. */
static bool aligned_both(const void *a, const void *b) { return (((uintptr_t)a | (uintptr_t)b) & 15) == 0; }

/* --- workspace: packed weights, or their gradient in fp32; then columns, or what cuDNN adds to dx; then cuDNN's own
 * ---*/

struct room {
    void *weights, *columns, *rest;
};
static struct room room_of(const struct convolution_dims *d, void *workspace, size_t columns) {
    char *at = workspace;
    char *behind = at + aligned(d->out * window(d), sizeof(float));
    return (struct room){ at, behind, behind + columns };
}

static size_t dx_bytes(const struct kernels *k, const struct convolution_dims *d) {
    return aligned(d->batch * d->height * d->width * d->in, kernels_element_bytes(k));
}

size_t cuda_convolution_workspace(const struct kernels *k, const struct convolution_dims *d) {
    const size_t weights = aligned(d->out * window(d), sizeof(float)),
                 columns = aligned(chunk(d) * y_pixels(d) * window(d), sizeof(float));
    size_t forward = 0, backward = 0;
    if (is_product(d))
        return 0;
    if (!cudnn_has(k, CONVOLUTION_FORWARD, d, &forward))
        forward = 0;
    backward = cudnn_has(k, CONVOLUTION_BACKWARD_INPUT, d, &backward) ? backward + dx_bytes(k, d) : 0;
    const size_t cudnn = forward > backward ? forward : backward;
    return weights + (cudnn > columns ? cudnn : columns);
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
    part.batch = d->batch - first < chunk(d) ? d->batch - first : chunk(d);
    return part;
}

static status_t pack(const struct kernels *k, const struct room *r, const element_t *w,
                     const struct convolution_dims *d, struct err *e) {
    return k->channels_last(k, r->weights, w, d->out, d->in, d->kernel * d->kernel, e);
}

/* cuDNN's forward knows no bias; only the first and last convolutions of small networks have one. */
status_t cuda_convolution_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                                  const element_t *bias, const struct convolution_dims *d, void *workspace,
                                  struct err *e) {
    const struct linear_dims whole = product_of(d, d->batch);
    const struct room r = room_of(d, workspace, 0);
    size_t bytes;
    if (is_product(d))
        return cuda_linear_forward(k, y, NULL, x, w, bias, &whole, e);
    TRY(pack(k, &r, w, d, e));
    if (!bias && aligned_both(x, y) && cudnn_has(k, CONVOLUTION_FORWARD, d, &bytes))
        return convolution_cudnn_run(cuda_of(k)->cudnn, CONVOLUTION_FORWARD, k->precision, d, (void *)x, r.weights, y,
                                     r.rest, e);
    for (int64_t first = 0; first < d->batch; first += chunk(d)) {
        const struct convolution_dims part = part_of(d, first);
        const struct linear_dims l = product_of(d, part.batch);
        TRY(columns_of(k, r.columns, from_sample(k, x, first * d->height * d->width * d->in), &part, e));
        TRY(cuda_linear_forward(k, to_sample(k, y, first * y_pixels(d) * d->out), NULL, r.columns, r.weights, bias, &l,
                                e));
    }
    return ST_OK;
}

static status_t cudnn_backward_input(const struct kernels *k, element_t *dx, const element_t *dy,
                                     const struct convolution_dims *d, bool accumulate, void *workspace,
                                     struct err *e) {
    const struct room r = room_of(d, workspace, accumulate ? dx_bytes(k, d) : 0);
    TRY(convolution_cudnn_run(cuda_of(k)->cudnn, CONVOLUTION_BACKWARD_INPUT, k->precision, d,
                              accumulate ? r.columns : dx, r.weights, (void *)dy, r.rest, e));
    return accumulate ? k->add(k, dx, dx, r.columns, d->batch * d->height * d->width * d->in, e) : ST_OK;
}

status_t cuda_convolution_backward_input(const struct kernels *k, element_t *dx, const element_t *dy,
                                         const element_t *w, const struct convolution_dims *d, bool accumulate,
                                         void *workspace, struct err *e) {
    const struct linear_dims whole = product_of(d, d->batch);
    const struct room r = room_of(d, workspace, 0);
    size_t bytes;
    if (is_product(d))
        return cuda_linear_backward_input(k, dx, dy, w, &whole, accumulate, e);
    TRY(pack(k, &r, w, d, e));
    if (aligned_both(dx, dy) && cudnn_has(k, CONVOLUTION_BACKWARD_INPUT, d, &bytes))
        return cudnn_backward_input(k, dx, dy, d, accumulate, workspace, e);
    for (int64_t first = 0; first < d->batch; first += chunk(d)) {
        const struct convolution_dims part = part_of(d, first);
        const struct gemm_product p = { .m = part.batch * y_pixels(d),
                                        .n = window(d),
                                        .k = d->out,
                                        .lda = d->out,
                                        .ldb = window(d),
                                        .ldc = window(d),
                                        .flags = GEMM_C_FP32 };
        TRY(cuda_products_run(k, p, r.columns, NULL, from_sample(k, dy, first * y_pixels(d) * d->out), r.weights, NULL,
                              e));
        TRY(columns_back(k, to_sample(k, dx, first * d->height * d->width * d->in), r.columns, &part, accumulate, e));
    }
    return ST_OK;
}

status_t cuda_convolution_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                          const struct convolution_dims *d, bool accumulate, void *workspace,
                                          struct err *e) {
    const struct linear_dims whole = product_of(d, d->batch);
    const struct room r = room_of(d, workspace, 0);
    if (is_product(d))
        return cuda_linear_backward_weight(k, dw, x, dy, &whole, accumulate, NULL, e);
    for (int64_t first = 0; first < d->batch; first += chunk(d)) {
        const struct convolution_dims part = part_of(d, first);
        const struct linear_dims l = product_of(d, part.batch);
        TRY(columns_of(k, r.columns, from_sample(k, x, first * d->height * d->width * d->in), &part, e));
        TRY(cuda_linear_backward_weight(k, r.weights, r.columns, from_sample(k, dy, first * y_pixels(d) * d->out), &l,
                                        first > 0, NULL, e));
    }
    return columns_weight(k, dw, r.weights, d, accumulate, e);
}
