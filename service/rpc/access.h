/* The access check of api/rpc/access.h, with the tokens in the database and the roles of access.proto.
 *
 * All tokens are in memory and at most ACCESS_FRESH_MS old, so every controller obeys a revocation within that time. An
 * unknown token causes the tokens to be read once more, so that a new token works at once. Callers that wait for such a
 * read share it, and at most ACCESS_MAX_STRANGERS calls may wait: one more gets UNAVAILABLE. If PostgreSQL does not
 * answer, calls get UNAVAILABLE, and admitted streams continue. */
#ifndef SERVICE_RPC_ACCESS_H
#define SERVICE_RPC_ACCESS_H

#include "api/rpc/server.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "service/rpc/access_users.h"
#include "service/store/store.h"

#define ACCESS_FRESH_MS 5000
/* How often the tokens are read and the open streams checked again, after the first check of a call. */
#define ACCESS_REFRESH_MS    1000
#define ACCESS_MAX_STRANGERS 4 /* of the server's 16 workers */

struct access;

/* users: who may call over unix sockets without a token; copied. */
struct access *access_new(struct store *store, const struct access_users *users);
/* For the server's config. The result is valid until access_free. */
const struct rpc_access *access_rules(const struct access *);
/* From now on a stream ends within ACCESS_FRESH_MS after its token has expired or was revoked. Call it after the server
 * has started. */
MUST_CHECK status_t access_watch(struct access *, struct rpc_server *, struct err *e);
/* Ends the watch; does nothing if there is none. Call it before rpc_server_stop. */
void access_unwatch(struct access *);
struct access *access_free(struct access *); /* after rpc_server_close; NULL is fine; returns NULL */
CLEANUP_DEFINE(struct access *, access_free)

#endif
