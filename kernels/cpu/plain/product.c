#include "kernels/cpu/product.h"

static float element(const struct product_shape *s, const float *a, const float *b, int64_t row, int64_t column) {
    const float *x = s->a_transposed ? a + row : a + row * s->k;
    const float *y = s->b_transposed ? b + column * s->k : b + column;
    const int64_t x_step = s->a_transposed ? s->m : 1, y_step = s->b_transposed ? 1 : s->n;
    float sum = 0;
    for (int64_t i = 0; i < s->k; i++)
        sum += x[i * x_step] * y[i * y_step];
    return sum;
}

void plain_product(int threads, const struct product_shape *s, float *c, const float *a, const float *b,
                   const float *bias) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < s->m; row++)
        for (int64_t column = 0; column < s->n; column++) {
            float *to = c + row * s->n + column;
            const float sum = element(s, a, b, row, column);
            *to = s->accumulate ? *to + sum : s->bias ? sum + bias[column] : sum;
        }
}
