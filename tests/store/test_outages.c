/* When a connection, the leader or PostgreSQL dies, nothing is lost and nothing happens twice. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/checkpoint.h"
#include "service/store/event.h"
#include "service/store/pool.h"
#include "tests/store/proxy.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A store that reaches the fixture's database through a proxy. */
struct cut {
    struct proxy *proxy;
    struct store *store;
};

static struct cut cut_open(struct fixture *f) {
    struct cut c = { .proxy = proxy_start(pg_socket_dir(f->pg)) };
    char conninfo[256];
    snprintf(conninfo, sizeof conninfo, "host=%s user=postgres dbname=%s", proxy_dir(c.proxy),
             strstr(f->conninfo, "dbname=") + strlen("dbname="));
    OK(store_open(&(struct store_options){ .conninfo = conninfo, .patience_ms = 20000 }, &c.store, &e));
    const struct term term = store_term(f->store); /* one controller with two connections to its database */
    store_set_term(c.store, &term);
    return c;
}

static void cut_close(struct cut *c) {
    store_close(c->store);
    proxy_stop(c->proxy);
}

/* An older release waits as a standby while the database is migrated. */
static void a_controller_does_not_lead_with_a_schema_of_a_newer_release(void **state) {
    struct fixture *f = *state;
    struct store_leader *leader = NULL;
    f->leader = store_leader_close(f->leader);
    pg_run(f->conninfo, "INSERT INTO schema_migration (version, name) VALUES (9999, 'newer')");
    FAILS(store_leader_try(f->store, "standby", 0, &leader, &e), ST_FAILED_PRECONDITION,
          "the database has schema 9999, newer than this program's ");
    assert_null(leader);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM leader WHERE holder = 'standby'"), 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = "
                                            "(SELECT oid FROM pg_database WHERE datname = current_database())"),
                     0);
    pg_run(f->conninfo, "DELETE FROM schema_migration WHERE version = 9999");
    OK(store_leader_try(f->store, "standby", 0, &leader, &e));
    assert_non_null(leader);
    store_leader_close(leader);
}

static const enum proxy_cut HOW[] = { PROXY_CUT_REQUEST, PROXY_CUT_ANSWER };

static void a_job_is_created_once_though_the_answer_is_lost(void **state) {
    struct fixture *f = *state;
    struct cut c = cut_open(f);
    for (int i = 0; i < 2; i++) {
        struct store_job_new job = {
            .request_id = fixture_request(f), .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu"
        };
        int64_t id;
        bool existed;
        /* The first call prepares the statement (once) and runs it; the second one finds it prepared by the retry. */
        proxy_cut_at(c.proxy, "job_create", i == 0 ? 2 : 1, HOW[i]);
        OK(store_job_create(c.store, f->epoch, &job, &id, &existed, NULL, &e));
        assert_int_equal(existed, HOW[i] == PROXY_CUT_ANSWER);
    }
    assert_int_equal(proxy_cuts(c.proxy), 2);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM job"), 2);
    cut_close(&c);
}

static void a_move_happens_once_though_its_commit_is_cut(void **state) {
    struct fixture *f = *state;
    struct cut c = cut_open(f);
    for (int i = 0; i < 2; i++) {
        int64_t job = fixture_running(f, 1), event;
        struct store_job_move move = { .request_id = fixture_request(f),
                                       .job = job,
                                       .attempt = 1,
                                       .from = STORE_JOB_RUNNING,
                                       .to = STORE_JOB_CANCELLING,
                                       .reason = "asked" };
        proxy_cut_at(c.proxy, "COMMIT", 1, HOW[i]);
        OK(store_job_move(c.store, f->epoch, &move, &event, &e));
        assert_int_equal(proxy_cuts(c.proxy), i + 1);
        struct store_job row;
        OK(store_job_get(f->store, f->m, job, &row, &e));
        assert_int_equal(row.state, STORE_JOB_CANCELLING);
        assert_int_equal(row.last_event, event);
    }
    cut_close(&c);
}

