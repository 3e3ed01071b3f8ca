/* A database that was rolled back, by a restore or by a standby that lacked the newest transactions: no epoch is used
 * twice, no process writes from its outdated memory, and lost records are reported. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/cluster.h"
#include "service/store/event.h"
#include "service/store/job.h"

#include <stdio.h>
#include <string.h>

static char *const NAMES[] = { "loss" };

/* Marks 1 to n, one loss each, stored in one batch that begins with this number. */
static struct store_batch_result write_from(struct store_report *r, int64_t job, int64_t first, int n, int64_t lost) {
    static const double value = 1;
    struct store_record records[16];
    struct store_batch_result result;
    for (int i = 0; i < n; i++)
        records[i] = record_metrics(first + i, 1, NAMES, &value);
    struct store_batch batch = { job, 1, 0, first, records, (size_t)n, lost, "host" };
    OK(store_report_write(r, &batch, 1, &result, &e));
    return result;
}

static status_t add_event(struct fixture *f, int64_t job, struct err *e) {
    return store_event_add(f->store, f->epoch, fixture_request(f), job, 1, "noted", "", NULL, e);
}

/* The server frees the lock when its own process notices that the socket is closed. */
static void lead_again(struct fixture *f, const char *holder, int64_t known) {
    f->leader = store_leader_close(f->leader);
    for (deadline_ms_t deadline = deadline_in(120000); !f->leader && clock_mono_ms() < deadline;)
        OK(store_leader_try(f->store, holder, known, &f->leader, &e));
    assert_non_null(f->leader);
    f->epoch = store_leader_epoch(f->leader);
}

