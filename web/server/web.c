/* One thread of libmicrohttpd for each connection, because a call of the controller blocks.
 *
 * `serve` is called several times for a request: first with its head, which decides who may ask; then with pieces of
 * the body, which are collected; at last with none, which answers. Files are answered from the program's memory. */
#include "web/server/web.h"

#include "base/alloc.h"
#include "web/server/files.h"
#include "web/server/gateway.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum { IDLE_TIMEOUT_S = 15, BACKLOG = 64 };

#define CALLS      "/api/"
#define KEY_HEADER "X-Trainyard-Key"

struct web {
    struct MHD_Daemon *daemon;
    struct rpc_channel *channel;
    int port;
    char key[WEB_KEY_DIGITS + 1];
};

struct request {
    struct bytes body;
    unsigned refused; /* HTTP status; 0: the request may be answered */
};

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, struct MHD_Response *r,
                              const char *type, const char *caching) {
    if (!r)
        return MHD_NO;
    const char *const headers[][2] = {
        { "Content-Type", type },
        { "Cache-Control", caching },
        { "Content-Security-Policy",
          "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'" },
        { "X-Content-Type-Options", "nosniff" },
        { "Referrer-Policy", "no-referrer" },
        { "Cross-Origin-Resource-Policy", "same-origin" },
    };
    enum MHD_Result ok = MHD_YES;
    for (size_t i = 0; ok == MHD_YES && i < sizeof headers / sizeof *headers; i++)
        ok = MHD_add_response_header(r, headers[i][0], headers[i][1]);
    if (ok == MHD_YES)
        ok = MHD_queue_response(connection, code, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned code, const char *text) {
    return answer(connection, code,
                  MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT),
                  "text/plain; charset=utf-8", "no-store");
}

static enum MHD_Result answer_refused(struct MHD_Connection *connection, unsigned code) {
    switch (code) {
    case MHD_HTTP_CONTENT_TOO_LARGE: return answer_text(connection, code, "the request is too large\n");
    case MHD_HTTP_METHOD_NOT_ALLOWED: return answer_text(connection, code, "this path has no such method\n");
    case MHD_HTTP_MISDIRECTED_REQUEST: return answer_text(connection, code, "this server has another name\n");
    default:
        return answer_text(connection, code,
                           "This page belongs to the user who started it. Open the address that `trainyard dashboard` "
                           "has printed.\n");
    }
}

static enum MHD_Result answer_file(struct MHD_Connection *connection, const char *path) {
    const char *known = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "If-None-Match");
    for (size_t i = 0; i < n_web_files; i++) {
        const struct web_file *f = &web_files[i];
        if (strcmp(f->path, strcmp(path, "/") == 0 ? "/index.html" : path) != 0)
            continue;
        const bool same = known && strcmp(known, f->etag) == 0;
        struct MHD_Response *r = MHD_create_response_from_buffer(same ? 0 : f->n, (void *)(uintptr_t)f->data,
                                                                 MHD_RESPMEM_PERSISTENT);
        if (r && MHD_add_response_header(r, "ETag", f->etag) != MHD_YES) {
            MHD_destroy_response(r);
            return MHD_NO;
        }
        return answer(connection, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, r, f->type, "no-cache");
    }
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "there is no such page\n");
}

static enum MHD_Result answer_call(const struct web *w, struct MHD_Connection *connection, const char *call,
                                   const struct request *request) {
    struct bytes body;
    bytes_init(&body, GATEWAY_ANSWER_BYTES);
    const unsigned code = gateway_call(w->channel, call, request->body.data ? request->body.data : "",
                                       request->body.len, &body);
    const size_t n = body.len;
    struct MHD_Response *r = n ? MHD_create_response_from_buffer(n, bytes_take(&body), MHD_RESPMEM_MUST_FREE)
                               : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    bytes_done(&body);
    return answer(connection, code, r, "application/json", "no-store");
}

/* ---- who may ask ---- */

static bool equals_key(const struct web *w, const char *s) {
    unsigned differ = strlen(s) != WEB_KEY_DIGITS;
    for (size_t i = 0; !differ && i < WEB_KEY_DIGITS; i++)
        differ |= (unsigned)(s[i] ^ w->key[i]);
    return differ == 0;
}

