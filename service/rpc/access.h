/* Who calls, and may they? The check of api/rpc/access.h over the store's tokens, by the roles of access.proto.
 *
 * All tokens are held in memory, as they were at most ACCESS_FRESH_MS ago: a revocation is obeyed by every controller
 * after that long at most. One that is not known is looked for once more, so that a new one is good at once; callers
 * that wait for such a look share one, so that unknown tokens cost PostgreSQL one question at a time, and
 * ACCESS_STRANGERS_MOST may wait: one more is UNAVAILABLE. Where PostgreSQL does not answer, calls are UNAVAILABLE, and
 * streams that were admitted go on. */
#ifndef SERVICE_RPC_ACCESS_H
#define SERVICE_RPC_ACCESS_H

#include "api/rpc/server.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#define ACCESS_FRESH_MS 5000
/* How often they are looked at, once a call was checked, and streams with them. */
#define ACCESS_LOOK_MS        1000
#define ACCESS_STRANGERS_MOST 4 /* of the server's 16 workers */

struct access;

/* plain_too: as in struct rpc_access. */
MUST_CHECK status_t access_open(struct store *store, bool plain_too, struct access **ret, struct err *e);
/* For the server's config; lives as long as the access. */
const struct rpc_access *access_rules(const struct access *);
/* From now on streams end within ACCESS_FRESH_MS when their token is over. The server has started. */
MUST_CHECK status_t access_watch(struct access *, struct rpc_server *, struct err *e);
/* Before rpc_server_stop; no watch is fine. */
void access_unwatch(struct access *);
struct access *access_close(struct access *); /* after rpc_server_close; NULL is fine; returns NULL */
CLEANUP_DEFINE(struct access *, access_close)

#endif
