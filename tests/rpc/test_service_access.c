/* The check of tokens over a real PostgreSQL: the rights of each role, the maximum age of cached tokens, and the check
 * while PostgreSQL is unavailable. */
#include "tests/store/store_fixture.h"

#include "api/rpc/client.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "service/rpc/access.h"
#include "service/rpc/project_access.h"
#include "service/store/token.h"

#include <grpc/reflection/v1/reflection.pb-c.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <trainyard/descriptors.h>
#include <trainyard/v1/access.pb-c.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/join.pb-c.h>
#include <unistd.h>

#define ROLE(name) TRAINYARD__V1__ROLE__##name
/* Waits for a condition that another thread or process makes true. Fails after two minutes. */
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

static void skip_ms(int64_t ms) { skipped_ns += ms * 1000000; }

static void create(struct fixture *f, const char *name, int role) {
    uint8_t digest[SHA256_BYTES];
    struct store_token row, new = { .name = name, .digest = digest, .role = role };
    sha256_of(name, strlen(name), digest); /* a token's name is its secret here */
    OK(store_token_create(f->store, f->m, f->epoch, &new, 0, &row, &e));
}

static void revoke_named(struct fixture *f, const char *name) {
    struct store_token row;
    OK(store_token_revoke(f->store, f->m, f->epoch, name, &row, &e));
}

/* A store with a short deadline: the fixture's own waits 20 s for an unavailable PostgreSQL. */
static struct store *impatient;

static struct access *open_access(void) {
    struct access_users users;
    access_users_init(&users);
    return access_new(impatient, &users);
}

static const struct rpc_peer plain = { .tls = false };

static status_t check_of(struct access *a, const struct rpc_peer *peer, const char *token, int rule, struct err *e) {
    uint8_t digest[SHA256_BYTES];
    char caller[RPC_CALLER_BYTES] = "";
    const struct rpc_access *rules = access_rules(a);
    if (token)
        sha256_of(token, strlen(token), digest);
    status_t st = rules->check(rules->ctx, token ? digest : NULL, peer, rule, "TheCall", caller, e);
    /* A known caller has a name, also if it is refused. */
    if (st == ST_OK || st == ST_PERMISSION_DENIED || *caller)
        assert_string_equal(caller, token);
    return st;
}

static status_t check(struct access *a, const char *token, int rule, struct err *e) {
    return check_of(a, &plain, token, rule, e);
}

static void an_executors_token_is_taken_with_its_own_certificate_alone(void **state) {
    struct fixture *f = *state;
    static const struct rpc_peer own = { .tls = true, .n_names = 2, .names = { "host", "gpu-1" } },
                                 other = { .tls = true, .n_names = 2, .names = { "gpu-10", "gpu" } },
                                 none = { .tls = true };
    CLEANUP(access_freep) struct access *a = open_access();
    create(f, "gpu-1", ROLE(EXECUTOR));
    create(f, "ann", ROLE(USER));
    OK(check_of(a, &own, "gpu-1", ROLE(EXECUTOR), &e));
    OK(check_of(a, &plain, "gpu-1", ROLE(EXECUTOR), &e)); /* a plain connection, of this machine, has none */
    FAILS(check_of(a, &other, "gpu-1", ROLE(EXECUTOR), &e), ST_PERMISSION_DENIED,
          "the token 'gpu-1' has the role EXECUTOR and belongs to the certificate of that name; this call came with "
          "that of 'gpu-10'");
    FAILS(check_of(a, &none, "gpu-1", ROLE(EXECUTOR), &e), ST_PERMISSION_DENIED, "this call came with none");
    OK(check_of(a, &other, "ann", ROLE(USER), &e)); /* the token of a person works on every machine */
}

static void each_role_has_its_rights(void **state) {
    struct fixture *f = *state;
    static const char *const names[] = { "VIEWER", "USER", "ADMIN", "EXECUTOR" };
    static const bool may[4][4] = { { 1, 0, 0, 0 }, { 1, 1, 0, 0 }, { 1, 1, 1, 0 }, { 0, 0, 0, 1 } };
    CLEANUP(access_freep) struct access *a = open_access();
    for (int role = 0; role < 4; role++)
        create(f, names[role], role + 1);
    for (int role = 0; role < 4; role++)
        for (int rule = 0; rule < 4; rule++) {
            struct err e = { "" };
            char expected[200];
            snprintf(expected, sizeof expected, "TheCall needs the role %s, and the token '%s' has %s", names[rule],
                     names[role], names[role]);
            assert_int_equal(check(a, names[role], rule + 1, &e), may[role][rule] ? ST_OK : ST_PERMISSION_DENIED);
            assert_string_equal(e.msg, may[role][rule] ? "" : expected);
        }
    FAILS(check(a, NULL, ROLE(VIEWER), &e), ST_UNAUTHENTICATED, "TheCall needs a token, and none was sent");
    FAILS(check(a, "nobody", ROLE(VIEWER), &e), ST_UNAUTHENTICATED, "not known here");
    FAILS(check(a, "ADMIN", 99, &e), ST_PERMISSION_DENIED, "needs the role another role");
    pg_run(f->conninfo, "ALTER TABLE token DROP CONSTRAINT token_role_check; UPDATE token SET role = 6");
    skip_ms(ACCESS_FRESH_MS);
    FAILS(check(a, "VIEWER", ROLE(VIEWER), &e), ST_PERMISSION_DENIED, "and the token 'VIEWER' has another role");
}

