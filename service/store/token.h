/* Tokens: a name, a role, and the SHA-256 of a secret. The secret is not stored. The store does not know what a role
 * may do. */
#ifndef SERVICE_STORE_TOKEN_H
#define SERVICE_STORE_TOKEN_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

/* The number of rows includes tokens that have expired or were revoked. These are deleted after STORE_TOKEN_KEEP_DAYS,
 * when a token is created. The limit leaves space for one token of each of 10,000 executors, and those before them;
 * controllers read all tokens about once a second, which takes 0.1 s for 50,000. */
#define STORE_MAX_TOKENS      50000
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
    const char *executor; /* of role EXECUTOR: the one that it speaks for; "": none has attached yet, or it is shared */
    bool shared;          /* of role EXECUTOR: for any executors that no other token has */
    const char *project;  /* of role VIEWER (1) or USER (2): the only project that it is for; "": the whole cluster */
};

/* Creates a token with the name, digest, role, shared and project (NULL: "") of `new`, which expires after ttl_s (0:
 * never). The name of a token that expired or was revoked may be used again. ALREADY_EXISTS if the name has a good
 * token with another digest, RESOURCE_EXHAUSTED if there are STORE_MAX_TOKENS. A repeated call with the same digest
 * changes nothing. */
MUST_CHECK status_t store_token_create(struct store *s, struct store_memory *m, int64_t epoch,
                                       const struct store_token *new, int64_t ttl_s, struct store_token *ret,
                                       struct err *e);
/* Revokes a token. A token that was revoked already does not change. NOT_FOUND without it. */
MUST_CHECK status_t store_token_revoke(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                                       struct store_token *ret, struct err *e);
/* A good token of role JOIN (5) becomes a token of role EXECUTOR (4) with the same name and another digest, without
 * expiry. A repeated call with the same digest changes nothing. UNAUTHENTICATED if `name` is no such token, or no
 * longer. */
MUST_CHECK status_t store_token_join(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                                     const uint8_t digest[STORE_TOKEN_DIGEST], struct store_token *ret, struct err *e);
/* By name, those after `after` ("": from the first). */
MUST_CHECK status_t store_token_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                     struct store_token **ret, size_t *ret_n, struct err *e);
/* All tokens, by digest. */
MUST_CHECK status_t store_token_all(struct store *s, struct store_memory *m, struct store_token **ret, size_t *ret_n,
                                    struct err *e);

struct connection;
/* In a transaction of the store: the executor attaches with this token, which speaks for it from now on, unless it is
 * shared. PERMISSION_DENIED: the token is not a good one of role EXECUTOR (4), it speaks for another executor, or
 * another good token speaks for this one. */
MUST_CHECK status_t token_bind_executor(struct connection *c, const char *name, const char *executor, struct err *e);

#endif
