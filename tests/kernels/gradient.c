#include "tests/kernels/gradient.h"

#include "tests/kernels/tensor.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

double *doubles_of(const float *a, int64_t n) {
    double *b = malloc((size_t)n * sizeof *b);
    for (int64_t i = 0; i < n; i++)
        b[i] = a[i];
    return b;
}

double weighted(const double *out, const float *weight, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += out[i] * weight[i];
    return sum;
}

void check_gradient(const char *what, loss_fn loss, const void *ctx, double *x, const float *gradient, int64_t n) {
    const double step = 1e-5;
    const int64_t stride = n / (SANITIZED ? 5 : 97) + 1;
    for (int64_t i = 0; i < n; i += stride) {
        const double kept = x[i];
        x[i] = kept + step;
        const double above = loss(ctx);
        x[i] = kept - step;
        const double below = loss(ctx);
        x[i] = kept;
        const double want = (above - below) / (2 * step);
        tensor_assert_near(what, gradient + i, &want, 1, 2e-4, 0.05);
    }
}

void for_each_isa(void (*check)(struct kernels *k)) {
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(i), 2);
        check(k);
    }
}
