/* The web page, served by one of two programs:
 *
 *   trainyard dashboard    on 127.0.0.1, to the user who started it. The page's calls are made with the identity of
 *                          this user. So everyone who may call this server has the user's rights: a call must have the
 *                          key, which is random, in the header X-Trainyard-Key. The address that the user opens has
 *                          the key behind a #, `http://127.0.0.1:7702/#key=...`: a browser sends that part to no
 *                          server, and the page keeps it in storage that only pages of this port can read. (A cookie
 *                          would go to every port of the host.)
 *   trainyard-controller   at any address, to everyone who has a token. A call must have it as `Authorization: Bearer
 *                          TOKEN`, and is made with it. Who may do what, the gRPC server decides, as for every call.
 *                          Without a token, or if that server refuses it, the answer is 401 with WWW-Authenticate, and
 *                          the page asks for one. An address that other machines can reach needs TLS
 *
 * A request is refused if its Origin is another site, and without tokens if its Host is not this server (a rebound
 * name). The files of the page contain no secret, and need neither key nor token.
 *
 * At most WEB_CONNECTIONS connections at a time, each with a thread, and at most WEB_CONNECTIONS_PER_HOST of one host
 * if other machines can reach the server; a request has at most GATEWAY_REQUEST_BYTES. A connection on which nothing
 * moves for 15 s is closed. */
#ifndef WEB_SERVER_WEB_H
#define WEB_SERVER_WEB_H

#include "api/rpc/client.h"
#include "base/cleanup.h"
#include "base/status.h"

#define WEB_CONNECTIONS          64
#define WEB_CONNECTIONS_PER_HOST 16
#define WEB_KEY_DIGITS           32

struct web;

struct web_config {
    const char *address;         /* host:port with a numeric host; port 0: any free port */
    struct rpc_channel *channel; /* must stay open until web_close */
    bool tokens;                 /* each call has a token; otherwise calls have the key, and the address is 127.0.0.1 */
    struct rpc_tls tls;          /* the certificate and its key; not used on a loopback address */
};

/* ALREADY_EXISTS: the port is in use. FAILED_PRECONDITION: other machines can reach the address, and there is no
 * certificate, or no tokens. */
MUST_CHECK status_t web_open(const struct web_config *config, struct web **ret, struct err *e);
struct web *web_close(struct web *); /* waits for running requests; NULL is fine; returns NULL */
CLEANUP_DEFINE(struct web *, web_close)

const char *web_address(const struct web *); /* http://127.0.0.1:7702 */
const char *web_key(const struct web *);     /* WEB_KEY_DIGITS hexadecimal digits */

#endif
