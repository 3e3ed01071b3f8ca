/* A target of notifications may be removed while an event is written for it: the event is stored, without a row. */
#include "tests/store/store_fixture.h"

#include "service/store/executor.h"

#include <stdio.h>
#include <string.h>

static const char REMOVE[] = "DELETE FROM notification_target";

static void add_target(struct fixture *f) {
    pg_run(f->conninfo, "INSERT INTO notification_target VALUES ('hook', '{1}', '{made,executor_lost,"
                        "device_quarantined}')");
}

static pthread_t remove_when_blocked(struct fixture *f) {
    return pg_commit_when_blocked(f->pg, f->conninfo, pg_begin(f->conninfo, REMOVE));
}

static void written_without_a_notification(struct fixture *f, pthread_t remover, const char *sql) {
    assert_string_equal(pg_try(f->conninfo, sql), "00000");
    assert_int_equal(pthread_join(remover, NULL), 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM notification"), 0);
}

static void an_event_meets_the_removal_of_its_target(void **state) {
    struct fixture *f = *state;
    char sql[300];
    snprintf(sql, sizeof sql,
             "SET trainyard.notifies = 'on'; INSERT INTO event (job, number, time, attempt, kind, state, message) "
             "VALUES (%lld, 99, now(), 0, 'made', 1, '')",
             (long long)fixture_job(f, 1));
    add_target(f);
    written_without_a_notification(f, remove_when_blocked(f), sql);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE number = 99"), 1);
}

static const struct store_device QUARANTINED = { .kind = "cuda",
                                                 .model = "m",
                                                 .memory_bytes = 1,
                                                 .uuid = "u",
                                                 .pci_bus_id = "p",
                                                 .quarantined = true,
                                                 .reason = "bad memory",
                                                 .links = "" };

static void attach(struct fixture *f) {
    const struct store_executor x = {
        .id = "x", .incarnation = 1, .hostname = "h", .address = "a", .version = "v", .slots = 1, .reason = ""
    };
    OK(store_executor_attach(f->store, f->epoch, &x, 1, &e));
}

static void a_lost_executor_meets_the_removal_of_a_target(void **state) {
    struct fixture *f = *state;
    attach(f);
    add_target(f);
    written_without_a_notification(
        f, remove_when_blocked(f),
        "SET trainyard.notifies = 'on'; UPDATE executor SET state = 2, reason = 'silent', lost_time = now()");
    assert_int_equal(pg_number(f->conninfo, "SELECT state FROM executor"), 2);
}

static void a_quarantined_device_meets_the_removal_of_a_target(void **state) {
    struct fixture *f = *state;
    attach(f);
    add_target(f);
    pthread_t remover = remove_when_blocked(f);
    OK(store_executor_devices(f->store, f->epoch, "x", 1, &QUARANTINED, 1, &e));
    written_without_a_notification(f, remover, "SELECT 1");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM device WHERE quarantined"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_event_meets_the_removal_of_its_target),
        TEST(a_lost_executor_meets_the_removal_of_a_target),
        TEST(a_quarantined_device_meets_the_removal_of_a_target),
    };
    return cmocka_run_group_tests_name("store notifications", tests, fixture_group_setup, fixture_group_teardown);
}
