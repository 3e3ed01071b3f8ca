/* Values of secrets in what a program writes: found however the bytes are divided, and nothing else replaced. */
#include "executor/program/redact.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct redactor *with(const char *const *values, size_t n) {
    struct redactor *r = redactor_new();
    for (size_t i = 0; i < n; i++)
        redactor_add(r, values[i], strlen(values[i]));
    redactor_ready(r);
    return r;
}

/* Feeds the data in pieces, which ends[] divide. */
static char *feed(const struct redactor *r, const char *data, size_t n, const size_t *ends, size_t n_ends) {
    struct redact_stream s;
    struct bytes out;
    size_t at = 0;
    redact_stream_init(&s, r);
    bytes_init(&out, 8 << 20);
    for (size_t i = 0; i <= n_ends; i++) {
        const size_t end = i < n_ends ? ends[i] : n;
        assert_int_equal(redact_stream_feed(&s, data + at, end - at, i == n_ends, &out, NULL), ST_OK);
        at = end;
    }
    redact_stream_done(&s);
    assert_int_equal(bytes_append(&out, "", 1, NULL), ST_OK);
    return bytes_take(&out);
}

static void check(const char *const *values, size_t n, const char *data, const char *expected) {
    CLEANUP(redactor_freep) struct redactor *r = with(values, n);
    const size_t length = strlen(data);
    for (size_t cut = 0; cut <= length; cut++) {
        CLEANUP(freep) char *out = feed(r, data, length, &cut, 1);
        assert_string_equal(out, expected);
    }
    size_t *each = malloc((length + 1) * sizeof *each);
    for (size_t i = 0; i < length; i++)
        each[i] = i;
    CLEANUP(freep) char *out = feed(r, data, length, each, length);
    assert_string_equal(out, expected);
    free(each);
}
#define CHECK(data, expected, ...)                                                                                     \
    check((const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), data,   \
          expected)

static void a_value_is_replaced_wherever_the_output_is_divided(void **state) {
    (void)state;
    CHECK("token hunter22 here\n", "token *** here\n", "hunter22");
    CHECK("hunter22", "***", "hunter22");
    CHECK("hunter2\nhunter22\n", "hunter2\n***\n", "hunter22");
    CHECK("hunter hunter22hunter22 hunter", "hunter *** ***", "hunter22"); /* cut at the end: its beginning */
    CHECK("aaaaaaab<", "aa***<", "aaaaab");
}

static void values_that_overlap_contain_each_other_or_touch_leave_no_byte(void **state) {
    (void)state;
    CHECK("<abcdefghi>", "<***>", "abcdef", "defghi");
    CHECK("<abcdefgh> <abcd>", "<***> <***>", "abcd", "abcdefgh");
    CHECK("<abcdefgX>", "<***efgX>", "abcd", "abcdefgh");
    CHECK("<abcdwxyz>", "<***>", "abcd", "wxyz");
    CHECK("<aaaaaaaaaa>", "<***>", "aaaa");
    CHECK("<ababababX>", "<***X>", "abab");
}

static void each_line_of_a_value_is_a_value_and_short_ones_are_not(void **state) {
    (void)state;
    CHECK("log: first-line\nlog: second-line\n", "log: ***\nlog: ***\n", "first-line\nsecond-line\n");
    CHECK("first-line\nsecond-line", "***", "first-line\nsecond-line\n");
    CHECK("{\n  }\n", "{\n  }\n", "{\n  \"key-of-json\": 1\n}\n");
    CHECK("got \"key-of-json\": 1 now", "got *** now", "{\n  \"key-of-json\": 1\n}\n");
    CHECK("an abc is no secret", "an abc is no secret", "abc");
    CHECK("first-line\r\n.", "***\r\n.", "first-line\r\nsecond-line\r\n");
}

