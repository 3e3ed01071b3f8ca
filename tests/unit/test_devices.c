/* The agent's GPUs with a stand-in for the driver: which GPUs are found and why some are not offered, the memory of
 * unhealthy GPUs, how the end of a rank is judged, and a thread that is blocked in the driver. */
#include "base/file.h"
#include "executor/agent/core/exit_reason.h"
#include "executor/agent/cuda_libraries.h"
#include "executor/agent/device_claim.h"
#include "executor/agent/device_monitor.h"
#include "executor/agent/inventory.h"
#include "executor/agent/quarantine.h"
#include "tests/e2e/devices/nvml_stand_in.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-devices-XXXXXX";
static char script[64];

static void say(const char *text) {
    struct err e;
    if (file_write_atomic(script, text, strlen(text), 0644, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static int empty_script(void **state) {
    (void)state;
    say("");
    return 0;
}

/* ---- finding GPUs ---- */

static void take_part(struct inventory *ret, struct nvml_part part) {
    struct nvml *nvml;
    inventory_take(ret, 0, 1, NVML_STAND_IN, part, &nvml);
    assert_int_equal(nvml == NULL, ret->n_devices == 0);
    nvml_close(nvml);
}

static void take(struct inventory *ret) { take_part(ret, (struct nvml_part){ 0 }); }

static void a_device_that_the_driver_does_not_describe_keeps_its_place_with_the_reason(void **state) {
    (void)state;
    struct inventory inv;
    say("undescribed 0 999\n");
    take(&inv);
    assert_int_equal(inv.n_devices, 2);
    assert_string_equal(inv.devices[0].reason, "the driver does not describe it (NVML code 999)");
    assert_string_equal(inv.devices[0].uuid, "GPU-host-0");
    assert_string_equal(inv.devices[0].model, "unknown");
    assert_string_equal(inv.devices[1].reason, "");
    assert_string_equal(inv.devices[1].links[0], "NV4");

    say("unopened 1 15\n");
    take(&inv);
    assert_int_equal(inv.n_devices, 2);
    assert_string_equal(inv.devices[0].reason, "");
    assert_string_equal(inv.devices[0].links[1], "?");
    assert_string_equal(inv.devices[1].reason, "the driver does not open it (NVML code 15)");
    assert_string_equal(inv.devices[1].uuid, "");

    say("lost 0 0\n");
    take(&inv);
    assert_string_equal(inv.devices[0].reason, "the driver does not describe it (NVML code 15)");

    say("gone 0 0\n");
    take(&inv);
    assert_int_equal(inv.n_devices, 1);
    assert_string_equal(inv.devices[0].uuid, "GPU-host-1");
}

static void a_device_that_is_too_old_is_listed_with_the_reason(void **state) {
    (void)state;
    struct inventory inv;
    say("old 0 75\nold 1 80\n");
    take(&inv);
    assert_string_equal(inv.devices[0].reason, "too old: compute capability 7.5, and jobs need 8.0");
    assert_string_equal(inv.devices[1].reason, "");
}

static void parts_have_each_device_once_by_its_number_on_the_host(void **state) {
    (void)state;
    struct inventory inv;
    for (int k = 1; k <= 2; k++) {
        take_part(&inv, (struct nvml_part){ k, 2 });
        assert_int_equal(inv.n_devices, 1);
        assert_int_equal(inv.devices[0].index, k - 1);
        assert_string_equal(inv.devices[0].uuid, k == 1 ? "GPU-host-0" : "GPU-host-1");
    }
    take_part(&inv, (struct nvml_part){ 2, 3 });
    assert_string_equal(inv.devices[0].uuid, "GPU-host-1");
    take_part(&inv, (struct nvml_part){ 3, 3 });
    assert_int_equal(inv.n_devices, 0);
    assert_string_equal(inv.device_reason, "this host's 2 GPUs go to other executors: this one has part 3 of 3");
    say("gone 1 0\n");
    take_part(&inv, (struct nvml_part){ 1, 2 });
    assert_string_equal(inv.devices[0].uuid, "GPU-host-0");
    take_part(&inv, (struct nvml_part){ 2, 2 });
    assert_string_equal(inv.device_reason, "this host's 1 GPU goes to other executors: this one has part 2 of 2");
}

static void a_device_is_claimed_once_until_its_claim_is_closed(void **state) {
    (void)state;
    int first = -1, again = -1, other = -1;
    struct err e;
    assert_int_equal(device_claim_take(folder, &first, &e), ST_OK);
    assert_int_equal(device_claim_take(folder, &again, &e), ST_ALREADY_EXISTS);
    assert_string_equal(e.msg, "another executor of this host has it");
    assert_int_equal(device_claim_take(folder + 1, &other, &e), ST_OK);
    close(first);
    assert_int_equal(device_claim_take(folder, &again, &e), ST_OK);
    close(again);
    close(other);
}

/* Asks a worker that is this script. */
static status_t ask(const char *script_text, int max_ms, struct cuda_libraries *ret, struct err *e) {
    char worker[80], text[300];
    const int n = snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script_text);
    struct err why;
    snprintf(worker, sizeof worker, "%s/worker", folder);
    assert_int_equal(file_write_atomic(worker, text, (size_t)n, 0755, &why), ST_OK);
    return cuda_libraries_check(worker, NULL, NULL, max_ms, ret, e);
}

static void a_workers_exit_status_shows_which_libraries_are_missing(void **state) {
    (void)state;
    static const struct {
        const char *worker;
        bool single_rank;
        const char *without;
    } table[] = {
        { "exit 0", false, "" },
        { "echo slower; exit 0", false, "slower" },
        { "echo alone; echo else; exit 4", true, "alone" },
        { "exit 3", false, "" },                   /* it prints no sentence */
        { "echo who knows; exit 1", false, "" },   /* another failure, */
        { "echo killed; kill -9 $$", false, "" },  /* as this one */
        { "exec >&-; sleep 0; exit 4", false, "" } /* its end is waited for, not that of its spooled */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct cuda_libraries found = { .single_rank = !table[i].single_rank };
        struct err e = { "" };
        assert_int_equal(ask(table[i].worker, CUDA_LIBRARIES_MAX_MS, &found, &e), ST_OK);
        assert_int_equal(found.single_rank, table[i].single_rank);
        assert_string_equal(found.without, table[i].without);
    }
    struct cuda_libraries found;
    struct err e = { "" };
    assert_int_equal(ask("echo no libcublasLt; echo else; exit 3", CUDA_LIBRARIES_MAX_MS, &found, &e),
                     ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "no libcublasLt");
}

static void a_worker_that_does_not_end_is_killed_and_counts_as_finding_all_libraries(void **state) {
    (void)state;
    struct cuda_libraries found = { .single_rank = true };
    struct err e = { "" };
    assert_int_equal(ask("echo no libcublasLt; sleep 600; exit 3", 50, &found, &e), ST_OK);
    assert_false(found.single_rank);
    assert_string_equal(found.without, "");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

/* ---- remembering unhealthy GPUs ---- */

static void quarantine_has(const char *uuid, const char *reason) {
    struct bytes text;
    char found[64];
    struct err e;
    assert_int_equal(quarantine_read(folder, &text, &e), ST_OK);
    assert_int_equal(quarantine_find(&text, uuid, found, sizeof found), *reason != '\0');
    assert_string_equal(found, reason);
    bytes_done(&text);
}

static void a_quarantine_stays_until_its_line_is_removed(void **state) {
    (void)state;
    char path[80];
    struct err e;
    snprintf(path, sizeof path, "%s/quarantine", folder);
    quarantine_has("GPU-1", "");
    assert_int_equal(quarantine_add(folder, "GPU-1", "Xid 79", &e), ST_OK);
    assert_int_equal(quarantine_add(folder, "GPU-10", "2 uncorrected memory errors", &e), ST_OK);
    quarantine_has("GPU-1", "Xid 79");
    quarantine_has("GPU-10", "2 uncorrected memory errors");
    quarantine_has("GPU-", "");
    quarantine_has("", "");
    /* As a person's editor may leave it: one line less, and no newline at the end. */
    static const char edited[] = "GPU-10 2 uncorrected memory errors";
    assert_int_equal(file_write_atomic(path, edited, strlen(edited), 0644, &e), ST_OK);
    assert_int_equal(quarantine_add(folder, "GPU-2", "Xid 48", &e), ST_OK);
    quarantine_has("GPU-1", "");
    quarantine_has("GPU-10", "2 uncorrected memory errors");
    quarantine_has("GPU-2", "Xid 48");
}

static void a_quarantine_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    char path[80];
    struct bytes text;
    struct err e;
    snprintf(path, sizeof path, "%s/shut", folder);
    assert_int_equal(dir_make(path, 0755, &e), ST_OK);
    snprintf(path, sizeof path, "%s/shut/quarantine", folder);
    assert_int_equal(dir_make(path, 0755, &e), ST_OK);
    snprintf(path, sizeof path, "%s/shut", folder);
    assert_int_equal(quarantine_read(path, &text, &e), ST_INVALID_ARGUMENT);
    bytes_done(&text);
    assert_int_equal(quarantine_add(path, "GPU-1", "Xid 79", &e), ST_INVALID_ARGUMENT);
}

/* ---- the reason of a rank's end ---- */

#define CAUSE(c) TRAINYARD__V1__WORKER_END__CAUSE__##c

static void a_lost_device_outweighs_the_workers_own_report_unless_it_finished(void **state) {
    (void)state;
    struct exit_reason v;
    struct final_report final = { .received = false };
    struct exit_facts facts = { .status = { .exit_code = 27 }, .final = &final, .device = 3 };
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(NUMERIC)); /* 20 + 7 */
    assert_false(v.reported);
    final = (struct final_report){ true, CAUSE(INTERNAL), 7, "CUDA: an illegal address", "" };
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(INTERNAL));
    assert_string_equal(v.sentence, "CUDA: an illegal address");
    assert_true(v.reported);
    facts.device_reason = "Xid 79";
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(DEVICE_LOST));
    assert_string_equal(v.sentence, "lost its GPU 3, which is quarantined: Xid 79");
    facts.leaving = true;
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(AGENT_LOST));
    final.cause = CAUSE(FINISHED);
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(FINISHED));
    facts.status = (struct exit_status){ .exit_code = -1, .signal = SIGKILL };
    facts.leaving = false;
    facts.device_reason = NULL;
    facts.killed_because = "gave no sign of life";
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(INTERNAL));
    assert_string_equal(v.sentence, "gave no sign of life");
}

