/* A PostgreSQL cluster of the test's own: initdb in a temporary folder, a unix socket, fsync on. As root it runs as
 * user postgres, since PostgreSQL refuses root. One cluster a test program, a fresh database a test.
 *
 * Every function ends the program with a sentence when it fails: without a server there is nothing to test. */
#ifndef TESTS_STORE_PG_FIXTURE_H
#define TESTS_STORE_PG_FIXTURE_H

#include <stdbool.h>

struct pg;
struct pg *pg_start(void);
void pg_stop(struct pg *pg); /* the cluster and its folder are gone */

/* The folder of the socket, whose name is .s.PGSQL.5432. */
const char *pg_socket_dir(const struct pg *pg);

/* A new database, with the newest schema or empty; its conninfo, valid until the next call. */
const char *pg_database(struct pg *pg, bool migrated);

void pg_kill(struct pg *pg);                /* SIGKILL to the postmaster, and all its children gone */
void pg_restart(struct pg *pg);             /* after pg_kill */
void pg_freeze(struct pg *pg, bool frozen); /* SIGSTOP to the postmaster and all its children, or SIGCONT */

/* Runs SQL on a connection of its own. pg_try returns the SQLSTATE ("00000" = fine), static. */
void pg_run(const char *conninfo, const char *sql);
const char *pg_try(const char *conninfo, const char *sql);
/* As pg_run, past the triggers: puts a row into a state that no edge leads to. */
void pg_force(const char *conninfo, const char *sql);
/* The constraint that refused the last pg_try; "" = none. */
const char *pg_refused_by(void);
/* The first column of the first row, as a number. */
long long pg_number(const char *conninfo, const char *sql);

/* A transaction that has run this SQL and stays open, so that others meet its locks; pg_commit ends it. */
struct pg_open;
struct pg_open *pg_begin(const char *conninfo, const char *sql);
void pg_commit(struct pg_open *open);
/* Waits until so many backends of the database wait for a lock, which the server's log tells. */
void pg_await_blocked(struct pg *pg, const char *conninfo, int n);

#endif
