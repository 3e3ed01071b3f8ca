/* Links to objects of S3 that work for some time without a key: the signature (version 4) is in the query. They are for
 * GET alone. Pure. */
#ifndef SERVICE_CONTROLLER_STORE_LINKS_H
#define SERVICE_CONTROLLER_STORE_LINKS_H

#include "base/status.h"

#include <stdint.h>

struct store_link_keys {
    const char *endpoint; /* https://HOST[:PORT] */
    const char *region;
    const char *access_key, *secret_key; /* "": objects that everybody may read; the links have no signature */
    int64_t now_s;                       /* of the wall clock */
    int valid_s;
};

/* The address of the object s3://BUCKET/KEY, in which %XX is a character. free() it. */
char *store_link(const struct store_link_keys *keys, const char *uri);

#endif
