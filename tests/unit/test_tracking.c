/* Parts of executor/program/tracking by themselves: points as rows, and event files that grow. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/tfrecord.h"
#include "executor/program/tracking/tensorboard_files.h"

#include <endian.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tensorflow/event.pb-c.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call) assert_int_equal(call, ST_OK)

/* Rows as "3 a=1 b=2|", events as "kind: message|". */
struct seen {
    char rows[4096], events[16384];
    int n_rows, n_events;
};

static void on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    struct seen *seen = ctx;
    char *at = seen->rows + strlen(seen->rows), *end = seen->rows + sizeof seen->rows;
    seen->n_rows++;
    at += snprintf(at, (size_t)(end - at), "%d", (int)step);
    for (size_t i = 0; i < n && at < end; i++)
        at += snprintf(at, (size_t)(end - at), " %s=%g", names[i], values[i]);
    if (at < end)
        snprintf(at, (size_t)(end - at), "|");
}

static void on_event(void *ctx, const char *kind, const char *message) {
    struct seen *seen = ctx;
    const size_t used = strlen(seen->events);
    seen->n_events++;
    snprintf(seen->events + used, sizeof seen->events - used, "%s: %s|", kind, message);
}

static struct seen seen;

static struct points *points_of_test(void) {
    seen = (struct seen){ .n_rows = 0 };
    return points_new(&(struct points_sink){ &seen, on_row, on_event });
}

/* ---- points ---- */

static void points_of_one_step_are_one_row(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    points_add(p, "", "a", 1, 1);
    points_add(p, "x/", "a", 1, 2);
    points_add(p, "", "a", 1, 3); /* a name that the row has */
    points_add(p, "", "a", 2, 4);
    points_end(p);
    assert_string_equal(seen.rows, "1 a=1 x/a=2|1 a=3|2 a=4|");
    assert_int_equal(seen.n_events, 0);
}

static void a_name_that_no_metric_can_have_is_changed_and_reported(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    char longest[LIMIT_METRIC_NAME_BYTES + 2] = "";
    memset(longest, 'n', LIMIT_METRIC_NAME_BYTES);
    points_add(p, "", longest, 1, 1); /* just fits */
    assert_int_equal(seen.n_events, 0);
    memset(longest, 'n', LIMIT_METRIC_NAME_BYTES + 1);
    points_add(p, "", longest, 1, 1);
    points_add(p, "", "train loss\n\xff", 1, 2);
    points_end(p);
    assert_non_null(strstr(seen.rows, " train_loss__=2"));
    assert_non_null(strstr(seen.rows, "nnnn~"));
    assert_int_equal(seen.n_events, 2);
    assert_non_null(strstr(seen.events, "metric_renamed: the metric 'train loss?"
                                        "?' is stored as 'train_loss__'"));
}

static void a_million_names_become_as_many_as_a_rank_may_have_and_two_events(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    for (int i = 0; i < 1000000; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        points_add(p, "", name, 1, i);
    }
    points_end(p);
    assert_int_equal(seen.n_rows, POINTS_NAMES / POINTS_ROW);
    assert_int_equal(seen.n_events, 2);
    assert_non_null(strstr(seen.events, "999040 points of further metrics were not stored"));
}

static void points_without_a_step_are_numbered_unless_the_metric_has_steps(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    for (int i = 0; i < 3; i++)
        points_add_unnumbered(p, "", "a", i);
    points_add_unnumbered(p, "", "b", 5);
    points_add(p, "", "b", 7, 6);
    points_add_unnumbered(p, "", "b", 7);
    points_add(p, "", "c", -1, 0);
    points_end(p);
    assert_string_equal(seen.rows, "0 a=0|1 a=1|2 a=2|0 b=5|7 b=6|0 b=7|");
    assert_non_null(strstr(seen.events, "its step, -1, is below 0"));
}

static void a_metric_belongs_to_the_source_that_reports_it_first(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    points_from(p, "one");
    points_add(p, "", "a", 1, 1);
    points_from(p, "two");
    for (int i = 1; i < 4; i++)
        points_add(p, "", "a", i, 5);
    points_add_unnumbered(p, "", "a", 5);
    points_add(p, "", "b", 1, 2);
    points_from(p, "one");
    points_add(p, "", "a", 2, 3);
    points_end(p);
    assert_string_equal(seen.rows, "1 a=1 b=2|2 a=3|");
    assert_string_equal(seen.events,
                        "metric_ignored: the metric 'a' is stored as one reports it: the same name from two "
                        "is ignored|");
}

