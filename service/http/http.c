/* The HTTP server of a controller.
 *
 * http_open opens a listener (api/http), whose threads call `serve` for each request; `serve` selects the page by the
 * path. `admit` asks the access check of the gRPC server whether the caller may see /metrics: only the SHA-256 of the
 * token leaves this file. /healthz reads the state of leadership from memory and, on the leader, sends one query to
 * PostgreSQL, because a leader without its database cannot serve calls. /metrics is written into one bounded buffer.
 * Every page is copied into its response, so no page outlives its handler. */
#include "service/http/http.h"

#include "api/http/listener.h"
#include "api/rpc/bearer.h"
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/sha256.h"
#include "service/http/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/access.pb-c.h>

enum { IDLE_TIMEOUT_S = 15, THREADS = 2, CONNECTIONS_PER_HOST = 16 };

struct http {
    struct http_listener listener;
    struct controller *controller;
    struct metrics_source metrics;
    const struct rpc_access *access; /* not used on loopback, where no token is needed */
};

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, const char *type, const void *body,
                              size_t n) {
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    enum MHD_Result ok = MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (ok == MHD_YES)
        ok = MHD_queue_response(connection, code, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned code, const char *text) {
    return answer(connection, code, "text/plain; charset=utf-8", text, strlen(text));
}

/* ---- who may see /metrics ---- */

static status_t admit(const struct http *h, struct MHD_Connection *connection, struct err *e) {
    const struct rpc_peer peer = { .tls = true };
    uint8_t digest[SHA256_BYTES];
    char caller[RPC_CALLER_BYTES], scope[RPC_SCOPE_BYTES] = "";
    const uint8_t *token;
    size_t n;
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (h->listener.local)
        return ST_OK;
    if (!header || !bearer_read((const uint8_t *)header, strlen(header), &token, &n))
        return err_set(e, ST_UNAUTHENTICATED, "/metrics needs a token: send the header 'Authorization: Bearer TOKEN'");
    sha256_of(token, n, digest);
    TRY(h->access->check(h->access->ctx, digest, &peer, TRAINYARD__V1__ROLE__VIEWER, "/metrics", caller, e));
    /* No RPC: it is about the whole cluster, so that a token of a project is refused. */
    return h->access->check_request(h->access->ctx, digest, "", "/metrics", NULL, scope, e);
}

static enum MHD_Result refuse(struct MHD_Connection *connection, status_t st, const struct err *e) {
    char text[sizeof e->msg + 1];
    snprintf(text, sizeof text, "%s\n", e->msg);
    return answer_text(connection,
                       st == ST_UNAUTHENTICATED     ? MHD_HTTP_UNAUTHORIZED
                       : st == ST_PERMISSION_DENIED ? MHD_HTTP_FORBIDDEN
                                                    : MHD_HTTP_SERVICE_UNAVAILABLE,
                       text);
}

/* ---- the pages ---- */

/* For load balancers and readiness probes: 200 only if this controller leads and its database answers. */
static enum MHD_Result health(struct http *h, struct MHD_Connection *connection) {
    struct controller_stats stats;
    char text[sizeof stats.cannot_lead + 32];
    controller_stats(h->controller, &stats);
    switch (stats.lead) {
    case CONTROLLER_LEADS:
        if (store_ping(controller_store(h->controller), NULL) == ST_OK)
            return answer_text(connection, MHD_HTTP_OK, "leading\n");
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "leading, but its database does not answer\n");
    case CONTROLLER_STANDS_BY:
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "standby: another controller leads\n");
    case CONTROLLER_CANNOT_LEAD:
        snprintf(text, sizeof text, "cannot lead: %s\n", stats.cannot_lead.msg);
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, text);
    case CONTROLLER_STARTS: break;
    }
    return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "starting\n");
}

/* For liveness probes: 200 whenever the program answers. A restart helps neither a standby nor a controller whose
 * database is unreachable. */
static enum MHD_Result alive(struct MHD_Connection *connection) {
    return answer_text(connection, MHD_HTTP_OK, "alive\n");
}

static enum MHD_Result metrics(struct http *h, struct MHD_Connection *connection) {
    struct err e;
    struct bytes text;
    status_t st = admit(h, connection, &e);
    if (st != ST_OK)
        return refuse(connection, st, &e);
    bytes_init(&text, METRICS_BYTES);
    st = metrics_write(&h->metrics, &text, &e);
    enum MHD_Result ok = st == ST_OK ? answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4", text.data, text.len)
                                     : answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, e.msg);
    bytes_done(&text);
    return ok;
}

static enum MHD_Result serve(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                             const char *version, const char *body, size_t *n_body, void **request) {
    (void)version, (void)body, (void)request;
    struct http *h = ctx;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        *n_body = 0;
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    }
    if (strcmp(url, "/healthz") == 0)
        return health(h, connection);
    if (strcmp(url, "/livez") == 0)
        return alive(connection);
    if (strcmp(url, "/metrics") == 0)
        return metrics(h, connection);
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "there are /healthz, /livez and /metrics\n");
}

/* ---- open and close ---- */

struct http *http_close(struct http *h) {
    if (h)
        http_listener_close(&h->listener);
    free(h);
    return NULL;
}

status_t http_open(const struct http_config *config, struct http **ret, struct err *e) {
    CLEANUP(http_closep) struct http *h = alloc_zeroed(1, sizeof *h);
    h->controller = config->controller;
    h->metrics = (struct metrics_source){ .controller = config->controller,
                                          .server = config->server,
                                          .max_jobs = config->metrics_jobs };
    h->access = config->access;
    const struct http_listener_config listener = {
        .address = config->address,
        .connections = HTTP_CONNECTIONS,
        .per_host = CONNECTIONS_PER_HOST,
        .idle_s = IDLE_TIMEOUT_S,
        .threads = THREADS,
        .cert = config->tls ? config->tls->cert : NULL,
        .key = config->tls ? config->tls->key : NULL,
        .tokens = config->access,
        .page = "it needs TLS, --tls-cert and --tls-key; /metrics then needs a token. 127.0.0.1 and [::1] need neither",
        .serve = serve,
        .ctx = h,
    };
    TRY(http_listener_open(&listener, &h->listener, e));
    *ret = take_ptr(&h);
    return ST_OK;
}

int http_port(const struct http *h) { return h->listener.port; }
const char *http_address(const struct http *h) { return h->listener.address; }
