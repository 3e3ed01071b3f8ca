#include "kernels/cuda/gemm_table.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct gemm_choice choice(int64_t m, unsigned flags) {
    return (struct gemm_choice){ .product = { KERNELS_BF16, m, 3072, 768, 768, 3072, 3072, 16, flags },
                                 .algorithm = { 1, 0xfedcba9876543210U, 0, 0, 5, 0, 0, UINT64_MAX },
                                 .workspace = 33554432 };
}

static struct engine_choice engine(enum engine_pass pass, int64_t batch) {
    return (struct engine_choice){ .pass = pass,
                                   .precision = KERNELS_FP16,
                                   .dims = { batch, 56, 56, 64, 64, 3, 1, 0 },
                                   .version = 91900,
                                   .room = 462422272,
                                   .name = "5:2=1,13=-1" };
}

static struct gemm_table table(void) {
    struct gemm_table t = { .device = "NVIDIA H200, 132 processors, cuBLASLt 130100" };
    const struct gemm_choice a = choice(65536, GEMM_BIAS | GEMM_GELU), b = choice(64, 0), c = choice(64, 63);
    OK(gemm_table_add(&t, &a, e));
    OK(gemm_table_add(&t, &b, e));
    OK(gemm_table_add(&t, &c, e));
    for (int pass = ENGINE_FORWARD; pass < ENGINE_PASSES; pass++) {
        const struct engine_choice chosen = engine((enum engine_pass)pass, 64);
        OK(gemm_table_add_engine(&t, &chosen, e));
    }
    return t;
}

static void a_table_comes_back_from_its_text(void **state) {
    (void)state;
    struct gemm_table t = table(), back = { 0 };
    char *text = NULL;
    OK(gemm_table_write(&t, &text, e));
    OK(gemm_table_parse(text, strlen(text), &back, e));
    assert_string_equal(back.device, t.device);
    assert_int_equal(back.n, t.n);
    for (size_t i = 0; i < t.n; i++) {
        const struct gemm_choice *found = gemm_table_find(&back, &t.choices[i].product);
        assert_non_null(found);
        assert_memory_equal(found->algorithm, t.choices[i].algorithm, sizeof found->algorithm);
        assert_int_equal(found->workspace, t.choices[i].workspace);
    }
    assert_int_equal(back.n_engines, ENGINE_PASSES);
    for (size_t i = 0; i < t.n_engines; i++) {
        const struct engine_choice *found = gemm_table_engine(&back, &t.engines[i]);
        assert_non_null(found);
        assert_string_equal(found->name, t.engines[i].name);
    }
    free(text);
    gemm_table_done(&t);
    gemm_table_done(&back);
}

static void another_product_is_not_found(void **state) {
    (void)state;
    struct gemm_table t = table();
    struct gemm_product p = t.choices[0].product;
    p.alignment = 8;
    assert_null(gemm_table_find(&t, &p));
    p = t.choices[0].product;
    p.flags ^= GEMM_ACCUMULATE;
    assert_null(gemm_table_find(&t, &p));
    struct engine_choice like[5];
    for (int i = 0; i < 5; i++)
        like[i] = t.engines[0];
    like[0].dims[7] = 1;
    like[1].version++;
    like[2].precision = KERNELS_BF16;
    like[3].pass = ENGINE_PASSES;
    like[4].room--;
    for (int i = 0; i < 5; i++)
        assert_null(gemm_table_engine(&t, &like[i]));
    gemm_table_done(&t);
}

#define HEAD      "trainyard products 1\non a device\n"
#define DIGIT     "0123456789abcdef"
#define ALGORITHM DIGIT DIGIT DIGIT DIGIT DIGIT DIGIT DIGIT DIGIT