static void events_of_one_kind_are_bounded(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    for (int i = 0; i < 1000; i++)
        points_event(p, "kind", "%d", i);
    assert_int_equal(seen.n_events, POINTS_EVENTS_PER_KIND + 1);
    points_event(p, "other", "x");
    assert_int_equal(seen.n_events, POINTS_EVENTS_PER_KIND + 2);
}

/* ---- event files ---- */

static void put_record(struct bytes *b, const void *data, size_t n) {
    uint8_t head[TFRECORD_HEAD_BYTES];
    const uint32_t checksum = htole32(tfrecord_checksum(data, n));
    tfrecord_head(n, head);
    OK(bytes_append(b, head, sizeof head, NULL));
    OK(bytes_append(b, data, n, NULL));
    OK(bytes_append(b, &checksum, sizeof checksum, NULL));
}

static void put_value(struct bytes *b, int64_t step, Tensorflow__Summary__Value *value) {
    uint8_t packed[1024];
    Tensorflow__Summary summary = TENSORFLOW__SUMMARY__INIT;
    Tensorflow__Event event = TENSORFLOW__EVENT__INIT;
    summary.n_value = 1;
    summary.value = &value;
    event.step = step;
    event.what_case = TENSORFLOW__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    assert_true(tensorflow__event__get_packed_size(&event) <= sizeof packed);
    put_record(b, packed, tensorflow__event__pack(&event, packed));
}

static void put_simple(struct bytes *b, const char *tag, int64_t step, float value) {
    Tensorflow__Summary__Value v = TENSORFLOW__SUMMARY__VALUE__INIT;
    v.tag = (char *)(uintptr_t)tag;
    v.value_case = TENSORFLOW__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    v.simple_value = value;
    put_value(b, step, &v);
}

static void put_tensor(struct bytes *b, const char *tag, const char *plugin, Tensorflow__TensorProto *tensor) {
    Tensorflow__Summary__Value v = TENSORFLOW__SUMMARY__VALUE__INIT;
    Tensorflow__SummaryMetadata metadata = TENSORFLOW__SUMMARY_METADATA__INIT;
    Tensorflow__SummaryMetadata__PluginData data = TENSORFLOW__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    data.plugin_name = (char *)(uintptr_t)plugin;
    metadata.plugin_data = &data;
    v.tag = (char *)(uintptr_t)tag;
    v.metadata = &metadata;
    v.value_case = TENSORFLOW__SUMMARY__VALUE__VALUE_TENSOR;
    v.tensor = tensor;
    put_value(b, 4, &v);
}

static char folder[64];

