/* One thread of libmicrohttpd for each connection, because a call of the controller blocks.
 *
 * `serve` is called several times for a request: first with its head, which decides who may ask; then with pieces of
 * the body, which are collected; at last with none, which answers. Files are answered from the program's memory. */
#include "web/server/web.h"

#include "api/http/listener.h"
#include "api/rpc/bearer.h"
#include "base/alloc.h"
#include "web/server/files.h"
#include "web/server/gateway.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { IDLE_TIMEOUT_S = 15 };

#define CALLS      "/api/"
#define KEY_HEADER "X-Trainyard-Key"

struct web {
    struct http_listener listener;
    struct rpc_channel *channel;
    bool tokens;
    char address[LISTEN_ADDRESS_BYTES + 8]; /* with http:// or https:// */
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

static enum MHD_Result answer_refused(const struct web *w, struct MHD_Connection *connection, unsigned code) {
    switch (code) {
    case MHD_HTTP_CONTENT_TOO_LARGE: return answer_text(connection, code, "the request is too large\n");
    case MHD_HTTP_METHOD_NOT_ALLOWED: return answer_text(connection, code, "this path has no such method\n");
    case MHD_HTTP_MISDIRECTED_REQUEST: return answer_text(connection, code, "this server has another name\n");
    default:
        return answer_text(
            connection, code,
            w->tokens ? "this request comes from another site, or a proxy does not pass on the Host header\n"
                      : "This page belongs to the user who started it. Open the address that `trainyard dashboard` "
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

/* NULL: the call has no token. A copy, because a channel takes text. */
static char *token_of(struct MHD_Connection *connection) {
    const uint8_t *token;
    size_t n;
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!header || !bearer_read((const uint8_t *)header, strlen(header), &token, &n))
        return NULL;
    char *ret = alloc_zeroed(n + 1, 1);
    memcpy(ret, token, n);
    return ret;
}

/* One request, or by its type several. */
static unsigned call_on(struct rpc_channel *channel, struct MHD_Connection *connection, const char *call,
                        const struct request *request, struct bytes *ret) {
    const char *type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    const bool lines = type && strcmp(type, "application/x-ndjson") == 0;
    return (lines ? gateway_call_lines : gateway_call)(channel, call, request->body.data ? request->body.data : "",
                                                       request->body.len, ret);
}

/* A call with the caller's own token. */
static unsigned call_as(const struct web *w, struct MHD_Connection *connection, const char *call,
                        const struct request *request, struct bytes *ret) {
    static const char none[] =
        "{\"status\":\"UNAUTHENTICATED\",\"message\":\"The page needs a token.\",\"reason\":\"\"}";
    CLEANUP(rpc_channel_closep) struct rpc_channel *channel = NULL;
    char *token = token_of(connection);
    const bool given = token && rpc_channel_as(w->channel, token, &channel, NULL) == ST_OK;
    if (token)
        explicit_bzero(token, strlen(token));
    free(token);
    if (given)
        return call_on(channel, connection, call, request, ret);
    status_ignore(bytes_append(ret, none, sizeof none - 1, NULL));
    return MHD_HTTP_UNAUTHORIZED;
}

static enum MHD_Result answer_call(const struct web *w, struct MHD_Connection *connection, const char *call,
                                   const struct request *request) {
    struct bytes body;
    bytes_init(&body, GATEWAY_ANSWER_BYTES);
    const unsigned code = w->tokens ? call_as(w, connection, call, request, &body)
                                    : call_on(w->channel, connection, call, request, &body);
    const size_t n = body.len;
    struct MHD_Response *r = n ? MHD_create_response_from_buffer(n, bytes_take(&body), MHD_RESPMEM_MUST_FREE)
                               : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    bytes_done(&body);
    if (r && w->tokens && code == MHD_HTTP_UNAUTHORIZED &&
        MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer") != MHD_YES) {
        MHD_destroy_response(r);
        return MHD_NO;
    }
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
        snprintf(own, sizeof own, "%s%s:%d", scheme, names[i], w->listener.port);
        if (strcmp(host, own) == 0)
            return true;
    }
    return false;
}

/* Whether the page that asks is one of this server. Programs other than browsers send no Origin. A proxy in front of
 * the server may have another scheme, and passes on the Host of its own address. */
static bool is_own_page(const struct web *w, const char *origin, const char *host) {
    const char *name = origin ? strstr(origin, "://") : NULL;
    if (!origin)
        return true;
    if (!w->tokens)
        return names_this_server(w, origin, "http://");
    return name && host && strcmp(name + strlen("://"), host) == 0;
}

/* 0: the request may be answered. */
static unsigned refusal(const struct web *w, struct MHD_Connection *connection, const char *method, const char *path) {
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
    const char *key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, KEY_HEADER);
    const bool posts = strcmp(method, "POST") == 0, calls = strncmp(path, CALLS, strlen(CALLS)) == 0;
    if (!w->tokens && !names_this_server(w, host, ""))
        return MHD_HTTP_MISDIRECTED_REQUEST;
    if ((calls && !w->tokens && !(key && equals_key(w, key))) || !is_own_page(w, origin, host))
        return MHD_HTTP_FORBIDDEN;
    if (posts != calls || (!posts && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0))
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    return 0;
}

/* ---- requests ---- */

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
        return answer_refused(w, connection, r->refused);
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

static status_t key_make(char ret[WEB_KEY_DIGITS + 1], struct err *e) {
    unsigned char random[WEB_KEY_DIGITS / 2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(e, "get random bytes for the page's key");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(ret + 2 * i, 3, "%02x", random[i]);
    return ST_OK;
}

struct web *web_close(struct web *w) {
    if (w)
        http_listener_close(&w->listener);
    free(w);
    return NULL;
}

status_t web_open(const struct web_config *config, struct web **ret, struct err *e) {
    CLEANUP(web_closep) struct web *w = alloc_zeroed(1, sizeof *w);
    w->channel = config->channel;
    w->tokens = config->tokens;
    TRY(key_make(w->key, e));
    const struct http_listener_config listener = {
        .address = config->address,
        .connections = WEB_CONNECTIONS,
        .per_host = WEB_CONNECTIONS_PER_HOST,
        .idle_s = IDLE_TIMEOUT_S,
        .cert = config->tls.cert,
        .key = config->tls.key,
        .tokens = config->tokens,
        .page = "the page needs TLS there, --tls-cert and --tls-key",
        .serve = serve,
        .ended = request_ended,
        .ctx = w,
    };
    TRY(http_listener_open(&listener, &w->listener, e));
    snprintf(w->address, sizeof w->address, "%s://%s", w->listener.local ? "http" : "https", w->listener.address);
    *ret = take_ptr(&w);
    return ST_OK;
}

const char *web_address(const struct web *w) { return w->address; }

const char *web_key(const struct web *w) { return w->key; }