static void a_writer_drops_its_marks_after_a_rollback_of_the_database(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    write_from(r, job, 1, 4, 0);
    pg_snapshot(f->pg);
    assert_int_equal(write_from(r, job, 5, 4, 0).sequence, 8);
    const int64_t led = f->epoch;
    pg_roll_back(f->pg);

    /* The row names this leader again, but no write is accepted before an election. */
    struct store_batch batch = { job, 1, 0, 9, NULL, 0, 0, "host" };
    struct store_batch_result result;
    FAILS(store_report_write(r, &batch, 1, &result, &e), ST_FAILED_PRECONDITION, "epoch");
    FAILS(add_event(f, job, &e), ST_FAILED_PRECONDITION, "epoch");
    bool current = true;
    OK(store_leader_is_current(f->store, led, &current, &e));
    assert_false(current);
    lead_again(f, "test", led);
    assert_int_equal(store_leader_succession(f->leader), STORE_SUCCESSION_FORGOTTEN);
    assert_true(f->epoch > led);
    assert_false(store_leader_moved(f->leader));
    OK(store_leader_skip_ids(f->leader, &e));
    assert_in_range(fixture_job(f, 1), job + 1000000, job + 1000100);
    FAILS(store_report_write(r, &batch, 1, &result, &e), ST_FAILED_PRECONDITION, "epoch");

    r = store_report_free(r);
    r = store_report_new(f->store, f->epoch);
    struct store_batch_result gap = write_from(r, job, 9, 2, 0);
    assert_true(gap.gap);
    assert_int_equal(gap.sequence, 4);
    assert_int_equal(write_from(r, job, 5, 6, 0).sequence, 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(records_lost) FROM job"), 0);
}

static void a_leader_learns_that_its_election_is_forgotten(void **state) {
    struct fixture *f = *state;
    pg_snapshot(f->pg);
    lead_again(f, "test", f->epoch);
    assert_int_equal(store_leader_succession(f->leader), STORE_SUCCESSION_OWN);
    const int64_t led = f->epoch;
    pg_roll_back(f->pg);
    lead_again(f, "test", led);
    assert_int_equal(store_leader_succession(f->leader), STORE_SUCCESSION_FORGOTTEN);
    assert_true(f->epoch > led);
    /* As after the restore of a dump or the promotion of a standby. */
    pg_run(f->conninfo, "UPDATE leader SET server = regexp_replace(server, ' \\S+', ' 77')");
    lead_again(f, "test", 0);
    assert_true(store_leader_moved(f->leader));
    lead_again(f, "test", 0);
    assert_false(store_leader_moved(f->leader));
}

/* A dump of this epoch is restored over the same database: all rows are there. */
static void a_leader_whose_table_was_created_again_no_longer_leads(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    const int64_t led = f->epoch;
    OK(add_event(f, job, &e));
    pg_run(f->conninfo, "ALTER TABLE leader RENAME TO dumped; CREATE TABLE leader (LIKE dumped INCLUDING ALL); "
                        "INSERT INTO leader SELECT * FROM dumped; DROP TABLE dumped");
    FAILS(add_event(f, job, &e), ST_FAILED_PRECONDITION, "epoch");
    struct store_job_new new = {
        .request_id = "late", .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu"
    };
    int64_t id, time_us;
    bool existed, current = true;
    FAILS(store_job_create(f->store, led, &new, &id, &existed, &time_us, &e), ST_FAILED_PRECONDITION, "epoch");
    FAILS(store_leader_check(f->leader, &e), ST_FAILED_PRECONDITION, "epoch");
    FAILS(store_leader_raise(f->leader, led + 9, &e), ST_FAILED_PRECONDITION, "epoch");
    OK(store_leader_is_current(f->store, led, &current, &e));
    assert_false(current);
    lead_again(f, "test", led);
    assert_int_equal(store_leader_succession(f->leader), STORE_SUCCESSION_FORGOTTEN);
    assert_true(store_leader_moved(f->leader));
    OK(add_event(f, job, &e));
}

static void an_epochs_number_with_another_nonce_is_another_epoch(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    write_from(r, job, 1, 2, 0);
    pg_run(f->conninfo, "UPDATE leader SET nonce = gen_random_uuid()");
    struct store_batch batch = { job, 1, 0, 3, NULL, 0, 0, "host" };
    struct store_batch_result result;
    struct store_job_new new = {
        .request_id = "late", .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu"
    };
    int64_t id;
    bool existed, current = true;
    FAILS(store_report_write(r, &batch, 1, &result, &e), ST_FAILED_PRECONDITION, "epoch");
    FAILS(add_event(f, job, &e), ST_FAILED_PRECONDITION, "epoch");
    FAILS(store_job_create(f->store, f->epoch, &new, &id, &existed, NULL, &e), ST_FAILED_PRECONDITION, "epoch");
    FAILS(store_leader_check(f->leader, &e), ST_FAILED_PRECONDITION, "epoch");
    OK(store_leader_is_current(f->store, f->epoch, &current, &e));
    assert_false(current);
    lead_again(f, "test", f->epoch);
    assert_int_equal(store_leader_succession(f->leader), STORE_SUCCESSION_FOLLOWED);
}

static void a_leader_raises_its_epoch_above_a_reported_one(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1), before = f->epoch;
    OK(store_leader_raise(f->leader, 40, &e));
    assert_int_equal(store_leader_epoch(f->leader), 41);
    FAILS(store_event_add(f->store, before, "late", job, 1, "noted", "", NULL, &e), ST_FAILED_PRECONDITION, "epoch");
    f->epoch = 41;
    OK(add_event(f, job, &e));
    struct store_election *elections;
    size_t n;
    OK(store_election_list(f->store, f->m, &elections, &n, &e));
    assert_int_equal(elections[n - 1].epoch, 41);
    assert_string_equal(elections[n - 1].nonce, store_leader_nonce(f->leader));
    lead_again(f, "test", 41);
    assert_int_equal(store_leader_succession(f->leader), STORE_SUCCESSION_OWN);
    pg_run(f->conninfo, "UPDATE leader SET epoch = epoch + 1");
    FAILS(store_leader_raise(f->leader, 40, &e), ST_FAILED_PRECONDITION, "another controller leads");
}

