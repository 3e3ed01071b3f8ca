/* Metrics as files: CSV, and TensorBoard's event files. */
#include "base/file.h"
#include "cli/csv.h"
#include "cli/event_file.h"
#include "cli/export_file.h"

#include <endian.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/event.pb-c.h>
#include <unistd.h>

#include <cmocka.h>

static void numbers_read_back_as_the_same_double(void **state) {
    (void)state;
    static const double values[] = { 0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, 123456789012345678, 2, -0.0, 1e22 };
    char text[CSV_NUMBER];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        csv_number(values[i], text);
        double back = strtod(text, NULL);
        assert_memory_equal(&back, &values[i], sizeof back);
    }
    csv_number(0.1, text);
    assert_string_equal(text, "0.1");
    csv_number((double)NAN, text);
    assert_string_equal(text, "NaN");
    csv_number((double)INFINITY, text);
    assert_string_equal(text, "Infinity");
    csv_number((double)-INFINITY, text);
    assert_string_equal(text, "-Infinity");
}

static int64_t steps[] = { 1, 1LL << 40 }, times_us[] = { 1795363200123000, 0 };
static double values[] = { 0.5, (double)INFINITY };

static Trainyard__V1__MetricPoints two_points(const char *name) {
    Trainyard__V1__MetricPoints run = TRAINYARD__V1__METRIC_POINTS__INIT;
    run.name = (char *)name;
    run.rank = 3;
    run.attempt = 2;
    run.n_step = run.n_value = run.n_time_us = 2;
    run.step = steps;
    run.value = values;
    run.time_us = times_us;
    return run;
}

static void a_line_of_csv_has_a_point_and_quotes_what_must_be(void **state) {
    (void)state;
    struct bytes b;
    bytes_init(&b, 1 << 20);
    Trainyard__V1__MetricPoints run = two_points("loss");
    assert_int_equal(csv_append(&b, &run, NULL), ST_OK);
    assert_string_equal(b.data, "loss,3,2,1,2026-11-22T16:00:00.123Z,0.5\r\nloss,3,2,1099511627776,,Infinity\r\n");
    static const char *const names[][2] = { { "a b;c", "a b;c," },
                                            { "a,b", "\"a,b\"," },
                                            { "a\"b", "\"a\"\"b\"," },
                                            { "a\nb", "\"a\nb\"," },
                                            { "a\rb", "\"a\rb\"," } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bytes_clear(&b);
        run = two_points(names[i][0]);
        assert_int_equal(csv_append(&b, &run, NULL), ST_OK);
        assert_memory_equal(b.data, names[i][1], strlen(names[i][1]));
    }
    bytes_done(&b);
}

/* The next record's event, without its checksums. tests/e2e/test_export.py checks those. */
static Tensorflow__Event *next_event(const struct bytes *b, size_t *at) {
    uint64_t n;
    assert_true(b->len - *at >= 16);
    memcpy(&n, b->data + *at, sizeof n);
    n = le64toh(n);
    assert_true(n <= b->len - *at - 16);
    Tensorflow__Event *event = tensorflow__event__unpack(NULL, n, (const uint8_t *)b->data + *at + 12);
    assert_non_null(event);
    *at += n + 16;
    return event;
}

static void an_event_has_a_point_with_its_step_and_time(void **state) {
    (void)state;
    struct bytes b;
    size_t at = 0;
    bytes_init(&b, 1 << 20);
    Trainyard__V1__MetricPoints run = two_points("loss");
    assert_int_equal(event_file_begin(&b, times_us[0], NULL), ST_OK);
    assert_int_equal(event_file_append(&b, &run, NULL), ST_OK);
    Tensorflow__Event *event = next_event(&b, &at);
    assert_int_equal(event->what_case, TENSORFLOW__EVENT__WHAT_FILE_VERSION);
    assert_string_equal(event->file_version, "brain.Event:2");
    assert_true(event->wall_time == 1795363200.123);
    tensorflow__event__free_unpacked(event, NULL);
    for (int i = 0; i < 2; i++) {
        event = next_event(&b, &at);
        assert_int_equal(event->what_case, TENSORFLOW__EVENT__WHAT_SUMMARY);
        assert_int_equal(event->step, steps[i]);
        assert_true(event->wall_time == (double)times_us[i] / 1e6);
        assert_int_equal(event->summary->n_value, 1);
        assert_string_equal(event->summary->value[0]->tag, "loss");
        assert_true(event->summary->value[0]->simple_value == (float)values[i]);
        tensorflow__event__free_unpacked(event, NULL);
    }
    assert_int_equal(at, b.len);
    bytes_done(&b);
}

/* A record that TensorFlow's SummaryWriter wrote first, with wall_time 1.0. */
static void a_record_is_framed_as_in_tensorflow(void **state) {
    (void)state;
    static const uint8_t want[] = { 0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22 };
    struct bytes b;
    bytes_init(&b, 1 << 10);
    assert_int_equal(event_file_begin(&b, 1000000, NULL), ST_OK);
    assert_int_equal(b.len, 8 + 4 + 24 + 4);
    assert_memory_equal(b.data, want, sizeof want);
    bytes_done(&b);
}

static void contains(const char *path, const char *text) {
    struct bytes b;
    bytes_init(&b, 100);
    assert_int_equal(file_read(path, &b, NULL), ST_OK);
    assert_string_equal(b.data, text);
    bytes_done(&b);
}

static void an_existing_file_is_replaced_only_on_request(void **state) {
    (void)state;
    char folder[] = "/tmp/trainyard-export-XXXXXX", mark[EXPORT_MARK], part[PATH_MAX], path[PATH_MAX];
    struct err e;
    assert_non_null(mkdtemp(folder));
    export_mark(mark);
    assert_int_equal(export_path(path, &e, "%s/a", folder), ST_OK);
    assert_int_equal(export_path(part, &e, "%s%s", path, mark), ST_OK);
    assert_int_equal(export_append(part, "one ", 4, &e), ST_OK);
    assert_int_equal(export_append(part, "two", 3, &e), ST_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(export_finish(part, path, false, &e), ST_OK);
    contains(path, "one two");
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_equal(export_append(part, "three", 5, &e), ST_OK);
    assert_int_equal(export_finish(part, path, false, &e), ST_ALREADY_EXISTS);
    contains(path, "one two");
    assert_int_equal(export_finish(part, path, true, &e), ST_OK);
    contains(path, "three");
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_equal(dir_remove(folder, &e), ST_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_back_as_the_same_double),
        cmocka_unit_test(a_line_of_csv_has_a_point_and_quotes_what_must_be),
        cmocka_unit_test(an_event_has_a_point_with_its_step_and_time),
        cmocka_unit_test(a_record_is_framed_as_in_tensorflow),
        cmocka_unit_test(an_existing_file_is_replaced_only_on_request),
    };
    return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
