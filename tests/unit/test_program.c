/* Parts of trainyard-program by themselves: the ranks' places on their hosts, lines of metrics, the stop step. */
#include "base/cleanup.h"
#include "executor/program/metric_lines.h"
#include "executor/program/rendezvous.h"
#include "executor/program/stop_step.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MAX = 8 };

static status_t place_of(const char *const *addresses, int n, int rank, struct place *ret, struct err *e) {
    ProtobufCBinaryData data[RANKS_MAX];
    for (int i = 0; i < n; i++)
        data[i] = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)addresses[i], .len = strlen(addresses[i]) };
    Trainyard__V1__Rendezvous all = TRAINYARD__V1__RENDEZVOUS__INIT;
    all.n_addresses = (size_t)n;
    all.addresses = data;
    return rendezvous_place(&all, rank, n, ret, e);
}

static void ranks_are_counted_by_their_executors_in_any_order(void **state) {
    (void)state;
    /* Two executors on one host, and another host whose agent has the same pid as one of them. */
    static const char *const addresses[] = { "a 1001 7", "b 1002 7", "a 1003 8", "a 1004 7", "b 1005 7" };
    static const int wanted[][4] = { { 0, 2, 0, 3 }, { 0, 2, 1, 3 }, { 0, 1, 2, 3 }, { 1, 2, 0, 3 }, { 1, 2, 1, 3 } };
    for (int r = 0; r < 5; r++) {
        struct place place;
        assert_int_equal(place_of(addresses, 5, r, &place, NULL), ST_OK);
        assert_string_equal(place.master_address, "a");
        assert_int_equal(place.master_port, 1001);
        assert_int_equal(place.local_rank, wanted[r][0]);
        assert_int_equal(place.local_world_size, wanted[r][1]);
        assert_int_equal(place.group_rank, wanted[r][2]);
        assert_int_equal(place.groups, wanted[r][3]);
    }
}

static void with_a_launcher_a_host_has_a_leader_and_the_gpus_of_all_its_ranks(void **state) {
    (void)state;
    static const char *const addresses[] = { "a 1001 7 70 0", "b 1002 7 71 GPU-x", "a 1003 7 72 3", "b 1004 7 73 -" };
    for (int r = 0; r < 4; r++) {
        struct place place;
        assert_int_equal(place_of(addresses, 4, r, &place, NULL), ST_OK);
        assert_int_equal(place.leader, r % 2 ? 71 : 70);
        assert_string_equal(place.gpus, r % 2 ? "GPU-x" : "0,3");
    }
    char own[RENDEZVOUS_ADDRESS_BYTES], wanted[RENDEZVOUS_ADDRESS_BYTES];
    rendezvous_address("h", 5, "", own);
    snprintf(wanted, sizeof wanted, "h 5 %d %d -", (int)getppid(), (int)getpid());
    assert_string_equal(own, wanted);
}

static void an_address_of_another_form_is_refused(void **state) {
    (void)state;
    static const char *const wrong[] = { "",          "a",       "a 1",    "a b 1",      "a 0 1",
                                         "a 65536 1", "a 1 1 1", "a 1 1x", "a 1 1 1 - 2" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const addresses[] = { "a 1 1", wrong[i] };
        struct place place;
        struct err e;
        assert_int_equal(place_of(addresses, 2, 0, &place, &e), ST_INTERNAL);
        assert_string_equal(e.msg, "the address of rank 1 is not a host, a port and an agent");
    }
}

static void a_reserved_port_is_taken_until_it_is_closed(void **state) {
    (void)state;
    struct reserved_port first, second;
    assert_int_equal(rendezvous_reserve_port(&first, NULL), ST_OK);
    assert_int_equal(rendezvous_reserve_port(&second, NULL), ST_OK);
    assert_in_range(first.port, 1, 65535);
    assert_int_not_equal(first.port, second.port);
    close(first.fd);
    close(second.fd);
}

struct seen {
    int rows, refused;
    char text[512];
};

