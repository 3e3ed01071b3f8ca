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
    CLEANUP(output_closep) struct output *o = NULL;
    char lines[256] = "";
    OK(output_open(&o, NULL));
    output_divert(o, on_line, lines);
    put(o, 2, "first\nlast");
    output_end(o, 10000);
    assert_string_equal(lines, "first|last|");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_last_line_without_a_newline_is_diverted_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
