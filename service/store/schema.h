/* The schema version of a database. Internal to the store. */
#ifndef SERVICE_STORE_SCHEMA_H
#define SERVICE_STORE_SCHEMA_H

#include "service/store/sql.h"

/* 0: an empty database. */
MUST_CHECK status_t schema_version(struct connection *c, int *ret, struct err *e);
/* FAILED_PRECONDITION: the database has another schema than this program needs. */
MUST_CHECK status_t schema_check(struct connection *c, struct err *e);

#endif
