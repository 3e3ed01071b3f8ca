#include "kernels/cpu/product.h"

#include "kernels/cpu/plain/ops.h"

static float sum_of(const struct product_shape *s, const element *a, const element *b, int64_t row, int64_t column) {
    const element *x = s->a_transposed ? a + row : a + row * s->lda;
    const element *y = s->b_transposed ? b + column * s->ldb : b + column;
    const int64_t x_step = s->a_transposed ? s->lda : 1, y_step = s->b_transposed ? 1 : s->ldb;
    float sum = 0;
    for (int64_t i = 0; i < s->k; i++)
        sum += float_of(x[i * x_step]) * float_of(y[i * y_step]);
    return sum;
}

void PLAIN(product)(int threads, const struct product_shape *s, void *c, const element_t *a, const element_t *b,
                    const element_t *bias) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < s->m; row++)
        for (int64_t column = 0; column < s->n; column++) {
            const int64_t at = row * s->ldc + column;
            float *wide = s->c_fp32 ? (float *)c + at : NULL;
            float sum = sum_of(s, a, b, row, column);
            if (s->bias)
                sum += float_of(*AT(bias, column));
            if (s->accumulate)
                sum += wide ? *wide : float_of(*AT(c, at));
            if (wide)
                *wide = sum;
            else
                *AT(c, at) = element_of(sum);
        }
}
