#include "service/store/migrate.h"

#include "service/store/migrations.h"
#include "service/store/schema.h"

#include <stdlib.h>

/* Any number that no one else uses: "TYMG". */
#define MIGRATE_LOCK "1415138631"

static const struct sql SCHEMA_EXISTS = { "schema_exists", "SELECT to_regclass('schema_migration') IS NOT NULL" };
static const struct sql SCHEMA_VERSION = { "schema_version", "SELECT coalesce(max(version), 0) FROM schema_migration" };
static const struct sql SCHEMA_ADD = { "schema_add", "INSERT INTO schema_migration (version, name) VALUES ($1, $2)" };
static const struct sql SCHEMA_REMOVE = { "schema_remove", "DELETE FROM schema_migration WHERE version = $1" };

int store_schema_version(void) { return n_migrations; }

status_t schema_version(struct connection *c, int *ret, struct err *e) {
    CLEANUP(sql_clearp) PGresult *exists = NULL;
    TRY(sql_run_one(c, &SCHEMA_EXISTS, NULL, &exists, "no answer about the schema", e));
    if (!sql_bool(exists, 0, 0)) {
        *ret = 0;
        return ST_OK;
    }
    CLEANUP(sql_clearp) PGresult *version = NULL;
    TRY(sql_run_one(c, &SCHEMA_VERSION, NULL, &version, "no answer about the schema", e));
    *ret = sql_int4(version, 0, 0);
    return ST_OK;
}

static status_t step_body(struct connection *c, const struct migration *m, bool up, struct err *e) {
    TRY(sql_script(c, up ? m->up : m->down, e));
    struct sql_args a = { 0 };
    sql_add_int4(&a, m->version);
    if (up)
        sql_add_text(&a, m->name);
    return sql_run(c, up ? &SCHEMA_ADD : &SCHEMA_REMOVE, &a, NULL, e);
}

static status_t migrate_step(struct connection *c, const struct migration *m, bool up, struct err *e) {
    TRY(sql_script(c, "BEGIN", e));
    /* A migration may take as long as it needs: it runs while nobody serves. */
    TRY(sql_script(c, "SET LOCAL statement_timeout = 0", e));
    status_t st = step_body(c, m, up, e);
    if (st != ST_OK) {
        status_ignore(sql_script(c, "ROLLBACK", NULL));
        return err_prefix(e, st, "migration %04d_%s.%s.sql: ", m->version, m->name, up ? "up" : "down");
    }
    return sql_script(c, "COMMIT", e);
}

status_t store_migrate(const char *conninfo, int to, int *ret_from, struct err *e) {
    CLEANUP(connection_closep) struct connection *c = NULL;
    TRY(connection_open(conninfo, &c, e));
    /* Held until the connection closes. */
    TRY(sql_script(c, "SET statement_timeout = 0; SELECT pg_advisory_lock(" MIGRATE_LOCK ")", e));
    int at;
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
        TRY(migrate_step(c, &migrations[at], true, e));
    for (; at > to; at--)
        TRY(migrate_step(c, &migrations[at - 1], false, e));
    return ST_OK;
}
