/* The parts of the client that need no connection: arguments, tables, curves, and messages for people. */
#include "cli/command.h"
#include "cli/nearest.h"
#include "cli/output.h"
#include "cli/plot.h"
#include "cli/table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <trainyard/v1/job.pb-c.h>

struct example_args {
    bool flag;
    const char *text;
    int64_t number;
    double real;
    struct text_list list;
};

static const struct option_row example_options[] = {
    { "flag", 'f', NULL, "a flag", OPTION_FLAG, offsetof(struct example_args, flag), NULL },
    { "text", 't', "T", "a text", OPTION_TEXT, offsetof(struct example_args, text), "preset" },
    { "number", 0, "N", "a number", OPTION_INT, offsetof(struct example_args, number), NULL },
    { "real", 0, "R", "a real", OPTION_REAL, offsetof(struct example_args, real), NULL },
    { "list", 0, "L", "a list", OPTION_LIST, offsetof(struct example_args, list), NULL },
    { 0 },
};

static const struct command example = {
    .name = "example",
    .arguments = "A [B]",
    .options = example_options,
    .args_bytes = sizeof(struct example_args),
    .min_words = 1,
    .max_words = 2,
};

static status_t parse(char *line, struct cli *c, struct example_args *args, char *const **words, int *help,
                      struct err *e) {
    static char *argv[32];
    int argc = 0;
    for (char *save = NULL, *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    argv[argc] = NULL;
    memset(args, 0, sizeof *args);
    return arguments_parse(&example, argc, argv, c, args, words, help, e);
}

static void options_may_stand_anywhere_and_have_defaults(void **state) {
    (void)state;
    struct cli c = { 0 };
    struct example_args args;
    struct err e = { "" };
    char *const *words = NULL;
    int help = 0;
    char line[] = "example one -f --number=-5 two --list a --list b=c -o json --real 1e-3 --controller x:1";
    assert_int_equal(parse(line, &c, &args, &words, &help, &e), ST_OK);
    assert_true(args.flag);
    assert_string_equal(args.text, "preset");
    assert_int_equal(args.number, -5);
    assert_true(args.real == 1e-3);
    assert_int_equal(args.list.n, 2);
    assert_string_equal(args.list.items[1], "b=c");
    assert_string_equal(words[0], "one");
    assert_string_equal(words[1], "two");
    assert_null(words[2]);
    assert_int_equal(c.output, OUTPUT_JSON);
    assert_string_equal(c.controller, "x:1");
    char bare[] = "example one";
    assert_int_equal(parse(bare, &c, &args, &words, &help, &e), ST_OK);
    assert_false(args.flag);
    assert_true(args.number == OPTION_ABSENT);
    assert_true(isnan(args.real));
    char dashed[] = "example -- -x";
    assert_int_equal(parse(dashed, &c, &args, &words, &help, &e), ST_OK);
    assert_string_equal(words[0], "-x");
}

static void wrong_usage_gets_one_sentence(void **state) {
    (void)state;
    static const struct {
        const char *line, *sentence;
    } table[] = {
        { "example", "usage: trainyard example A [B]" },
        { "example a b c", "usage: trainyard example A [B]" },
        { "example a --nothing", "example has no option --nothing; see 'trainyard help example'" },
        { "example a --nubmer 3",
          "example has no option --nubmer: '--number' may be meant; see 'trainyard help example'" },
        { "example a -x", "example has no option -x; see 'trainyard help example'" },
        { "example a --number", "--number needs a value; see 'trainyard help example'" },
        { "example a --number 5x", "--number: expected an integer, found '5x'" },
        { "example a --number 99999999999999999999", "--number: expected an integer, found '99999999999999999999'" },
        { "example a --real nan", "--real: expected a number, found 'nan'" },
        { "example a -o xml", "--output: 'xml' is not one of: table, json, yaml, name" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct cli c = { 0 };
        struct example_args args;
        struct err e = { "" };
        char *const *words = NULL;
        int help = 0;
        char line[128];
        snprintf(line, sizeof line, "%s", table[i].line);
        assert_int_equal(parse(line, &c, &args, &words, &help, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, table[i].sentence);
    }
}

static void the_usage_of_a_command_without_arguments_ends_with_its_name(void **state) {
    (void)state;
    const struct command bare = { .name = "bare", .arguments = "" };
    char *argv[] = { (char *)"bare", (char *)"word", NULL };
    char *const *words = NULL;
    struct cli c = { 0 };
    struct err e = { "" };
    int help = 0;
    assert_int_equal(arguments_parse(&bare, 2, argv, &c, NULL, &words, &help, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "usage: trainyard bare");
}

static void a_local_command_has_no_option_that_it_would_not_heed(void **state) {
    (void)state;
    struct command local = example;
    local.local = true;
    for (int i = 0; i < 2; i++) {
        struct cli c = { 0 };
        struct example_args args = { 0 };
        struct err e = { "" };
        char *const *words = NULL;
        int help = 0;
        char *argv[] = { "example", "a", i ? "-o" : "--controller", "json", NULL };
        char want[80];
        snprintf(want, sizeof want, "example has no option %s; see 'trainyard help example'", argv[2]);
        assert_int_equal(arguments_parse(&local, 4, argv, &c, &args, &words, &help, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, want);
        assert_int_equal(arguments_parse(&local, 2, argv, &c, &args, &words, &help, &e), ST_OK);
    }
}

static void help_needs_no_arguments(void **state) {
    (void)state;
    struct cli c = { 0 };
    struct example_args args;
    char *const *words = NULL;
    int help = 0;
    char line[] = "example --help";
    assert_int_equal(parse(line, &c, &args, &words, &help, NULL), ST_OK);
    assert_true(help);
}

static void columns_are_as_wide_as_their_widest_cell(void **state) {
    (void)state;
    static const char *const heads[] = { "A", "LONG HEAD", "C", NULL };
    struct table t;
    struct bytes text;
    table_init(&t, heads);
    table_cell(&t, "%s", "\xc3\xa9\xc3\xa9\xc3\xa9");
    table_cell(&t, "%d", 5);
    table_cell(&t, "%s", "the last one is open");
    table_cell(&t, "x");
    table_cell(&t, "y");
    table_cell(&t, "\x1b[31mred\n\xc2\x9b\xff");
    bytes_init(&text, 4096);
    assert_int_equal(table_print(&t, false, &text, NULL), ST_OK);
    assert_string_equal(text.data, "A    LONG HEAD  C\n"
                                   "\xc3\xa9\xc3\xa9\xc3\xa9  5          the last one is open\n"
                                   "x    y          ?[31mred????\n");
    bytes_done(&text);
    table_done(&t);
}

static void a_peers_text_cannot_steer_a_terminal(void **state) {
    (void)state;
    char *written = NULL;
    size_t n;
    FILE *f = open_memstream(&written, &n);
    output_text(f, "one\n\ttwo \x1b[2J \xc2\x9b"
                   "31m \x9b \xff \xc3\xa9\r");
    fclose(f);
    assert_string_equal(written, "one\n\ttwo ?[2J ??31m ? ? \xc3\xa9?");
    free(written);

    char text[4002] = "x"; /* no character is cut where the pieces are */
    for (size_t i = 1; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    f = open_memstream(&written, &n);
    output_text(f, text);
    fclose(f);
    assert_string_equal(written, text);
    free(written);
}

static char *plot(const int64_t *x, const double *y, size_t n, int columns, int rows) {
    struct bytes text;
    struct plot p = { .title = "title", .x = x, .y = y, .n = n, .columns = columns, .rows = rows };
    bytes_init(&text, 1 << 20);
    assert_int_equal(plot_print(&p, &text, NULL), ST_OK);
    return bytes_take(&text);
}

static void a_falling_line_runs_from_corner_to_corner(void **state) {
    (void)state;
    const int64_t x[] = { 0, 100 };
    const double y[] = { 4, 1 };
    char *text = plot(x, y, 2, 4, 2);
    assert_string_equal(text, "title\n"
                              "         4 |\xe2\xa0\x91\xe2\xa2\x84  \n"
                              "         1 |  \xe2\xa0\x91\xe2\xa2\x84\n"
                              "      step  0 100\n");
    free(text);
}

static void a_curve_keeps_every_dot_inside_its_field(void **state) {
    (void)state;
    int64_t x[1000];
    double y[1000];
    for (int i = 0; i < 1000; i++) {
        x[i] = (int64_t)i * 1000000007;
        y[i] = i % 7 == 0 ? NAN : i % 11 == 0 ? INFINITY : sin(i / 50.0) * 1e300;
    }
    for (int columns = 1; columns <= PLOT_MAX_COLUMNS; columns += 57)
        for (int rows = 1; rows <= 100; rows += 33)
            free(plot(x, y, 1000, columns, rows)); /* ASan watches the edges */
}

static void nothing_to_draw_is_said(void **state) {
    (void)state;
    const int64_t x[] = { 1 };
    const double y[] = { NAN };
    char *none = plot(x, y, 0, 10, 4), *nan = plot(x, y, 1, 10, 4);
    assert_string_equal(none, "title\nno points\n");
    assert_string_equal(nan, "title\nno points\n");
    free(none);
    free(nan);
    const double one[] = { 2 };
    char *single = plot(x, one, 1, 2, 1);
    assert_non_null(strstr(single, "2 |"));
    free(single);
}

static void sizes_and_durations_are_short_words(void **state) {
    (void)state;
    static const struct {
        int64_t value;
        const char *duration, *bytes;
    } table[] = {
        { 0, "0s", "0 B" },
        { 59, "59s", "59 B" },
        { 192, "3m12s", "192 B" },
        { 7500, "2h05m", "7.3 KiB" },
        { 356400, "4d03h", "348 KiB" },
        { 999600, "11d13h", "976 KiB" },
        { 1048064, "12d03h", "1.0 MiB" },
        { 1234567890, "14288d23h", "1.1 GiB" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[24];
        output_duration(table[i].value, text);
        assert_string_equal(text, table[i].duration);
        output_bytes(table[i].value, text);
        assert_string_equal(text, table[i].bytes);
    }
}

static void names_and_states_are_short_words(void **state) {
    (void)state;
    assert_string_equal(output_id("jobs/42"), "42");
    assert_string_equal(output_id("jobs/42/checkpoints/7"), "7");
    assert_string_equal(output_id("42"), "42");
    assert_string_equal(output_enum(&trainyard__v1__job__state__descriptor, 3), "RUNNING");
    assert_string_equal(output_enum(&trainyard__v1__job__state__descriptor, 99), "99");
    char text[OUTPUT_TIME_BYTES];
    output_time(NULL, text);
    assert_string_equal(text, "-");
    Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT, later = t;
    t.seconds = 1795255864;
    later.seconds = t.seconds + 61;
    setenv("TZ", "UTC0", 1);
    tzset();
    output_time(&t, text);
    assert_string_equal(text, "2026-11-21 10:11:04Z");
    setenv("TZ", "<+0545>-5:45", 1);
    tzset();
    output_time(&t, text);
    assert_string_equal(text, "2026-11-21 15:56:04+05:45");
    output_between(&t, &later, text);
    assert_string_equal(text, "1m01s");
}

static void a_word_that_is_nearly_a_command_names_it(void **state) {
    (void)state;
    static const char *const names[] = { "up", "list", "submit", "metrics", "get", "checkpoints" };
    static const struct {
        const char *word, *meant;
    } cases[] = { { "submitt", "submit" },
                  { "sumbit", "submit" },
                  { "lsit", "list" },
                  { "ls", "list" },
                  { "describe", "get" },
                  { "metric", "metrics" },
                  { "nonsense", NULL },
                  { "", NULL },
                  { "checkpionst", "checkpoints" },
                  { "a-word-that-is-longer-than-any-command", NULL },
                  { "x", NULL } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *meant = nearest_command(cases[i].word, names, sizeof names / sizeof *names);
        if (cases[i].meant ? !meant || strcmp(meant, cases[i].meant) != 0 : meant != NULL)
            fail_msg("'%s' is taken for %s", cases[i].word, meant ? meant : "nothing");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_may_stand_anywhere_and_have_defaults),
        cmocka_unit_test(wrong_usage_gets_one_sentence),
        cmocka_unit_test(the_usage_of_a_command_without_arguments_ends_with_its_name),
        cmocka_unit_test(a_local_command_has_no_option_that_it_would_not_heed),
        cmocka_unit_test(help_needs_no_arguments),
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(a_peers_text_cannot_steer_a_terminal),
        cmocka_unit_test(a_falling_line_runs_from_corner_to_corner),
        cmocka_unit_test(a_curve_keeps_every_dot_inside_its_field),
        cmocka_unit_test(nothing_to_draw_is_said),
        cmocka_unit_test(sizes_and_durations_are_short_words),
        cmocka_unit_test(names_and_states_are_short_words),
        cmocka_unit_test(a_word_that_is_nearly_a_command_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
