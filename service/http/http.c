/* The HTTP server of a controller, with libmicrohttpd.
 *
 * http_open creates and binds the socket itself, checks that the address is a loopback address, and passes the socket
 * to libmicrohttpd, whose threads then accept connections. `serve` is called for each request and selects the page by
 * the path. /healthz reads the state of leadership from memory and, on the leader, sends one query to PostgreSQL,
 * because a leader without its database cannot serve calls. /metrics is written into one bounded buffer. Every page is
 * copied into its response, so no page outlives its handler. */
#include "service/http/http.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "service/http/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A connection that is idle for this time is closed. */
#define IDLE_TIMEOUT_S 15
#define THREADS        2

struct http {
    struct MHD_Daemon *daemon;
    struct controller *controller;
    const struct rpc_server *server;
    int port;
};

/* ---- pages ---- */

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
    bytes_init(&text, METRICS_BYTES);
    status_t st = metrics_write(h->controller, h->server, &text, &e);
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

/* ---- listening ---- */

static bool loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static status_t split(const char *address, char host[256], char port[8], struct err *e) {
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    bool brackets = n > 2 && address[0] == '[' && address[n - 1] == ']';
    if (!colon || n == 0 || n > 255 || strlen(colon + 1) == 0 || strlen(colon + 1) > 5)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not host:port", address);
    memcpy(host, address + brackets, n - 2 * brackets);
    host[n - 2 * brackets] = '\0';
    strcpy(port, colon + 1);
    return ST_OK;
}

/* Opens the socket here instead of in libmicrohttpd, so that "in use" is a separate status and the port is known. */
static status_t listen_on(const char *address, int *ret_fd, int *ret_port, struct err *e) {
    char host[256], port[8];
    TRY(split(address, host, port, e));
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM }, *found;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not a numeric host and port: %s", address,
                       gai_strerror(failed));
    struct sockaddr_storage at = { 0 };
    socklen_t n_at = found->ai_addrlen;
    memcpy(&at, found->ai_addr, n_at);
    freeaddrinfo(found);
    if (!loopback((struct sockaddr *)&at))
        return err_set(
            e, ST_FAILED_PRECONDITION,
            "'%.80s' can be reached by other machines, and these pages have no password: use 127.0.0.1 or [::1]",
            address);
    CLEANUP(closep) int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, "socket for '%s'", address);
    /* A restarted controller can bind again while old connections are in TIME_WAIT. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (bind(fd, (struct sockaddr *)&at, n_at) != 0 || listen(fd, HTTP_CONNECTIONS) != 0) {
        if (errno == EADDRINUSE)
            return err_set(e, ST_ALREADY_EXISTS, "'%.80s' is in use by another program", address);
        return err_errno(e, "listen on '%s'", address);
    }
    getsockname(fd, (struct sockaddr *)&at, &n_at);
    *ret_port = ntohs(at.ss_family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port
                                              : ((struct sockaddr_in6 *)&at)->sin6_port);
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

/* MHD_stop_daemon also closes the socket. */
struct http *http_close(struct http *h) {
    if (h && h->daemon)
        MHD_stop_daemon(h->daemon);
    free(h);
    return NULL;
}

status_t http_open(const char *address, struct controller *c, const struct rpc_server *server, struct http **ret,
                   struct err *e) {
    CLEANUP(http_closep) struct http *h = alloc_zeroed(1, sizeof *h);
    h->controller = c;
    h->server = server;
    CLEANUP(closep) int fd = -1;
    TRY(listen_on(address, &fd, &h->port, e));
    h->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, serve, h, MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_THREAD_POOL_SIZE, THREADS, MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, MHD_OPTION_END);
    if (!h->daemon)
        return err_set(e, ST_INTERNAL, "libmicrohttpd does not start on '%s'", address);
    take_fd(&fd);
    *ret = take_ptr(&h);
    return ST_OK;
}

int http_port(const struct http *h) { return h->port; }
