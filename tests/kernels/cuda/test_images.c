/* Batch norm, pooling, patches and the Fourier transform: CUDA's kernels on the CPU, against the plain ones. */
#include "tests/kernels/cuda/pair.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct batchnorm {
    struct batchnorm_dims d;
    int64_t n;
    struct twin *x, *residual, *gamma, *beta, *y, *mean, *variance;
};

static struct batchnorm batchnorm_of(struct pair *p) {
    struct batchnorm a = { .d = { .rows = pair_between(p, 1, 300),
                                  .width = pair_between(p, 1, pair_either(p) ? 40 : 300),
                                  .epsilon = 1e-5f,
                                  .relu = pair_either(p) } };
    a.n = a.d.rows * a.d.width;
    a.x = pair_elements(p, a.n, 2);
    a.residual = pair_either(p) ? pair_elements(p, a.n, 1) : NULL;
    a.gamma = pair_elements(p, a.d.width, 1);
    a.beta = pair_elements(p, a.d.width, 1);
    a.y = pair_empty(p, a.n);
    a.mean = pair_empty_floats(p, a.d.width);
    a.variance = pair_empty_floats(p, a.d.width);
    return a;
}

static void *at_or_null(const struct twin *t, int s) { return t ? t->at[s] : NULL; }

static void batchnorm_case(struct pair *p) {
    struct batchnorm a = batchnorm_of(p);
    ON_ALL(p, k->batchnorm_forward(k, a.y->at[s], a.mean->at[s], a.variance->at[s], a.x->at[s],
                                   at_or_null(a.residual, s), a.gamma->at[s], a.beta->at[s], &a.d,
                                   pair_workspace(p, s, k->batchnorm_workspace(k, &a.d)), e));
    pair_close(p, "y", a.y, 2);
    pair_close(p, "mean", a.mean, 1);
    pair_close(p, "variance", a.variance, 1);
}

static void batchnorm_apply_case(struct pair *p) {
    struct batchnorm a = batchnorm_of(p);
    struct twin *mean = pair_floats(p, a.d.width, 1), *variance = pair_floats(p, a.d.width, 1);
    ON_ALL(p, k->fp32->relu_forward(k->fp32, variance->at[s], variance->at[s], a.d.width, e));
    ON_ALL(p, k->batchnorm_apply(k, a.y->at[s], a.x->at[s], at_or_null(a.residual, s), a.gamma->at[s], a.beta->at[s],
                                 mean->at[s], variance->at[s], &a.d, e));
    pair_close(p, "y", a.y, 2);
}

enum { FEW = 8 };
static void batchnorm_backward_case(struct pair *p) {
    struct batchnorm a = batchnorm_of(p);
    const bool accumulate = pair_either(p), measured = pair_either(p), split = pair_either(p);
    struct twin *dy = pair_elements(p, a.n, 1), *d_residual = split ? pair_in_place(p, dy) : NULL;
    struct twin *dx = d_residual == dy ? pair_empty(p, a.n) : pair_in_place(p, dy), *gradient[4];
    for (int i = 0; i < 4; i++)
        gradient[i] = pair_gradient(p, a.d.width, accumulate);
    /* The backward pass depends on where y is 0, so all sides use one y and one set of moments. */
    ON_ALL(p, k->batchnorm_forward(k, a.y->at[s], a.mean->at[s], a.variance->at[s], a.x->at[s], NULL, a.gamma->at[s],
                                   a.beta->at[s], &a.d, pair_workspace(p, s, k->batchnorm_workspace(k, &a.d)), e));
    for (int s = ONE; s < SIDES; s++) {
        memcpy(a.y->at[s], a.y->at[CPU], (size_t)a.n * a.y->each);
        memcpy(a.mean->at[s], a.mean->at[CPU], sizeof(float) * (size_t)a.d.width);
        memcpy(a.variance->at[s], a.variance->at[CPU], sizeof(float) * (size_t)a.d.width);
    }
    ON_ALL(p, k->batchnorm_backward(k, dx->at[s], at_or_null(d_residual, s), gradient[0]->at[s], gradient[1]->at[s],
                                    measured ? gradient[2]->at[s] : NULL, measured ? gradient[3]->at[s] : NULL,
                                    dy->at[s], a.x->at[s], a.y->at[s], a.mean->at[s], a.variance->at[s], a.gamma->at[s],
                                    &a.d, accumulate, pair_workspace(p, s, k->batchnorm_workspace(k, &a.d)), e));
    if (a.d.rows >= FEW) /* with fewer rows, dx is only the rounding error of terms that cancel */
        pair_close(p, "dx", dx, 4);
    if (split)
        pair_same(p, "d_residual", d_residual);
    pair_close(p, "dgamma", gradient[0], 8);
    pair_close(p, "dbeta", gradient[1], 8);
    for (int i = 2; i < 4 && measured; i++)
        pair_close(p, "measured", gradient[i], 1);
}

