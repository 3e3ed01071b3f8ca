/* Upgrade and downgrade of the schema. The numbered files of migrations/ are embedded into the program. They are
 * applied in order under an advisory lock, each in one transaction; a second program waits for the first.
 *
 * A migration has no deadline, neither in the server nor on this side. It can end early in three ways, each of which
 * leaves the schema at the last complete step: a statement fails; the migration is cancelled, and the server has ended
 * the statement before the call returns; or this process dies, and the server notices within seconds
 * (client_connection_check_interval) and rolls back. */
#ifndef SERVICE_STORE_MIGRATE_H
#define SERVICE_STORE_MIGRATE_H

#include "base/status.h"

/* The schema version that this program was built for: the number of its newest migration. */
int store_schema_version(void);

/* Progress reports and cancellation of a migration. */
struct store_migrate_watch {
    int wait_ms;     /* how long to wait until PostgreSQL accepts connections; 0: not at all */
    int cancel_fd;   /* when it becomes readable, the migration is cancelled; -1: none */
    int interval_ms; /* between two reports of a running step; 0: 5 s */
    /* Reports one line without a newline, valid during the call: a step begins, still runs (with what it waits for, or
     * how far an index is), or has ended; or what the migration waits for before the first step. Called by the thread
     * that migrates. */
    void (*report)(void *ctx, const char *line);
    void *ctx;
};

/* Brings the database to schema version `to` (store_schema_version() for the newest, 0 for an empty database), up or
 * down. FAILED_PRECONDITION, with nothing changed, if the database is newer than the program. CANCELLED by w's
 * cancel_fd. *ret_from (may be NULL): the version that was found. w: NULL for no reports. */
MUST_CHECK status_t store_migrate_watched(const char *conninfo, int to, const struct store_migrate_watch *w,
                                          int *ret_from, struct err *e);
MUST_CHECK status_t store_migrate(const char *conninfo, int to, int *ret_from, struct err *e);

#endif
