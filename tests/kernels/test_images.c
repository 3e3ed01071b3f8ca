/* Ops on images: every instruction set and precision against the plain fp32 path, which test_ops.c checks by finite
 * differences; and the same bits for 1, 2 and 4 threads. Convolutions by oneDNN are among them. */
#include "tests/kernels/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const struct convolution_dims CONVOLUTIONS[] = {
    { 2, 5, 7, 3, 4, 3, 1, 1 },                                     /* no size divides another */
    { 6, 9, 8, 5, 17, 3, 2, 1 },                                    /* a stride with a remainder of pixels */
    { 3, 8, 8, 16, 32, 1, 2, 0 },                                   /* the shortcut of a bottleneck block */
    { 2, 10, 10, 3, 64, 7, 2, 3 },                                  /* ResNet's stem */
    { 4, 6, 6, 64, 64, 3, 1, 1 },                                   /* ResNet's stages */
    { 3, 4, 4, 64, 128, 3, 2, 1 },  { 16, 4, 4, 64, 256, 1, 2, 0 }, /* rows of weights that oneDNN pads */
    { 1, 20, 17, 70, 68, 3, 1, 1 },                                 /* several blocks and panels, odd rows of pairs */
    { 3, 11, 9, 4, 6, 3, 2, 0 },                                    /* no padding */
    { 2, 3, 4, 2, 5, 2, 1, 2 },                                     /* more padding than kernel */
    { 2, 33, 32, 3, 4, 1, 2, 0 }, /* shapes with which oneDNN's own code corrupts memory */
    { 1, 1, 1, 1, 1, 1, 1, 0 },   /* the last two are small, so plain threads run them too */
    { 7, 6, 6, 1, 32, 3, 1, 1 },
};

/* The outputs of all ops for one kind of input, converted to fp32, one after another. */
struct results {
    float *data;
    int64_t used, capacity;
};

static struct kernels *open_or_null(enum kernels_isa isa, enum kernels_precision precision, int threads) {
    struct err e;
    struct kernels *k = NULL;
    const struct kernels_config config = { .device = "cpu", .threads = threads, .isa = isa, .precision = precision };
    return kernels_open(&config, &k, &e) == ST_OK ? k : NULL;
}

/* The same numbers in every precision: multiples of 1/8, which bf16 holds exactly. */
static float *eighths(int64_t n, uint64_t seed) {
    float *a = tensor_random(n, seed, 8);
    for (int64_t i = 0; i < n; i++)
        a[i] = (float)(int)a[i] / 8;
    return a;
}

static element_t *elements(const struct kernels *k, const float *a, int64_t n) {
    element_t *to = tensor_new(n);
    OK(k->convert(k, to, a, n, e));
    return to;
}

static element_t *inputs(const struct kernels *k, int64_t n, uint64_t seed) {
    CLEANUP(freep) float *a = eighths(n, seed);
    return elements(k, a, n);
}

static void keep(const struct kernels *k, struct results *r, const element_t *a, int64_t n) {
    assert_true(r->used + n <= r->capacity);
    OK(k->convert_to_fp32(k, r->data + r->used, a, n, e));
    r->used += n;
}

static void keep_floats(struct results *r, const float *a, int64_t n) {
    assert_true(r->used + n <= r->capacity);
    memcpy(r->data + r->used, a, (size_t)n * sizeof *a);
    r->used += n;
}