static void on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    struct seen *seen = ctx;
    size_t used = (size_t)snprintf(seen->text, sizeof seen->text, "%d", (int)step);
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(seen->text + used, sizeof seen->text - used, " %s=%g", names[i], values[i]);
    seen->rows++;
}

static void on_refused(void *ctx, const char *sentence) {
    struct seen *seen = ctx;
    snprintf(seen->text, sizeof seen->text, "%s", sentence);
    seen->refused++;
}

static void lines_become_rows_at_any_cut(void **state) {
    (void)state;
    static const char text[] =
        "{\"step\": 3, \"loss\": 1.5, \"n\": -2}\n\n{\"step\": 4, \"loss\": 1e300}\n{\"step\": 5}\n";
    for (size_t cut = 1; cut < sizeof text; cut++) {
        struct metric_lines lines = { .n = 0 };
        struct seen seen = { 0 };
        const struct metric_sink sink = { &seen, on_row, on_refused };
        for (size_t at = 0; at < sizeof text - 1; at += cut)
            metric_lines_feed(&lines, text + at, sizeof text - 1 - at < cut ? sizeof text - 1 - at : cut, &sink);
        assert_int_equal(seen.rows, 2); /* a step without a value is no row */
        assert_int_equal(seen.refused, 0);
        assert_string_equal(seen.text, "4 loss=1e+300");
    }
}

static void a_step_is_at_most_two_to_the_power_of_53(void **state) {
    (void)state;
    struct metric_lines lines = { .n = 0 };
    struct seen seen = { 0 };
    const struct metric_sink sink = { &seen, on_row, on_refused };
    static const char most[] = "{\"step\": 9007199254740992, \"a\": 1}\n",
                      more[] = "{\"step\": 9007199254740993, \"a\": 1}\n";
    metric_lines_feed(&lines, most, sizeof most - 1, &sink);
    assert_int_equal(seen.rows, 1);
    metric_lines_feed(&lines, more, sizeof more - 1, &sink);
    assert_int_equal(seen.rows, 1);
    assert_non_null(strstr(seen.text, "step is not an integer from 0 to 2^53"));
}

static void a_line_that_is_too_long_is_refused_once_and_the_next_one_is_read(void **state) {
    (void)state;
    struct metric_lines lines = { .n = 0 };
    struct seen seen = { 0 };
    const struct metric_sink sink = { &seen, on_row, on_refused };
    for (int i = 0; i < 3 * METRIC_LINE_BYTES; i++)
        metric_lines_feed(&lines, "x", 1, &sink);
    metric_lines_feed(&lines, "\n", 1, &sink);
    assert_int_equal(seen.refused, 1);
    metric_lines_feed(&lines, "{\"step\": 1, \"a\": 1}\n", 20, &sink);
    assert_int_equal(seen.refused, 1);
    assert_string_equal(seen.text, "1 a=1");
}

/* ---- the stop step ---- */

static void stop_file_open(struct stop_step *s) {
    char folder[] = "/tmp/ty-stop-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(stop_step_open(s, folder, NULL), ST_OK);
}

static void stop_file_close(struct stop_step *s) {
    unlink(s->path);
    *strrchr(s->path, '/') = '\0';
    rmdir(s->path);
    stop_step_close(s);
}

/* The program has finished a step. */
static void finish(const struct stop_step *s, int64_t step) {
    int fd = open(s->path, O_WRONLY);
    assert_int_equal(pwrite(fd, &step, sizeof step, 8), sizeof step);
    close(fd);
}

static int64_t chosen(const struct stop_step *s, int64_t now_ms) {
    int64_t step;
    assert_true(stop_step_choose(s, now_ms, &step));
    return step;
}