static void a_rank_that_did_not_get_to_a_report_when_it_was_stopped_has_a_reason(void **state) {
    (void)state;
    struct exit_reason v;
    const struct final_report none = { .received = false };
    const struct exit_facts facts = { .status = { .exit_code = 22 }, .final = &none }; /* 20 + STOPPED */
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(STOPPED));
    assert_string_equal(v.sentence,
                        "was asked to stop, and ended without a report: it was busy for too long, such as with opening "
                        "data or a checkpoint");
}

static void memory_that_ran_out_outweighs_only_the_failure_that_follows_from_it(void **state) {
    (void)state;
    struct exit_reason v;
    struct final_report final = { true, CAUSE(INTERNAL), 7, "DataLoader worker exited", "" };
    struct memory_end memory = { "memory ran out", true, EXIT_MEMORY_MAX_MS };
    struct exit_facts facts = { .status = { .exit_code = 27 }, .final = &final, .memory = &memory };
    const exit_cause others[] = { CAUSE(STOPPED), CAUSE(PEER_LOST), CAUSE(HOST_FAULT), CAUSE(CHECKPOINT_UNREADABLE) };
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(BAD_SPEC));
    assert_string_equal(v.sentence, "memory ran out");
    assert_false(v.reported);
    memory.age_ms = EXIT_MEMORY_MAX_MS + 1; /* the program survived it */
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(INTERNAL));
    assert_string_equal(v.sentence, "DataLoader worker exited");
    memory.age_ms = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        final.cause = others[i];
        exit_reason_decide(&facts, &v);
        assert_int_equal(v.cause, others[i]);
        assert_true(v.reported);
    }
    final.cause = CAUSE(BAD_SPEC);
    memory.fatal = false;
    exit_reason_decide(&facts, &v);
    assert_int_equal(v.cause, CAUSE(INTERNAL));
    facts.status = (struct exit_status){ .exit_code = -1, .signal = SIGKILL };
    exit_reason_decide(&facts, &v);
    assert_string_equal(v.sentence, "memory ran out");
    facts.killed_because = "gave no sign of life";
    exit_reason_decide(&facts, &v);
    assert_string_equal(v.sentence, "gave no sign of life");
}

