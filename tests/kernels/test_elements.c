/* The small ops and the table itself: dropout's numbers, sums, trees, finiteness, the error of exp, opening. */
#include "tests/kernels/reference.h"
#include "tests/kernels/tensor.h"

#include "kernels/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The known answers that the authors of the generator publish (Random123, kat_vectors: philox4x32 10). */
static void philox_gives_its_known_answers(void **state) {
    (void)state;
    uint32_t four[4];
    philox4x32_10((uint32_t[]){ 0, 0, 0, 0 }, 0, four);
    assert_memory_equal(four, ((uint32_t[]){ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 }), 16);
    philox4x32_10((uint32_t[]){ ~0u, ~0u, ~0u, ~0u }, ~(uint64_t)0, four);
    assert_memory_equal(four, ((uint32_t[]){ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd }), 16);
    philox4x32_10((uint32_t[]){ 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, 0x299f31d0a4093822u, four);
    assert_memory_equal(four, ((uint32_t[]){ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 }), 16);
}

static void dropout_draws_the_same_mask_on_every_instruction_set(void **state) {
    (void)state;
    const int64_t step = 4000000000;
    const struct dropout d = { .probability = 0.3f,
                               .key = { .seed = 0xfedcba9876543210u, .step = &step, .op = 17 },
                               .first_sample = 100 };
    const int64_t samples = 3, n = 333;
    CLEANUP(freep) float *x = tensor_random(samples * n, 1, 1), *y = tensor_new(samples * n);
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 2);
        int64_t kept = 0;
        OK(k->dropout(k, y, x, samples, n, &d, e));
        for (int64_t i = 0; i < samples * n; i++) {
            const double factor = reference_mask(&d, i / n, i % n);
            assert_true(factor == 0 ? y[i] == 0 : fabs(y[i] - x[i] * factor) < 1e-6);
            kept += factor != 0;
        }
        assert_true(kept > 0.6 * (double)(samples * n) && kept < 0.8 * (double)(samples * n));
    }
}

static void a_samples_mask_does_not_depend_on_the_micro_batch_it_is_in(void **state) {
    (void)state;
    int64_t step = 2;
    struct dropout d = { .probability = 0.5f, .key = { .seed = 1, .step = &step, .op = 3 }, .first_sample = 8 };
    const int64_t n = 70;
    CLEANUP(freep) float *x = tensor_random(4 * n, 1, 1), *whole = tensor_new(4 * n), *half = tensor_new(2 * n);
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(KERNELS_ISA_BEST, 1);
    OK(k->dropout(k, whole, x, 4, n, &d, e));
    d.first_sample = 10;
    OK(k->dropout(k, half, x + 2 * n, 2, n, &d, e));
    tensor_assert_same_bits("the second half", half, whole + 2 * n, 2 * n);
    step = 3;
    OK(k->dropout(k, half, x + 2 * n, 2, n, &d, e));
    assert_memory_not_equal(half, whole + 2 * n, 2 * n * sizeof(float));
}

enum { LOGITS_OF_TEST = 16 }; /* one whole vector: the vector path, not a tail */

/* cross_entropy's gradient shows exp itself: with one logit at 0 and the other at x, it is exp(x) / (1 + exp(x)). */
static void exp_is_accurate_to_a_few_units_in_the_last_place(void **state) {
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 1);
        for (float x = -87; x < 0; x += 0.0137f) {
            float logits[LOGITS_OF_TEST], loss;
            for (int i = 0; i < LOGITS_OF_TEST; i++)
                logits[i] = -INFINITY;
            logits[0] = 0;
            logits[1] = x;
            OK(k->cross_entropy(k, &loss, logits, (int32_t[]){ 0 }, NULL, NULL, 1, LOGITS_OF_TEST, &(float){ 1 }, e));
            const double want = exp((double)x) / (1 + exp((double)x));
            assert_true(fabs(logits[1] - want) <= 3 * 5.96e-8 * want);
        }
    }
}

static void sums_of_squares_are_those_of_each_chunk_in_double(void **state) {
    (void)state;
    enum { CHUNKS = 11 };
    const int64_t n = (CHUNKS - 1) * KERNELS_CHUNK + 5;
    CLEANUP(freep) float *a = tensor_random(n, 1, 1000);
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 2);
        double sums[CHUNKS];
        OK(k->sum_squares(k, &(struct norm_span){ sums, a, n }, 1, e));
        for (int c = 0; c < CHUNKS; c++) {
            double want = 0;
            for (int64_t i = c * KERNELS_CHUNK; i < n && i < (c + 1) * KERNELS_CHUNK; i++)
                want += (double)a[i] * a[i];
            assert_true(fabs(sums[c] - want) <= 1e-12 * want);
        }
    }
}