static void an_attempt_starts_once_though_its_commit_is_cut(void **state) {
    struct fixture *f = *state;
    struct cut c = cut_open(f);
    for (int i = 0; i < 2; i++) {
        int64_t job = fixture_job(f, 1);
        const char *executors[] = { "host" };
        struct store_attempt_new attempt = { .request_id = fixture_request(f),
                                             .job = job,
                                             .attempt = 1,
                                             .from = STORE_JOB_QUEUED,
                                             .world_size = 1,
                                             .executors = executors };
        struct store_attempt_start start;
        proxy_cut_at(c.proxy, "COMMIT", 1, HOW[i]);
        OK(store_attempt_create(c.store, f->m, f->epoch, &attempt, &start, &e));
        assert_int_equal(proxy_cuts(c.proxy), i + 1);
        assert_int_equal(start.event, 2);
    }
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM attempt"), 2);
    cut_close(&c);
}

static void reports_are_stored_once_though_their_commits_are_cut(void **state) {
    struct fixture *f = *state;
    struct cut c = cut_open(f);
    int64_t job = fixture_running(f, 1);
    CLEANUP(store_report_freep) struct store_report *r = store_report_new(c.store, f->epoch);
    static char *const names[] = { "loss" };
    for (int i = 0; i < 10; i++) {
        double value = i;
        struct store_record records[] = { record_metrics(i + 1, 1, names, &value), record_shard(i + 1, 0, 1, false) };
        struct store_batch batch = { job, 1, 0, 2 * i + 1, records, 2, 0, "host" };
        struct store_batch_result result;
        proxy_cut_at(c.proxy, "COMMIT", 1, HOW[i % 2]);
        OK(store_report_write(r, &batch, 1, &result, &e));
        assert_int_equal(result.sequence, 2 * i + 2);
        assert_int_equal(result.n_committed, 1);
    }
    assert_int_equal(proxy_cuts(c.proxy), 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(n) FROM metric_chunk"), 10);
    assert_int_equal(pg_number(f->conninfo, "SELECT sum(sum) FROM metric_chunk"), 45);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'checkpoint_committed'"), 10);
    cut_close(&c);
}

/* ---- PostgreSQL itself ---- */

/* The server frees the lock when its own process notices that the socket is closed. */
static struct store_leader *lead_when_free(struct fixture *f, const char *holder) {
    struct store_leader *l = NULL;
    deadline_ms_t deadline = deadline_in(120000);
    while (!l) {
        OK(store_leader_try(f->store, holder, f->epoch, &l, &e));
        assert_true(l || clock_mono_ms() < deadline);
    }
    return l;
}

struct writer {
    struct fixture *f;
    int64_t job;
    int done;
    status_t status;
};

static void *write_events(void *ctx) {
    struct writer *w = ctx;
    for (int i = 0; i < 300 && w->status == ST_OK; i++) {
        char id[32];
        snprintf(id, sizeof id, "w-%d", i);
        struct err e;
        do { /* a restarted server accepts no writes before the next election */
            const int64_t epoch = __atomic_load_n(&w->f->epoch, __ATOMIC_ACQUIRE);
            w->status = store_event_add(w->f->store, epoch, id, w->job, 0, "noted", "", NULL, &e);
        } while (w->status == ST_FAILED_PRECONDITION);
        if (w->status != ST_OK)
            fprintf(stderr, "# %s\n", e.msg);
        __atomic_store_n(&w->done, i + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void a_killed_postmaster_loses_nothing_that_was_answered(void **state) {
    struct fixture *f = *state;
    struct writer w = { .f = f, .job = fixture_job(f, 1) };
    pthread_t thread;
    pthread_create(&thread, NULL, write_events, &w);
    while (__atomic_load_n(&w.done, __ATOMIC_ACQUIRE) < 50)
        sched_yield();
    pg_kill(f->pg);
    FAILS(store_leader_check(f->leader, &e), ST_UNAVAILABLE, "PostgreSQL");
    pg_restart(f->pg);
    f->leader = store_leader_close(f->leader);
    f->leader = lead_when_free(f, "test");
    assert_int_equal(store_leader_epoch(f->leader), f->epoch + 1);
    assert_int_equal(store_leader_succession(f->leader), STORE_SUCCESSION_OWN);
    __atomic_store_n(&f->epoch, store_leader_epoch(f->leader), __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_int_equal(w.status, ST_OK);
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE kind = 'noted'"), 300);
    struct store_stats stats;
    store_stats(f->store, &stats);
    assert_true(stats.connections >= 1 && stats.busy == 0);
}

static void a_store_without_patience_says_at_once_that_postgresql_is_away(void **state) {
    struct fixture *f = *state;
    struct store *s;
    FAILS(store_open(&(struct store_options){ .conninfo = "host=/nonexistent dbname=x", .patience_ms = -1 }, &s, &e),
          ST_UNAVAILABLE, "PostgreSQL");
    FAILS(store_open(&(struct store_options){ .conninfo = "host=/nonexistent dbname=x", .patience_ms = 100 }, &s, &e),
          ST_UNAVAILABLE, "/nonexistent");
    OK(store_ping(f->store, &e));
}

static void the_server_gives_up_a_statement_that_waits_too_long(void **state) {
    struct fixture *f = *state;
    int64_t job = fixture_job(f, 1);
    /* Another session holds the job's row for longer than a statement may take. */
    pid_t holder = fork();
    if (holder == 0) {
        char sql[160];
        snprintf(sql, sizeof sql, "SELECT 1 FROM job WHERE id = %lld FOR UPDATE; SELECT pg_sleep(20)", (long long)job);
        pg_try(f->conninfo, sql);
        _exit(0);
    }
    while (pg_number(f->conninfo,
                     "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FOR UPDATE; SELECT pg_sleep%' "
                     "AND wait_event = 'PgSleep'") == 0)
        sched_yield();
    FAILS(store_event_add(f->store, f->epoch, "late", job, 0, "noted", "", NULL, &e), ST_DEADLINE_EXCEEDED, "57014");
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    OK(store_ping(f->store, &e));
}

/* ---- races that a plain WHERE on another row would allow ---- */

/* Opens a transaction of another session. */
static PGconn *hold(struct fixture *f, const char *sql) {
    PGconn *c = PQconnectdb(f->conninfo);
    PQclear(PQexec(c, "BEGIN"));
    PGresult *r = PQexec(c, sql);
    assert_int_equal(PQresultStatus(r), PGRES_COMMAND_OK);
    PQclear(r);
    return c;
}

static void let_go(PGconn *c) {
    PQclear(PQexec(c, "COMMIT"));
    PQfinish(c);
}

/* Waits for less than the timeout of a statement, after which no session would wait. */
static void wait_until_one_waits(struct fixture *f) {
    deadline_ms_t deadline = deadline_in(STORE_STATEMENT_TIMEOUT_MS);
    while (pg_number(f->conninfo, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                                  "AND wait_event_type = 'Lock'") == 0)
        if (clock_mono_ms() > deadline)
            fail_msg("no session waits for the lock");
}

struct late {
    struct fixture *f;
    struct store_report *r;
    int64_t job;
    status_t status;
    struct store_batch_result result;
};

static void *move_late(void *ctx) {
    struct late *l = ctx;
    struct store_job_move move = { .request_id = "late",
                                   .job = l->job,
                                   .attempt = 1,
                                   .from = STORE_JOB_RUNNING,
                                   .to = STORE_JOB_FAILED,
                                   .reason = "" };
    l->status = store_job_move(l->f->store, l->f->epoch, &move, NULL, NULL);
    return NULL;
}

static void *create_late(void *ctx) {
    struct late *l = ctx;
    struct store_job_new job = {
        .request_id = "late", .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu"
    };
    int64_t id;
    bool existed;
    l->status = store_job_create(l->f->store, l->f->epoch, &job, &id, &existed, NULL, NULL);
    return NULL;
}

static void a_mutation_during_an_election_waits_and_is_refused(void **state) {
    struct fixture *f = *state;
    static void *(*const mutations[])(void *) = { move_late, create_late };
    for (int i = 0; i < 2; i++) {
        struct late late = { .f = f, .job = fixture_running(f, 1) };
        PGconn *election = hold(f, "UPDATE leader SET epoch = epoch + 1");
        pthread_t thread;
        pthread_create(&thread, NULL, mutations[i], &late);
        wait_until_one_waits(f);
        let_go(election);
        pthread_join(thread, NULL);
        assert_int_equal(late.status, ST_FAILED_PRECONDITION);
        f->leader = store_leader_close(f->leader);
        f->leader = lead_when_free(f, "again");
        f->epoch = store_leader_epoch(f->leader);
    }
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM event WHERE request_id = 'late'"), 0);
}

static void *report_late(void *ctx) {
    struct late *l = ctx;
    struct store_record none = { .kind = STORE_RECORD_NONE };
    struct store_batch batch = { l->job, 1, 0, 1, &none, 1, 0, "host" };
    l->status = store_report_write(l->r, &batch, 1, &l->result, NULL);
    return NULL;
}

static void a_report_during_its_attempts_end_waits_and_is_fenced(void **state) {
    struct fixture *f = *state;
    struct late late = { .f = f, .job = fixture_running(f, 1) };
    late.r = store_report_new(f->store, f->epoch);
    char sql[200];
    snprintf(sql, sizeof sql,
             "WITH j AS (UPDATE job SET reason = 'ends' WHERE id = %lld) "
             "UPDATE attempt SET state = 4, end_time = now() WHERE job = %lld",
             (long long)late.job, (long long)late.job);
    PGconn *end = hold(f, sql);
    pthread_t thread;
    pthread_create(&thread, NULL, report_late, &late);
    wait_until_one_waits(f);
    let_go(end);
    pthread_join(thread, NULL);
    assert_int_equal(late.status, ST_OK);
    assert_true(late.result.fenced);
    store_report_free(late.r);
}

/* A frozen server does not answer and does not close connections: only our own deadline ends the wait. */
static void a_frozen_server_is_unavailable_until_it_continues(void **state) {
    struct fixture *f = *state;
    struct store *s;
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo, .patience_ms = -1 }, &s, &e));
    pg_freeze(f->pg, true);
    FAILS(store_ping(s, &e), ST_UNAVAILABLE, "no answer within");
    FAILS(store_ping(s, &e), ST_UNAVAILABLE, "PostgreSQL");
    pg_freeze(f->pg, false);
    store_close(s);
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo, .patience_ms = 20000 }, &s, &e));
    OK(store_ping(s, &e));
    store_close(s);
}

