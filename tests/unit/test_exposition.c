/* Prometheus' text: histograms, escapes, and what is left out of a page that would be too long. */
#include "service/http/exposition.h"

#include "base/alloc.h"
#include "service/http/metrics.h"
#include "service/http/metrics_objects.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool link_send(void *ctx, const Trainyard__V1__ControllerMessage *m) {
    (void)ctx, (void)m;
    return true;
}
static void link_close(void *ctx, status_t st, const char *why) { (void)ctx, (void)st, (void)why; }

static void a_histogram_counts_each_duration_once_and_its_buckets_grow(void **state) {
    (void)state;
    struct err e;
    struct bytes text;
    struct histogram h = HISTOGRAM_OF_WAITS;
    histogram_add(&h, -5);
    histogram_add(&h, 1000000000);
    histogram_add(&h, 4000000000);
    histogram_add(&h, 700000 * INT64_C(1000000000));
    bytes_init(&text, 1 << 16);
    struct exposition x = { .text = &text, .e = &e };
    exposition_single_histogram(&x, "wait_seconds", "Waits.", &h);
    assert_int_equal(x.st, ST_OK);
    assert_non_null(strstr(text.data, "# TYPE wait_seconds histogram\nwait_seconds_bucket{le=\"1\"} 2\n"
                                      "wait_seconds_bucket{le=\"5\"} 3\nwait_seconds_bucket{le=\"15\"} 3\n"));
    assert_non_null(strstr(text.data, "wait_seconds_bucket{le=\"604800\"} 3\nwait_seconds_bucket{le=\"+Inf\"} 4\n"
                                      "wait_seconds_sum 700005\nwait_seconds_count 4\n"));
    bytes_done(&text);
}

static void a_labels_value_is_escaped_and_cut_between_characters(void **state) {
    (void)state;
    char text[64];
    exposition_escape("a\"b\\c\nd", text, sizeof text);
    assert_string_equal(text, "a\\\"b\\\\c\\nd");
    exposition_escape("ab\xc3\xa4\xe2\x82\xac", text, 7); /* five bytes fit: the euro sign does not */
    assert_string_equal(text, "ab\xc3\xa4");
    exposition_escape("ab\xc3\xa4\xe2\x82\xac", text, 9);
    assert_string_equal(text, "ab\xc3\xa4\xe2\x82\xac");
}

static void values_that_are_not_finite_have_prometheus_names(void **state) {
    (void)state;
    struct err e;
    struct bytes text;
    bytes_init(&text, 1 << 16);
    struct exposition x = { .text = &text, .e = &e, .object_bytes = 1 << 16 };
    exposition_value(&x, "a", "", NAN);
    exposition_value(&x, "b", "c=\"d\"", INFINITY);
    exposition_object(&x, "e", "", NAN);
    assert_string_equal(text.data, "a NaN\nb{c=\"d\"} +Inf\n");
    bytes_done(&text);
}

/* n executors with `devices` devices each that have sent a heartbeat. tickets: (n) for executors_gone. */
static struct dispatch *executors_attached(int n, int devices, uint64_t *tickets) {
    struct dispatch *d = dispatch_new();
    struct dispatch_link link = { .send = link_send, .close = link_close, .caller = "" };
    Trainyard__V1__DeviceUse use[DISPATCH_DEVICES_MAX], *list[DISPATCH_DEVICES_MAX];
    Trainyard__V1__AgentUse agent = TRAINYARD__V1__AGENT_USE__INIT;
    Trainyard__V1__AgentHeartbeat beat = TRAINYARD__V1__AGENT_HEARTBEAT__INIT;
    for (int i = 0; i < devices; i++) {
        trainyard__v1__device_use__init(&use[i]);
        use[i].index = i;
        use[i]._utilization_case = TRAINYARD__V1__DEVICE_USE___UTILIZATION_UTILIZATION;
        use[i]._memory_bytes_case = TRAINYARD__V1__DEVICE_USE___MEMORY_BYTES_MEMORY_BYTES;
        use[i]._power_watts_case = TRAINYARD__V1__DEVICE_USE___POWER_WATTS_POWER_WATTS;
        use[i]._temperature_celsius_case = TRAINYARD__V1__DEVICE_USE___TEMPERATURE_CELSIUS_TEMPERATURE_CELSIUS;
        use[i].utilization = 0.123456789012345;
        use[i].memory_bytes = 123456789012;
        use[i].power_watts = 512.34567890123;
        list[i] = &use[i];
    }
    agent.devices = list;
    agent.n_devices = (size_t)devices;
    agent.records_waiting = 123456789;
    beat.spool_bytes = 123456789012;
    beat.use = &agent;
    for (int i = 0; i < n; i++) {
        char id[SCHEDULER_EXECUTOR_ID_BYTES];
        snprintf(id, sizeof id, "%016d", i);
        snprintf(link.host.hostname, sizeof link.host.hostname, "node-%d.cluster.example.org", i);
        tickets[i] = dispatch_attach(d, id, 1, &link);
        dispatch_heartbeat(d, tickets[i], &beat);
    }
    return d;
}