static void a_fill_sets_every_element_and_nothing_else(void **state) {
    (void)state;
    const int64_t sizes[] = { 0, 1, 37, 9000, (2 << 20) + 21 };
    CLEANUP(freep) float *a = tensor_new(sizes[4] + 64);
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 2);
        for (int i = 0; i < 5; i++) {
            const int64_t n = sizes[i];
            for (int64_t j = 0; j < n + 40; j++)
                a[j] = -1;
            OK(k->fill(k, a + 3, 2.5f, n, e));
            for (int64_t j = 0; j < n + 40; j++)
                assert_true(a[j] == (j >= 3 && j < 3 + n ? 2.5f : -1));
        }
    }
}

static void losses_are_added_in_double(void **state) {
    (void)state;
    const int64_t n = 4099;
    CLEANUP(freep) float *a = tensor_random(n, 1, 5);
    double want = 0, got = -1;
    for (int64_t i = 0; i < n; i++)
        want += (double)a[i];
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 2);
        OK(k->sum(k, &got, a, n, e));
        assert_true(got == want);
        OK(k->sum(k, &got, a, 0, e));
        assert_true(got == 0);
        double rows[3];
        OK(k->sum_rows(k, rows, a, 3, n / 3, e));
        for (int r = 0; r < 3; r++) {
            OK(k->sum(k, &got, a + r * (n / 3), n / 3, e));
            assert_true(rows[r] == got);
        }
    }
}

static void a_running_mean_steps_towards_the_mean_and_rounds_its_copy(void **state) {
    (void)state;
    enum { N = 70, PARTS = 3 };
    CLEANUP(freep) float *before = tensor_random(N, 1, 1), *sum = tensor_random(N, 2, 6);
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(isa), 2, KERNELS_BF16);
        CLEANUP(freep) float *running = tensor_copy(before, N);
        CLEANUP(freep) element_t *copy = elements_new(k, N);
        struct span span = { .n = N, .p = running, .weight = copy, .x = sum };
        OK(k->running_mean(k, &span, 1, 0.1, PARTS, &(struct update){ 0 }, e));
        CLEANUP(freep) element_t *want = elements_of(k, running, N);
        for (int i = 0; i < N; i++)
            assert_true(fabs(0.9 * (double)before[i] + 0.1 * (double)sum[i] / PARTS - (double)running[i]) < 1e-7);
        assert_memory_equal(copy, want, N * kernels_element_bytes(k));
        CLEANUP(freep) float *kept = tensor_copy(running, N);
        span.weight = NULL;
        OK(k->running_mean(k, &span, 1, 1, PARTS, &(struct update){ .skip = STEP_SPIKE }, e));
        tensor_assert_same_bits("what a skipped step leaves", running, kept, N);
        OK(k->running_mean(k, &span, 1, 1, PARTS, &(struct update){ 0 }, e));
        assert_true(running[N - 1] == (float)((double)sum[N - 1] / PARTS));
    }
}

static void a_normalised_array_has_the_length_1_unless_it_was_too_short(void **state) {
    (void)state;
    enum { N = 5000 };
    double sums[N / KERNELS_CHUNK + 2];
    CLEANUP(freep) float *x = tensor_random(N, 1, 3);
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 2);
        CLEANUP(freep) float *unit = tensor_copy(x, N);
        double squares = 0;
        OK(k->normalise(k, unit, N, 1e-7, sums, e));
        for (int i = 0; i < N; i++)
            squares += (double)unit[i] * (double)unit[i];
        assert_true(fabs(squares - 1) < 1e-5);
        OK(k->normalise(k, unit, N, 4, sums, e));
        squares = 0;
        for (int i = 0; i < N; i++)
            squares += (double)unit[i] * (double)unit[i];
        assert_true(fabs(squares - 1.0 / 16) < 1e-5);
    }
}

/* The buffer is larger than one thread handles at once. */
static void memory_is_filled_from_the_host_moved_and_read_back(void **state) {
    (void)state;
    const int64_t n = (1 << 20) + 13;
    CLEANUP(freep) float *a = tensor_random(n, 1, 1), *back = tensor_new(n);
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(KERNELS_ISA_BEST, 3);
    void *one = NULL, *two = NULL;
    OK(k->memory_new(k, (size_t)n * sizeof *a, &one, e));
    OK(k->memory_new(k, (size_t)n * sizeof *a, &two, e));
    OK(k->upload(k, one, a, (size_t)n * sizeof *a, e));
    OK(k->move(k, two, one, (size_t)n * sizeof *a, e));
    OK(k->download(k, back, two, (size_t)n * sizeof *a, e));
    OK(k->finish(k, e));
    tensor_assert_same_bits("back", back, a, n);
    k->memory_free(k, one);
    k->memory_free(k, two);
}

