/* The database itself, for people. */
#ifndef SERVICE_STORE_DATABASE_H
#define SERVICE_STORE_DATABASE_H

#include "service/store/store.h"

struct store_database {
    const char *version; /* of PostgreSQL: "15.8 (Debian 15.8-0+deb12u1)" */
    const char *leader;  /* the name that the leader has given; "": there was none yet */
    int64_t epoch, elected_time_us;
};
MUST_CHECK status_t store_database_get(struct store *s, struct store_memory *m, struct store_database *ret,
                                       struct err *e);

#endif
