/* libmicrohttpd calls `on_request` when the headers of a request are there, for each part of its body, and when all
 * of it is there; the answer is made then. A copy is sent from its open file: it may be removed from the cache
 * meanwhile. */
#include "executor/data/serve.h"

#include "api/http/listener.h"
#include "base/alloc.h"
#include "executor/data/cache.h"
#include "executor/data/peer_message.h"

#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER_BYTES = 96 };

static const char OBJECTS[] = "/objects/";

struct serve {
    struct http_listener listener;
    struct data_cache *cache;
    const char *token;
};

struct request {
    struct bytes body;
    bool too_long;
};

/* ---- answers ---- */

/* Takes the response. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, struct MHD_Response *response) {
    const enum MHD_Result ok = response ? MHD_queue_response(connection, code, response) : MHD_NO;
    if (response)
        MHD_destroy_response(response);
    return ok;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned code, const char *text, size_t n) {
    return answer(connection, code, MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *sentence) {
    return answer_text(connection, code, sentence, strlen(sentence));
}

/* ---- who may ask ---- */

static bool has_token(const struct serve *s, struct MHD_Connection *connection) {
    static const char SCHEME[] = "Bearer ";
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const size_t n = strlen(s->token);
    return header && strncmp(header, SCHEME, sizeof SCHEME - 1) == 0 && strlen(header) == sizeof SCHEME - 1 + n &&
           CRYPTO_memcmp(header + sizeof SCHEME - 1, s->token, n) == 0;
}

/* ---- /find ---- */

static status_t line_add(const struct serve *s, const char *key, struct bytes *ret, struct err *e) {
    struct cache_entry entry;
    data_cache_peek(s->cache, key, &entry);
    if (entry.state == CACHE_GOOD)
        return bytes_printf(ret, e, "%s\n", entry.sha256);
    const uint64_t progress = data_cache_part_progress(s->cache, key);
    return progress ? bytes_printf(ret, e, "+%" PRIu64 "\n", progress) : bytes_append(ret, "-\n", 2, e);
}

static enum MHD_Result find(const struct serve *s, struct MHD_Connection *connection, const struct request *r) {
    char key[SHA256_HEX];
    struct bytes text;
    status_t st = r->too_long ? ST_INVALID_ARGUMENT : ST_OK;
    bytes_init(&text, PEER_FIND_BYTES);
    for (size_t at = 0; st == ST_OK && at < r->body.len; at += SHA256_HEX)
        st = peer_key_read(r->body.data + at, r->body.len - at, key) ? line_add(s, key, &text, NULL)
                                                                     : ST_INVALID_ARGUMENT;
    const enum MHD_Result ok = st == ST_OK ? answer_text(connection, MHD_HTTP_OK, text.len ? text.data : "", text.len)
                                           : refuse(connection, MHD_HTTP_BAD_REQUEST, "the body is no list of keys\n");
    bytes_done(&text);
    return ok;
}

/* ---- /objects ---- */

static bool headers_add(struct MHD_Response *r, const char *sha256, const char *range) {
    char etag[HEADER_BYTES];
    snprintf(etag, sizeof etag, "\"%s\"", sha256);
    return MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, etag) == MHD_YES &&
           MHD_add_response_header(r, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes") == MHD_YES &&
           (!range || MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_RANGE, range) == MHD_YES);
}

static enum MHD_Result object(const struct serve *s, struct MHD_Connection *connection, const char *sha256) {
    char range[HEADER_BYTES];
    struct stat st;
    CLEANUP(closep)
    int file = data_cache_is_digest(sha256)
                   ? openat(s->cache->objects, sha256, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                   : -1;
    if (file < 0 || fstat(file, &st) < 0 || !S_ISREG(st.st_mode))
        return refuse(connection, MHD_HTTP_NOT_FOUND, "no such copy\n");
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_RANGE);
    int64_t from = 0, n = st.st_size;
    if (header && !peer_range_read(header, st.st_size, &from, &n))
        return refuse(connection, MHD_HTTP_RANGE_NOT_SATISFIABLE, "no such part of the copy\n");
    snprintf(range, sizeof range, "bytes %" PRId64 "-%" PRId64 "/%" PRId64, from, from + n - 1, (int64_t)st.st_size);
    struct MHD_Response *r = MHD_create_response_from_fd_at_offset64((uint64_t)n, file, (uint64_t)from);
    if (!r)
        return MHD_NO;
    take_fd(&file); /* the response closes it */
    if (headers_add(r, sha256, header ? range : NULL))
        return answer(connection, header ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return MHD_NO;
}

/* ---- requests ---- */

static enum MHD_Result respond(const struct serve *s, struct MHD_Connection *connection, const char *url,
                               const char *method, const struct request *r) {
    if (!http_listener_knows_client(&s->listener, connection))
        return refuse(connection, MHD_HTTP_FORBIDDEN, "the caller has no certificate of this cluster\n");
    if (!has_token(s, connection))
        return refuse(connection, MHD_HTTP_UNAUTHORIZED, "the caller does not have the token of this cache\n");
    if (strcmp(method, MHD_HTTP_METHOD_POST) == 0 && strcmp(url, "/find") == 0)
        return find(s, connection, r);
    if (strcmp(method, MHD_HTTP_METHOD_GET) == 0 && strncmp(url, OBJECTS, sizeof OBJECTS - 1) == 0)
        return object(s, connection, url + sizeof OBJECTS - 1);
    return refuse(connection, MHD_HTTP_NOT_FOUND, "there are POST /find and GET /objects/SHA256\n");
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *body, size_t *n_body, void **request) {
    struct request *r = *request;
    (void)version;
    if (!r) {
        r = *request = alloc_zeroed(1, sizeof *r);
        bytes_init(&r->body, PEER_FIND_BYTES);
        return MHD_YES;
    }
    if (*n_body == 0)
        return respond(ctx, connection, url, method, r);
    r->too_long |= bytes_append(&r->body, body, *n_body, NULL) != ST_OK;
    *n_body = 0;
    return MHD_YES;
}

static void on_end(void *ctx, struct MHD_Connection *connection, void **request, enum MHD_RequestTerminationCode why) {
    struct request *r = *request;
    (void)ctx, (void)connection, (void)why;
    if (r)
        bytes_done(&r->body);
    free(r);
    *request = NULL;
}

/* ---- open and close ---- */

const char *serve_address(const struct serve *s) { return s->listener.address; }

struct serve *serve_close(struct serve *s) {
    if (!s)
        return NULL;
    http_listener_close(&s->listener);
    data_cache_close(s->cache);
    free(s);
    return NULL;
}

status_t serve_open(const Trainyard__V1__CacheServe *order, struct serve **ret, struct err *e) {
    CLEANUP(serve_closep) struct serve *s = alloc_zeroed(1, sizeof *s);
    s->token = order->token;
    if (!*order->token)
        return err_set(e, ST_INVALID_ARGUMENT, "the order has no token");
    TRY(data_cache_open(order->cache, 0, &s->cache, e));
    const struct http_listener_config listener = {
        .address = order->listen,
        .connections = SERVE_CONNECTIONS,
        .per_host = SERVE_PER_HOST,
        .idle_s = SERVE_IDLE_S,
        .cert = order->tls_cert,
        .key = order->tls_key,
        .ca = order->tls_ca,
        .tokens = true,
        .page = "--cache-listen then needs --tls-ca, --tls-cert and --tls-key",
        .serve = on_request,
        .ended = on_end,
        .ctx = s,
    };
    TRY(http_listener_open(&listener, &s->listener, e));
    *ret = take_ptr(&s);
    return ST_OK;
}
