/* Which cluster the database belongs to, and the elections that it remembers. */
#ifndef SERVICE_STORE_CLUSTER_H
#define SERVICE_STORE_CLUSTER_H

#include "service/store/store.h"

#include <stddef.h>

/* A UUID as text, with its NUL. */
#define STORE_UUID_BYTES 37

struct store_election {
    int64_t epoch;
    const char *nonce;
};

/* The cluster's id. Migration 0016 creates it; a restored database keeps it. */
MUST_CHECK status_t store_cluster_id(struct store *s, char ret[STORE_UUID_BYTES], struct err *e);
/* About the newest STORE_ELECTIONS_KEPT elections, lowest epoch first. */
MUST_CHECK status_t store_election_list(struct store *s, struct store_memory *m, struct store_election **ret,
                                        size_t *ret_n, struct err *e);

#endif