static int folder_make(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_tracking.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static void append(const char *name, const void *data, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *strrchr(path, '/') = '\0';
    OK(dir_make(path, 0700, NULL));
    path[strlen(path)] = '/';
    CLEANUP(closep) int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    OK(fd_write_all(fd, data, n, NULL));
}

static int ticks;
static void tick(void *ctx) {
    (void)ctx;
    ticks++;
}

static void all_read(struct tensorboard_files *t, struct points *p) {
    tensorboard_files_end(t);
    points_end(p);
}

static void every_form_of_a_scalar_is_read_and_other_values_are_counted(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    struct bytes b;
    uint8_t content[8] = { 0, 0, 0, 0, 0, 0, 0x10, 0x40 }; /* 4.0 */
    float one = 1.5f;
    double two = 2.5;
    Tensorflow__TensorProto list = TENSORFLOW__TENSOR_PROTO__INIT, doubles = list, bytes = list, text = list;
    bytes_init(&b, 1 << 20);
    put_record(&b,
               "\x1a\x0d"
               "brain.Event:2",
               15); /* the first event of each file */
    put_simple(&b, "simple", 3, 0.5f);
    list.dtype = 1;
    list.n_float_val = 1;
    list.float_val = &one;
    put_tensor(&b, "float", "scalars", &list);
    doubles.dtype = 2;
    doubles.n_double_val = 1;
    doubles.double_val = &two;
    put_tensor(&b, "double", "", &doubles);
    bytes.dtype = 2;
    bytes.tensor_content = (ProtobufCBinaryData){ sizeof content, content };
    put_tensor(&b, "content", "scalars", &bytes);
    text.dtype = 7;
    put_tensor(&b, "text", "text", &text);
    put_tensor(&b, "histogram", "histograms", &list);
    append("events.out.tfevents.1", b.data, b.len);
    tensorboard_files_watch(t, folder, false);
    all_read(t, p);
    assert_string_equal(seen.rows, "3 simple=0.5|4 float=1.5 double=2.5 content=4|");
    assert_string_equal(seen.events, "tensorboard_ignored: 2 values in event files are no scalars (images, histograms, "
                                     "text and the like) and are not stored|");
    bytes_done(&b);
}

static void a_file_is_read_on_from_any_cut_and_each_point_once(void **state) {
    (void)state;
    struct bytes b;
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    put_simple(&b, "a", 2, 2);
    for (size_t cut = 0; cut <= b.len; cut++) {
        CLEANUP(points_freep) struct points *p = points_of_test();
        CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
        char name[64];
        snprintf(name, sizeof name, "at-%zu/x.tfevents", cut);
        append(name, b.data, cut);
        tensorboard_files_watch(t, folder, false);
        while (tensorboard_files_read(t))
            continue;
        append(name, b.data + cut, b.len - cut);
        all_read(t, p);
        assert_string_equal(seen.rows, "1 a=1|2 a=2|");
        assert_int_equal(seen.n_events, 0);
        OK(dir_remove(folder, NULL));
        OK(dir_make(folder, 0700, NULL));
    }
    bytes_done(&b);
}

static void a_corrupt_record_is_reported_once_and_other_files_are_read(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    struct bytes b;
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    const size_t first = b.len;
    put_simple(&b, "a", 2, 2);
    append("good.tfevents", b.data, first);
    b.data[first + 14] ^= 1;
    append("x/bad.tfevents", b.data, b.len);
    tensorboard_files_watch(t, folder, false);
    tensorboard_files_read(t);
    append("x/bad.tfevents", b.data, first);
    all_read(t, p);
    assert_string_equal(seen.rows, "1 a=1 x/a=1|");
    assert_int_equal(seen.n_events, 1);
    assert_non_null(strstr(seen.events, "x/bad.tfevents' is not read any further: a record is corrupt"));
    bytes_done(&b);
}

static void a_record_that_is_too_large_is_skipped(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    static char image[TENSORBOARD_RECORD_BYTES * 3];
    struct bytes b;
    bytes_init(&b, 4 << 20);
    put_record(&b, image, sizeof image);
    const size_t half = b.len / 2;
    put_simple(&b, "a", 1, 1);
    append("x.tfevents", b.data, half);
    tensorboard_files_watch(t, folder, false);
    tensorboard_files_read(t);
    append("x.tfevents", b.data + half, b.len - half);
    all_read(t, p);
    assert_string_equal(seen.rows, "1 a=1|");
    assert_non_null(strstr(seen.events, "tensorboard_ignored: 1 values"));
    bytes_done(&b);
}

static void files_of_earlier_runs_are_not_read_and_other_folders_have_a_prefix(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    struct bytes b;
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    append("run/train/old.tfevents", b.data, b.len);
    tensorboard_files_watch(t, folder, true);
    append("run/train/old.tfevents", b.data, b.len);
    append("run/train/new.tfevents", b.data, b.len);
    while (tensorboard_files_read(t))
        continue;
    append("run/train/loss_total/x.tfevents", b.data, b.len);
    append("run/validation/x.tfevents", b.data, b.len);
    append("run/.hidden/x.tfevents", b.data, b.len);
    all_read(t, p);
    assert_int_equal(seen.n_rows, 2); /* the two later files have one step */
    assert_non_null(strstr(seen.rows, "1 a=1|1 "));
    assert_non_null(strstr(seen.rows, " loss_total/a=1"));
    assert_non_null(strstr(seen.rows, " validation/a=1"));
    assert_null(strstr(seen.rows, "hidden"));
    bytes_done(&b);
}

static void a_file_that_is_renamed_is_not_read_twice(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    struct bytes b;
    char from[128], to[128];
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    append("x/1.tfevents", b.data, b.len);
    tensorboard_files_watch(t, folder, false);
    while (tensorboard_files_read(t))
        continue;
    snprintf(from, sizeof from, "%s/x", folder);
    snprintf(to, sizeof to, "%s/y", folder);
    assert_int_equal(rename(from, to), 0);
    all_read(t, p);
    assert_string_equal(seen.rows, "1 a=1|");
    bytes_done(&b);
}

static void the_number_of_files_is_bounded_and_reported(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    struct bytes b;
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    for (int i = 0; i < TENSORBOARD_FILES + 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "%d.tfevents", i);
        append(name, b.data, b.len);
    }
    tensorboard_files_watch(t, folder, false);
    all_read(t, p);
    assert_int_equal(seen.n_rows, TENSORBOARD_FILES);
    assert_int_equal(seen.n_events, 1);
    assert_non_null(strstr(seen.events, "more than 256 event files of one rank"));
    bytes_done(&b);
}

/* A clock that each look at it advances by a millisecond: as if each entry of a folder took so long. */
static int64_t slow_ns, wall_us;
static int64_t mono_slow(void *ctx) {
    (void)ctx;
    return slow_ns += 1000000;
}
static int64_t wall_fixed(void *ctx) {
    (void)ctx;
    return wall_us;
}

