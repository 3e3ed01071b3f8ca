/* Progress reports of a migration: lines for a person. While the migration's connection waits for a statement, a second
 * connection asks the server what the first one does. Internal to the store. One thread. */
#ifndef SERVICE_STORE_MIGRATE_WATCH_H
#define SERVICE_STORE_MIGRATE_WATCH_H

#include "service/store/migrate.h"
#include "service/store/sql.h"

struct migrate_watch {
    const struct store_migrate_watch *options; /* never NULL */
    const char *conninfo;
    struct sql_watch watch;
    struct connection *side; /* the second connection; NULL until it is needed */
    int pid;                 /* of the migration's backend */
    char step[80];           /* the running step */
    int64_t begun_ms;
};

/* Opens the migration's connection, which has no deadline for its statements and reports to w. Waits for PostgreSQL as
 * long as the options allow. w must outlive the connection; call migrate_watch_done after the connection is closed. */
MUST_CHECK status_t migrate_watch_open(const char *conninfo, const struct store_migrate_watch *options,
                                       struct migrate_watch *w, struct connection **ret, struct err *e);
void migrate_watch_done(struct migrate_watch *w);

/* A step begins ("0013_live_rows.up.sql") or ends. begin reports the step unless `quiet`; end reports its time. */
void migrate_watch_begin(struct migrate_watch *w, const char *step, bool quiet);
void migrate_watch_end(struct migrate_watch *w);
/* Reports now what the backend does. */
void migrate_watch_report(struct migrate_watch *w);
/* Whether the migration was cancelled, between two steps or in one. */
bool migrate_watch_cancelled(const struct migrate_watch *w, const struct connection *c);

#endif
