/* Secrets as rows: the store keeps bytes that the caller has encrypted, and never more than STORE_MAX_SECRETS. */
#include "tests/store/store_fixture.h"

#include "service/store/attempt.h"
#include "service/store/secret.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char OLD[] = "0123456789abcdef", NEW[] = "fedcba9876543210";

static struct store_secret secret_of(const char *name, const char *key, char mark) {
    static char ciphertext[256][40];
    memset(ciphertext[(unsigned char)mark], mark, sizeof *ciphertext);
    return (struct store_secret){ .name = name,
                                  .key = key,
                                  .creator = "ci",
                                  .ciphertext = ciphertext[(unsigned char)mark],
                                  .n = sizeof *ciphertext };
}

static struct store_secret set(struct fixture *f, const char *name, const char *key, char mark) {
    const struct store_secret new = secret_of(name, key, mark);
    struct store_secret row;
    OK(store_secret_set(f->store, f->m, f->epoch, &new, &row, &e));
    return row;
}

static void a_secret_is_set_replaced_read_listed_and_deleted(void **state) {
    struct fixture *f = *state;
    const struct store_secret first = set(f, "B", OLD, 'b');
    struct store_secret row, *rows;
    size_t n;
    assert_string_equal(first.name, "B");
    assert_string_equal(first.key, OLD);
    assert_string_equal(first.creator, "ci");
    assert_int_equal(first.ciphertext_bytes, 40);
    assert_null(first.ciphertext);
    set(f, "A", OLD, 'a');
    struct store_secret other = secret_of("B", NEW, 'c');
    other.creator = "another";
    OK(store_secret_set(f->store, f->m, f->epoch, &other, &row, &e));
    assert_string_equal(row.key, NEW);
    assert_string_equal(row.creator, "ci"); /* who created it */
    assert_int_equal(row.create_time_us, first.create_time_us);
    assert_true(row.update_time_us > first.update_time_us);
    OK(store_secret_list(f->store, f->m, "", 1, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "A");
    assert_null(rows[0].ciphertext);
    OK(store_secret_list(f->store, f->m, "A", 10, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "B");
    OK(store_secret_some(f->store, f->m, (const char *const[]){ "B", "missing", "A", "B" }, 4, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(rows[1].n, 40);
    assert_memory_equal(rows[1].ciphertext, other.ciphertext, 40);
    OK(store_secret_delete(f->store, f->m, f->epoch, "B", &row, &e));
    assert_string_equal(row.name, "B");
    FAILS(store_secret_delete(f->store, f->m, f->epoch, "B", &row, &e), ST_NOT_FOUND, "there is no secret 'B'");
    OK(store_secret_list(f->store, f->m, "", 10, &rows, &n, &e));
    assert_int_equal(n, 1);
}

static void a_leader_whose_epoch_is_over_writes_none(void **state) {
    struct fixture *f = *state;
    const struct store_secret new = secret_of("A", OLD, 'a');
    struct store_secret row;
    set(f, "A", OLD, 'a');
    FAILS(store_secret_set(f->store, f->m, f->epoch + 1, &new, &row, &e), ST_FAILED_PRECONDITION, "");
    FAILS(store_secret_delete(f->store, f->m, f->epoch + 1, "A", &row, &e), ST_FAILED_PRECONDITION, "");
    FAILS(store_secret_encrypt_again(f->store, f->epoch + 1, &new, &new, &e), ST_FAILED_PRECONDITION, "");
}

static void secrets_of_another_key_come_in_pages_and_a_value_that_was_set_meanwhile_stays(void **state) {
    struct fixture *f = *state;
    struct store_secret *rows, *again;
    const struct store_secret new = secret_of("", NEW, 'n');
    size_t n;
    set(f, "A", OLD, 'a');
    set(f, "B", NEW, 'b');
    set(f, "C", OLD, 'c');
    OK(store_secret_other_key(f->store, f->m, NEW, "", 1, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "A");
    OK(store_secret_other_key(f->store, f->m, NEW, "A", 10, &again, &n, &e));
    assert_int_equal(n, 1);
    assert_string_equal(again[0].name, "C");
    assert_null(rows[0].ciphertext); /* many may have a key that is missing: their values are not read */
    OK(store_secret_some(f->store, f->m, (const char *const[]){ "A" }, 1, &rows, &n, &e));
    OK(store_secret_some(f->store, f->m, (const char *const[]){ "C" }, 1, &again, &n, &e));
    const int64_t update_us = rows[0].update_time_us;
    OK(store_secret_encrypt_again(f->store, f->epoch, &rows[0], &new, &e));
    set(f, "C", OLD, 'x');
    OK(store_secret_encrypt_again(f->store, f->epoch, &again[0], &new, &e));
    OK(store_secret_some(f->store, f->m, (const char *const[]){ "A", "C" }, 2, &rows, &n, &e));
    assert_string_equal(rows[0].key, NEW);
    assert_memory_equal(rows[0].ciphertext, new.ciphertext, 40);
    assert_int_equal(rows[0].update_time_us, update_us); /* the value is the same */
    assert_string_equal(rows[1].key, OLD);
    assert_int_equal(((const char *)rows[1].ciphertext)[0], 'x');
}

/* The last place is taken by a call that has not committed yet. */
static void only_one_of_two_calls_gets_the_last_place(void **state) {
    struct fixture *f = *state;
    const struct store_secret more = secret_of("MORE", OLD, 'm');
    struct store_secret row;
    char fill[200];
    set(f, "A", OLD, 'a');
    snprintf(fill, sizeof fill,
             "INSERT INTO secret (name, key, ciphertext, creator) SELECT 'F_' || n, key, ciphertext, '' FROM secret, "
             "generate_series(1, %d) n",
             STORE_MAX_SECRETS - 2);
    pg_run(f->conninfo, fill);
    struct pg_open *open = pg_begin(f->conninfo, "INSERT INTO secret (name, key, ciphertext, creator) "
                                                 "SELECT 'RIVAL', key, ciphertext, '' FROM secret WHERE name = 'A'");
    pthread_t thread = pg_commit_when_blocked(f->pg, f->conninfo, open);
    FAILS(store_secret_set(f->store, f->m, f->epoch, &more, &row, &e), ST_RESOURCE_EXHAUSTED,
          "there are 1024 secrets already: delete one first");
    pthread_join(thread, NULL);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM secret"), STORE_MAX_SECRETS);
    set(f, "A", OLD, 'z'); /* one that exists can still be replaced */
}

static void an_attempt_that_must_not_start_ends_with_its_job(void **state) {
    struct fixture *f = *state;
    const int64_t job = fixture_job(f, 1);
    const char *const executor = "host";
    const struct store_attempt_new attempt = { .request_id = "refused-1",
                                               .job = job,
                                               .attempt = 1,
                                               .from = STORE_JOB_QUEUED,
                                               .world_size = 1,
                                               .executors = &executor,
                                               .reason = "",
                                               .refuse = "program.secrets.X: there is no secret" };
    struct store_attempt_start start;
    struct store_job row;
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e));
    assert_string_equal(start.refused, attempt.refuse);
    OK(store_job_get(f->store, f->m, job, &row, &e));
    assert_int_equal(row.state, STORE_JOB_FAILED);
    assert_string_equal(row.reason, attempt.refuse);
    OK(store_attempt_create(f->store, f->m, f->epoch, &attempt, &start, &e)); /* the answer was lost */
    assert_string_equal(start.refused, attempt.refuse);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_secret_is_set_replaced_read_listed_and_deleted),
        TEST(a_leader_whose_epoch_is_over_writes_none),
        TEST(secrets_of_another_key_come_in_pages_and_a_value_that_was_set_meanwhile_stays),
        TEST(only_one_of_two_calls_gets_the_last_place),
        TEST(an_attempt_that_must_not_start_ends_with_its_job),
    };
    return cmocka_run_group_tests_name("store secrets", tests, fixture_group_setup, fixture_group_teardown);
}
