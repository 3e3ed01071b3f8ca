#include "service/http/http.h"

#include "base/bytes.h"
#include "service/http/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A client that is silent for so long is dropped. */
#define IDLE_TIMEOUT_S 15
#define THREADS        2

struct http {
    struct MHD_Daemon *daemon;
    struct controller *controller;
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

static enum MHD_Result health(struct http *h, struct MHD_Connection *connection) {
    struct err e;
    struct controller_stats stats;
    if (store_ping(controller_store(h->controller), &e) != ST_OK)
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, e.msg);
    controller_stats(h->controller, &stats);
    return answer_text(connection, MHD_HTTP_OK, stats.leads ? "leading\n" : "standby\n");
}

static enum MHD_Result metrics(struct http *h, struct MHD_Connection *connection) {
    struct err e;
    struct bytes text;
    bytes_init(&text, METRICS_BYTES);
    status_t st = metrics_write(h->controller, &text, &e);
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
    if (strcmp(url, "/metrics") == 0)
        return metrics(h, connection);
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "there are /healthz and /metrics\n");
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

/* A socket of ours, so that "in use" is a status of its own and the port is known. */
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

/* libmicrohttpd closes the socket that it was given. */
struct http *http_close(struct http *h) {
    if (h && h->daemon)
        MHD_stop_daemon(h->daemon);
    free(h);
    return NULL;
}

status_t http_open(const char *address, struct controller *c, struct http **ret, struct err *e) {
    CLEANUP(http_closep) struct http *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the HTTP server");
    h->controller = c;
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