/* Also of what is no number: the bits change places. */
static void two_arrays_change_places(void **state) {
    (void)state;
    const int64_t n = 100003;
    CLEANUP(freep) float *a = tensor_random(n, 1, 1), *b = tensor_random(n, 2, 1);
    a[5] = NAN;
    b[n - 1] = -INFINITY;
    CLEANUP(freep) float *a_was = tensor_new(n), *b_was = tensor_new(n);
    memcpy(a_was, a, (size_t)n * sizeof *a);
    memcpy(b_was, b, (size_t)n * sizeof *b);
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 3);
        OK(k->exchange(k, a, b, n, e));
        assert_memory_equal(a, b_was, (size_t)n * sizeof *a);
        assert_memory_equal(b, a_was, (size_t)n * sizeof *a);
        OK(k->exchange(k, a, b, n, e));
    }
    assert_memory_equal(a, a_was, (size_t)n * sizeof *a);
}

/* The middle third of the columns of a matrix, to a matrix of its own and from there to the last third; the second size
 * is larger than one thread copies. */
static void rows_of_a_slice_are_moved(void **state) {
    (void)state;
    const int64_t rows[] = { 3, 1031 }, width[] = { 5, 301 };
    CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(KERNELS_ISA_BEST, 3);
    for (int i = 0; i < 2; i++) {
        const int64_t stride = 3 * width[i];
        const size_t row = (size_t)stride * sizeof(float), slice = (size_t)width[i] * sizeof(float);
        CLEANUP(freep) float *a = tensor_random(rows[i] * stride, 1, 1), *b = tensor_new(rows[i] * width[i]);
        CLEANUP(freep) float *before = tensor_new(rows[i] * stride);
        memcpy(before, a, (size_t)(rows[i] * stride) * sizeof *a);
        OK(k->move_rows(k, b, slice, a + width[i], row, slice, rows[i], e));
        OK(k->move_rows(k, a + 2 * width[i], row, b, slice, slice, rows[i], e));
        for (int64_t r = 0; r < rows[i]; r++) {
            assert_memory_equal(a + r * stride, before + r * stride, 2 * slice);
            assert_memory_equal(a + r * stride + 2 * width[i], before + r * stride + width[i], slice);
            assert_memory_equal(b + r * width[i], before + r * stride + width[i], slice);
        }
    }
}

static void one_nan_or_infinity_among_many_is_found(void **state) {
    (void)state;
    const int64_t n = 20011;
    CLEANUP(freep) float *a = tensor_random(n, 1, 3e38f);
    const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 2);
        bool finite = false;
        OK(k->all_finite(k, &finite, a, n, e));
        assert_true(finite);
        for (int i = 0; i < 4; i++) {
            const int64_t at[] = { 0, 8191, n - 1, n / 2 };
            const float kept = a[at[i]];
            a[at[i]] = bad[i];
            OK(k->all_finite(k, &finite, a, n, e));
            assert_false(finite);
            a[at[i]] = kept;
        }
    }
}

static void a_wrong_device_or_thread_count_is_refused_in_a_sentence(void **state) {
    (void)state;
    struct kernels *k = NULL;
    struct err e = { "" };
    assert_int_equal(kernels_open(&(struct kernels_config){ .device = "abacus", .threads = 1 }, &k, &e),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "device 'abacus' is neither 'cpu' nor 'cuda'");
    assert_int_equal(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = 0 }, &k, &e),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "0 threads is not between 1 and 1024");
    assert_null(k);
    assert_null(kernels_close(NULL));
}

static void the_numerics_id_tells_instruction_sets_and_sources_apart(void **state) {
    (void)state;
    char ids[3][KERNELS_NUMERICS_ID_BYTES];
    for (int isa = 0; isa < isa_count(); isa++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_or_null(isa_at(isa), 1);
        kernels_numerics_id(k, ids[isa], sizeof ids[isa]);
        assert_non_null(strstr(ids[isa], "oneDNN"));
        assert_int_equal(strspn(strrchr(ids[isa], ' ') + 1, "0123456789abcdef"), 12);
        for (int other = 0; other < isa; other++)
            assert_string_not_equal(ids[isa], ids[other]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_known_answers),
        cmocka_unit_test(dropout_draws_the_same_mask_on_every_instruction_set),
        cmocka_unit_test(a_samples_mask_does_not_depend_on_the_micro_batch_it_is_in),
        cmocka_unit_test(exp_is_accurate_to_a_few_units_in_the_last_place),
        cmocka_unit_test(sums_of_squares_are_those_of_each_chunk_in_double),
        cmocka_unit_test(a_fill_sets_every_element_and_nothing_else),
        cmocka_unit_test(losses_are_added_in_double),
        cmocka_unit_test(a_running_mean_steps_towards_the_mean_and_rounds_its_copy),
        cmocka_unit_test(a_normalised_array_has_the_length_1_unless_it_was_too_short),
        cmocka_unit_test(memory_is_filled_from_the_host_moved_and_read_back),
        cmocka_unit_test(rows_of_a_slice_are_moved),
        cmocka_unit_test(two_arrays_change_places),
        cmocka_unit_test(one_nan_or_infinity_among_many_is_found),
        cmocka_unit_test(a_wrong_device_or_thread_count_is_refused_in_a_sentence),
        cmocka_unit_test(the_numerics_id_tells_instruction_sets_and_sources_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
