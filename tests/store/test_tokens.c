/* Tokens: creating, finding and revoking them; which of their data is stored, and for how long. */
#include "tests/store/store_fixture.h"

#include "service/store/executor.h"
#include "service/store/token.h"

#include <stdio.h>
#include <string.h>

static struct store_token token_of(const char *name, uint8_t mark, int role) {
    static uint8_t digests[256][STORE_TOKEN_DIGEST];
    memset(digests[mark], mark, STORE_TOKEN_DIGEST);
    return (struct store_token){ .name = name, .digest = digests[mark], .role = role };
}

static struct store_token create(struct fixture *f, const char *name, uint8_t mark, int64_t ttl_s) {
    struct store_token new = token_of(name, mark, 2), row;
    OK(store_token_create(f->store, f->m, f->epoch, &new, ttl_s, &row, &e));
    return row;
}

static void a_token_is_created_listed_and_revoked(void **state) {
    struct fixture *f = *state;
    struct store_token row = create(f, "ci", 9, 0), again, *rows;
    size_t n;
    assert_string_equal(row.name, "ci");
    assert_int_equal(row.role, 2);
    assert_int_equal(row.state, STORE_TOKEN_GOOD);
    assert_true(row.create_time_us > 0);
    assert_int_equal(row.expire_time_us, 0);
    assert_int_equal(row.revoke_time_us, 0);
    row = create(f, "bot", 3, 60);
    assert_int_equal(row.expire_time_us - row.create_time_us, 60000000);
    OK(store_token_list(f->store, f->m, "", 1, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "bot");
    OK(store_token_list(f->store, f->m, "bot", 10, &rows, &n, &e));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "ci");
    OK(store_token_all(f->store, f->m, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(rows[0].digest[31], 3); /* by digest */
    assert_int_equal(rows[1].digest[0], 9);
    OK(store_token_revoke(f->store, f->m, f->epoch, "ci", &row, &e));
    assert_int_equal(row.state, STORE_TOKEN_REVOKED);
    OK(store_token_revoke(f->store, f->m, f->epoch, "ci", &again, &e));
    assert_int_equal(again.revoke_time_us, row.revoke_time_us);
    FAILS(store_token_revoke(f->store, f->m, f->epoch, "nobody", &row, &e), ST_NOT_FOUND, "'nobody'");
}

static void a_name_is_taken_while_its_token_is_good(void **state) {
    struct fixture *f = *state;
    struct store_token row, other = token_of("ci", 2, 1);
    create(f, "ci", 1, 0);
    FAILS(store_token_create(f->store, f->m, f->epoch, &other, 0, &row, &e), ST_ALREADY_EXISTS, "'ci' exists already");
    create(f, "ci", 1, 0); /* the answer of the first was lost */
    OK(store_token_revoke(f->store, f->m, f->epoch, "ci", &row, &e));
    OK(store_token_create(f->store, f->m, f->epoch, &other, 0, &row, &e));
    assert_int_equal(row.state, STORE_TOKEN_GOOD);
    assert_int_equal(row.role, 1);
    assert_int_equal(row.digest[0], 2);
    pg_run(f->conninfo, "UPDATE token SET create_time = now() - interval '2 hours', expire_time = now() - interval '1 "
                        "hour'");
    struct store_token *rows;
    size_t n;
    OK(store_token_all(f->store, f->m, &rows, &n, &e));
    assert_int_equal(rows[0].state, STORE_TOKEN_EXPIRED);
    row = create(f, "ci", 3, 0);
    assert_int_equal(row.state, STORE_TOKEN_GOOD);
    assert_int_equal(row.expire_time_us, 0);
}

static void one_secret_is_one_token(void **state) {
    struct fixture *f = *state;
    struct store_token row, same = token_of("two", 1, 1);
    create(f, "one", 1, 0);
    FAILS(store_token_create(f->store, f->m, f->epoch, &same, 0, &row, &e), ST_ALREADY_EXISTS, "");
}

static void expired_and_revoked_tokens_are_deleted_after_a_month(void **state) {
    struct fixture *f = *state;
    static const char *const names[] = { "revoked", "expired", "both", "revoked-late", "expired-late", "good" };
    for (uint8_t i = 0; i < 6; i++)
        create(f, names[i], i, 0);
    pg_run(f->conninfo,
           "UPDATE token SET create_time = now() - interval '90 days';"
           "UPDATE token SET revoke_time = now() - interval '31 days' WHERE name = 'revoked';"
           "UPDATE token SET expire_time = now() - interval '31 days' WHERE name = 'expired';"
           "UPDATE token SET expire_time = now() - interval '31 days', revoke_time = now() WHERE name = 'both';"
           "UPDATE token SET revoke_time = now() - interval '29 days' WHERE name = 'revoked-late';"
           "UPDATE token SET expire_time = now() - interval '29 days' WHERE name = 'expired-late'");
    create(f, "new", 7, 0);
    struct store_token *rows;
    size_t n;
    OK(store_token_list(f->store, f->m, "", 100, &rows, &n, &e));
    static const char *const left[] = { "expired-late", "good", "new", "revoked-late" };
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(rows[i].name, left[i]);
}

static void their_number_is_bounded(void **state) {
    struct fixture *f = *state;
    char sql[300];
    snprintf(sql, sizeof sql,
             "INSERT INTO token (name, digest, role) SELECT 't' || i, sha256(i::text::bytea), 1 FROM "
             "generate_series(1, %d) i",
             STORE_MAX_TOKENS - 1);
    pg_run(f->conninfo, sql);
    create(f, "last", 1, 0);
    struct store_token row, more = token_of("more", 2, 1);
    FAILS(store_token_create(f->store, f->m, f->epoch, &more, 0, &row, &e), ST_RESOURCE_EXHAUSTED, "50000 tokens");
}

static status_t attach_with(struct fixture *f, const char *token, const char *executor, struct err *e) {
    const struct store_executor x = { .id = executor,
                                      .incarnation = 1,
                                      .state = STORE_EXECUTOR_ATTACHED,
                                      .hostname = "h",
                                      .address = "a",
                                      .version = "v",
                                      .slots = 1,
                                      .reason = "",
                                      .token = token };
    return store_executor_attach(f->store, f->epoch, &x, 1, e);
}

static void create_for_executors(struct fixture *f, const char *name, uint8_t mark, int64_t ttl_s, bool shared) {
    struct store_token new = token_of(name, mark, 4), row;
    new.shared = shared;
    OK(store_token_create(f->store, f->m, f->epoch, &new, ttl_s, &row, &e));
    assert_string_equal(row.executor, "");
    assert_int_equal(row.shared, shared);
}

static void a_token_speaks_for_its_first_executor_alone(void **state) {
    struct fixture *f = *state;
    struct store_token row, *rows;
    size_t n;
    create_for_executors(f, "one", 1, 0, false);
    create_for_executors(f, "two", 2, 0, false);
    create_for_executors(f, "fleet", 3, 0, true);
    create(f, "user", 4, 0);
    OK(attach_with(f, "one", "a", &e));
    OK(attach_with(f, "one", "a", &e));
    FAILS(attach_with(f, "one", "b", &e), ST_PERMISSION_DENIED,
          "executor b: the token 'one' speaks for executor a only: create a token for each executor, or a shared one");
    FAILS(attach_with(f, "two", "a", &e), ST_PERMISSION_DENIED,
          "executor a: the token 'one' speaks for it: revoke that one first");
    FAILS(attach_with(f, "fleet", "a", &e), ST_PERMISSION_DENIED, "the token 'one' speaks for it");
    FAILS(attach_with(f, "user", "c", &e), ST_PERMISSION_DENIED, "'user' is no token of role EXECUTOR any more");
    FAILS(attach_with(f, "nobody", "c", &e), ST_PERMISSION_DENIED, "'nobody' is no token of role EXECUTOR any more");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM executor"), 1); /* a refusal writes no row */
    OK(attach_with(f, "fleet", "b", &e));
    OK(attach_with(f, "fleet", "c", &e));
    pg_run(f->conninfo, "CREATE TABLE version AS SELECT name, xmin::text AS was FROM token");
    OK(attach_with(f, "fleet", "c", &e));
    OK(attach_with(f, "one", "a", &e));
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM version v JOIN token t USING (name) WHERE "
                                            "v.was = t.xmin::text"),
                     4); /* an attach with a token that may speak for the executor already writes no version of it */
    OK(attach_with(f, "two", "b", &e)); /* a shared token keeps no executor */
    FAILS(attach_with(f, "fleet", "b", &e), ST_PERMISSION_DENIED, "the token 'two' speaks for it");
    OK(attach_with(f, "", "a", &e)); /* a user at a unix socket */
    OK(store_token_list(f->store, f->m, "one", 1, &rows, &n, &e));
    assert_string_equal(rows[0].executor, "b");
    OK(store_token_revoke(f->store, f->m, f->epoch, "one", &row, &e));
    FAILS(attach_with(f, "one", "a", &e), ST_PERMISSION_DENIED, "any more");
    OK(attach_with(f, "fleet", "a", &e));
    create_for_executors(f, "one", 5, 0, false); /* the name is free, and speaks for nobody yet */
    OK(attach_with(f, "one", "d", &e));
}

