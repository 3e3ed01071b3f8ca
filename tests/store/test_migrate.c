/* Long migrations have no deadline, report their progress, can be cancelled, and end when their program ends. */
#include "tests/store/store_fixture.h"

#include "base/clock.h"
#include "service/store/migrate.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INTERVAL_MS = 5, WAITS = 12 }; /* WAITS: the schema before the migration that waits for the lock, of placement */

/* ---- a clock that jumps ---- */

static int64_t skipped_ns;

static int64_t mono_ns(void *ctx) {
    (void)ctx;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + skipped_ns;
}

static int64_t wall_us(void *ctx) { return mono_ns(ctx) / 1000; }

/* ---- progress reports ---- */

struct looker {
    struct pg *pg;
    struct pg_open *open; /* a transaction that blocks the migration */
    int cancel[2];
    int waits; /* lines that name the transaction */
    int cancel_after;
    bool skips, restarts;
    char all[8192];
};

static void add_line(void *ctx, const char *line) {
    struct looker *l = ctx;
    size_t used = strlen(l->all);
    snprintf(l->all + used, sizeof l->all - used, "%s\n", line);
    if (l->skips)
        skipped_ns += INT64_C(60000000000);
    if (l->restarts && strstr(line, "waits for PostgreSQL"))
        pg_restart(l->pg);
    if (!strstr(line, "waits for a lock that backend "))
        return;
    l->waits++;
    if (l->cancel_after && l->waits == l->cancel_after)
        assert_int_equal(write(l->cancel[1], "", 1), 1);
    if (l->waits == 3 && l->open) {
        pg_commit(l->open);
        l->open = NULL;
    }
}

static void contains(const struct looker *l, const char *text) {
    if (!strstr(l->all, text))
        fail_msg("'%s' does not contain '%s'", l->all, text);
}

static status_t migrate(struct fixture *f, struct looker *l, int wait_ms, struct err *e) {
    const struct store_migrate_watch watch = {
        .wait_ms = wait_ms, .cancel_fd = l->cancel[0], .interval_ms = INTERVAL_MS, .report = add_line, .ctx = l
    };
    return store_migrate_watched(f->conninfo, store_schema_version(), &watch, NULL, e);
}

static struct looker looker(struct fixture *f, const char *in_the_way) {
    struct looker l = { .pg = f->pg, .cancel = { -1, -1 } };
    if (in_the_way)
        l.open = pg_begin(f->conninfo, in_the_way);
    return l;
}

static int setup(void **state) {
    struct fixture *f = *state;
    snprintf(f->conninfo, sizeof f->conninfo, "%s", pg_database(f->pg, false));
    OK(store_migrate(f->conninfo, WAITS, NULL, &e));
    return 0;
}

static const char BACKENDS[] = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                               "application_name = 'trainyard'";
static const char VERSION[] = "SELECT max(version) FROM schema_migration";
static const char LOCK_PLACEMENT[] = "LOCK TABLE placement IN ACCESS EXCLUSIVE MODE";

static void a_migration_has_no_deadline_and_reports_what_it_waits_for(void **state) {
    struct fixture *f = *state;
    struct looker l = looker(f, LOCK_PLACEMENT);
    l.skips = true; /* a minute with each line */
    static const struct clock_source jumping = { mono_ns, wall_us, NULL };
    clock_override(&jumping);
    struct err why = { "" };
    status_t st = migrate(f, &l, 0, &why);
    clock_override(NULL);
    if (st != ST_OK)
        fail_msg("%s: %s\n%s", status_name(st), why.msg, l.all);
    assert_true(l.waits >= 3);
    contains(&l, "migration 0013_live_rows.up.sql: begins\n");
    contains(&l, "migration 0013_live_rows.up.sql: 60 s: waits for a lock that backend ");
    contains(&l, "idle in transaction");
    contains(&l, "migration 0013_live_rows.up.sql: done in ");
    assert_int_equal(pg_number(f->conninfo, VERSION), store_schema_version());
}

static void a_cancelled_migration_has_ended_in_the_server_and_left_nothing(void **state) {
    struct fixture *f = *state;
    struct looker l = looker(f, LOCK_PLACEMENT);
    assert_int_equal(pipe(l.cancel), 0);
    l.cancel_after = 1;
    FAILS(migrate(f, &l, 0, &e), ST_CANCELLED,
          "migration 0013_live_rows.up.sql was cancelled, and PostgreSQL has ended it: the schema is 12");
    assert_int_equal(pg_number(f->conninfo, "SELECT count(*) FROM pg_locks WHERE NOT granted"), 0);
    assert_int_equal(pg_number(f->conninfo, VERSION), WAITS);
    FAILS(migrate(f, &l, 0, &e), ST_CANCELLED, "was cancelled"); /* and no other migration begins */
    pg_commit(l.open);
    close(l.cancel[0]);
    close(l.cancel[1]);
    OK(store_migrate(f->conninfo, store_schema_version(), NULL, &e));
}

static void a_second_program_reports_that_it_waits_for_the_first(void **state) {
    struct fixture *f = *state;
    struct looker l = looker(f, "SELECT pg_advisory_lock(1415138631)");
    OK(migrate(f, &l, 0, &e));
    contains(&l, "another program migrates this database: 0 s: waits for a lock that backend ");
}

static void a_killed_program_leaves_no_backend_though_its_statement_still_waits(void **state) {
    struct fixture *f = *state;
    struct pg_open *open = pg_begin(f->conninfo, LOCK_PLACEMENT);
    pid_t pid = fork();
    if (pid == 0)
        _exit(store_migrate(f->conninfo, store_schema_version(), NULL, NULL) == ST_OK ? 0 : 1);
    pg_await_blocked(f->pg, f->conninfo, 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    deadline_ms_t deadline = deadline_in(120000);
    while (pg_number(f->conninfo, BACKENDS) > 0) /* within seconds, and before the lock is released */
        assert_true(clock_mono_ms() < deadline);
    pg_commit(open);
    assert_int_equal(pg_number(f->conninfo, VERSION), WAITS);
}

static void a_postgresql_that_is_not_there_yet_is_waited_for_if_asked_and_a_wrong_database_is_not(void **state) {
    struct fixture *f = *state;
    struct looker l = looker(f, NULL);
    pg_kill(f->pg);
    FAILS(migrate(f, &l, 0, &e), ST_UNAVAILABLE, "PostgreSQL: ");
    assert_string_equal(l.all, "");
    l.restarts = true;
    OK(migrate(f, &l, 120000, &e));
    contains(&l, "waits for PostgreSQL, 120 s at most: ");
    l.all[0] = '\0';
    char *name = strstr(f->conninfo, "dbname=");
    snprintf(name, sizeof f->conninfo - (size_t)(name - f->conninfo), "dbname=nothing");
    FAILS(migrate(f, &l, 120000, &e), ST_UNAVAILABLE, "database \"nothing\" does not exist");
    assert_string_equal(l.all, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_migration_has_no_deadline_and_reports_what_it_waits_for, setup),
        cmocka_unit_test_setup(a_cancelled_migration_has_ended_in_the_server_and_left_nothing, setup),
        cmocka_unit_test_setup(a_second_program_reports_that_it_waits_for_the_first, setup),
        cmocka_unit_test_setup(a_killed_program_leaves_no_backend_though_its_statement_still_waits, setup),
        cmocka_unit_test_setup(a_postgresql_that_is_not_there_yet_is_waited_for_if_asked_and_a_wrong_database_is_not,
                               setup),
    };
    return cmocka_run_group_tests_name("migrate", tests, fixture_group_setup, fixture_group_teardown);
}