static void a_text_may_quote_a_part(void **state) {
    (void)state;
    static const char *const values[] = { "0123456789abcdef", "wxyz" };
    CLEANUP(redactor_freep) struct redactor *r = with(values, 2);
    static const char *const cases[][2] = {
        { "the value '0123456789abcdef' is wrong", "the value '***' is wrong" },
        { "the value '0123456789' is cut", "the value '***' is cut" },
        { "the value '0123456' has too few bytes", "the value '0123456' has too few bytes" },
        { "it ends with 01234", "it ends with ***" },
        { "it ends with wxyz", "it ends with ***" },
        { "0123456789abcdefwxyz0123456789abcdef", "***" },
        { "nothing here", "nothing here" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        snprintf(text, sizeof text, "%s", cases[i][0]);
        assert_int_equal(redact_finds(r, text), strcmp(cases[i][0], cases[i][1]) != 0);
        assert_int_equal(redact_text(r, text), strcmp(cases[i][0], cases[i][1]) != 0);
        assert_string_equal(text, cases[i][1]);
    }
}

/* Records have their texts in this form. */
static void the_printable_form_of_a_value_and_of_its_lines_is_found_too(void **state) {
    (void)state;
    static const char *const values[] = { "a\tvalue\001here", "no\xff\xfeutf8\xc3",
                                          "line\vone of two\r\nand\ttwo of two", "\001\002\003\004\005\006\007\010" };
    CLEANUP(redactor_freep) struct redactor *r = with(values, 4);
    static const char *const cases[][2] = {
        { "<a\tvalue\001here>", "<***>" },
        { "<no\xff\xfeutf8\xc3>", "<***>" },
        { "<line\vone of two\r\nand\ttwo of two>", "<***>" },
        { "<line\vone of two> <and\ttwo of two>", "<***> <***>" },
        { "<a\tvalue", "<***" },
        { "???????? ????", "???????? ????" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        utf8_copy_printable(cases[i][0], text, sizeof text);
        redact_text(r, text);
        assert_string_equal(text, cases[i][1]);
    }
}

/* ---- random ---- */

static uint64_t seed;
static uint32_t draw(uint32_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

enum { VALUES = 6, VALUE_BYTES = 12, DATA_BYTES = 400 };

/* The definition, without any cleverness: a byte is covered if a value that contains it is there. */
static void define(const char values[VALUES][VALUE_BYTES + 1], size_t n_values, const char *data, size_t n, char *ret) {
    bool covered[DATA_BYTES] = { false };
    size_t used = 0;
    for (size_t v = 0; v < n_values; v++) {
        const size_t length = strlen(values[v]);
        for (size_t i = 0; i < n; i++) {
            const size_t left = n - i < length ? n - i : length;
            if (left >= REDACT_MIN_BYTES && memcmp(data + i, values[v], left) == 0)
                memset(covered + i, 1, left);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (!covered[i])
            ret[used++] = data[i];
        else if (i == 0 || !covered[i - 1])
            used += (size_t)sprintf(ret + used, "%s", REDACT_MARK);
    }
    ret[used] = '\0';
}

static void random_values_in_random_pieces_agree_with_the_definition(void **state) {
    (void)state;
    const char *given = getenv("TRAINYARD_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("TRAINYARD_SEED=%llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        char values[VALUES][VALUE_BYTES + 1] = { "" }, data[DATA_BYTES], expected[2 * DATA_BYTES];
        const uint32_t letters = 1 + draw(4);
        const size_t n_values = 1 + draw(VALUES), n = draw(DATA_BYTES);
        size_t ends[8];
        CLEANUP(redactor_freep) struct redactor *r = redactor_new();
        for (size_t v = 0; v < n_values; v++) {
            const size_t length = REDACT_MIN_BYTES + draw(VALUE_BYTES - REDACT_MIN_BYTES + 1);
            for (size_t i = 0; i < length; i++)
                values[v][i] = (char)('a' + draw(letters));
            redactor_add(r, values[v], length);
        }
        redactor_ready(r);
        for (size_t i = 0; i < n; i++)
            data[i] = (char)('a' + draw(letters + 1));
        size_t n_ends = draw(8);
        for (size_t i = 0; i < n_ends; i++) {
            const size_t from = i ? ends[i - 1] : 0;
            ends[i] = from + draw((uint32_t)(n - from + 1));
        }
        define((const char(*)[VALUE_BYTES + 1]) values, n_values, data, n, expected);
        CLEANUP(freep) char *out = feed(r, data, n, ends, n_ends);
        if (strcmp(out, expected) != 0)
            fail_msg("round %d: %.*s: %s, not %s", round, (int)n, data, out, expected);
    }
}

/* ---- cost ---- */

/* MB/s of a log in reads of 16 KiB. */
static double rate(size_t n_values) {
    enum { PIECE = 16 << 10, PIECES = 2000 };
    static char piece[PIECE + 1];
    CLEANUP(redactor_freep) struct redactor *r = redactor_new();
    struct redact_stream s;
    struct bytes out;
    for (size_t i = 0; i < n_values; i++) {
        char value[64];
        snprintf(value, sizeof value, "token-%zu-%08x%08x", i, draw(1u << 31), draw(1u << 31));
        redactor_add(r, value, strlen(value));
    }
    redactor_ready(r);
    for (size_t i = 0; i < PIECE; i++)
        piece[i] = i % 80 == 79 ? '\n' : (char)(' ' + draw(95));
    redact_stream_init(&s, r);
    bytes_init(&out, 1 << 20);
    const int64_t begun_us = clock_wall_us();
    for (int i = 0; i < PIECES; i++) {
        bytes_clear(&out);
        assert_int_equal(redact_stream_feed(&s, piece, PIECE, false, &out, NULL), ST_OK);
    }
    const int64_t took_us = clock_wall_us() - begun_us;
    redact_stream_done(&s);
    bytes_done(&out);
    return (double)PIECE * PIECES / (double)(took_us ? took_us : 1);
}

static void many_values_cost_no_more_than_a_few(void **state) {
    (void)state;
    seed = 7;
    const double one = rate(1), twenty = rate(20), all = rate(1000);
    print_message("%.0f MB/s with 1 value, %.0f with 20, %.0f with 1,000\n", one, twenty, all);
    assert_true(twenty > one / 4); /* the cost of a byte does not grow with their number */
    assert_true(all > one / 20);
}

enum { ALIKE = 17, ALIKE_BYTES = 60000, ALIKE_LINE_BYTES = 12, SHOWN_BYTES = 60000 };

/* 17 values of 60 kB, of 5,000 lines each that begin alike, and 60 kB of such lines: compared one by one, they take
 * many seconds. */
static void values_and_lines_that_begin_alike_cost_little(void **state) {
    (void)state;
    CLEANUP(freep) char *value = malloc(ALIKE_BYTES + 1), *shown = malloc(SHOWN_BYTES + 32);
    CLEANUP(redactor_freep) struct redactor *r = redactor_new();
    const int64_t begun_us = clock_wall_us();
    for (int v = 0; v < ALIKE; v++) {
        for (int i = 0; i < ALIKE_BYTES / ALIKE_LINE_BYTES; i++)
            sprintf(value + (size_t)i * ALIKE_LINE_BYTES, "line-%06x\n", v * ALIKE_BYTES + i);
        redactor_add(r, value, ALIKE_BYTES);
    }
    redactor_ready(r);
    const int64_t ready_us = clock_wall_us();
    for (size_t at = 0; at < SHOWN_BYTES; at += ALIKE_LINE_BYTES)
        sprintf(shown + at, "line-%06zx\n", 0xe00000 + at);
    CLEANUP(freep) char *out = feed(r, shown, SHOWN_BYTES, NULL, 0);
    const int64_t end_us = clock_wall_us();
    assert_int_equal(strlen(out), SHOWN_BYTES); /* nothing of it is a line of a value */
    print_message("%lld us for 17 values of 5,000 lines, %lld us for 60 kB\n", (long long)(ready_us - begun_us),
                  (long long)(end_us - ready_us));
    assert_true(end_us - begun_us < 1500 * 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_replaced_wherever_the_output_is_divided),
        cmocka_unit_test(values_that_overlap_contain_each_other_or_touch_leave_no_byte),
        cmocka_unit_test(each_line_of_a_value_is_a_value_and_short_ones_are_not),
        cmocka_unit_test(a_text_may_quote_a_part),
        cmocka_unit_test(the_printable_form_of_a_value_and_of_its_lines_is_found_too),
        cmocka_unit_test(random_values_in_random_pieces_agree_with_the_definition),
        cmocka_unit_test(many_values_cost_no_more_than_a_few),
        cmocka_unit_test(values_and_lines_that_begin_alike_cost_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