/* Few distinct values, so that windows have several largest elements. The smallest value is -inf. */
static void max_pool_case(struct pair *p) {
    struct convolution_dims d = { .batch = pair_between(p, 1, 3),
                                  .height = pair_between(p, 3, 12),
                                  .width = pair_between(p, 3, 12),
                                  .in = pair_between(p, 1, 20),
                                  .kernel = pair_between(p, 1, 3),
                                  .stride = pair_between(p, 1, 3) };
    d.out = d.in;
    d.padding = d.kernel > 1 ? pair_between(p, 0, 1) : 0;
    const int64_t n = d.batch * d.height * d.width * d.in;
    const int64_t out = d.batch * convolution_side(&d, d.height) * convolution_side(&d, d.width) * d.in;
    struct twin *wide = pair_floats(p, n, 3), *x = pair_empty(p, n), *y = pair_empty(p, out);
    struct twin *dy = pair_elements(p, out, 1), *dx = pair_empty(p, n);
    for (int s = 0; s < SIDES; s++)
        for (int64_t i = 0; i < n; i++) {
            float *a = (float *)wide->at[s] + i;
            *a = *a <= -2 ? -INFINITY : (float)(int)*a;
        }
    ON_ALL(p, k->convert(k, x->at[s], wide->at[s], n, e));
    ON_ALL(p, k->max_pool_forward(k, y->at[s], x->at[s], &d, e));
    ON_ALL(p, k->max_pool_backward(k, dx->at[s], dy->at[s], x->at[s], &d, e));
    pair_same(p, "y", y);
    pair_close(p, "dx", dx, 4.0 * (double)(d.kernel * d.kernel)); /* the plain kernel rounds after each window */
}

static void average_pool_case(struct pair *p) {
    const int64_t batch = pair_between(p, 1, 4), pixels = pair_between(p, 1, 60), width = pair_between(p, 1, 90);
    struct twin *x = pair_elements(p, batch * pixels * width, 1), *y = pair_empty(p, batch * width);
    struct twin *dy = pair_elements(p, batch * width, 1), *dx = pair_empty(p, batch * pixels * width);
    ON_ALL(p, k->average_pool_forward(k, y->at[s], x->at[s], batch, pixels, width, e));
    ON_ALL(p, k->average_pool_backward(k, dx->at[s], dy->at[s], batch, pixels, width, e));
    pair_close(p, "y", y, 1);
    pair_same(p, "dx", dx);
}

static void patches_case(struct pair *p) {
    const int64_t batch = pair_between(p, 1, 3), channels = pair_between(p, 1, 4), patch = pair_between(p, 1, 5);
    const int64_t height = patch * pair_between(p, 1, 4), width = patch * pair_between(p, 1, 4);
    const int64_t n = batch * channels * height * width;
    struct twin *x = pair_elements(p, n, 1), *y = pair_empty(p, n), *last = pair_empty(p, n);
    ON_ALL(p, k->patches(k, y->at[s], x->at[s], batch, channels, height, width, patch, e));
    ON_ALL(p, k->channels_last(k, last->at[s], x->at[s], batch, channels, height * width, e));
    pair_same(p, "y", y);
    pair_same(p, "last", last);
}

static void class_token_case(struct pair *p) {
    const int64_t batch = pair_between(p, 1, 5), time = pair_between(p, 2, 30), width = pair_between(p, 1, 100);
    const bool accumulate = pair_either(p);
    struct twin *x = pair_elements(p, batch * (time - 1) * width, 1), *token = pair_elements(p, width, 1);
    struct twin *positions = pair_elements(p, time * width, 1), *y = pair_empty(p, batch * time * width);
    struct twin *dy = pair_elements(p, batch * time * width, 1), *dx = pair_empty(p, batch * (time - 1) * width);
    struct twin *dtoken = pair_gradient(p, width, accumulate), *dpositions = pair_gradient(p, time * width, accumulate);
    ON_ALL(p, k->class_token_forward(k, y->at[s], x->at[s], token->at[s], positions->at[s], batch, time, width, e));
    ON_ALL(p, k->class_token_backward(k, dx->at[s], dtoken->at[s], dpositions->at[s], dy->at[s], batch, time, width,
                                      accumulate, e));
    pair_same(p, "y", y);
    pair_same(p, "dx", dx);
    pair_same(p, "dtoken", dtoken);
    pair_same(p, "dpositions", dpositions);
}

