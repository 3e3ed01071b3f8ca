/* The HTTP server of a program: listens on an address, with TLS if other machines can reach it, within limits.
 *
 * A loopback address is plain HTTP. Any other address is HTTPS with TLS 1.2 or 1.3; the listener then refuses to open
 * without a certificate, and for a caller that does not check tokens. There at most `per_host` connections come from
 * one host, so that one machine cannot take all of them. A connection on which nothing moves for `idle_s` is closed.
 *
 * Threads: libmicrohttpd's own, which call `serve` and `ended`. They run from the middle of http_listener_open: the
 * caller's part of `ctx` must be complete before, and the other members of the listener are. */
#ifndef API_HTTP_LISTENER_H
#define API_HTTP_LISTENER_H

#include "base/bytes.h"
#include "base/listen.h"
#include "base/status.h"

#include <microhttpd.h>

struct http_listener_config {
    const char *address; /* host:port with a numeric host; for port 0 the system chooses */
    unsigned connections, per_host, idle_s;
    unsigned threads;       /* that answer all requests, which must not block; 0: a thread for each connection */
    const char *cert, *key; /* paths of PEM files; NULL or "" for none; not used on a loopback address */
    const char *ca;   /* path of a PEM file: clients are asked for a certificate of it; NULL: for none; not used on
                             * a loopback address */
    bool tokens;      /* the caller asks for a token, as other machines require */
    const char *page; /* ends the refusal: "'0.0.0.0:80' can be reached by other machines: ..." */
    MHD_AccessHandlerCallback serve;
    MHD_RequestCompletedCallback ended; /* NULL: nothing to free after a request */
    void *ctx;
};

struct http_listener {
    struct MHD_Daemon *daemon; /* NULL: not open */
    int port;
    bool local; /* a loopback address */
    char address[LISTEN_ADDRESS_BYTES];
    struct bytes cert, key, ca; /* for libmicrohttpd, which reads them when it starts */
};

/* ret: zeroed by the caller, who closes it after an error, too. ALREADY_EXISTS: the address is in use.
 * FAILED_PRECONDITION: other machines can reach it, and there is no certificate, or no check of tokens.
 * INVALID_ARGUMENT: it is no address. INTERNAL: libmicrohttpd refuses the certificate or the key. */
MUST_CHECK status_t http_listener_open(const struct http_listener_config *config, struct http_listener *ret,
                                       struct err *e);
/* With config.ca: whether the client of the connection has a certificate of the CA that is valid and for clients;
 * true on a loopback address. The listener accepts the others, too: `serve` asks and refuses. */
bool http_listener_knows_client(const struct http_listener *l, struct MHD_Connection *connection);

/* Waits for running requests. May be called twice. */
void http_listener_close(struct http_listener *l);

#endif