/* A web page of another site may let its name point to this host: then Host is that name. */
static bool names_this_server(const struct web *w, const char *host, const char *scheme) {
    static const char *const names[] = { "127.0.0.1", "localhost" };
    char own[64];
    for (size_t i = 0; host && i < 2; i++) {
        snprintf(own, sizeof own, "%s%s:%d", scheme, names[i], w->port);
        if (strcmp(host, own) == 0)
            return true;
    }
    return false;
}

/* 0: the request may be answered. */
static unsigned refusal(const struct web *w, struct MHD_Connection *connection, const char *method, const char *path) {
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
    const char *key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, KEY_HEADER);
    const bool posts = strcmp(method, "POST") == 0, calls = strncmp(path, CALLS, strlen(CALLS)) == 0;
    if (!names_this_server(w, host, ""))
        return MHD_HTTP_MISDIRECTED_REQUEST;
    if ((calls && !(key && equals_key(w, key))) || (origin && !names_this_server(w, origin, "http://")))
        return MHD_HTTP_FORBIDDEN;
    if (posts != calls || (!posts && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0))
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    return 0;
}

/* ---- libmicrohttpd ---- */

static enum MHD_Result serve(void *ctx, struct MHD_Connection *connection, const char *path, const char *method,
                             const char *version, const char *body, size_t *n_body, void **state) {
    (void)version;
    const struct web *w = ctx;
    struct request *r = *state;
    if (!r) {
        *state = r = alloc_zeroed(1, sizeof *r);
        bytes_init(&r->body, GATEWAY_REQUEST_BYTES);
        r->refused = refusal(w, connection, method, path);
        return MHD_YES;
    }
    if (*n_body) {
        if (!r->refused && bytes_append(&r->body, body, *n_body, NULL) != ST_OK)
            r->refused = MHD_HTTP_CONTENT_TOO_LARGE;
        *n_body = 0;
        return MHD_YES;
    }
    if (r->refused)
        return answer_refused(connection, r->refused);
    if (strncmp(path, CALLS, strlen(CALLS)) == 0)
        return answer_call(w, connection, path + strlen(CALLS), r);
    return answer_file(connection, path);
}

static void request_ended(void *ctx, struct MHD_Connection *connection, void **state,
                          enum MHD_RequestTerminationCode code) {
    (void)ctx, (void)connection, (void)code;
    struct request *r = *state;
    if (r)
        bytes_done(&r->body);
    free(r);
    *state = NULL;
}

static status_t listen_on(int port, int *ret_fd, int *ret_port, struct err *e) {
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    CLEANUP(closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_errno(e, "open a socket for the page");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (bind(fd, (struct sockaddr *)&at, n) < 0 || listen(fd, BACKLOG) < 0)
        return errno == EADDRINUSE
                   ? err_set(e, ST_ALREADY_EXISTS,
                             "port %d is in use by another program: choose another one with --port, or 0 for any", port)
                   : err_errno(e, "listen on port %d", port);
    getsockname(fd, (struct sockaddr *)&at, &n);
    *ret_port = ntohs(at.sin_port);
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

static status_t key_make(char ret[WEB_KEY_DIGITS + 1], struct err *e) {
    unsigned char random[WEB_KEY_DIGITS / 2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(e, "get random bytes for the page's key");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(ret + 2 * i, 3, "%02x", random[i]);
    return ST_OK;
}

struct web *web_close(struct web *w) {
    if (w && w->daemon)
        MHD_stop_daemon(w->daemon); /* also closes the socket */
    free(w);
    return NULL;
}

status_t web_open(int port, struct rpc_channel *channel, struct web **ret, struct err *e) {
    CLEANUP(web_closep) struct web *w = alloc_zeroed(1, sizeof *w);
    CLEANUP(closep) int fd = -1;
    w->channel = channel;
    TRY(key_make(w->key, e));
    TRY(listen_on(port, &fd, &w->port, e));
    w->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0,
                                 NULL, NULL, serve, w, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                 WEB_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S,
                                 MHD_OPTION_NOTIFY_COMPLETED, request_ended, NULL, MHD_OPTION_END);
    if (!w->daemon)
        return err_set(e, ST_INTERNAL, "libmicrohttpd does not start on port %d", w->port);
    take_fd(&fd);
    *ret = take_ptr(&w);
    return ST_OK;
}

int web_port(const struct web *w) { return w->port; }

const char *web_key(const struct web *w) { return w->key; }
