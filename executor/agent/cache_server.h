/* The cache of data of this host, for other hosts (--cache-listen): a process of trainyard-data serves it as long
 * as the agent runs. If it ends, it is started again, after 1 s at first and a minute at last; meanwhile other
 * hosts read from the stores.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_CACHE_SERVER_H
#define EXECUTOR_AGENT_CACHE_SERVER_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/host.h"

struct cache_server;

struct cache_server_owner {
    void *ctx;
    void (*changed)(void *ctx); /* host->cache_offer has another key: the controller must be told */
};

/* Starts it, if the options and the host have it; *ret is NULL otherwise. Fills host->cache_offer, which the hello
 * carries. FAILED_PRECONDITION, INVALID_ARGUMENT: what --cache-listen lacks, or that it is no address. */
MUST_CHECK status_t cache_server_open(struct host *host, const struct cache_server_owner *owner,
                                      struct cache_server **ret, struct err *e);
/* Starts the process again with the files of TLS as they are now. NULL is fine. */
void cache_server_reload(struct cache_server *s);
struct cache_server *cache_server_close(struct cache_server *s); /* NULL is fine; returns NULL */

#endif
