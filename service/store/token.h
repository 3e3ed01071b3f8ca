/* Tokens: a name, a role, and the SHA-256 of a secret that is stored nowhere. What a role may do is not known here. */
#ifndef SERVICE_STORE_TOKEN_H
#define SERVICE_STORE_TOKEN_H

#include "service/store/store.h"

#include <stddef.h>

/* Rows, those that expired or were revoked included; these go after STORE_TOKEN_KEEP_DAYS, when one is created. */
#define STORE_TOKENS_MOST     10000
#define STORE_TOKEN_KEEP_DAYS 30
#define STORE_TOKEN_DIGEST    32 /* bytes */

/* By the database's clock. */
enum store_token_state { STORE_TOKEN_GOOD = 1, STORE_TOKEN_EXPIRED, STORE_TOKEN_REVOKED };

struct store_token {
    const char *name;
    const uint8_t *digest; /* [STORE_TOKEN_DIGEST] */
    int role;
    enum store_token_state state;
    int64_t create_time_us, expire_time_us, revoke_time_us;
};

/* Of new: name, digest and role; it expires after ttl_s, 0 = never. A name whose token is not good any more is free.
 * ALREADY_EXISTS for another one, RESOURCE_EXHAUSTED when there are STORE_TOKENS_MOST. Done again with the same digest
 * it changes nothing. */
MUST_CHECK status_t store_token_create(struct store *s, struct store_memory *m, int64_t epoch,
                                       const struct store_token *new, int64_t ttl_s, struct store_token *ret,
                                       struct err *e);
/* Revokes it; one that was revoked stays as it is. NOT_FOUND without it. */
MUST_CHECK status_t store_token_revoke(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                                       struct store_token *ret, struct err *e);
/* By name; those after `after` ("" = from the first). */
MUST_CHECK status_t store_token_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                     struct store_token **ret, size_t *ret_n, struct err *e);
/* All, by digest. */
MUST_CHECK status_t store_token_all(struct store *s, struct store_memory *m, struct store_token **ret, size_t *ret_n,
                                    struct err *e);

#endif
