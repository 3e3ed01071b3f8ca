/* The audit log as rows: they are added once, listed by pages and filters, refused to change, and deleted by age. */
#include "tests/store/store_fixture.h"

#include "service/store/audit.h"

#include <stdio.h>
#include <string.h>

#define SECOND 1000000LL
#define T0     (1760000000LL * SECOND)

static struct store_audit row_of(int64_t entry, const char *caller, const char *result) {
    return (struct store_audit){ .time_us = T0 + entry / 2 * SECOND, /* two entries have one time */
                                 .entry = entry,
                                 .caller = caller,
                                 .address = "unix:",
                                 .certificate = "",
                                 .method = "JobService.CancelJob",
                                 .object = entry % 3 ? "jobs/42" : "tokens/ci",
                                 .job = entry % 3 ? 42 : 0,
                                 .request_id = "r-1",
                                 .result = result,
                                 .message = "" };
}

/* The entries 1 to n; the even ones are of ann, the others of bob; every fifth failed. */
static void add(struct fixture *f, int n) {
    struct store_audit rows[STORE_AUDIT_BATCH];
    for (int i = 0; i < n; i++)
        rows[i] = row_of(i + 1, (i + 1) % 2 ? "bob" : "ann", (i + 1) % 5 ? "OK" : "NOT_FOUND");
    OK(store_audit_add(f->store, rows, (size_t)n, &e));
}

static void a_call_is_kept_as_it_was_recorded_and_only_once(void **state) {
    struct fixture *f = *state;
    struct store_audit *rows, row = { .time_us = T0,
                                      .entry = INT64_MAX,
                                      .caller = "ann",
                                      .address = "ipv4:10.0.0.7:41812",
                                      .certificate = "gpu-1",
                                      .method = "CheckpointService.DeleteCheckpoint",
                                      .object = "jobs/42/checkpoints/7",
                                      .job = 42,
                                      .request_id = "4f1c8a2e-1b",
                                      .result = "FAILED_PRECONDITION",
                                      .message = "it is pinned, 'é'",
                                      .unrecorded = 3 };
    size_t n;
    OK(store_audit_add(f->store, &row, 1, &e));
    OK(store_audit_add(f->store, &row, 1, &e)); /* the answer of the first was lost */
    OK(store_audit_list(f->store, f->m, &(struct store_audit_page){ .caller = "", .limit = 10 }, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_int_equal(rows[0].time_us, T0);
    assert_true(rows[0].entry == INT64_MAX);
    assert_string_equal(rows[0].caller, row.caller);
    assert_string_equal(rows[0].address, row.address);
    assert_string_equal(rows[0].certificate, row.certificate);
    assert_string_equal(rows[0].method, row.method);
    assert_string_equal(rows[0].object, row.object);
    assert_int_equal(rows[0].job, 42);
    assert_string_equal(rows[0].request_id, row.request_id);
    assert_string_equal(rows[0].result, row.result);
    assert_string_equal(rows[0].message, row.message);
    assert_int_equal(rows[0].unrecorded, 3);
}

/* The entries of all pages, newest first, as text; 0 in `page` begins with the newest. */
static void list(struct fixture *f, struct store_audit_page page, int limit, char ret[400]) {
    size_t used = 0, n = (size_t)limit;
    ret[0] = '\0';
    page.limit = limit;
    while (n == (size_t)limit) {
        struct store_audit *rows;
        OK(store_audit_list(f->store, f->m, &page, &rows, &n, &e));
        for (size_t i = 0; i < n; i++) {
            used += (size_t)snprintf(ret + used, 400 - used, "%lld ", (long long)rows[i].entry);
            page.time_us = rows[i].time_us;
            page.entry = rows[i].entry;
        }
    }
}

static void entries_are_listed_by_pages_newest_first(void **state) {
    struct fixture *f = *state;
    char text[400];
    add(f, 12);
    for (int limit = 1; limit <= 13; limit++) {
        list(f, (struct store_audit_page){ .caller = "" }, limit, text);
        assert_string_equal(text, "12 11 10 9 8 7 6 5 4 3 2 1 ");
    }
    list(f, (struct store_audit_page){ .caller = "ann" }, 2, text);
    assert_string_equal(text, "12 10 8 6 4 2 ");
    list(f, (struct store_audit_page){ .caller = "", .job = 42 }, 3, text);
    assert_string_equal(text, "11 10 8 7 5 4 2 1 ");
    list(f, (struct store_audit_page){ .caller = "", .failed = true }, 1, text);
    assert_string_equal(text, "10 5 ");
    list(f, (struct store_audit_page){ .caller = "bob", .job = 42, .failed = true }, 1, text);
    assert_string_equal(text, "5 ");
    list(f, (struct store_audit_page){ .caller = "", .since_us = T0 + 5 * SECOND }, 5, text);
    assert_string_equal(text, "12 11 10 ");
    list(f, (struct store_audit_page){ .caller = "nobody" }, 5, text);
    assert_string_equal(text, "");
}

static const char RESTRICTED[] = "23001"; /* restrict_violation */

static void no_statement_changes_or_deletes_an_entry(void **state) {
    struct fixture *f = *state;
    add(f, 3);
    assert_string_equal(pg_try(f->conninfo, "UPDATE audit SET caller = 'someone' WHERE entry = 1"), RESTRICTED);
    assert_string_equal(pg_try(f->conninfo, "DELETE FROM audit"), RESTRICTED);
    assert_string_equal(pg_try(f->conninfo, "TRUNCATE audit"), RESTRICTED);
    assert_string_equal(pg_try(f->conninfo, "INSERT INTO audit SELECT * FROM audit ON CONFLICT (time, entry) DO UPDATE "
                                            "SET caller = 'someone'"),
                        RESTRICTED);
    pg_run(f->conninfo, "INSERT INTO audit SELECT now(), 9, '', '', '', 'S.M', '', NULL, '', 'OK', ''");
    /* Even with what audit_trim sets, an entry of today stays. */
    assert_string_equal(pg_try(f->conninfo, "SET trainyard.trims_audit = 'on'; DELETE FROM audit WHERE entry = 9"),
                        RESTRICTED);
    assert_string_equal(pg_try(f->conninfo, "SELECT audit_trim(0, 100)"), RESTRICTED);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM audit"), 4);
}

static void old_entries_are_deleted_the_oldest_first(void **state) {
    struct fixture *f = *state;
    int64_t n;
    pg_run(f->conninfo,
           "INSERT INTO audit SELECT now() - i * interval '1 day', i, '', '', '', 'S.M', '', NULL, '', 'OK', "
           "'' FROM generate_series(5, 12) i");
    OK(store_audit_trim(f->store, f->epoch, 7, 2, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(pg_number(f->conninfo, "SELECT max(entry) FROM audit"), 10);
    OK(store_audit_trim(f->store, f->epoch, 7, 100, &n, &e));
    assert_int_equal(n, 4); /* a week and some milliseconds is longer than a week */
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(entry) FROM audit"), 5 + 6);
    assert_string_equal(pg_try(f->conninfo, "DELETE FROM audit"), RESTRICTED);
    FAILS(store_audit_trim(f->store, f->epoch + 1, 1, 100, &n, &e), ST_FAILED_PRECONDITION, "");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM audit"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_call_is_kept_as_it_was_recorded_and_only_once),
        TEST(entries_are_listed_by_pages_newest_first),
        TEST(no_statement_changes_or_deletes_an_entry),
        TEST(old_entries_are_deleted_the_oldest_first),
    };
    return cmocka_run_group_tests_name("store audit", tests, fixture_group_setup, fixture_group_teardown);
}