/* ---- the thread that watches ---- */

enum { READINGS_MAX = 256 };

struct watch {
    struct reactor *loop;
    struct device_monitor *monitor;
    struct device_monitor_reading readings[READINGS_MAX];
    int n;
    int64_t awaited;
};

static void on_reading(void *ctx, const struct device_monitor_reading *r) {
    struct watch *w = ctx;
    assert_true(w->n < READINGS_MAX);
    w->readings[w->n++] = *r;
    if (r->kind == DEVICE_MONITOR_INSPECTED && r->inspection >= w->awaited)
        reactor_quit(w->loop);
}

static void watch_open(struct watch *w) {
    struct nvml *nvml;
    struct err e;
    *w = (struct watch){ .n = 0 };
    assert_int_equal(reactor_open(&w->loop, &e), ST_OK);
    assert_int_equal(nvml_open(NVML_STAND_IN, (struct nvml_part){ 0 }, &nvml, &e), ST_OK);
    assert_int_equal(device_monitor_open(w->loop, nvml, on_reading, w, &w->monitor, &e), ST_OK);
}

static int find(const struct watch *w, enum device_monitor_kind kind, int device) {
    for (int i = 0; i < w->n; i++)
        if (w->readings[i].kind == kind && w->readings[i].device == device)
            return i;
    return READINGS_MAX;
}

