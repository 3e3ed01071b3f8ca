/* One read transaction of SQLite covers the import, so that all runs and points belong to one state of the database.
 * For each run that has ended, its parameters and tags are read, then its points in the order of their times.
 *
 * The file comes from outside: it is opened for reading only, and its schema is not trusted (no functions in views or
 * triggers). */
#include "cli/import/mlflow_database.h"

#include "base/cleanup.h"
#include "cli/import/run.h"
#include "cli/import/texts.h"

#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* PATH is what the user gave: it names the database in messages. */
struct database {
    struct cli *c;
    const char *path, *experiment;
    sqlite3 *handle;
    size_t runs, running;
};

bool import_is_database(const char *path) {
    static const char magic[16] = "SQLite format 3";
    char head[sizeof magic];
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && pread(fd, head, sizeof head, 0) == sizeof head && memcmp(head, magic, sizeof magic) == 0;
}

static status_t fault(const struct database *d, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "'%s' cannot be read as a database of MLflow: %s", d->path,
                   sqlite3_errmsg(d->handle));
}

static status_t prepare(const struct database *d, const char *sql, const char *argument, sqlite3_stmt **ret,
                        struct err *e) {
    if (sqlite3_prepare_v2(d->handle, sql, -1, ret, NULL) != SQLITE_OK)
        return fault(d, e);
    if (argument && sqlite3_bind_text(*ret, 1, argument, -1, SQLITE_TRANSIENT) != SQLITE_OK)
        return fault(d, e);
    return ST_OK;
}

static void statement_done(sqlite3_stmt **s) { sqlite3_finalize(*s); }

static const char *text_of(sqlite3_stmt *s, int column) {
    const char *text = (const char *)sqlite3_column_text(s, column);
    return text ? text : "";
}

/* sql: selects a name and a value of the run. */
static status_t texts_read(const struct database *d, const char *sql, const char *run, struct import_texts *ret,
                           struct err *e) {
    CLEANUP(statement_done) sqlite3_stmt *s = NULL;
    int found;
    TRY(prepare(d, sql, run, &s, e));
    while ((found = sqlite3_step(s)) == SQLITE_ROW)
        import_texts_add(ret, text_of(s, 0), text_of(s, 1));
    return found == SQLITE_DONE ? ST_OK : fault(d, e);
}

static int64_t time_us(int64_t ms) { return ms > 0 && ms < INT64_C(253402300800000) ? ms * 1000 : 0; }

static status_t points_send(const struct database *d, const char *run, struct import_run *to, struct err *e) {
    CLEANUP(statement_done) sqlite3_stmt *s = NULL;
    int found;
    TRY(prepare(d,
                "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ?1 "
                "ORDER BY timestamp, key, step",
                run, &s, e));
    while ((found = sqlite3_step(s)) == SQLITE_ROW)
        TRY(import_run_add(to, sqlite3_column_int64(s, 3), time_us(sqlite3_column_int64(s, 2)), text_of(s, 0),
                           sqlite3_column_int(s, 4) ? NAN : sqlite3_column_double(s, 1), e));
    return found == SQLITE_DONE ? ST_OK : fault(d, e);
}

static Trainyard__V1__Job__State state_of(const char *status) {
    if (strcmp(status, "FINISHED") == 0)
        return TRAINYARD__V1__JOB__STATE__SUCCEEDED;
    if (strcmp(status, "FAILED") == 0)
        return TRAINYARD__V1__JOB__STATE__FAILED;
    if (strcmp(status, "KILLED") == 0)
        return TRAINYARD__V1__JOB__STATE__CANCELLED;
    return TRAINYARD__V1__JOB__STATE__STATE_UNSPECIFIED;
}

/* s: the row of the run; see runs_import. */
static status_t run_import(struct database *d, sqlite3_stmt *s, struct err *e) {
    Trainyard__V1__ImportedRun run = TRAINYARD__V1__IMPORTED_RUN__INIT;
    CLEANUP(import_run_freep) struct import_run *to = NULL;
    CLEANUP(import_texts_done) struct import_texts parameters = { 0 }, tags = { 0 };
    char id[200], name[IMPORT_NAME_BYTES];
    const int64_t start_us = time_us(sqlite3_column_int64(s, 3)), end_us = time_us(sqlite3_column_int64(s, 4));
    run.state = state_of(text_of(s, 2));
    if (run.state == TRAINYARD__V1__JOB__STATE__STATE_UNSPECIFIED || start_us == 0 || end_us == 0) {
        d->running++;
        return ST_OK;
    }
    Google__Protobuf__Timestamp start = import_run_time(start_us),
                                end = import_run_time(end_us > start_us ? end_us : start_us);
    snprintf(id, sizeof id, "%s", text_of(s, 0));
    import_run_name(*text_of(s, 1) ? text_of(s, 1) : id, name);
    import_texts_add(&tags, "experiment", text_of(s, 5));
    TRY(texts_read(d, "SELECT key, value FROM params WHERE run_uuid = ?1 ORDER BY key", id, &parameters, e));
    TRY(texts_read(d, "SELECT key, value FROM tags WHERE run_uuid = ?1 AND key NOT LIKE 'mlflow.%' ORDER BY key", id,
                   &tags, e));
    run.source = (char *)"mlflow";
    run.id = id;
    run.name = name;
    run.start_time = &start;
    run.end_time = &end;
    run.parameters = parameters.all;
    run.n_parameters = parameters.n;
    run.tags = tags.all;
    run.n_tags = tags.n;
    TRY(import_run_open(d->c, &run, &to, e));
    TRY(points_send(d, id, to, e));
    d->runs++;
    return import_run_end(to, e);
}

static status_t runs_import(struct database *d, struct err *e) {
    CLEANUP(statement_done) sqlite3_stmt *s = NULL;
    int found;
    TRY(prepare(d,
                "SELECT r.run_uuid, r.name, r.status, r.start_time, r.end_time, e.name FROM runs r "
                "JOIN experiments e ON e.experiment_id = r.experiment_id WHERE r.lifecycle_stage = 'active' "
                "AND (?1 IS NULL OR ?1 = e.name OR ?1 = CAST(e.experiment_id AS TEXT)) "
                "ORDER BY r.start_time, r.run_uuid",
                d->experiment, &s, e));
    while ((found = sqlite3_step(s)) == SQLITE_ROW)
        TRY(run_import(d, s, e));
    return found == SQLITE_DONE ? ST_OK : fault(d, e);
}

static void database_done(struct database *d) { sqlite3_close(d->handle); }

status_t import_mlflow_database(struct cli *c, const char *path, const char *experiment, struct err *e) {
    CLEANUP(database_done) struct database d = { .c = c, .path = path, .experiment = experiment };
    if (sqlite3_open_v2(path, &d.handle, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        return fault(&d, e);
    sqlite3_db_config(d.handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (sqlite3_exec(d.handle, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
        return fault(&d, e);
    TRY(runs_import(&d, e));
    if (d.running > 0)
        fprintf(stderr, "trainyard: %zu runs have not ended, and are not imported\n", d.running);
    return d.runs > 0 ? ST_OK : err_set(e, ST_NOT_FOUND, "'%s' has no runs that have ended", path);
}
