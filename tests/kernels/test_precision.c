/* Conversions: every 16-bit number to fp32 and back, and the rounding of fp32 to 16 bits, on every instruction set. */
#include "tests/kernels/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ALL = 1 << 16 };

/* The value of 16 bits by the formats' definitions: sign, exponent, mantissa. */
static double value_of(enum kernels_precision p, uint16_t bits) {
    const int mantissa_bits = p == KERNELS_BF16 ? 7 : 10, bias = p == KERNELS_BF16 ? 127 : 15;
    const int mantissa = bits & ((1 << mantissa_bits) - 1), exponent = (bits & 0x7fff) >> mantissa_bits;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 2 * bias + 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void for_each_table(void (*check)(const struct kernels *k)) {
    for (int isa = 0; isa < isa_count(); isa++)
        for (int p = KERNELS_BF16; p <= KERNELS_FP16; p++) {
            CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(isa_at(isa), 2, p);
            assert_int_equal(k->precision, p);
            assert_int_equal(kernels_element_bytes(k), 2);
            check(k);
        }
}

static void check_all(const struct kernels *k) {
    static uint16_t bits[ALL], back[ALL];
    static float wide[ALL];
    for (int i = 0; i < ALL; i++)
        bits[i] = (uint16_t)i;
    OK(k->convert_to_fp32(k, wide, bits, ALL, e));
    OK(k->convert(k, back, wide, ALL, e));
    for (int i = 0; i < ALL; i++) {
        const double want = value_of(k->precision, bits[i]);
        if (isnan(want))
            assert_true(isnan(wide[i]) && isnan(value_of(k->precision, back[i])));
        else
            assert_true(wide[i] == want && !signbit(wide[i]) == !signbit(want) && back[i] == bits[i]);
    }
}

static void every_number_of_16_bits_comes_back(void **state) {
    (void)state;
    for_each_table(check_all);
}

/* Nearest: no neighbour is nearer; a tie goes to the even number. 16-bit numbers of one sign are ordered as integers,
 * and the number after the largest is infinity. */
static void check_rounding_of(enum kernels_precision p, float x, uint16_t got) {
    const uint16_t infinity = p == KERNELS_BF16 ? 0x7f80 : 0x7c00;
    const uint16_t rest = got & 0x7fff;
    const double size = fabs((double)x), past = p == KERNELS_BF16 ? 0x1p128 : 0x1p16;
    assert_true((bool)signbit(x) == (bool)(got & 0x8000));
    assert_true(rest <= infinity);
    const double here = rest == infinity ? past : value_of(p, rest);
    const double error = fabs(size - here);
    if (rest > 0) {
        const double below = fabs(size - value_of(p, rest - 1));
        assert_true(error < below || (error == below && rest % 2 == 0) || (rest == infinity && size >= past));
    }
    if (rest < infinity) {
        const double above = fabs(size - (rest + 1 == infinity ? past : value_of(p, rest + 1)));
        assert_true(error < above || (error == above && rest % 2 == 0));
    }
}

static void check_rounding(const struct kernels *k) {
    enum { N = 40000 };
    static float x[N];
    static uint16_t got[N];
    uint32_t state = 12345, bits;
    for (int i = 0; i < N; i++) { /* random bits, and beside each a number halfway between two of 16 bits */
        state = state * 1664525 + 1013904223;
        bits = i % 2 ? state : state >> 16 << 16 | 0x8000;
        if (i % 4 == 2)
            bits = (state & 0xffffe000) | 0x1000;
        if (i % 8 >= 6) /* in and near fp16's range of subnormal numbers */
            bits = (bits & 0x80ffffff) | (uint32_t)(0x32 + state % 7) << 24;
        memcpy(&x[i], &bits, sizeof bits);
        if (isnan(x[i]))
            x[i] = 65520;
    }
    memcpy(x,
           ((float[]){ 65519.996f, 65520, 65504, 3.3895314e38f, 3.3961776e38f, 0x1p-25f, 0x1.000002p-25f, 0x1p-149f }),
           8 * sizeof *x);
    OK(k->convert(k, got, x, N, e));
    for (int i = 0; i < N; i++)
        check_rounding_of(k->precision, x[i], got[i]);
}

static void fp32_is_rounded_to_the_nearest_and_ties_to_even(void **state) {
    (void)state;
    for_each_table(check_rounding);
}

static void check_finite(const struct kernels *k) {
    static float x[20011];
    for (int i = 0; i < 20011; i++)
        x[i] = 60000;
    CLEANUP(freep) element_t *a = elements_of(k, x, 20011);
    bool finite = false;
    OK(k->elements_finite(k, &finite, a, 20011, e));
    assert_true(finite);
    x[20010] = k->precision == KERNELS_FP16 ? 70000 : 3.4e38f; /* finite in fp32, infinite in 16 bits */
    OK(k->convert(k, a, x, 20011, e));
    OK(k->elements_finite(k, &finite, a, 20011, e));
    assert_false(finite);
}

static void an_element_that_left_its_range_is_found(void **state) {
    (void)state;
    for_each_table(check_finite);
}

static void a_table_of_elements_has_one_of_fp32_beside_it_and_says_its_precision(void **state) {
    (void)state;
    char ids[3][KERNELS_NUMERICS_ID_BYTES];
    for (int p = KERNELS_FP32; p <= KERNELS_FP16; p++) {
        CLEANUP(kernels_closep) struct kernels *k = kernels_of_precision(KERNELS_ISA_BEST, 2, p);
        assert_int_equal(k->fp32->precision, KERNELS_FP32);
        assert_int_equal(k->fp32->threads, 2);
        assert_true((k->fp32 == k) == (p == KERNELS_FP32));
        kernels_numerics_id(k, ids[p], sizeof ids[p]);
        assert_non_null(strstr(ids[p], precision_name(p)));
        for (int other = 0; other < p; other++)
            assert_string_not_equal(ids[p], ids[other]);
    }
    struct kernels *none = NULL;
    struct err e = { "" };
    assert_int_equal(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = 1, .precision = 3 }, &none, &e),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "precision 3 is none of fp32, bf16 and fp16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_16_bits_comes_back),
        cmocka_unit_test(fp32_is_rounded_to_the_nearest_and_ties_to_even),
        cmocka_unit_test(an_element_that_left_its_range_is_found),
        cmocka_unit_test(a_table_of_elements_has_one_of_fp32_beside_it_and_says_its_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