static void old_elections_are_forgotten_and_the_clusters_id_stays(void **state) {
    struct fixture *f = *state;
    char before[STORE_UUID_BYTES], after[STORE_UUID_BYTES];
    OK(store_cluster_id(f->store, before, &e));
    assert_int_equal(strlen(before), STORE_UUID_BYTES - 1);
    pg_run(f->conninfo, "UPDATE leader SET epoch = 5000");
    pg_run(f->conninfo,
           "INSERT INTO election (epoch, nonce) SELECT i, gen_random_uuid() FROM generate_series(2, 5000) i");
    lead_again(f, "other", 0);
    struct store_election *elections;
    size_t n;
    OK(store_election_list(f->store, f->m, &elections, &n, &e));
    assert_int_equal(n, STORE_ELECTIONS_KEPT + 1);
    assert_int_equal(elections[n - 1].epoch, 5001);
    OK(store_cluster_id(f->store, after, &e));
    assert_string_equal(before, after);
}

static void records_that_no_spool_has_are_skipped_and_reported(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    write_from(r, job, 1, 4, 0);
    assert_true(write_from(r, job, 9, 1, 3).gap);
    struct store_batch_result result = write_from(r, job, 9, 2, 4);
    assert_false(result.gap);
    assert_int_equal(result.sequence, 10);
    assert_int_equal(result.lost, 4);
    assert_int_equal(write_from(r, job, 9, 2, 4).lost, 0); /* its answer was lost */
    assert_int_equal(write_from(r, job, 13, 0, 2).sequence, 12);
    r = store_report_free(r);
    r = store_report_new(f->store, f->epoch);
    assert_int_equal(write_from(r, job, 13, 0, 0).sequence, 12);
    assert_int_equal(write_from(r, job, 13, 1, 0).sequence, 13);
    struct store_job row;
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_int_equal(row.records_lost, 6);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_lost'"), 2);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'records_lost' AND message LIKE "
                                            "'4 records of rank 0 (numbers 5 to 8)%steps 4 to 9 are missing%'"),
                     1);
}

/* An agent's number comes from another machine: it must not overflow, or move a mark beyond the records that were sent.
 */
static void a_batch_with_an_impossible_number_stores_nothing(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(f->store, f->epoch);
    write_from(r, job, 1, 4, 0);
    static const struct {
        int64_t first, lost;
    } impossible[] = { { INT64_MIN, 0 },
                       { 0, 0 },
                       { -1, 0 },
                       { INT64_MAX, 0 },
                       { INT64_MAX, INT64_MAX },
                       { 9, INT64_MIN },
                       { 9, -1 },
                       { 9, 9 },
                       { 1, 1 },
                       { 9, INT64_MAX },
                       { INT64_MIN, 4 },
                       { (INT64_C(1) << 48) + 1, INT64_C(1) << 48 } };
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        const double value = 1;
        struct store_record record = record_metrics(9, 1, NAMES, &value);
        struct store_batch batch = { job, 1, 0, impossible[i].first, &record, 1, impossible[i].lost, "host" };
        struct store_batch_result result;
        OK(store_report_write(r, &batch, 1, &result, &e));
        assert_true(result.gap);
        assert_int_equal(result.sequence, 4);
    }
    assert_int_equal(write_from(r, job, 5, 1, 0).sequence, 5);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 5);
    /* The job's sum stops at the column's largest number, and the report is stored. */
    pg_run(f->conninfo, "UPDATE job SET records_lost = 9223372036854775806");
    assert_int_equal(write_from(r, job, 10, 1, 9).sequence, 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job WHERE records_lost = 9223372036854775807"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* Runs first, while the cluster is small, because the whole cluster is copied. */
        TEST(a_writer_drops_its_marks_after_a_rollback_of_the_database),
        TEST(a_leader_learns_that_its_election_is_forgotten),
        TEST(a_leader_whose_table_was_created_again_no_longer_leads),
        TEST(an_epochs_number_with_another_nonce_is_another_epoch),
        TEST(a_leader_raises_its_epoch_above_a_reported_one),
        TEST(old_elections_are_forgotten_and_the_clusters_id_stays),
        TEST(records_that_no_spool_has_are_skipped_and_reported),
        TEST(a_batch_with_an_impossible_number_stores_nothing),
    };
    return cmocka_run_group_tests_name("store rollback", tests, fixture_group_setup, fixture_group_teardown);
}
