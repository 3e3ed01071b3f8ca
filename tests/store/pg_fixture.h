/* A PostgreSQL cluster for one test program: initdb in a temporary folder, a unix socket, fsync on. Each test gets a
 * new database. If the test runs as root, the cluster runs as user postgres, because PostgreSQL refuses root.
 *
 * A function that fails ends the program with a message, because no test can continue without a server. */
#ifndef TESTS_STORE_PG_FIXTURE_H
#define TESTS_STORE_PG_FIXTURE_H

#include <pthread.h>
#include <stdbool.h>

struct pg;
struct pg *pg_start(void);
void pg_stop(struct pg *pg); /* stops the cluster and deletes its folder */

/* The folder of the socket, whose name is .s.PGSQL.5432. */
const char *pg_socket_dir(const struct pg *pg);

/* Creates a database, with the newest schema or empty. Returns its conninfo, valid until the next call. */
const char *pg_database(struct pg *pg, bool migrated);

void pg_kill(struct pg *pg);    /* SIGKILL to the postmaster; returns after all its children have ended */
void pg_restart(struct pg *pg); /* after pg_kill */
/* pg_snapshot copies the cluster while its server is frozen. pg_roll_back replaces the cluster by the copy and starts a
 * new server: rows that were stored after the copy are lost, as after the restore of a backup. */
void pg_snapshot(struct pg *pg);
void pg_roll_back(struct pg *pg);
void pg_freeze(struct pg *pg, bool frozen); /* SIGSTOP to the postmaster and all its children, or SIGCONT */

/* Runs SQL on a new connection. pg_try returns the SQLSTATE as a static string, "00000" for success. */
void pg_run(const char *conninfo, const char *sql);
const char *pg_try(const char *conninfo, const char *sql);
/* Like pg_run, but without triggers: it can put a row into a state that no edge leads to. */
void pg_force(const char *conninfo, const char *sql);
/* The constraint that refused the last pg_try, or "". */
const char *pg_refused_by(void);
/* The first column of the first row, as a number. */
long long pg_number(const char *conninfo, const char *sql);

/* A transaction that has run this SQL and stays open with its locks. pg_commit ends it. */
struct pg_open;
struct pg_open *pg_begin(const char *conninfo, const char *sql);
void pg_commit(struct pg_open *open);
/* Waits until n backends of the database wait for a lock, according to the server's log. */
void pg_await_blocked(struct pg *pg, const char *conninfo, int n);
/* Starts a thread that commits the transaction when a backend of the database waits for a lock. The caller joins it. */
pthread_t pg_commit_when_blocked(struct pg *pg, const char *conninfo, struct pg_open *open);

#endif
