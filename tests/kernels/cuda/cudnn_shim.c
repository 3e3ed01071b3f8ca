/* Convolutions on a host without cuDNN: channels last, weights (out, kernel, kernel, in), sums in fp32. An engine here
 * asks for all the workspace that it may have, and fills it with NaNs. Attention uses the project's own kernels. */
#include "kernels/cpu/element.h"
#include "kernels/cuda/lib/attention_cudnn.h"
#include "kernels/cuda/lib/convolution_cudnn.h"
#include "kernels/cuda/workspace.h"

#include <stdlib.h>
#include <string.h>

status_t attention_cudnn_find(struct cudnn *c, const struct attention_cudnn *a, struct err *e) {
    (void)c, (void)a;
    return err_set(e, ST_UNIMPLEMENTED, "no engine");
}

status_t attention_cudnn_forward(struct cudnn *c, const struct attention_cudnn *a, element_t *out, float *lse,
                                 const element_t *qkv, void *workspace, struct err *e) {
    (void)out, (void)lse, (void)qkv, (void)workspace;
    return attention_cudnn_find(c, a, e);
}

status_t attention_cudnn_backward(struct cudnn *c, const struct attention_cudnn *a, element_t *dqkv,
                                  const element_t *dout, const element_t *qkv, const element_t *out, const float *lse,
                                  void *workspace, struct err *e) {
    (void)dqkv, (void)dout, (void)qkv, (void)out, (void)lse, (void)workspace;
    return attention_cudnn_find(c, a, e);
}

status_t convolution_cudnn_find(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                                const struct convolution_dims *d, struct err *e) {
    (void)c, (void)pass, (void)precision, (void)d, (void)e;
    return ST_OK;
}

/* A tensor as fp32; zeros for the tensor that is computed. */
static float *in_fp32(const void *from, int64_t n, bool wanted, enum kernels_precision precision) {
    float *a = calloc((size_t)n, sizeof *a);
    if (!a)
        abort();
    for (int64_t i = 0; i < n && !wanted; i++) {
        const uint16_t x = ((const uint16_t *)from)[i];
        a[i] = precision == KERNELS_BF16 ? float_of_bf16(x) : float_of_fp16(x);
    }
    return a;
}

/* Adds the products for one pixel of x (in), one of y (out) and one position of the window. w is (out, ..., in); its
 * rows are `stride` apart. */
static void add_products(enum convolution_pass pass, float *x, float *w, float *y, const struct convolution_dims *d,
                         int64_t stride) {
    for (int64_t o = 0; o < d->out; o++)
        for (int64_t i = 0; i < d->in; i++)
            switch (pass) {
            case CONVOLUTION_FORWARD: y[o] += x[i] * w[o * stride + i]; break;
            case CONVOLUTION_BACKWARD_INPUT: x[i] += y[o] * w[o * stride + i]; break;
            case CONVOLUTION_BACKWARD_WEIGHT: w[o * stride + i] += y[o] * x[i]; break;
            }
}

static void add_windows(enum convolution_pass pass, float *x, float *w, float *y, const struct convolution_dims *d) {
    const int64_t height = convolution_side(d, d->height), width = convolution_side(d, d->width),
                  area = d->kernel * d->kernel;
    for (int64_t at = 0; at < d->batch * height * width * area; at++) {
        const int64_t tap = at % area, pixel = at / area, sample = pixel / (height * width);
        const int64_t row = pixel / width % height * d->stride + tap / d->kernel - d->padding,
                      column = pixel % width * d->stride + tap % d->kernel - d->padding;
        if (row >= 0 && row < d->height && column >= 0 && column < d->width)
            add_products(pass, x + ((sample * d->height + row) * d->width + column) * d->in, w + tap * d->in,
                         y + pixel * d->out, d, area * d->in);
    }
}

static void narrow(void *to, float *from, int64_t n, bool wanted, enum kernels_precision precision) {
    for (int64_t i = 0; i < n && wanted; i++)
        ((uint16_t *)to)[i] = precision == KERNELS_BF16 ? bf16_of_float(from[i]) : fp16_of_float(from[i]);
    free(from);
}

status_t convolution_cudnn_run(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                               const struct convolution_dims *d, void *x, void *w, void *y, void *workspace,
                               struct err *e) {
    const int64_t n_x = d->batch * d->height * d->width * d->in, n_w = d->out * d->kernel * d->kernel * d->in,
                  n_y = d->batch * convolution_side(d, d->height) * convolution_side(d, d->width) * d->out;
    const bool of_x = pass == CONVOLUTION_BACKWARD_INPUT, of_w = pass == CONVOLUTION_BACKWARD_WEIGHT,
               of_y = pass == CONVOLUTION_FORWARD;
    (void)c, (void)e;
    memset(workspace, 0xff, of_x ? cuda_convolution_dx_engine_bytes(d, precision) : cuda_convolution_engine_bytes(d));
    float *wide_x = in_fp32(x, n_x, of_x, precision), *wide_w = in_fp32(w, n_w, of_w, precision),
          *wide_y = in_fp32(y, n_y, of_y, precision);
    add_windows(pass, wide_x, wide_w, wide_y, d);
    narrow(x, wide_x, n_x, of_x, precision);
    narrow(w, wide_w, n_w, of_w, precision);
    narrow(y, wide_y, n_y, of_y, precision);
    return ST_OK;
}