static void run_convolution(const struct kernels *k, const struct convolution_dims *d, struct results *r) {
    const int64_t in = d->batch * d->height * d->width * d->in, n_w = d->out * d->in * d->kernel * d->kernel;
    const int64_t out = d->batch * convolution_side(d, d->height) * convolution_side(d, d->width) * d->out;
    CLEANUP(freep) element_t *x = inputs(k, in, 1), *w = inputs(k, n_w, 2), *bias = inputs(k, d->out, 3);
    CLEANUP(freep) element_t *dy = inputs(k, out, 4), *y = tensor_new(out), *dx = inputs(k, in, 5);
    CLEANUP(freep) float *dw = eighths(n_w, 6);
    CLEANUP(freep) void *workspace = aligned_alloc(64, (k->convolution_workspace(k, d) + 64) / 64 * 64);
    OK(k->convolution_forward(k, y, x, w, bias, d, workspace, e));
    keep(k, r, y, out);
    OK(k->convolution_forward(k, y, x, w, NULL, d, workspace, e));
    keep(k, r, y, out);
    OK(k->convolution_backward_input(k, dx, dy, w, d, true, workspace, e));
    keep(k, r, dx, in);
    OK(k->convolution_backward_input(k, dx, dy, w, d, false, workspace, e));
    keep(k, r, dx, in);
    OK(k->convolution_backward_weight(k, dw, x, dy, d, true, workspace, e));
    keep_floats(r, dw, n_w);
    OK(k->convolution_backward_weight(k, dw, x, dy, d, false, workspace, e));
    keep_floats(r, dw, n_w);
}

static void run_batchnorm(const struct kernels *k, int64_t rows, int64_t width, bool relu, struct results *r) {
    const struct batchnorm_dims d = { .rows = rows, .width = width, .epsilon = 1e-3f, .relu = relu };
    const int64_t n = rows * width;
    CLEANUP(freep) element_t *x = inputs(k, n, 1), *residual = inputs(k, n, 2), *gamma = inputs(k, width, 3);
    CLEANUP(freep) element_t *dy = inputs(k, n, 4), *y = tensor_new(n), *dx = tensor_new(n), *other = tensor_new(n);
    CLEANUP(freep) float *mean = tensor_new(width), *variance = tensor_new(width), *sums = eighths(4 * width, 5);
    CLEANUP(freep) void *workspace = aligned_alloc(64, (k->batchnorm_workspace(k, &d) + 64) / 64 * 64);
    OK(k->batchnorm_forward(k, y, mean, variance, x, residual, gamma, gamma, &d, workspace, e));
    keep(k, r, y, n);
    keep_floats(r, mean, width);
    keep_floats(r, variance, width);
    OK(k->batchnorm_backward(k, dx, other, sums, sums + width, sums + 2 * width, sums + 3 * width, dy, x, y, mean,
                             variance, gamma, &d, true, workspace, e));
    keep(k, r, dx, n);
    keep(k, r, other, n);
    keep_floats(r, sums, 4 * width);
    OK(k->batchnorm_backward(k, dy, NULL, sums, sums + width, NULL, NULL, dy, x, y, mean, variance, gamma, &d, false,
                             workspace, e)); /* in place */
    keep(k, r, dy, n);
    keep_floats(r, sums, 2 * width);
}

/* The given moments are fp32 in every precision: here they lie between two numbers of bf16, and variances are so small
 * that the difference is most of the result. */
static void batch_norm_by_given_moments_is_the_formula(void **state) {
    (void)state;
    enum { ROWS = 7, WIDTH = 5 };
    const float mean[WIDTH] = { 1.001f, -0.5013f, 0.2507f, 2.003f, 0 };
    const float variance[WIDTH] = { 1e-6f, 3.01e-5f, 1.003f, 1e-7f, 70001 };
    for (enum kernels_precision precision = KERNELS_FP32; precision <= KERNELS_FP16; precision++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(isa_count() - 1), 2, precision);
        const struct batchnorm_dims d = { .rows = ROWS, .width = WIDTH, .epsilon = 1e-5f };
        CLEANUP(freep) element_t *x = inputs(k, ROWS * WIDTH, 1), *gamma = inputs(k, WIDTH, 2);
        CLEANUP(freep) element_t *beta = inputs(k, WIDTH, 3), *y = tensor_new(ROWS * WIDTH);
        float in[ROWS * WIDTH], out[ROWS * WIDTH], scale[WIDTH], shift[WIDTH];
        OK(k->batchnorm_apply(k, y, x, NULL, gamma, beta, mean, variance, &d, e));
        OK(k->convert_to_fp32(k, in, x, ROWS * WIDTH, e));
        OK(k->convert_to_fp32(k, out, y, ROWS * WIDTH, e));
        OK(k->convert_to_fp32(k, scale, gamma, WIDTH, e));
        OK(k->convert_to_fp32(k, shift, beta, WIDTH, e));
        const double rounding = precision == KERNELS_FP32 ? 1e-5 : precision == KERNELS_BF16 ? 0x1p-8 : 0x1p-11;
        for (int i = 0; i < ROWS * WIDTH; i++) {
            const int c = i % WIDTH;
            const double want = ((double)in[i] - (double)mean[c]) / sqrt((double)variance[c] + 1e-5) *
                                    (double)scale[c] +
                                (double)shift[c];
            if (!(fabs((double)out[i] - want) <= rounding * (fabs(want) + 1e-3)))
                fail_msg("precision %d, element %d: %g, and the formula has %g", (int)precision, i, (double)out[i],
                         want);
        }
    }
}