static struct dispatch *executors_gone(struct dispatch *d, int n, const uint64_t *tickets) {
    for (int i = 0; i < n; i++)
        dispatch_detach(d, tickets[i]);
    return dispatch_free(d);
}

static size_t page_of(int n_jobs, int n_executors, int devices, int64_t *ret_left_out) {
    struct err e;
    struct bytes text;
    struct progress *progress = progress_new();
    uint64_t *tickets = alloc_zeroed((size_t)n_executors, sizeof *tickets);
    struct dispatch *dispatch = executors_attached(n_executors, devices, tickets);
    struct store_job_brief *jobs = alloc_zeroed((size_t)n_jobs, sizeof *jobs);
    struct store_job_seconds *seconds = alloc_zeroed((size_t)n_jobs, sizeof *seconds);
    static const char *const metrics[] = { "loss", "validation_loss", "tokens_per_second", "step_seconds" };
    for (int i = 0; i < n_jobs; i++) {
        jobs[i] = (struct store_job_brief){ .id = 1000000 + i,
                                            .name = "a-name-of-a-job-as-long-as-people-like-them",
                                            .queue = "default",
                                            .state = STORE_JOB_RUNNING,
                                            .steps = 1000000 };
        seconds[i] = (struct store_job_seconds){ .job = jobs[i].id, .sum = { 1.0 / 3, 1e6 / 3, 1, 2, 3, 4, 5 } };
        for (size_t k = 0; k < sizeof metrics / sizeof *metrics; k++)
            progress_put(progress, jobs[i].id, 1, 123456, metrics[k], 1234.5678901234567);
    }
    bytes_init(&text, METRICS_BYTES);
    struct exposition x = { .text = &text, .e = &e, .object_bytes = METRICS_OBJECT_BYTES };
    metrics_put_jobs(&x, progress, jobs, (size_t)n_jobs);
    metrics_put_rank_seconds(&x, jobs, (size_t)n_jobs, seconds, (size_t)n_jobs);
    metrics_put_executors(&x, dispatch);
    assert_int_equal(x.st, ST_OK);
    const size_t bytes = text.len;
    *ret_left_out = x.left_out;
    bytes_done(&text);
    free(jobs);
    free(seconds);
    executors_gone(dispatch, n_executors, tickets);
    free(tickets);
    progress_free(progress);
    return bytes;
}

static void a_thousand_jobs_and_executors_fit_and_what_does_not_fit_is_counted(void **state) {
    (void)state;
    int64_t left_out;
    const size_t bytes = page_of(1000, 1000, 8, &left_out);
    print_message("1,000 jobs, 1,000 executors with 8 devices each: %zu bytes\n", bytes);
    assert_int_equal(left_out, 0);
    assert_true(page_of(1000, 1000, DISPATCH_DEVICES_MAX, &left_out) < METRICS_BYTES);
    assert_true(left_out > 100000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_histogram_counts_each_duration_once_and_its_buckets_grow),
        cmocka_unit_test(a_labels_value_is_escaped_and_cut_between_characters),
        cmocka_unit_test(values_that_are_not_finite_have_prometheus_names),
        cmocka_unit_test(a_thousand_jobs_and_executors_fit_and_what_does_not_fit_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