static void text_that_is_no_table_is_refused_with_its_line(void **state) {
    (void)state;
    static const struct bad {
        const char *text, *line;
    } all[] = {
        { "", "second line" },
        { "trainyard products 1\n", "second line" },
        { "trainyard products 2\non a device\n", "line 1" },
        { "trainyard products 1\non a device", "line 2" },
        { "trainyard products 1\non \n", "line 2" },
        { "trainyard products 1\nof a device\n", "line 2" },
        { HEAD "\n", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 - " ALGORITHM "\n", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7 8\n", "line 3" },
        { HEAD "bf17 1 2 3 4 5 6 16 - " ALGORITHM " 7\n", "line 3" },
        { HEAD "bf16 01 2 3 4 5 6 16 - " ALGORITHM " 7\n", "line 3" },
        { HEAD "bf16 0 2 3 4 5 6 16 - " ALGORITHM " 7\n", "line 3" },
        { HEAD "bf16 -1 2 3 4 5 6 16 - " ALGORITHM " 7\n", "line 3" },
        { HEAD "bf16 1234567890123456789 2 3 4 5 6 16 - " ALGORITHM " 7\n", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 bias+ " ALGORITHM " 7\n", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 bias+relu " ALGORITHM " 7\n", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 - " DIGIT " 7\n", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 - " DIGIT DIGIT DIGIT DIGIT DIGIT DIGIT DIGIT "0123456789ABCDEF 7\n", "line 3" },
        { HEAD "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\nbf16 1 2 3 4 5 6 16 - " ALGORITHM " 8\n", "line 4" },
        { HEAD "convolutions bf16 1 2 3 4 5 6 7 8 9 0 1:2=3\n", "line 3" },
        { HEAD "convolution bf17 1 2 3 4 5 6 7 8 9 0 1:2=3\n", "line 3" },
        { HEAD "convolution bf16 1 2 3 4 5 6 7 8 1:2=3\n", "line 3" },
        { HEAD "convolution bf16 1 2 3 4 5 6 7 8 9 1:2=3\n", "line 3" },
        { HEAD "convolution bf16 1 2 3 4 5 6 7 8 9 0 \n", "line 3" },
        { HEAD "convolution bf16 1 2 3 4 5 6 7 8 9 0 1:2=x\n", "line 3" },
        { HEAD "convolution bf16 1 2 3 4 5 6 7 8 9 0 " ALGORITHM DIGIT DIGIT DIGIT DIGIT "\n", "line 3" },
        { HEAD "convolution bf16 1 2 3 4 5 6 7 8 9 0 1:2=3 4\n", "line 3" },
        { HEAD "convolution bf16 1 2 3 4 5 6 7 8 9 0 1\nconvolution bf16 1 2 3 4 5 6 7 8 9 0 2\n", "line 4" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct gemm_table t = { 0 };
        struct err e = { { 0 } };
        const status_t st = gemm_table_parse(all[i].text, strlen(all[i].text), &t, &e);
        gemm_table_done(&t);
        assert_int_equal(st, ST_INVALID_ARGUMENT);
        if (!strstr(e.msg, all[i].line))
            fail_msg("'%s' for text %zu", e.msg, i);
    }
}

#define ON(device) "trainyard products 1\non " device "\n"

static void
test_tables_behind_one_another_are_taken_where_the_device_is_the_same_and_the_first_choice_counts(void **state) {
    (void)state;
    static const char text[] = ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\n" /* the first rank's */
        ON("a device, fast") "bf16 8 2 3 4 5 6 16 - " ALGORITHM " 1\n"                  /* never of this table */
        ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 8\nbf16 9 2 3 4 5 6 16 - " ALGORITHM " 2\n"
                       "convolution bf16 1 2 3 4 5 6 7 8 9 0 10\n" ON(
                           "a device") "convolution bf16 1 2 3 4 5 6 7 8 9 0 11\nconvolution-input bf16 1 2 3 4 5 6 7 "
                                       "8 9 0 12\n";
    struct gemm_table t = { .device = "a device" };
    OK(gemm_table_take(&t, text, sizeof text - 1, e));
    assert_int_equal(t.n, 2);
    assert_int_equal(t.choices[0].product.m, 1);
    assert_int_equal(t.choices[0].workspace, 7);
    assert_int_equal(t.choices[1].product.m, 9);
    assert_int_equal(t.n_engines, 2);
    assert_string_equal(t.engines[0].name, "10");
    assert_string_equal(t.engines[1].name, "12");
    gemm_table_done(&t);
}

static void a_bad_table_behind_a_good_one_is_refused(void **state) {
    (void)state;
    static const char *const all[] = {
        ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\n" ON("a device") "bf16 1 2 3\n",
        ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\ntrainyard products 1\n",
        ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\ntrainyard products 2\non a device\n",
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct gemm_table t = { .device = "a device" };
        const status_t st = gemm_table_take(&t, all[i], strlen(all[i]), NULL);
        gemm_table_done(&t);
        assert_int_equal(st, ST_INVALID_ARGUMENT);
    }
}

static void a_table_has_a_most(void **state) {
    (void)state;
    struct gemm_table t = { .device = "a device" };
    struct err full = { { 0 } };
    for (int64_t m = 1; m <= GEMM_CHOICES_MOST; m++) {
        const struct gemm_choice c = choice(m, 0);
        OK(gemm_table_add(&t, &c, e));
    }
    const struct gemm_choice more = choice(GEMM_CHOICES_MOST + 1, 0);
    assert_int_equal(gemm_table_add(&t, &more, &full), ST_RESOURCE_EXHAUSTED);
    for (int64_t batch = 1; batch <= ENGINE_CHOICES_MOST; batch++) {
        const struct engine_choice c = engine(ENGINE_FORWARD, batch);
        OK(gemm_table_add_engine(&t, &c, e));
    }
    const struct engine_choice other = engine(ENGINE_FORWARD, ENGINE_CHOICES_MOST + 1);
    assert_int_equal(gemm_table_add_engine(&t, &other, &full), ST_RESOURCE_EXHAUSTED);
    char *text = NULL;
    OK(gemm_table_write(&t, &text, e));
    assert_true(strlen(text) < KERNELS_RECORD_BYTES);
    free(text);
    gemm_table_done(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_comes_back_from_its_text),
        cmocka_unit_test(another_product_is_not_found),
        cmocka_unit_test(text_that_is_no_table_is_refused_with_its_line),
        cmocka_unit_test(
            test_tables_behind_one_another_are_taken_where_the_device_is_the_same_and_the_first_choice_counts),
        cmocka_unit_test(a_bad_table_behind_a_good_one_is_refused),
        cmocka_unit_test(a_table_has_a_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