static void the_stop_step_is_a_second_ahead(void **state) {
    (void)state;
    static const struct {
        int step_ms, most_ms; /* the time of a step; the longest time from the choice to the end of the stop step */
    } cases[] = { { 1, 2000 }, { 10, 2000 }, { 200, 2000 }, { 1500, 3200 }, { 30000, 61000 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int part = 0; part < 10; part++) { /* of the step in which the stop is ordered */
            struct stop_step s;
            int64_t now = 0, ordered = 20 * (int64_t)cases[i].step_ms + part * cases[i].step_ms / 10 + 3000, step = 0;
            stop_file_open(&s);
            for (; now <= ordered; now += cases[i].step_ms < 100 ? cases[i].step_ms : 100) {
                step = now / cases[i].step_ms;
                finish(&s, step);
                stop_step_sample(&s, -1, now);
            }
            const int64_t end_ms = chosen(&s, now) * cases[i].step_ms;
            assert_in_range(end_ms, now + (cases[i].step_ms < 1000 ? 1000 : 0), now + cases[i].most_ms);
            stop_file_close(&s);
        }
    }
}

static void without_a_step_of_the_program_those_of_its_metrics_count(void **state) {
    (void)state;
    struct stop_step s;
    int64_t step;
    stop_file_open(&s);
    stop_step_sample(&s, -1, 0);
    assert_int_equal(chosen(&s, 0), -1);
    stop_step_sample(&s, 100, 1000); /* each hundredth step is reported */
    assert_false(stop_step_choose(&s, 1100, &step));
    stop_step_sample(&s, 200, 2000);
    stop_step_sample(&s, 300, 3000);
    assert_in_range(chosen(&s, 3900), 300 + 90 + 100, 300 + 300); /* about 390 is finished, and 100 a second */
    stop_file_close(&s);
}

static void once_the_program_writes_its_step_those_of_its_metrics_no_longer_count(void **state) {
    (void)state;
    struct stop_step s;
    int64_t step;
    stop_file_open(&s);
    stop_step_sample(&s, 1000000, 0); /* tokens */
    stop_step_sample(&s, 2000000, 1000);
    finish(&s, 10);
    stop_step_sample(&s, 3000000, 2000);
    assert_false(stop_step_choose(&s, 2000, &step));
    finish(&s, 20);
    stop_step_sample(&s, 4000000, 3000);
    assert_in_range(chosen(&s, 3000), 21, 40);
    finish(&s, INT64_MAX); /* not a step */
    stop_step_sample(&s, INT64_MAX, 3100);
    assert_in_range(chosen(&s, 3100), 21, 40);
    stop_file_close(&s);
}

static void a_stop_step_that_comes_too_late_is_noticed(void **state) {
    (void)state;
    struct stop_step s;
    int64_t seen;
    stop_file_open(&s);
    finish(&s, 9);
    assert_true(stop_step_set(&s, 10));
    finish(&s, 10);
    assert_false(stop_step_set(&s, 10));
    int fd = open(s.path, O_RDONLY);
    assert_int_equal(pread(fd, &seen, sizeof seen, 0), sizeof seen);
    assert_int_equal(seen, 10);
    close(fd);
    assert_int_equal(truncate(s.path, 3), 0); /* by the program */
    stop_step_sample(&s, -1, 0);
    assert_int_equal(chosen(&s, 1), -1);
    stop_file_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stop_step_is_a_second_ahead),
        cmocka_unit_test(without_a_step_of_the_program_those_of_its_metrics_count),
        cmocka_unit_test(once_the_program_writes_its_step_those_of_its_metrics_no_longer_count),
        cmocka_unit_test(a_stop_step_that_comes_too_late_is_noticed),
        cmocka_unit_test(ranks_are_counted_by_their_executors_in_any_order),
        cmocka_unit_test(with_a_launcher_a_host_has_a_leader_and_the_gpus_of_all_its_ranks),
        cmocka_unit_test(an_address_of_another_form_is_refused),
        cmocka_unit_test(a_reserved_port_is_taken_until_it_is_closed),
        cmocka_unit_test(lines_become_rows_at_any_cut),
        cmocka_unit_test(a_step_is_at_most_two_to_the_power_of_53),
        cmocka_unit_test(a_line_that_is_too_long_is_refused_once_and_the_next_one_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
