/* Uploads in parts that killed processes left in a store of S3: nobody sees the parts, but they cost money. */
#ifndef EXECUTOR_DATA_LEFTOVERS_H
#define EXECUTOR_DATA_LEFTOVERS_H

#include "executor/data/http.h"

struct leftovers {
    const struct store *store;
    const char *bucket;
    const char *prefix;                               /* decoded: what the keys begin with */
    bool (*chosen)(const void *ctx, const char *key); /* whether it is nobody's upload any more; NULL: all are */
    const void *ctx;
    bool once; /* no request is repeated */
};
/* Aborts them. UNAVAILABLE: the store is away. PERMISSION_DENIED, INVALID_ARGUMENT, NOT_FOUND: it lists no uploads, or
 * not for these keys. */
MUST_CHECK status_t leftovers_abort(const struct leftovers *l, struct http *h, struct err *e);

/* Those of the attempts before s3://.../attempt-N, as far as the store allows it now. */
void leftovers_abort_before(const struct stores *stores, const char *attempt_uri);

#endif
