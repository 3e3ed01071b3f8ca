/* The schema: numbered files in migrations/, embedded into the program, applied in order under an advisory lock, each
 * in one transaction. Two programs that migrate at once take turns. */
#ifndef SERVICE_STORE_MIGRATE_H
#define SERVICE_STORE_MIGRATE_H

#include "base/status.h"

/* The schema version that this program was built for: the number of its newest migration. */
int store_schema_version(void);

/* Brings the database to schema version `to` (store_schema_version() for the newest, 0 for an empty database), up or
 * down. FAILED_PRECONDITION when the database is newer than the program: nothing is changed then. *ret_from is the
 * version found. */
MUST_CHECK status_t store_migrate(const char *conninfo, int to, int *ret_from, struct err *e);

#endif
