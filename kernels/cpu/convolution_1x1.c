#include "kernels/cpu/convolution_1x1.h"

#include "kernels/cpu/convolution.h"
#include "kernels/cpu/cpu.h"

#include <string.h>

static struct linear_dims layer(const struct convolution_dims *d) {
    return (struct linear_dims){ .rows = d->batch * convolution_side(d, d->height) * convolution_side(d, d->width),
                                 .in = d->in,
                                 .out = d->out,
                                 .transposed = true };
}

/* Bytes of the copied pixels that the stride selects. With stride 1 all pixels are used, and nothing is copied. */
static size_t gathered_bytes(const struct kernels *k, const struct convolution_dims *d) {
    return d->stride == 1 ? 0 : ((size_t)(layer(d).rows * d->in) * kernels_element_bytes(k) + 63) / 64 * 64;
}

size_t convolution_1x1_workspace(const struct kernels *k, const struct convolution_dims *d) {
    const struct linear_dims l = layer(d);
    return gathered_bytes(k, d) + k->linear_backward_weight_workspace(k, &l);
}

/* The offset in x of the pixel that output row r reads. */
static int64_t pixel(const struct convolution_dims *d, int64_t r) {
    const int64_t width = convolution_side(d, d->width), height = convolution_side(d, d->height);
    const int64_t column = r % width * d->stride, row = r / width % height * d->stride;
    return ((r / (width * height) * d->height + row) * d->width + column) * d->in;
}

/* x itself if the stride is 1, otherwise the selected pixels, copied one after another into the workspace. */
static const element_t *gather(const struct kernels *k, const element_t *x, const struct convolution_dims *d,
                               void *workspace) {
    const size_t size = kernels_element_bytes(k), bytes = (size_t)d->in * size;
    if (d->stride == 1)
        return x;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < layer(d).rows; r++)
        memcpy((char *)workspace + (size_t)r * bytes, (const char *)x + (size_t)pixel(d, r) * size, bytes);
    return workspace;
}

status_t convolution_1x1_forward(const struct kernels *k, element_t *y, const element_t *x, const element_t *w,
                                 const element_t *bias, const struct convolution_dims *d, void *workspace,
                                 struct err *e) {
    const struct linear_dims l = layer(d);
    return k->linear_forward(k, y, NULL, gather(k, x, d, workspace), w, bias, &l, e);
}

status_t convolution_1x1_backward_input(const struct kernels *k, element_t *dx, const element_t *dy, const element_t *w,
                                        const struct convolution_dims *d, bool accumulate, void *workspace,
                                        struct err *e) {
    const struct linear_dims l = layer(d);
    const size_t size = kernels_element_bytes(k), bytes = (size_t)d->in * size;
    if (d->stride == 1)
        return k->linear_backward_input(k, dx, dy, w, &l, accumulate, e);
    TRY(k->linear_backward_input(k, workspace, dy, w, &l, false, e));
    if (!accumulate)
        memset(dx, 0, (size_t)(d->batch * d->height * d->width) * bytes); /* +0 in every precision */
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < l.rows; r++) {
        char *to = (char *)dx + (size_t)pixel(d, r) * size;
        const char *from = (const char *)workspace + (size_t)r * bytes;
        if (accumulate)
            convolution_add_row(k, to, from, d->in, false);
        else
            memcpy(to, from, bytes);
    }
    return ST_OK;
}

status_t convolution_1x1_backward_weight(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                         const struct convolution_dims *d, bool accumulate, void *workspace,
                                         struct err *e) {
    const struct linear_dims l = layer(d);
    return k->linear_backward_weight(k, dw, gather(k, x, d, workspace), dy, &l, accumulate,
                                     (char *)workspace + gathered_bytes(k, d), e);
}