static void an_expired_token_leaves_its_executor_to_the_next_one(void **state) {
    struct fixture *f = *state;
    create_for_executors(f, "old", 1, 60, false);
    create_for_executors(f, "new", 2, 0, false);
    OK(attach_with(f, "old", "a", &e));
    FAILS(attach_with(f, "new", "a", &e), ST_PERMISSION_DENIED, "the token 'old' speaks for it");
    pg_run(f->conninfo,
           "UPDATE token SET create_time = now() - interval '2 days', expire_time = now() - interval '1 day' "
           "WHERE name = 'old'");
    FAILS(attach_with(f, "old", "a", &e), ST_PERMISSION_DENIED, "any more");
    OK(attach_with(f, "new", "a", &e));
}

static void a_token_keeps_its_project(void **state) {
    struct fixture *f = *state;
    struct store_token new = token_of("ann", 1, 2), row, *rows;
    size_t n;
    new.project = "vision";
    OK(store_token_create(f->store, f->m, f->epoch, &new, 0, &row, &e));
    assert_string_equal(row.project, "vision");
    create(f, "bob", 2, 0);
    OK(store_token_all(f->store, f->m, &rows, &n, &e));
    assert_int_equal(n, 2);
    assert_string_equal(rows[0].project, "vision");
    assert_string_equal(rows[1].project, "");
    OK(store_token_revoke(f->store, f->m, f->epoch, "ann", &row, &e));
    new = token_of("ann", 3, 2); /* the name again, now for the whole cluster */
    OK(store_token_create(f->store, f->m, f->epoch, &new, 0, &row, &e));
    assert_string_equal(row.project, "");
}

static void only_the_leader_may_change_tokens(void **state) {
    struct fixture *f = *state;
    struct store_token row, new = token_of("ci", 1, 1);
    FAILS(store_token_create(f->store, f->m, f->epoch + 1, &new, 0, &row, &e), ST_FAILED_PRECONDITION, "");
    create(f, "ci", 1, 0);
    FAILS(store_token_revoke(f->store, f->m, f->epoch + 1, "ci", &row, &e), ST_FAILED_PRECONDITION, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_token_is_created_listed_and_revoked),
        TEST(a_name_is_taken_while_its_token_is_good),
        TEST(one_secret_is_one_token),
        TEST(expired_and_revoked_tokens_are_deleted_after_a_month),
        TEST(their_number_is_bounded),
        TEST(a_token_speaks_for_its_first_executor_alone),
        TEST(an_expired_token_leaves_its_executor_to_the_next_one),
        TEST(a_token_keeps_its_project),
        TEST(only_the_leader_may_change_tokens),
    };
    return cmocka_run_group_tests_name("store tokens", tests, fixture_group_setup, fixture_group_teardown);
}
