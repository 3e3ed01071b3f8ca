/* The text of a tuning cache: written, read back, and refused if it is damaged.
 *
 * A cache holds the chosen cuBLASLt algorithm of each product and the chosen cuDNN engine of each shape, for one
 * device. The text of several ranks is one table after another. The tests write tables as text and read them again,
 * read invalid text, append a bad table to a good one, and exceed the limits of entries. */
#include "kernels/cuda/lib/tuning_cache.h"
#include "tests/kernels/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct product_choice product(int64_t m, unsigned flags) {
    return (struct product_choice){ .product = { KERNELS_BF16, m, 3072, 768, 768, 3072, 3072, 16, flags },
                                    .algorithm = { 1, 0xfedcba9876543210U, 0, 0, 5, 0, 0, UINT64_MAX },
                                    .workspace = 33554432 };
}

static struct engine_choice engine(enum engine_pass pass, int64_t batch) {
    return (struct engine_choice){ .pass = pass,
                                   .precision = KERNELS_FP16,
                                   .dims = { batch, 56, 56, 64, 64, 3, 1, 0 },
                                   .version = 91900,
                                   .workspace_bytes = 462422272,
                                   .name = "5:2=1,13=-1" };
}

static struct tuning_cache table(void) {
    struct tuning_cache t = { .device = "NVIDIA H200, 132 processors, cuBLASLt 130100" };
    const struct product_choice a = product(65536, GEMM_BIAS | GEMM_GELU), b = product(64, 0), c = product(64, 63);
    OK(tuning_cache_add_product(&t, &a, e));
    OK(tuning_cache_add_product(&t, &b, e));
    OK(tuning_cache_add_product(&t, &c, e));
    for (int pass = ENGINE_FORWARD; pass < ENGINE_PASSES; pass++) {
        const struct engine_choice chosen = engine((enum engine_pass)pass, 64);
        OK(tuning_cache_add_engine(&t, &chosen, e));
    }
    return t;
}

static void a_table_is_parsed_from_its_own_text(void **state) {
    (void)state;
    struct tuning_cache t = table(), back = { 0 };
    char *text = NULL;
    text = tuning_cache_write(&t);
    OK(tuning_cache_parse(text, strlen(text), &back, e));
    assert_string_equal(back.device, t.device);
    assert_int_equal(back.n_products, t.n_products);
    for (int i = 0; i < t.n_products; i++) {
        const struct product_choice *found = tuning_cache_product(&back, &t.products[i].product);
        assert_non_null(found);
        assert_memory_equal(found->algorithm, t.products[i].algorithm, sizeof found->algorithm);
        assert_int_equal(found->workspace, t.products[i].workspace);
    }
    assert_int_equal(back.n_engines, ENGINE_PASSES);
    for (int i = 0; i < t.n_engines; i++) {
        const struct engine_choice *found = tuning_cache_engine(&back, &t.engines[i]);
        assert_non_null(found);
        assert_string_equal(found->name, t.engines[i].name);
    }
    free(text);
    tuning_cache_done(&t);
    tuning_cache_done(&back);
}

static void another_product_is_not_found(void **state) {
    (void)state;
    struct tuning_cache t = table();
    struct gemm p = t.products[0].product;
    p.alignment = 8;
    assert_null(tuning_cache_product(&t, &p));
    p = t.products[0].product;
    p.flags ^= GEMM_ACCUMULATE;
    assert_null(tuning_cache_product(&t, &p));
    struct engine_choice like[5];
    for (int i = 0; i < 5; i++)
        like[i] = t.engines[0];
    like[0].dims[7] = 1;
    like[1].version++;
    like[2].precision = KERNELS_BF16;
    like[3].pass = ENGINE_PASSES;
    like[4].workspace_bytes--;
    for (int i = 0; i < 5; i++)
        assert_null(tuning_cache_engine(&t, &like[i]));
    tuning_cache_done(&t);
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
        struct tuning_cache t = { 0 };
        struct err e = { { 0 } };
        const status_t st = tuning_cache_parse(all[i].text, strlen(all[i].text), &t, &e);
        tuning_cache_done(&t);
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
    struct tuning_cache t = { .device = "a device" };
    OK(tuning_cache_take(&t, text, sizeof text - 1, e));
    assert_int_equal(t.n_products, 2);
    assert_int_equal(t.products[0].product.m, 1);
    assert_int_equal(t.products[0].workspace, 7);
    assert_int_equal(t.products[1].product.m, 9);
    assert_int_equal(t.n_engines, 2);
    assert_string_equal(t.engines[0].name, "10");
    assert_string_equal(t.engines[1].name, "12");
    tuning_cache_done(&t);
}

static void a_bad_table_behind_a_good_one_is_refused(void **state) {
    (void)state;
    static const char *const all[] = {
        ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\n" ON("a device") "bf16 1 2 3\n",
        ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\ntrainyard products 1\n",
        ON("a device") "bf16 1 2 3 4 5 6 16 - " ALGORITHM " 7\ntrainyard products 2\non a device\n",
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct tuning_cache t = { .device = "a device" };
        const status_t st = tuning_cache_take(&t, all[i], strlen(all[i]), NULL);
        tuning_cache_done(&t);
        assert_int_equal(st, ST_INVALID_ARGUMENT);
    }
}

static void a_table_has_a_most(void **state) {
    (void)state;
    struct tuning_cache t = { .device = "a device" };
    struct err full = { { 0 } };
    for (int64_t m = 1; m <= TUNING_MAX_PRODUCTS; m++) {
        const struct product_choice c = product(m, 0);
        OK(tuning_cache_add_product(&t, &c, e));
    }
    const struct product_choice more = product(TUNING_MAX_PRODUCTS + 1, 0);
    assert_int_equal(tuning_cache_add_product(&t, &more, &full), ST_RESOURCE_EXHAUSTED);
    for (int64_t batch = 1; batch <= TUNING_MAX_ENGINES; batch++) {
        const struct engine_choice c = engine(ENGINE_FORWARD, batch);
        OK(tuning_cache_add_engine(&t, &c, e));
    }
    const struct engine_choice other = engine(ENGINE_FORWARD, TUNING_MAX_ENGINES + 1);
    assert_int_equal(tuning_cache_add_engine(&t, &other, &full), ST_RESOURCE_EXHAUSTED);
    char *text = NULL;
    text = tuning_cache_write(&t);
    assert_true(strlen(text) < KERNELS_TUNING_CACHE_BYTES);
    free(text);
    tuning_cache_done(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_parsed_from_its_own_text),
        cmocka_unit_test(another_product_is_not_found),
        cmocka_unit_test(text_that_is_no_table_is_refused_with_its_line),
        cmocka_unit_test(
            test_tables_behind_one_another_are_taken_where_the_device_is_the_same_and_the_first_choice_counts),
        cmocka_unit_test(a_bad_table_behind_a_good_one_is_refused),
        cmocka_unit_test(a_table_has_a_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
