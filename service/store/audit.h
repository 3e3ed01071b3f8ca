/* The audit log: calls that changed something or failed. Rows are added, and deleted when they are old; nothing changes
 * them, and a trigger of the database refuses that. */
#ifndef SERVICE_STORE_AUDIT_H
#define SERVICE_STORE_AUDIT_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

#define STORE_AUDIT_BATCH 64

/* Texts are UTF-8. */
struct store_audit {
    int64_t time_us, entry; /* together the key. entry: any number that no other row of that time has */
    const char *caller, *address, *certificate, *method, *object;
    int64_t job; /* of the object; 0 = none */
    const char *request_id, *result, *message;
    int64_t unrecorded;
};

/* Adds at most STORE_AUDIT_BATCH rows in one transaction, which needs no leader. A row that exists is not added
 * again. */
MUST_CHECK status_t store_audit_add(struct store *s, const struct store_audit *rows, size_t n, struct err *e);

/* A page of rows, newest first. */
struct store_audit_page {
    int64_t since_us;       /* not older; 0: all */
    const char *caller;     /* of this one alone; "": of all */
    int64_t job;            /* about this one alone; 0: about all */
    bool failed;            /* without those whose result is OK */
    int64_t time_us, entry; /* the last row of the page before; 0: this is the first page */
    int limit;
};
MUST_CHECK status_t store_audit_list(struct store *s, struct store_memory *m, const struct store_audit_page *page,
                                     struct store_audit **ret, size_t *ret_n, struct err *e);

/* Deletes at most `limit` rows that are older than this many days, at least one, the oldest first. */
MUST_CHECK status_t store_audit_trim(struct store *s, int64_t epoch, int keep_days, int limit, int64_t *ret_n,
                                      struct err *e);

#endif
