#include "service/store/migrate.h"

#include "service/store/migrate_watch.h"
#include "service/store/migrations.h"
#include "service/store/schema.h"

#include <stdio.h>

/* The key of the advisory lock: "TYMG". */
#define MIGRATE_LOCK "1415138631"

static const struct sql_query MIGRATE_TRY = { { "migrate_try", "SELECT {columns}" },
                                              SQL_SCALAR(bool, "pg_try_advisory_lock(" MIGRATE_LOCK ")") };
static const struct sql_query SCHEMA_EXISTS = { { "schema_exists", "SELECT {columns}" },
                                                SQL_SCALAR(bool, "to_regclass('schema_migration') IS NOT NULL") };
static const struct sql_query SCHEMA_VERSION = { { "schema_version", "SELECT {columns} FROM schema_migration" },
                                                 SQL_SCALAR(int, "coalesce(max(version), 0)") };
static const struct sql SCHEMA_ADD = { "schema_add", "INSERT INTO schema_migration (version, name) VALUES ($1, $2)" };
static const struct sql SCHEMA_REMOVE = { "schema_remove", "DELETE FROM schema_migration WHERE version = $1" };

int store_schema_version(void) { return n_migrations; }

status_t schema_version(struct connection *c, int *ret, struct err *e) {
    bool exists;
    TRY(sql_get(c, NULL, &SCHEMA_EXISTS, NULL, &exists, "PostgreSQL did not report its tables", e));
    if (exists)
        return sql_get(c, NULL, &SCHEMA_VERSION, NULL, ret, "PostgreSQL did not report its schema's version", e);
    *ret = 0;
    return ST_OK;
}

status_t schema_check(struct connection *c, struct err *e) {
    int found = 0;
    TRY(schema_version(c, &found, e));
    if (found < n_migrations)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the database has schema %d and this program needs %d: run `trainyard-controller migrate`",
                       found, n_migrations);
    if (found > n_migrations)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the database has schema %d, newer than this program's %d: use a newer program", found,
                       n_migrations);
    return ST_OK;
}

static status_t step_body(struct connection *c, const struct migration *m, bool up, struct err *e) {
    TRY(sql_script(c, up ? m->up : m->down, e));
    if (up)
        return sql_execute(c, &SCHEMA_ADD, ARGS(arg_int4(m->version), arg_text(m->name)), NULL, e);
    return sql_execute(c, &SCHEMA_REMOVE, ARGS(arg_int4(m->version)), NULL, e);
}

static status_t cancelled(int version, const char *file, struct err *e) {
    return err_set(e, ST_CANCELLED, "%s was cancelled, and PostgreSQL has ended it: the schema is %d", file, version);
}

static status_t migrate_step(struct connection *c, struct migrate_watch *w, const struct migration *m, bool up,
                             struct err *e) {
    char file[80];
    const int before = up ? m->version - 1 : m->version;
    snprintf(file, sizeof file, "migration %04d_%.50s.%s.sql", m->version, m->name, up ? "up" : "down");
    if (migrate_watch_cancelled(w, c))
        return cancelled(before, file, e);
    migrate_watch_begin(w, file, false);
    TRY(sql_script(c, "BEGIN", e));
    status_t st = step_body(c, m, up, e);
    if (st == ST_OK)
        st = sql_script(c, "COMMIT", e);
    else if (!connection_broken(c))
        status_ignore(sql_script(c, "ROLLBACK", NULL));
    if (st != ST_OK)
        return c->cancelled ? cancelled(before, file, e) : err_prefix(e, st, "%s: ", file);
    migrate_watch_end(w);
    return ST_OK;
}

/* The lock lasts until the connection closes. */
static status_t take_turn(struct connection *c, struct migrate_watch *w, struct err *e) {
    bool locked;
    TRY(sql_get(c, NULL, &MIGRATE_TRY, NULL, &locked, "PostgreSQL did not report whether it gave the lock", e));
    if (locked)
        return ST_OK;
    migrate_watch_begin(w, "another program migrates this database", true);
    migrate_watch_report(w);
    status_t st = sql_script(c, "SELECT pg_advisory_lock(" MIGRATE_LOCK ")", e);
    return st != ST_OK && c->cancelled
               ? err_set(e, ST_CANCELLED, "cancelled while another program migrated this database")
               : st;
}

static status_t migrate_to(struct connection *c, struct migrate_watch *w, int to, int *ret_from, struct err *e) {
    int at;
    TRY(take_turn(c, w, e));
    TRY(schema_version(c, &at, e));
    if (at > n_migrations)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the database has schema %d, newer than this program's %d: use a newer program", at,
                       n_migrations);
    if (to < 0 || to > n_migrations)
        return err_set(e, ST_INVALID_ARGUMENT, "there is no schema %d: this program has 0 to %d", to, n_migrations);
    TRY(sql_script(c,
                   "CREATE TABLE IF NOT EXISTS schema_migration (version integer PRIMARY KEY, name text NOT NULL, "
                   "time timestamptz NOT NULL DEFAULT now())",
                   e));
    if (ret_from)
        *ret_from = at;
    for (; at < to; at++)
        TRY(migrate_step(c, w, &migrations[at], true, e));
    for (; at > to; at--)
        TRY(migrate_step(c, w, &migrations[at - 1], false, e));
    return ST_OK;
}

status_t store_migrate_watched(const char *conninfo, int to, const struct store_migrate_watch *watch, int *ret_from,
                               struct err *e) {
    struct migrate_watch w;
    struct connection *c = NULL;
    TRY(migrate_watch_open(conninfo, watch, &w, &c, e));
    status_t st = migrate_to(c, &w, to, ret_from, e);
    connection_close(c);
    migrate_watch_done(&w);
    return st;
}

status_t store_migrate(const char *conninfo, int to, int *ret_from, struct err *e) {
    return store_migrate_watched(conninfo, to, NULL, ret_from, e);
}