static void an_inspection_reports_xids_and_a_sample_of_each_device_before_its_end(void **state) {
    (void)state;
    struct watch w;
    struct err e;
    watch_open(&w);
    say("xid 1 79\nuncorrected 0 2\n");
    w.awaited = device_monitor_inspect(w.monitor);
    assert_int_equal(device_monitor_inspect(w.monitor), w.awaited + 1);
    w.awaited++;
    assert_int_equal(reactor_run(w.loop, &e), ST_OK);
    assert_true(find(&w, DEVICE_MONITOR_XID, 1) < w.n);
    assert_int_equal(w.readings[find(&w, DEVICE_MONITOR_XID, 1)].xid, 79);
    int errors = -1;
    for (int i = 0; i < w.n; i++)
        if (w.readings[i].kind == DEVICE_MONITOR_SAMPLE && w.readings[i].sample.ecc_uncorrected == 2)
            errors = i;
    assert_true(errors >= 0 && errors < w.n - 1);
    assert_int_equal(w.readings[w.n - 1].kind, DEVICE_MONITOR_INSPECTED);
    device_monitor_close(w.monitor);
    reactor_close(w.loop);
}

static void a_lost_device_is_reported(void **state) {
    (void)state;
    struct watch w;
    struct err e;
    watch_open(&w);
    say("lost 1 0\n");
    w.awaited = device_monitor_inspect(w.monitor);
    assert_int_equal(reactor_run(w.loop, &e), ST_OK);
    bool lost[2] = { false, false };
    for (int i = 0; i < w.n; i++)
        if (w.readings[i].kind == DEVICE_MONITOR_SAMPLE)
            lost[w.readings[i].device] |= w.readings[i].sample.lost;
    assert_false(lost[0]);
    assert_true(lost[1]);
    device_monitor_close(w.monitor);
    reactor_close(w.loop);
}

static void quit(void *ctx) { reactor_quit(ctx); }

/* Readings that wait in the loop when the monitor is closed are dropped. */
static void no_reading_arrives_after_the_close(void **state) {
    (void)state;
    struct watch w;
    struct err e;
    int asked = nvml_stand_in_asked();
    watch_open(&w);
    nvml_stand_in_await_asked(asked + 2); /* the first device's reading waits */
    device_monitor_close(w.monitor);
    struct reactor_timer end = { .fire = quit, .ctx = w.loop };
    reactor_timer_set(w.loop, &end, 50);
    assert_int_equal(reactor_run(w.loop, &e), ST_OK);
    assert_int_equal(w.n, 0);
    reactor_close(w.loop);
}

static void a_thread_that_the_driver_holds_outlives_the_loop_and_lets_the_driver_go(void **state) {
    (void)state;
    struct watch w;
    int ends = nvml_stand_in_ends();
    nvml_stand_in_hold(1);
    watch_open(&w);
    nvml_stand_in_await_held();
    device_monitor_close(w.monitor); /* gives up after two seconds */
    reactor_close(w.loop);
    nvml_stand_in_hold(0);
    nvml_stand_in_await_ends(ends + 1);
    assert_int_equal(w.n, 0);
}

static int open_all(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(script, sizeof script, "%s/script", folder);
    setenv("FAKE_NVML", script, 1);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup(name, empty_script)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_device_that_the_driver_does_not_describe_keeps_its_place_with_the_reason),
        TEST(a_device_that_is_too_old_is_listed_with_the_reason),
        TEST(parts_have_each_device_once_by_its_number_on_the_host),
        TEST(a_device_is_claimed_once_until_its_claim_is_closed),
        TEST(a_workers_exit_status_shows_which_libraries_are_missing),
        TEST(a_worker_that_does_not_end_is_killed_and_counts_as_finding_all_libraries),
        TEST(a_quarantine_stays_until_its_line_is_removed),
        TEST(a_quarantine_that_cannot_be_read_is_an_error),
        TEST(a_lost_device_outweighs_the_workers_own_report_unless_it_finished),
        TEST(a_rank_that_did_not_get_to_a_report_when_it_was_stopped_has_a_reason),
        TEST(memory_that_ran_out_outweighs_only_the_failure_that_follows_from_it),
        TEST(an_inspection_reports_xids_and_a_sample_of_each_device_before_its_end),
        TEST(a_lost_device_is_reported),
        TEST(no_reading_arrives_after_the_close),
        TEST(a_thread_that_the_driver_holds_outlives_the_loop_and_lets_the_driver_go),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