static void run_others(const struct kernels *k, struct results *r) {
    const struct convolution_dims d = { 3, 9, 8, 5, 5, 3, 2, 1 };
    const int64_t n = d.batch * d.height * d.width * d.in, out = d.batch * 5 * 4 * 5;
    const struct fourier_dims f = { .batch = 3, .height = 8, .width = 4 };
    CLEANUP(freep) element_t *x = inputs(k, n, 1), *dy = inputs(k, n, 2), *y = tensor_new(n), *eta = inputs(k, 1, 9);
    CLEANUP(freep) float *a = tensor_new(n), *b = eighths(n, 3), *mask = eighths(n, 4);
    CLEANUP(freep) void *workspace = malloc(k->fourier_workspace(k, &f));
    for (int64_t i = 0; i < n; i++)
        mask[i] = mask[i] > 0;
    OK(k->max_pool_forward(k, y, x, &d, e));
    keep(k, r, y, out);
    OK(k->max_pool_backward(k, y, dy, x, &d, e));
    keep(k, r, y, n);
    OK(k->average_pool_forward(k, y, x, 3, 72, 5, e));
    keep(k, r, y, 3 * 5);
    OK(k->average_pool_backward(k, y, dy, 3, 72, 5, e));
    keep(k, r, y, n);
    OK(k->channels_last(k, y, x, 3, 5, 72, e));
    keep(k, r, y, n);
    OK(k->patches(k, y, x, 3, 5, 6, 12, 3, e));
    keep(k, r, y, n);
    OK(k->class_token_forward(k, y, x, dy, dy, 3, 8, 5, e));
    keep(k, r, y, 3 * 8 * 5);
    OK(k->class_token_backward(k, y, a, a + 5, dy, 3, 8, 5, false, e));
    keep(k, r, y, 3 * 7 * 5);
    keep_floats(r, a, 9 * 5);
    OK(k->first_forward(k, y, x, 3, 8, 5, e));
    keep(k, r, y, 3 * 5);
    OK(k->first_backward(k, y, dy, 3, 8, 5, e));
    keep(k, r, y, 3 * 8 * 5);
    OK(k->fourier_adjoint(k, y, b, mask, &f, workspace, e));
    keep(k, r, y, 3 * 32);
    OK(k->fourier_step_forward(k, y, x, dy, eta, b, mask, &f, workspace, e));
    keep(k, r, y, 3 * 32);
    OK(k->fourier_step_backward(k, y, a, dy, x, eta, b, mask, &f, false, workspace, e));
    keep(k, r, y, 3 * 32);
    keep_floats(r, a, 1);
    OK(k->psnr(k, a, x, b, 3, 32, e));
    keep_floats(r, a, 3);
    OK(k->squared_error(k, a, x, b, 3, 32, &(float){ 0.5f }, e));
    keep_floats(r, a, 3);
    keep(k, r, x, 3 * 32);
}

static struct results run(const struct kernels *k, int which) {
    struct results r = { .capacity = 1 << 18 };
    r.data = tensor_new(r.capacity);
    if (which < COUNT(CONVOLUTIONS))
        run_convolution(k, &CONVOLUTIONS[which], &r);
    else if (which == COUNT(CONVOLUTIONS))
        run_others(k, &r);
    else
        run_batchnorm(k, which % 2 ? 1600 : 77, which % 2 ? 24 : 65, which % 2, &r);
    return r;
}
enum { WHICH = COUNT(CONVOLUTIONS) + 3 };