/* ---- the leader ---- */

static void of_two_leaders_one_leads_and_the_next_has_a_higher_epoch(void **state) {
    struct fixture *f = *state;
    struct store_leader *second = NULL;
    OK(store_leader_try(f->store, "second", 0, &second, &e));
    assert_null(second);
    OK(store_leader_check(f->leader, &e));
    f->leader = store_leader_close(f->leader);
    second = lead_when_free(f, "second");
    assert_int_equal(store_leader_epoch(second), f->epoch + 1);
    struct store_job_new job = {
        .request_id = "late", .name = "a", .queue = "q", .world_size = 1, .accelerator = "cpu"
    };
    int64_t id;
    bool existed;
    FAILS(store_job_create(f->store, f->epoch, &job, &id, &existed, NULL, &e), ST_FAILED_PRECONDITION,
          "another controller");
    store_leader_close(second);
}

/* No other controller has led: the epoch of the unanswered election is the next one, used once, by this holder. */
static void an_election_whose_answer_was_lost_belongs_to_its_holder(void **state) {
    struct fixture *f = *state;
    struct cut c = cut_open(f);
    struct store_leader *l = NULL;
    bool followed = true;
    f->leader = store_leader_close(f->leader);
    f->leader = store_leader_close(lead_when_free(f, "self"));
    const int64_t unanswered = f->epoch + 1;
    do { /* until the lock is free and the statement has run */
        proxy_cut_at(c.proxy, "leader_elect", 2, PROXY_CUT_ANSWER);
        status_ignore(store_leader_try(c.store, "self", unanswered, &l, NULL));
        assert_null(l);
    } while (proxy_cuts(c.proxy) == 0);
    while (pg_number(f->conninfo, "SELECT epoch FROM leader") == unanswered) {
    }
    OK(store_leader_followed(f->store, "self", unanswered, &followed, &e));
    assert_false(followed);
    OK(store_leader_followed(f->store, "other", unanswered, &followed, &e));
    assert_true(followed);
    for (deadline_ms_t deadline = deadline_in(120000); !l && clock_mono_ms() < deadline;)
        OK(store_leader_try(f->store, "self", unanswered, &l, &e));
    assert_int_equal(store_leader_epoch(l), unanswered + 1);
    l = store_leader_close(l);
    for (deadline_ms_t deadline = deadline_in(120000); !l && clock_mono_ms() < deadline;)
        OK(store_leader_try(f->store, "self", unanswered + 1, &l, &e));
    assert_int_equal(store_leader_epoch(l), unanswered + 2);
    store_leader_close(l);
    cut_close(&c);
}

