/* The stores of an order: where the objects of each scheme are, and with which keys they are read. */
#ifndef EXECUTOR_DATA_STORE_H
#define EXECUTOR_DATA_STORE_H

#include "api/spec/remote_uri.h"

#include <stdatomic.h>
#include <stdint.h>
#include <trainyard/v1/worker.pb-c.h>

enum { STORE_PATIENCE_MS = 5 * 60 * 1000 };

struct store {
    enum data_scheme scheme;
    char *endpoint;                /* https://HOST[:PORT]; https: NULL, unless one host gets a token */
    char *region;                  /* s3 */
    char *user, *secret;           /* s3: the key and its secret; else the secret is a token; NULL: none */
    int64_t patience_ms;           /* for how long a request is repeated without any progress */
    const atomic_bool *end;        /* requests stop soon after it is set */
    const struct store_peer *peer; /* it is the cache of another host; NULL: a store */
};

/* How this host and another one know each other. */
struct store_peer {
    const char *cert, *key; /* the files with which this host identifies itself */
    const char *pin;        /* the SHA-256 of the other one's public key, in Base64 */
    int connect_s, slow_s;  /* after which a request fails: without a connection; below 64 KiB/s */
};

struct stores {
    struct store of[DATA_SCHEMES];
};

MUST_CHECK status_t stores_open(const Trainyard__V1__DataFetch *order, const atomic_bool *end, struct stores *ret,
                                struct err *e);
/* Overwrites the keys. */
void stores_done(struct stores *stores);

/* Whether the store may be asked for the URI: http:// is for the endpoint of https alone. */
MUST_CHECK status_t store_check(const struct store *store, const struct remote_uri *uri, struct err *e);

/* The address of an object, and the URI that names it, in which characters with a meaning are encoded. revision: the
 * commit, for hf. path: decoded; for https as given. */
char *store_object_url(const struct store *store, const struct remote_uri *uri, const char *revision, const char *path);
char *store_object_name(const struct remote_uri *uri, const char *revision, const char *path);

/* "datasets/OWNER/NAME" or "models/OWNER/NAME": hf's name of a repository in its API. */
char *store_hf_repository(const struct remote_uri *uri);

#endif
