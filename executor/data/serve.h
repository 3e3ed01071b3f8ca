/* Serves the copies of a cache to other hosts of the cluster (peer_message.h).
 *
 * A caller needs the token of the order, which the controller gives to those hosts alone that have an order to
 * copy. Outside of loopback the server has TLS, and a caller also needs a certificate of the cluster's CA. What is
 * served are bytes as they are on the disk: who asks compares them with the digest.
 *
 * A host that copies has up to nine connections to one peer (parallel.h, and one that asks), and several executors
 * may share a host. At most SERVE_CONNECTIONS at once, each with a thread of its own, so that a slow caller delays no
 * other; SERVE_PER_HOST from one host (not on loopback). A connection on which nothing moves for SERVE_IDLE_S is
 * closed. */
#ifndef EXECUTOR_DATA_SERVE_H
#define EXECUTOR_DATA_SERVE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <trainyard/v1/worker.pb-c.h>

enum { SERVE_CONNECTIONS = 256, SERVE_PER_HOST = 64, SERVE_IDLE_S = 15 };

struct serve;
/* The order must stay valid. ALREADY_EXISTS: the address is in use; and others, as http_listener_open. */
MUST_CHECK status_t serve_open(const Trainyard__V1__CacheServe *order, struct serve **ret, struct err *e);
const char *serve_address(const struct serve *s); /* host:port, with the port that the system chose */
struct serve *serve_close(struct serve *s);       /* returns NULL */
CLEANUP_DEFINE(struct serve *, serve_close)

#endif
