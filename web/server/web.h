/* The web page, served on this machine's loopback address to the user who started it.
 *
 * The page's calls are made on the owner's channel, with the owner's identity. So everyone who may call this server has
 * the owner's rights: a call must have the key, which is random, in the header X-Trainyard-Key. The address that the
 * user opens contains it behind a #, `http://127.0.0.1:7702/#key=...`: a browser sends that part to no server, and the
 * page keeps it in storage that only pages of this port can read. (A cookie would go to every port of the host.) A
 * request is also refused if its Host is not this server (a rebound name), or if its Origin is another site. The files
 * of the page contain no secret, and need no key.
 *
 * At most WEB_CONNECTIONS connections at a time, each with a thread; a request has at most GATEWAY_REQUEST_BYTES. */
#ifndef WEB_SERVER_WEB_H
#define WEB_SERVER_WEB_H

#include "api/rpc/client.h"
#include "base/cleanup.h"
#include "base/status.h"

#define WEB_CONNECTIONS 64
#define WEB_KEY_DIGITS  32

struct web;

/* port 0: any free port. The channel must stay open until web_close. ALREADY_EXISTS: the port is in use. */
MUST_CHECK status_t web_open(int port, struct rpc_channel *channel, struct web **ret, struct err *e);
struct web *web_close(struct web *); /* waits for running requests; NULL is fine; returns NULL */
CLEANUP_DEFINE(struct web *, web_close)

int web_port(const struct web *);
const char *web_key(const struct web *); /* WEB_KEY_DIGITS hexadecimal digits */

#endif
