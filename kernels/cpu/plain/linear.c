#include "kernels/cpu/linear.h"
#include "kernels/cpu/piece.h"
#include "kernels/cpu/plain/ops.h"

#include <assert.h>

status_t PLAIN(linear_backward_bias)(const struct kernels *k, float *dbias, element_t *dy, const element_t *pre,
                                     const struct linear_dims *d, bool accumulate, void *workspace, struct err *e) {
    const int64_t pieces = piece_count(d->rows), out = d->out, stride = linear_stride(d);
    assert(!pre || stride == out);
    if (pre)
        TRY(k->gelu_backward(k, dy, dy, pre, d->rows * d->out, e));
    if (!dbias)
        return ST_OK;
    float *partial = workspace; /* (pieces, out) */
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        float *sum = partial + i * out;
        for (int64_t c = 0; c < out; c++)
            sum[c] = 0;
        for (int64_t row = piece_begin(d->rows, i); row < piece_begin(d->rows, i + 1); row++)
            for (int64_t c = 0; c < out; c++)
                sum[c] += float_of(*AT(dy, row * stride + c));
    }
    for (int64_t c = 0; c < out; c++) {
        float sum = 0;
        for (int64_t i = 0; i < pieces; i++)
            sum += partial[i * out + c];
        dbias[c] = accumulate ? dbias[c] + sum : sum;
    }
    return ST_OK;
}