static void first_case(struct pair *p) {
    const int64_t batch = pair_between(p, 1, 5), time = pair_between(p, 1, 30), width = pair_between(p, 1, 100);
    struct twin *x = pair_elements(p, batch * time * width, 1), *y = pair_empty(p, batch * width);
    struct twin *dx = pair_empty(p, batch * time * width);
    ON_ALL(p, k->first_forward(k, y->at[s], x->at[s], batch, time, width, e));
    ON_ALL(p, k->first_backward(k, dx->at[s], y->at[s], batch, time, width, e));
    pair_same(p, "y", y);
    pair_same(p, "dx", dx);
}

static void fourier_case(struct pair *p) {
    const struct fourier_dims d = { pair_between(p, 1, 3), (int64_t)1 << pair_between(p, 0, 5),
                                    (int64_t)1 << pair_between(p, 0, 5) };
    const int64_t n = d.batch * d.height * d.width;
    const bool accumulate = pair_either(p), wanted = pair_either(p);
    struct twin *measured = pair_floats(p, 2 * n, 1), *mask = pair_floats(p, n, 1), *x = pair_empty(p, n);
    struct twin *update = pair_elements(p, n, 1), *eta = pair_elements(p, 1, 1), *y = pair_in_place(p, update);
    struct twin *dy = pair_elements(p, n, 1), *dx = pair_empty(p, n), *deta = pair_gradient(p, 1, accumulate);
    for (int s = 0; s < SIDES; s++)
        for (int64_t i = 0; i < n; i++)
            ((float *)mask->at[s])[i] = ((float *)mask->at[s])[i] > 0;
    ON_ALL(p, k->fourier_adjoint(k, x->at[s], measured->at[s], mask->at[s], &d,
                                 pair_workspace(p, s, k->fourier_workspace(k, &d)), e));
    pair_close(p, "x", x, 4);
    for (int s = ONE; s < SIDES; s++)
        memcpy(x->at[s], x->at[CPU], (size_t)n * x->each);
    ON_ALL(p, k->fourier_step_forward(k, y->at[s], x->at[s], update->at[s], eta->at[s], measured->at[s], mask->at[s],
                                      &d, pair_workspace(p, s, k->fourier_workspace(k, &d)), e));
    ON_ALL(p, k->fourier_step_backward(k, wanted ? dx->at[s] : NULL, deta->at[s], dy->at[s], x->at[s], eta->at[s],
                                       measured->at[s], mask->at[s], &d, accumulate,
                                       pair_workspace(p, s, k->fourier_workspace(k, &d)), e));
    pair_close(p, "y", y, 4);
    pair_close(p, "deta", deta, 100); /* terms of both signs */
    if (wanted)
        pair_close(p, "dx", dx, 4);
}

CASE(batch_norm_is_the_cpus, batchnorm_case)
CASE(batch_norm_by_given_moments_is_the_cpus, batchnorm_apply_case)
CASE(the_gradient_of_batch_norm_is_the_cpus, batchnorm_backward_case)
CASE(max_pooling_takes_the_elements_that_the_cpu_takes, max_pool_case)
CASE(average_pooling_is_the_cpus, average_pool_case)
CASE(patches_and_channels_are_moved_as_on_the_cpu, patches_case)
CASE(a_class_token_and_its_gradient_are_the_cpus_to_the_bit, class_token_case)
CASE(the_first_of_a_sample_is_taken_as_on_the_cpu, first_case)
CASE(the_fourier_steps_are_the_cpus, fourier_case)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_is_the_cpus),
        cmocka_unit_test(batch_norm_by_given_moments_is_the_cpus),
        cmocka_unit_test(the_gradient_of_batch_norm_is_the_cpus),
        cmocka_unit_test(max_pooling_takes_the_elements_that_the_cpu_takes),
        cmocka_unit_test(average_pooling_is_the_cpus),
        cmocka_unit_test(patches_and_channels_are_moved_as_on_the_cpu),
        cmocka_unit_test(a_class_token_and_its_gradient_are_the_cpus_to_the_bit),
        cmocka_unit_test(the_first_of_a_sample_is_taken_as_on_the_cpu),
        cmocka_unit_test(the_fourier_steps_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