static void an_rpc_that_is_in_no_row_is_not_served(void **state) {
    (void)state;
    OK(project_access_covers(&trainyard__v1__job_service__descriptor, &e));
    FAILS(project_access_covers(&trainyard__v1__join_service__descriptor, &e), ST_INVALID_ARGUMENT,
          "project_access.c does not say what Join of trainyard.v1.JoinService is about");
}

static void users_of_this_machine_have_the_roles_that_they_are_given(void **state) {
    (void)state;
    struct access_users users;
    const uid_t me = geteuid(), stranger = me + 4321;
    char text[64];
    access_users_init(&users);
    assert_string_equal(access_users_find(&users, 0)->name, "root");
    assert_int_equal(access_users_find(&users, me)->role, ACCESS_EVERY_ROLE);
    assert_null(access_users_find(&users, stranger));
    snprintf(text, sizeof text, "%u=USER", (unsigned)stranger);
    OK(access_users_add(&users, text, &e));
    assert_int_equal(access_users_find(&users, stranger)->role, ROLE(USER));
    snprintf(text, sizeof text, "uid:%u", (unsigned)stranger);
    assert_string_equal(access_users_find(&users, stranger)->name, text);
    OK(access_users_add(&users, "daemon=EXECUTOR", &e));
    assert_string_equal(access_users_find(&users, 1)->name, "daemon");
    FAILS(access_users_add(&users, "1=VIEWER", &e), ST_INVALID_ARGUMENT,
          "'1=VIEWER': the user daemon has a role already");
    FAILS(access_users_add(&users, "root=VIEWER", &e), ST_INVALID_ARGUMENT, "the user root has every role already");
    static const char *const wrong[] = { "",
                                         "bin",
                                         "bin=",
                                         "bin=BOSS",
                                         "bin=JOIN",
                                         "=USER",
                                         "-1=USER",
                                         "1.5=USER",
                                         "0x7=USER",
                                         "4294967295=USER",
                                         "no-such-user=USER",
                                         "bin =USER",
                                         "99999999999999999999=USER" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(access_users_add(&users, wrong[i], &e), ST_INVALID_ARGUMENT, "");
    while (users.n < ACCESS_USERS_MAX) {
        snprintf(text, sizeof text, "%u=VIEWER", (unsigned)(stranger + users.n));
        OK(access_users_add(&users, text, &e));
    }
    FAILS(access_users_add(&users, "3=VIEWER", &e), ST_RESOURCE_EXHAUSTED, "more than 62 users");
}

static void a_user_at_a_socket_may_do_what_the_role_allows(void **state) {
    (void)state;
    struct access_users users;
    access_users_init(&users);
    OK(access_users_add(&users, "daemon=USER", &e));
    OK(access_users_add(&users, "bin=EXECUTOR", &e));
    CLEANUP(access_freep) struct access *a = access_new(impatient, &users);
    const struct rpc_access *rules = access_rules(a);
    static const struct {
        uid_t uid;
        int rule;
        status_t st;
        const char *why;
    } cases[] = {
        { 0, ROLE(ADMIN), ST_OK, "" },
        { 0, ROLE(EXECUTOR), ST_OK, "" },
        { 0, ROLE(JOIN), ST_OK, "" },
        { 1, ROLE(VIEWER), ST_OK, "" },
        { 1, ROLE(USER), ST_OK, "" },
        { 1, ROLE(ADMIN), ST_PERMISSION_DENIED, "TheCall needs the role ADMIN, and the user 'daemon' has USER" },
        { 1, ROLE(EXECUTOR), ST_PERMISSION_DENIED, "TheCall needs the role EXECUTOR, and the user 'daemon' has USER" },
        { 2, ROLE(EXECUTOR), ST_OK, "" },
        { 2, ROLE(VIEWER), ST_PERMISSION_DENIED, "TheCall needs the role VIEWER, and the user 'bin' has EXECUTOR" },
        { 3, ROLE(VIEWER), ST_UNAUTHENTICATED, "TheCall needs a token: the user with the number 3 has no role" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char caller[RPC_CALLER_BYTES];
        struct err e = { "" };
        assert_int_equal(rules->check_user(rules->ctx, cases[i].uid, cases[i].rule, "TheCall", caller, &e),
                         cases[i].st);
        assert_memory_equal(e.msg, cases[i].why, strlen(cases[i].why));
        assert_string_equal(caller, ((const char *const[]){ "root", "daemon", "bin", "" })[cases[i].uid]);
    }
}

static void a_new_token_is_good_at_once(void **state) {
    struct fixture *f = *state;
    char name[16];
    CLEANUP(access_freep) struct access *a = open_access();
    FAILS(check(a, "t0", ROLE(USER), &e), ST_UNAUTHENTICATED, "not known here");
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "t%d", i);
        create(f, name, ROLE(USER));
        OK(check(a, name, ROLE(USER), &e));
        OK(check(a, "t0", ROLE(USER), &e));
    }
}