static void agrees(enum kernels_isa isa, enum kernels_precision precision, double tolerance) {
    CLEANUP(kernels_closep) struct kernels *plain = open_or_null(KERNELS_ISA_PLAIN, KERNELS_FP32, 2);
    CLEANUP(kernels_closep) struct kernels *k = open_or_null(isa, precision, 2);
    for (int which = 0; which < WHICH; which++) {
        struct results want = run(plain, which), have = run(k, which);
        char what[40];
        snprintf(what, sizeof what, "case %d in precision %d", which, (int)precision);
        assert_int_equal(want.used, have.used);
        /* Sums of up to 2,304 products: if terms cancel, the rounding error has the size of the terms. */
        double most = 1;
        for (int64_t i = 0; i < want.used; i++)
            most = (double)want.data[i] > most ? (double)want.data[i] : most;
        tensor_assert_close(what, have.data, want.data, want.used, tolerance, most / 4);
        free(want.data), free(have.data);
    }
}

static void every_instruction_set_agrees_with_plain_fp32(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++)
        agrees(isa_at(i), KERNELS_FP32, 1e-5);
}

static void bf16_and_fp16_agree_with_plain_fp32(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++) {
        agrees(isa_at(i), KERNELS_BF16, 3e-2);
        agrees(isa_at(i), KERNELS_FP16, 4e-3);
    }
}

static void images_have_the_same_bits_for_1_2_and_4_threads(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++)
        for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++)
            for (int which = isa_at(i) == KERNELS_ISA_PLAIN ? COUNT(CONVOLUTIONS) - 2 : 0; which < WHICH; which++) {
                CLEANUP(kernels_closep) struct kernels *k = kernels_of_team(isa_at(i), (enum kernels_precision)p);
                struct results one = run(k, which);
                for (int threads = 2; threads <= 4; threads *= 2) {
                    kernels_set_threads(k, threads);
                    struct results more = run(k, which);
                    tensor_assert_same_bits("images", one.data, more.data, one.used);
                    free(more.data);
                }
                free(one.data);
            }
}

/* The team's current size does not matter, and threads beyond the number of samples need no workspace. */
static void a_workspace_is_that_of_the_largest_team(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++)
        for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++) {
            CLEANUP(kernels_closep) struct kernels *k = kernels_of_team(isa_at(i), (enum kernels_precision)p);
            for (size_t n = 0; n < COUNT(CONVOLUTIONS); n++) {
                CLEANUP(kernels_closep) struct kernels *more = open_or_null(isa_at(i), (enum kernels_precision)p, 64);
                const size_t bytes = k->convolution_workspace(k, &CONVOLUTIONS[n]);
                kernels_set_threads(k, 4);
                assert_int_equal(k->convolution_workspace(k, &CONVOLUTIONS[n]), bytes);
                kernels_set_threads(k, 1);
                assert_int_equal(k->convolution_workspace(k, &CONVOLUTIONS[n]), bytes);
                assert_true(more->convolution_workspace(more, &CONVOLUTIONS[n]) >= bytes);
            }
        }
}

/* For example a black slice that is reconstructed as black: no infinity may enter the average of an evaluation. */
static void equal_images_have_a_finite_psnr(void **state) {
    (void)state;
    const float reference[8] = { 0 };
    float psnr[2];
    for (int i = 0; i < isa_count(); i++) {
        CLEANUP(kernels_closep) struct kernels *k = open_or_null(isa_at(i), KERNELS_FP32, 1);
        OK(k->psnr(k, psnr, reference, reference, 2, 4, e));
        assert_true(psnr[0] == 200 && psnr[1] == 200);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_by_given_moments_is_the_formula),
        cmocka_unit_test(equal_images_have_a_finite_psnr),
        cmocka_unit_test(every_instruction_set_agrees_with_plain_fp32),
        cmocka_unit_test(bf16_and_fp16_agree_with_plain_fp32),
        cmocka_unit_test(images_have_the_same_bits_for_1_2_and_4_threads),
        cmocka_unit_test(a_workspace_is_that_of_the_largest_team),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