/* The lock is free as soon as the kernel has closed the killed process's sockets. */
static void a_killed_leader_is_followed_without_waiting_for_a_lease(void **state) {
    struct fixture *f = *state;
    f->leader = store_leader_close(f->leader);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store *s;
        struct store_leader *l = NULL;
        close(ready[0]);
        if (store_open(&(struct store_options){ .conninfo = f->conninfo }, &s, NULL) != ST_OK)
            _exit(1);
        while (!l && store_leader_try(s, "child", 0, &l, NULL) == ST_OK)
            ;
        if (!l || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char byte;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    OK(store_leader_try(f->store, "parent", 0, &f->leader, &e));
    assert_null(f->leader);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    f->leader = lead_when_free(f, "parent");
    assert_int_equal(store_leader_epoch(f->leader), f->epoch + 2);
    close(ready[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* Runs first, while the cluster is small: recovery syncs each of its files. */
        TEST(a_killed_postmaster_loses_nothing_that_was_answered),
        TEST(a_controller_does_not_lead_with_a_schema_of_a_newer_release),
        TEST(a_job_is_created_once_though_the_answer_is_lost),
        TEST(a_move_happens_once_though_its_commit_is_cut),
        TEST(an_attempt_starts_once_though_its_commit_is_cut),
        TEST(reports_are_stored_once_though_their_commits_are_cut),
        TEST(a_store_without_patience_says_at_once_that_postgresql_is_away),
        TEST(the_server_gives_up_a_statement_that_waits_too_long),
        TEST(a_mutation_during_an_election_waits_and_is_refused),
        TEST(a_report_during_its_attempts_end_waits_and_is_fenced),
        TEST(a_frozen_server_is_unavailable_until_it_continues),
        TEST(of_two_leaders_one_leads_and_the_next_has_a_higher_epoch),
        TEST(an_election_whose_answer_was_lost_belongs_to_its_holder),
        TEST(a_killed_leader_is_followed_without_waiting_for_a_lease),
    };
    return cmocka_run_group_tests_name("store outages", tests, fixture_group_setup, fixture_group_teardown);
}
