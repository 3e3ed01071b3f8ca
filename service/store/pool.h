/* The pool of connections, and the one way to run something on one. Internal to the store. */
#ifndef SERVICE_STORE_POOL_H
#define SERVICE_STORE_POOL_H

#include "service/store/sql.h"
#include "service/store/store.h"

#include <pthread.h>

/* Waits after a failed connect: PostgreSQL refuses for about a second after a kill -9. */
#define POOL_BACKOFF_FIRST_MS 20
#define POOL_BACKOFF_MOST_MS  500

struct store {
    char *conninfo;
    int most, patience_ms;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t came_free;
    struct connection **idle; /* [most] */
    int n_idle, n_open;
    int backoff_ms;          /* 0 = the last connect went well */
    int64_t next_connect_ms; /* not before */
    struct err away;         /* why the last connect failed */
    struct store_stats stats;
};

/* Half of store_open: connects to nothing. NULL without memory. */
struct store *store_new(const struct store_options *options);

/* What to do on a connection. It may be called again after a lost connection or race, so it sets what it returns anew.
 */
typedef status_t (*store_body)(struct connection *c, void *ctx, struct err *e);

/* One statement, its own transaction. */
MUST_CHECK status_t store_query(struct store *s, store_body body, void *ctx, struct err *e);

/* BEGIN, the leader's epoch FOR SHARE (unless epoch is 0), body, COMMIT. Repeats on ABORTED a few times, and on
 * UNAVAILABLE until the store's patience ends. */
MUST_CHECK status_t store_transact(struct store *s, int64_t epoch, store_body body, void *ctx, struct err *e);
/* The same on a connection of the caller's, once. */
MUST_CHECK status_t store_transact_on(struct connection *c, int64_t epoch, store_body body, void *ctx, struct err *e);

/* Keeps a result until m is freed, and gives room. */
MUST_CHECK status_t store_memory_keep(struct store_memory *m, PGresult **take_result, struct err *e);
MUST_CHECK status_t store_memory_get(struct store_memory *m, size_t n, size_t size, void *ret_pointer, struct err *e);

#endif