static void a_long_scan_is_cut_into_turns_and_ticks_for_each_entry(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    struct bytes b;
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    for (int i = 0; i < 900; i++) {
        char name[64];
        snprintf(name, sizeof name, "folder-%d/other", i);
        append(name, "", 0);
    }
    append("folder-77/x.tfevents", b.data, b.len);
    append("y.tfevents", b.data, b.len);
    wall_us = clock_wall_us();
    clock_override(&(struct clock_source){ mono_slow, wall_fixed, NULL });
    tensorboard_files_watch(t, folder, false);
    int turns = 1, most = 0, before = ticks = 0;
    for (; tensorboard_files_read(t); turns++) {
        most = ticks - before > most ? ticks - before : most;
        before = ticks;
    }
    clock_override(NULL);
    assert_in_range(turns, 18, 100);
    assert_true(most < 200);
    assert_true(ticks >= 1800);
    points_end(p);
    assert_int_equal(seen.n_rows, 2);
    bytes_done(&b);
}

static void the_first_scan_ticks_and_does_not_count_against_the_limit_of_files(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    const struct timespec long_ago[] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
    const int files = 8192 + 100;
    struct bytes b;
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    for (int i = 0; i < files; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/%d.tfevents", folder, i);
        CLEANUP(closep) int fd = open(name, O_WRONLY | O_CREAT, 0600);
        assert_true(fd >= 0);
        OK(fd_write_all(fd, b.data, b.len, NULL));
        assert_int_equal(futimens(fd, long_ago), 0);
    }
    append("recent.tfevents", b.data, b.len);
    ticks = 0;
    tensorboard_files_watch(t, folder, true);
    assert_true(ticks >= files);
    append("recent.tfevents", b.data, b.len);
    append("new.tfevents", b.data, b.len);
    all_read(t, p);
    assert_string_equal(seen.rows, "1 a=1|");
    assert_int_equal(seen.n_events, 0);
    bytes_done(&b);
}

static void a_first_scan_that_is_too_long_ends_and_earlier_files_are_known_by_their_time(void **state) {
    (void)state;
    CLEANUP(points_freep) struct points *p = points_of_test();
    CLEANUP(tensorboard_files_freep) struct tensorboard_files *t = tensorboard_files_new(p, tick, NULL);
    struct bytes b;
    bytes_init(&b, 1 << 20);
    put_simple(&b, "a", 1, 1);
    for (int i = 0; i < 11000; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/%d", folder, i);
        close(open(name, O_WRONLY | O_CREAT, 0600));
    }
    append("x/old.tfevents", b.data, b.len);
    wall_us = clock_wall_us() + 50000;
    clock_override(&(struct clock_source){ mono_slow, wall_fixed, NULL });
    ticks = 0;
    tensorboard_files_watch(t, folder, true);
    clock_override(NULL);
    assert_in_range(ticks, 5000, 10500);
    while (clock_wall_us() < wall_us + 20000) /* the times of files have a resolution of some milliseconds */
        continue;
    append("x/new.tfevents", b.data, b.len);
    all_read(t, p);
    assert_string_equal(seen.rows, "1 a=1|");
    bytes_done(&b);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_of_one_step_are_one_row),
        cmocka_unit_test(a_name_that_no_metric_can_have_is_changed_and_reported),
        cmocka_unit_test(a_million_names_become_as_many_as_a_rank_may_have_and_two_events),
        cmocka_unit_test(points_without_a_step_are_numbered_unless_the_metric_has_steps),
        cmocka_unit_test(a_metric_belongs_to_the_source_that_reports_it_first),
        cmocka_unit_test(events_of_one_kind_are_bounded),
        WITH_FOLDER(every_form_of_a_scalar_is_read_and_other_values_are_counted),
        WITH_FOLDER(a_file_is_read_on_from_any_cut_and_each_point_once),
        WITH_FOLDER(a_corrupt_record_is_reported_once_and_other_files_are_read),
        WITH_FOLDER(a_record_that_is_too_large_is_skipped),
        WITH_FOLDER(files_of_earlier_runs_are_not_read_and_other_folders_have_a_prefix),
        WITH_FOLDER(a_file_that_is_renamed_is_not_read_twice),
        WITH_FOLDER(the_number_of_files_is_bounded_and_reported),
        WITH_FOLDER(a_long_scan_is_cut_into_turns_and_ticks_for_each_entry),
        WITH_FOLDER(the_first_scan_ticks_and_does_not_count_against_the_limit_of_files),
        WITH_FOLDER(a_first_scan_that_is_too_long_ends_and_earlier_files_are_known_by_their_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
