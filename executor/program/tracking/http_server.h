/* The HTTP server of a rank, for the clients of experiment trackers. Its port is on 127.0.0.1, and it answers only
 * requests with the rank's token.
 *
 *     http_server_open(&handler, ctx, &s, e);
 *     poll http_server_fd(s), for a second at most;  http_server_run(s, &more, e);    // calls serve
 *
 * The token is 40 hex digits. A request gives it as "Bearer TOKEN", as the password of the user "api" (Basic), or as
 * the beginning of the path: /TOKEN/...; serve() gets the path without it. Every other request is answered by 401.
 *
 * Limits: HTTP_CONNECTIONS, of which HTTP_STRANGERS may be without a token that was checked: a further one closes the
 * oldest of them, and each is closed after HTTP_STRANGER_MS. A body of more than HTTP_BODY_BYTES, or beyond
 * HTTP_BODIES_BYTES of all connections, is read and dropped. The body of a PUT goes to an upload of the owner as it
 * arrives, or is dropped. An idle connection is closed after HTTP_IDLE_S.
 *
 * No thread: everything happens in http_server_run. */
#ifndef EXECUTOR_PROGRAM_TRACKING_HTTP_SERVER_H
#define EXECUTOR_PROGRAM_TRACKING_HTTP_SERVER_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HTTP_CONNECTIONS = 256,
    HTTP_STRANGERS = 192,
    HTTP_STRANGER_MS = 5000,
    HTTP_IDLE_S = 300,
    HTTP_BODY_BYTES = 16 << 20,
    HTTP_BODIES_BYTES = 48 << 20,
    HTTP_TOKEN_DIGITS = 40,
};

struct http_request {
    const char *method, *path;
    const char *body; /* followed by a NUL byte */
    size_t n_body;
    int64_t received; /* bytes of the body, the dropped ones included */
    bool dropped;     /* the body is not whole */
    void *connection; /* for http_argument */
    uint64_t client;  /* number of the connection: no later one has it */
    bool uploaded;    /* a PUT whose upload has ended; false: the body was dropped */
    int *file;        /* serve may set it to an open file, which is the answer with the status 200, and is closed */
    int64_t *n_file;  /* its size */
};

/* An argument of the request's query; NULL: it has none of this name. Valid during the call of serve. */
const char *http_argument(const struct http_request *request, const char *name);

/* Returns the status of the answer, and its body, JSON, in ret. */
typedef unsigned http_serve(void *ctx, const struct http_request *request, struct bytes *ret);

struct http_handler {
    http_serve *serve;
    /* Before the body of a PUT. NULL: the body is dropped. */
    void *(*upload_begin)(void *ctx, const char *path);
    /* The body in pieces, and its end. True: the connection rests until http_server_continue. After the end the upload
     * is the handler's. */
    bool (*upload_write)(void *upload, const char *piece, size_t n);
    bool (*upload_end)(void *upload);
    void (*upload_drop)(void *upload); /* the connection was closed before the upload has ended */
};

struct http_server;
MUST_CHECK status_t http_server_open(const struct http_handler *handler, void *ctx, struct http_server **ret,
                                     struct err *e);
struct http_server *http_server_close(struct http_server *s);
CLEANUP_DEFINE(struct http_server *, http_server_close)

int http_server_port(const struct http_server *s);
const char *http_server_token(const struct http_server *s);
int http_server_fd(const struct http_server *s);
/* ret_more: call it again at once. An error, of the first client's connection only: this host lacks libmicrohttpd. */
MUST_CHECK status_t http_server_run(struct http_server *s, bool *ret_more, struct err *e);

/* What upload_write or upload_end has begun is done: the connection continues in the next http_server_run. ended: the
 * upload is gone. */
void http_server_continue(struct http_server *s, const void *upload, bool ended);

#endif