static void what_is_known_is_at_most_so_old(void **state) {
    struct fixture *f = *state;
    CLEANUP(access_freep) struct access *a = open_access();
    create(f, "leaver", ROLE(USER));
    int64_t before = clock_mono_ms();
    OK(check(a, "leaver", ROLE(USER), &e));
    revoke_named(f, "leaver");
    struct err why;
    status_t st = check(a, "leaver", ROLE(USER), &why);
    if (clock_mono_ms() - before < ACCESS_FRESH_MS) /* otherwise this machine was too slow, and the copy is too old */
        assert_int_equal(st, ST_OK);                /* a call does not read the tokens again */
    skip_ms(ACCESS_FRESH_MS);
    FAILS(check(a, "leaver", ROLE(USER), &e), ST_UNAUTHENTICATED, "the token 'leaver' was revoked");
    pg_run(f->conninfo, "UPDATE token SET revoke_time = NULL, create_time = now() - interval '2 days', "
                        "expire_time = now() - interval '1 day'");
    skip_ms(ACCESS_FRESH_MS);
    FAILS(check(a, "leaver", ROLE(USER), &e), ST_UNAUTHENTICATED, "the token 'leaver' has expired");
}

static void without_postgresql_no_new_token_is_accepted(void **state) {
    struct fixture *f = *state;
    CLEANUP(access_freep) struct access *a = open_access();
    create(f, "user", ROLE(USER));
    OK(check(a, "user", ROLE(USER), &e));
    pg_kill(f->pg);
    struct err reported; /* it does not name the database's host or user */
    assert_int_equal(check(a, "nobody", ROLE(USER), &reported), ST_UNAVAILABLE);
    assert_string_equal(reported.msg, "cannot authenticate the caller: the tokens could not be read from PostgreSQL");
    skip_ms(ACCESS_FRESH_MS);
    FAILS(check(a, "user", ROLE(USER), &e), ST_UNAVAILABLE, "cannot authenticate the caller: ");
    FAILS(check(a, NULL, ROLE(USER), &e), ST_UNAUTHENTICATED, "none was sent");
    pg_restart(f->pg);
    AWAIT(check(a, "user", ROLE(USER), &reported) == ST_OK);
    AWAIT(check(a, "nobody", ROLE(USER), &reported) == ST_UNAUTHENTICATED);
}

struct crowd {
    struct access *access;
    atomic_bool refused, over;
};

static void *ask_unknown(void *arg) {
    struct crowd *crowd = arg;
    const struct rpc_access *rules = access_rules(crowd->access);
    uint8_t digest[SHA256_BYTES] = { 0 };
    char caller[RPC_CALLER_BYTES];
    struct err e;
    while (!atomic_load(&crowd->refused) && !atomic_load(&crowd->over)) {
        status_t st = rules->check(rules->ctx, digest, &plain, ROLE(USER), "TheCall", caller, &e);
        if (st == ST_UNAVAILABLE && strstr(e.msg, "4 unknown tokens are already being looked up"))
            atomic_store(&crowd->refused, true);
    }
    return NULL;
}

