/* Rows of queues: creating, changing and deleting them, and what they used. */
#include "tests/store/store_fixture.h"

#include "service/store/queue.h"

#include <stdio.h>
#include <string.h>

static status_t become(const void *settings, struct store_queue_settings *to, struct err *err) {
    (void)err;
    *to = *(const struct store_queue_settings *)settings;
    return ST_OK;
}

static status_t refuse(const void *why, struct store_queue_settings *to, struct err *err) {
    to->weight = 9;
    return err_set(err, ST_INVALID_ARGUMENT, "%s", (const char *)why);
}

static void a_queue_is_created_changed_and_deleted(void **state) {
    struct fixture *f = *state;
    struct store_queue_settings x = STORE_QUEUE_DEFAULTS;
    struct store_queue_row row;
    struct store_queue_row *all;
    size_t n;
    x.weight = 3;
    x.quota[STORE_SLOT_CUDA] = 8;
    OK(store_queue_create(f->store, f->epoch, "night", &x, &e));
    FAILS(store_queue_create(f->store, f->epoch, "night", &x, &e), ST_ALREADY_EXISTS, "'night' exists already");
    OK(store_queue_create(f->store, f->epoch, "day", &STORE_QUEUE_DEFAULTS, &e));
    x.cohort = "lab";
    x.max_priority = -5;
    x.borrow[STORE_SLOT_CPU] = 1;
    x.lend[STORE_SLOT_CUDA] = 2;
    x.user[STORE_SLOT_CPU] = 4;
    OK(store_queue_set(f->store, f->epoch, "night", become, &x, &e));
    FAILS(store_queue_set(f->store, f->epoch, "night", refuse, "not now", &e), ST_INVALID_ARGUMENT, "not now");
    OK(store_queue_get(f->store, f->m, "night", &row, &e));
    assert_string_equal(row.settings.cohort, "lab");
    assert_int_equal(row.settings.weight, 3);
    assert_int_equal(row.settings.max_priority, -5);
    assert_int_equal(row.settings.quota[STORE_SLOT_CPU], -1);
    assert_int_equal(row.settings.quota[STORE_SLOT_CUDA], 8);
    assert_int_equal(row.settings.borrow[STORE_SLOT_CPU], 1);
    assert_int_equal(row.settings.borrow[STORE_SLOT_CUDA], -1);
    assert_int_equal(row.settings.lend[STORE_SLOT_CUDA], 2);
    assert_int_equal(row.settings.user[STORE_SLOT_CPU], 4);
    OK(store_queue_all(f->store, f->m, &all, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(all[0].name, "day");
    assert_int_equal(all[0].settings.max_priority, STORE_QUEUE_MAX_PRIORITY);
    OK(store_queue_delete(f->store, f->epoch, "night", &e));
    FAILS(store_queue_delete(f->store, f->epoch, "night", &e), ST_NOT_FOUND, "'night' was not created");
    FAILS(store_queue_set(f->store, f->epoch, "night", become, &x, &e), ST_NOT_FOUND, "'night' was not created");
    FAILS(store_queue_get(f->store, f->m, "night", &row, &e), ST_NOT_FOUND, "'night' was not created");
}

static void what_a_queue_used_is_kept_with_its_age(void **state) {
    struct fixture *f = *state;
    const char *const names[] = { "day", "unknown" };
    const double cpu[] = { 2.5, 1 }, cuda[] = { 0.25, 1 };
    struct store_queue_row row;
    OK(store_queue_create(f->store, f->epoch, "day", &STORE_QUEUE_DEFAULTS, &e));
    OK(store_queue_averages(f->store, f->epoch, names, cpu, cuda, 2, &e));
    OK(store_queue_get(f->store, f->m, "day", &row, &e));
    assert_true(row.average[STORE_SLOT_CPU] == 2.5 && row.average[STORE_SLOT_CUDA] == 0.25);
    assert_in_range(row.average_age_ms, 0, 600000);
    pg_run(f->conninfo, "UPDATE queue SET average_time = average_time - interval '2 hours'");
    OK(store_queue_get(f->store, f->m, "day", &row, &e));
    assert_in_range(row.average_age_ms, 7200000, 7800000);
}

static void queues_with_and_without_rows_are_listed_by_name(void **state) {
    struct fixture *f = *state;
    struct store_queue *all;
    size_t n;
    struct store_queue_settings x = STORE_QUEUE_DEFAULTS;
    x.weight = 7;
    OK(store_queue_create(f->store, f->epoch, "a", &x, &e));
    OK(store_queue_create(f->store, f->epoch, "q", &x, &e));
    OK(store_queue_create(f->store, f->epoch, "z", &x, &e));
    const int64_t job = fixture_job(f, 1); /* its queue is q */
    pg_run(f->conninfo, "UPDATE job SET queue = 'm'");
    OK(store_queue_list(f->store, f->m, "", 3, &all, &n, &e));
    assert_int_equal(n, 3);
    assert_string_equal(all[0].name, "a");
    assert_true(all[0].created);
    assert_int_equal(all[0].settings.weight, 7);
    assert_int_equal(all[0].waiting, 0);
    assert_string_equal(all[1].name, "m");
    assert_false(all[1].created);
    assert_int_equal(all[1].settings.weight, 1);
    assert_int_equal(all[1].settings.quota[STORE_SLOT_CPU], -1);
    assert_int_equal(all[1].waiting, 1);
    assert_int_equal(all[1].oldest, job);
    OK(store_queue_list(f->store, f->m, "m", 3, &all, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(all[1].name, "z");
    pg_run(f->conninfo, "UPDATE job SET queue = 'q'");
    FAILS(store_queue_delete(f->store, f->epoch, "q", &e), ST_FAILED_PRECONDITION, "has jobs that have not ended");
    pg_force(f->conninfo, "UPDATE job SET state = 11, end_time = now()");
    OK(store_queue_delete(f->store, f->epoch, "q", &e));
}

static void there_are_a_thousand_queues_at_most(void **state) {
    struct fixture *f = *state;
    pg_run(f->conninfo, "INSERT INTO queue (name) SELECT 'q' || i FROM generate_series(1, 1000) AS i");
    FAILS(store_queue_create(f->store, f->epoch, "day", &STORE_QUEUE_DEFAULTS, &e), ST_RESOURCE_EXHAUSTED,
          "there are 1000 queues already");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_queue_is_created_changed_and_deleted),
        TEST(what_a_queue_used_is_kept_with_its_age),
        TEST(queues_with_and_without_rows_are_listed_by_name),
        TEST(there_are_a_thousand_queues_at_most),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
