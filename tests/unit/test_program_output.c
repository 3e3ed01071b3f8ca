/* The output of a program by itself: lines of stderr that go to a log. */
#include "executor/program/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call) assert_int_equal(call, ST_OK)

static void on_line(void *ctx, const char *text) {
    char *lines = ctx;
    snprintf(lines + strlen(lines), 256 - strlen(lines), "%s|", text);
}

static void put(const struct output *o, int stream, const char *text) {
    assert_int_equal(write(output_command_end(o, stream), text, strlen(text)), strlen(text));
}

static void a_last_line_without_a_newline_is_diverted_at_the_end(void **state) {
    (void)state;
    CLEANUP(redactor_freep) struct redactor *none = redactor_new();
    CLEANUP(output_closep) struct output *o = NULL;
    char lines[256] = "";
    OK(output_open(none, &o, NULL));
    output_divert(o, on_line, lines);
    put(o, 2, "first\nlast");
    output_end(o, 10000);
    assert_string_equal(lines, "first|last|");
}

/* The kept beginning of a value belongs to the last line too. */
static void values_of_secrets_are_in_neither_the_diverted_lines_nor_the_tail(void **state) {
    (void)state;
    CLEANUP(redactor_freep) struct redactor *r = redactor_new();
    CLEANUP(output_closep) struct output *o = NULL;
    char lines[256] = "", tail[OUTPUT_TAIL_BYTES];
    redactor_add(r, "hunter22", 8);
    redactor_ready(r);
    OK(output_open(r, &o, NULL));
    put(o, 2, "has hunter22 in it, then hunt");
    output_flush(o, 10000);
    const size_t n = output_tail(o, tail);
    assert_int_equal(n, strlen("has *** in it, then "));
    assert_memory_equal(tail, "has *** in it, then ", n);
    output_divert(o, on_line, lines);
    put(o, 2, "er22 and hun");
    output_end(o, 10000);
    assert_string_equal(lines, "*** and hun|");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_last_line_without_a_newline_is_diverted_at_the_end),
        cmocka_unit_test(values_of_secrets_are_in_neither_the_diverted_lines_nor_the_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