static void unknown_tokens_do_not_keep_all_workers(void **state) {
    struct fixture *f = *state;
    enum { ASKERS = 3 * ACCESS_MAX_STRANGERS };
    pthread_t threads[ASKERS];
    CLEANUP(access_freep) struct access *a = open_access();
    create(f, "user", ROLE(USER));
    OK(check(a, "user", ROLE(USER), &e));
    struct crowd crowd = { .access = a };
    for (int i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_unknown, &crowd), 0);
    int64_t give_up_ms = clock_mono_ms() + 120000;
    while (!atomic_load(&crowd.refused) && clock_mono_ms() < give_up_ms)
        sched_yield();
    atomic_store(&crowd.over, true);
    for (int i = 0; i < ASKERS; i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&crowd.refused));
    struct err e;
    AWAIT(check(a, "nobody", ROLE(USER), &e) == ST_UNAUTHENTICATED); /* checks are admitted again */
    AWAIT(check(a, "user", ROLE(USER), &e) == ST_OK);
}

/* ---- streams ---- */

struct stream {
    struct rpc_channel *channel;
    struct rpc_call *call;
    atomic_bool opened, done;
    status_t status;
    char why[200];
};

static void on_open(struct rpc_call *call) { atomic_store(&((struct stream *)rpc_user(call))->opened, true); }

static void on_done(struct rpc_call *call, status_t status, const char *why) {
    struct stream *s = rpc_user(call);
    s->status = status;
    snprintf(s->why, sizeof s->why, "%s", why);
    atomic_store(&s->done, true);
}

/* Opens server reflection, a stream that VIEWERs may open. */
static void start(struct stream *s, const char *address, const char *token) {
    static const struct rpc_events events = { .open = on_open, .done = on_done };
    struct rpc_channel_config config = { .address = address, .token = token };
    *s = (struct stream){ 0 };
    OK(rpc_channel_open(&config, &s->channel, &e));
    OK(rpc_start(s->channel, &grpc__reflection__v1__server_reflection__descriptor, "ServerReflectionInfo", RPC_BIDI,
                 &events, s, NULL, 0, &s->call, &e));
}

static void finish(struct stream *s) {
    rpc_unref(s->call);
    rpc_channel_close(s->channel);
}

static void streams_outlive_an_outage_but_not_their_token(void **state) {
    struct fixture *f = *state;
    char address[RPC_ADDRESS_BYTES];
    CLEANUP(access_freep) struct access *a = open_access();
    struct rpc_server_config config = { .access = access_rules(a),
                                        .descriptors = trainyard_descriptors,
                                        .descriptors_len = trainyard_descriptors_len };
    struct rpc_server *server;
    OK(rpc_server_open(&config, &server, &e));
    OK(rpc_server_listen(server, "127.0.0.1:0", NULL, address, &e));
    OK(rpc_server_start(server, &e));
    OK(access_watch(a, server, &e));
    create(f, "leaver", ROLE(VIEWER));
    create(f, "other", ROLE(VIEWER));
    struct stream leaver, other;
    start(&leaver, address, "leaver");
    start(&other, address, "other");
    AWAIT(atomic_load(&leaver.opened) && atomic_load(&other.opened));
    pg_kill(f->pg);
    skip_ms(ACCESS_FRESH_MS);
    struct err e;
    assert_int_equal(check(a, "other", ROLE(VIEWER), &e), ST_UNAVAILABLE);
    pg_restart(f->pg);
    AWAIT(check(a, "other", ROLE(VIEWER), &e) == ST_OK);
    struct store_token row;
    AWAIT(store_token_revoke(f->store, f->m, 0, "leaver", &row, &e) == ST_OK);
    AWAIT(atomic_load(&leaver.done));
    assert_int_equal(leaver.status, ST_UNAUTHENTICATED);
    assert_string_equal(leaver.why, "the token 'leaver' was revoked");
    assert_false(atomic_load(&other.done));
    access_unwatch(a);
    finish(&leaver);
    finish(&other);
    rpc_server_close(server);
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
        CLAIM(an_executors_token_is_taken_with_its_own_certificate_alone),
        CLAIM(each_role_has_its_rights),
        CLAIM(an_rpc_that_is_in_no_row_is_not_served),
        CLAIM(users_of_this_machine_have_the_roles_that_they_are_given),
        CLAIM(a_user_at_a_socket_may_do_what_the_role_allows),
        CLAIM(a_new_token_is_good_at_once),
        CLAIM(what_is_known_is_at_most_so_old),
        CLAIM(without_postgresql_no_new_token_is_accepted),
        CLAIM(unknown_tokens_do_not_keep_all_workers),
        CLAIM(streams_outlive_an_outage_but_not_their_token),
    };
    static const struct clock_source source = { .mono_ns = mono_ns, .wall_us = wall_us };
    clock_override(&source);
    return cmocka_run_group_tests_name("service access", tests, fixture_group_setup, fixture_group_teardown);
}
