#include "kernels/cpu/vector/rows.h"

#include "kernels/cpu/linear.h"
#include "kernels/cpu/piece.h"
#include "kernels/cpu/vector/add_pieces.h"
#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/math.h"

#include <assert.h>

/* Adds one row to the column sums. With pre, also replaces dy by the gradient of the pre-activation. */
static void add_row(float *sum, element *dy, const element *pre, int64_t width) {
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t lanes = lanes_at(c, width);
        vf d = ve_load_first(dy + c, lanes);
        if (pre)
            d = ve_store_back(dy + c, vf_mul(d, vf_gelu_slope(ve_load_first(pre + c, lanes))), lanes);
        vf_store_first(sum + c, vf_add(vf_load_first(sum + c, lanes), d), lanes);
    }
}

status_t VECTOR(linear_backward_bias)(const struct kernels *k, float *dbias, element_t *dy, const element_t *pre,
                                      const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    const int64_t pieces = piece_count(d->rows), out = d->out, stride = linear_stride(d);
    assert(!pre || stride == out);
    if (!dbias)
        return pre ? k->gelu_backward(k, dy, dy, pre, d->rows * out, e) : ST_OK;
    float *partial = workspace; /* (pieces, out) */
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        float *sum = partial + i * out;
        for (int64_t c = 0; c < out; c++)
            sum[c] = 0;
        for (int64_t row = piece_begin(d->rows, i); row < piece_begin(d->rows, i + 1); row++)
            add_row(sum, AT(dy, row * stride), AT_OR_NULL(pre, row * out), out);
    }
    add_pieces(dbias, partial, pieces, out, out, accumulate);
    return ST_OK;
}
