/* The writer of the audit log over a real PostgreSQL: callers that wait for their entry, failures that do not wait and
 * are limited, and both while PostgreSQL is away. */
#include "tests/store/store_fixture.h"

#include "api/rpc/access.h"
#include "base/clock.h"
#include "service/rpc/audit_log.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Waits for a condition that another thread makes true. Fails after two minutes. */
#define AWAIT(condition)                                                                                               \
    do {                                                                                                               \
        struct timespec now_, end_;                                                                                    \
        clock_gettime(CLOCK_MONOTONIC, &end_);                                                                         \
        do {                                                                                                           \
            clock_gettime(CLOCK_MONOTONIC, &now_);                                                                     \
            if (now_.tv_sec > end_.tv_sec + 120)                                                                       \
                fail_msg("never came true: %s", #condition);                                                           \
            sched_yield();                                                                                             \
        } while (!(condition));                                                                                        \
    } while (0)

/* The clock runs normally, and a test can advance it. */
static _Atomic int64_t skipped_ns;

static int64_t mono_ns(void *ctx) {
    (void)ctx;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec + skipped_ns;
}

static int64_t wall_us(void *ctx) {
    (void)ctx;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static const struct rpc_audited_call CANCEL = { .service = "trainyard.v1.JobService",
                                                .method = "CancelJob",
                                                .caller = "ann",
                                                .peer = "unix:",
                                                .certificate = "",
                                                .request_id = "r-1",
                                                .object = "jobs/42",
                                                .why = "" };

static status_t record(struct audit_log *l, const struct rpc_audited_call *call, struct err *e) {
    const struct rpc_audit *rules = audit_log_rules(l);
    return rules->record(rules->ctx, call, e);
}

static void record_failures(struct audit_log *l, int n) {
    struct rpc_audited_call call = CANCEL;
    call.status = ST_PERMISSION_DENIED;
    call.why = "CancelJob needs the role USER";
    for (int i = 0; i < n; i++)
        OK(record(l, &call, &e));
}

/* A store that does not wait for a PostgreSQL that is away. */
static struct store *impatient;

static void a_call_that_changed_something_returns_with_its_entry(void **state) {
    struct fixture *f = *state;
    CLEANUP(audit_log_closep) struct audit_log *l = NULL;
    OK(audit_log_open(impatient, &l, &e));
    OK(record(l, &CANCEL, &e));
    assert_int_equal(pg_number(f->conninfo,
                               "SELECT count(*) FROM audit WHERE method = 'JobService.CancelJob' AND caller = "
                               "'ann' AND object = 'jobs/42' AND job = 42 AND result = 'OK' AND message = ''"),
                     1);
    struct rpc_audited_call odd = CANCEL;
    odd.object = "jobs/7/checkpoints/3";
    odd.certificate = "\xff\x01 odd"; /* PostgreSQL would refuse it */
    OK(record(l, &odd, &e));
    odd.object = "jobs/7x";
    OK(record(l, &odd, &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM audit WHERE certificate <> '' AND job = 7"), 1);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM audit WHERE certificate <> '' AND job IS NULL"), 1);
}

enum { CALLERS = 16, CALLS = 20 };

static void *call_often(void *l) {
    for (int i = 0; i < CALLS; i++)
        OK(record(l, &CANCEL, &e));
    return NULL;
}

static void callers_at_the_same_time_have_an_entry_each(void **state) {
    struct fixture *f = *state;
    pthread_t threads[CALLERS];
    CLEANUP(audit_log_closep) struct audit_log *l = NULL;
    OK(audit_log_open(impatient, &l, &e));
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, l), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM audit"), CALLERS * CALLS);
}

static const char ENTRIES[] = "SELECT count(*) FROM audit",
                  CALLS_OF_ENTRIES[] = "SELECT count(*) + sum(unrecorded) FROM audit";

static void failures_have_few_entries_which_count_the_others(void **state) {
    struct fixture *f = *state;
    CLEANUP(audit_log_closep) struct audit_log *l = NULL;
    OK(audit_log_open(impatient, &l, &e));
    const int64_t begun_ns = mono_ns(NULL);
    record_failures(l, 20000);
    const int64_t most = AUDIT_LOG_BURST + 1 + (mono_ns(NULL) - begun_ns) * AUDIT_LOG_PER_S / 1000000000;
    AWAIT(pg_number(f->conninfo, ENTRIES) >= AUDIT_LOG_BURST);
    assert_true(pg_number(f->conninfo, ENTRIES) <= most);
    skipped_ns += 1000000000;
    record_failures(l, 1);
    AWAIT(pg_number(f->conninfo, CALLS_OF_ENTRIES) == 20001);
    skipped_ns += AUDIT_LOG_BURST * 1000000000LL; /* the bucket is full again */
    record_failures(l, AUDIT_LOG_BURST);
    AWAIT(pg_number(f->conninfo, CALLS_OF_ENTRIES) == 20001 + AUDIT_LOG_BURST);
    assert_int_equal(
        pg_number(f->conninfo, "SELECT count(*) FROM audit WHERE message <> 'CancelJob needs the role USER'"), 0);
}

static void without_postgresql_no_change_is_acknowledged_and_failures_are_counted(void **state) {
    struct fixture *f = *state;
    CLEANUP(audit_log_closep) struct audit_log *l = NULL;
    OK(audit_log_open(impatient, &l, &e));
    OK(record(l, &CANCEL, &e));
    pg_kill(f->pg);
    struct err reported; /* it does not name the database's host or user */
    assert_int_equal(record(l, &CANCEL, &reported), ST_UNAVAILABLE);
    assert_string_equal(reported.msg, "PostgreSQL did not store the entry");
    record_failures(l, 3);
    pg_restart(f->pg);
    AWAIT(record(l, &CANCEL, &reported) == ST_OK);
    record_failures(l, 1);
    AWAIT(pg_number(f->conninfo, "SELECT coalesce(sum(1 + unrecorded), 0) FROM audit WHERE result <> 'OK'") == 4);
}

static void what_waits_is_stored_at_the_end(void **state) {
    struct fixture *f = *state;
    struct audit_log *l;
    OK(audit_log_open(impatient, &l, &e));
    record_failures(l, AUDIT_LOG_BURST);
    audit_log_close(l);
    assert_int_equal(pg_number(f->conninfo, ENTRIES), AUDIT_LOG_BURST);
}

static int setup(void **state) {
    skipped_ns = 0;
    int failed = fixture_setup(state);
    struct fixture *f = *state;
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo, .patience_ms = -1 }, &impatient, &e));
    return failed;
}

static int teardown(void **state) {
    impatient = store_close(impatient);
    return fixture_teardown(state);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLAIM(a_call_that_changed_something_returns_with_its_entry),
        CLAIM(callers_at_the_same_time_have_an_entry_each),
        CLAIM(failures_have_few_entries_which_count_the_others),
        CLAIM(without_postgresql_no_change_is_acknowledged_and_failures_are_counted),
        CLAIM(what_waits_is_stored_at_the_end),
    };
    static const struct clock_source source = { .mono_ns = mono_ns, .wall_us = wall_us };
    clock_override(&source);
    return cmocka_run_group_tests_name("audit log", tests, fixture_group_setup, fixture_group_teardown);
}
