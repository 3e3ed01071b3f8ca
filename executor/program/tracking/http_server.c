/* Until the first client connects, http_server_fd is the listening socket, and libmicrohttpd is not loaded. Then the
 * library runs without a thread: http_server_fd is its epoll descriptor, and MHD_run handles what has arrived.
 *
 * `take` is called several times for a request: first with its head alone, then with pieces of the body, and at last
 * with none. The first call checks the token; a request without it is answered at once, and libmicrohttpd then closes
 * its connection. The last call asks the owner's serve() for the answer. While the owner stores a piece of an upload,
 * the connection rests (is suspended); the last call comes again after the upload's end.
 *
 * A connection is a stranger until one of its requests had the token. Another user of the host can open connections,
 * but cannot keep one: strangers are closed by shutdown(2) of their socket, the oldest first, so that the program's own
 * client, which sends its request at once, finds a free connection. (If someone opens connections faster than it sends
 * the request, the client is disconnected and tries again, as the clients of MLflow and W&B do.) */
#include "executor/program/tracking/http_server.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "executor/program/tracking/http_library.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* W&B's client sends measurements of itself without its key, and prints an error if they are refused. They are not
 * read. */
#define OPEN_PATH "/sdk/otel/"

enum {
    TOKEN_BYTES = HTTP_TOKEN_DIGITS / 2,
    ANSWER_BYTES = 1 << 20,
    CONNECTION_BYTES = 128 << 10, /* libmicrohttpd's buffer: the pieces of a body, and the longest head */
    TURNS = 64,                   /* of MHD_run, before the caller does other work */
};

struct client {
    int fd; /* -1: free */
    uint64_t number;
    bool stranger;
    int64_t since_ms;
};

struct http_server {
    const struct http_library *http; /* NULL: no client has connected */
    struct MHD_Daemon *daemon;
    int listening; /* -1: the daemon has it */
    struct http_handler handler;
    void *ctx;
    int port;
    char token[HTTP_TOKEN_DIGITS + 1], bearer[64], basic[96];
    struct client clients[HTTP_CONNECTIONS];
    int strangers;
    uint64_t connections; /* until now */
    size_t bodies;
    struct pending *resting;
};

struct pending {
    struct bytes body;
    int64_t received;
    bool known, dropped;
    void *upload;                      /* of a PUT, until it has ended */
    bool uploaded;                     /* it has ended */
    struct MHD_Connection *connection; /* rests; NULL: it does not */
    struct pending *next_resting;
    const char *path; /* in libmicrohttpd's memory of the request */
};

/* ---- connections ---- */

static void stranger_close(struct http_server *s, struct client *c) {
    shutdown(c->fd, SHUT_RDWR);
    c->stranger = false; /* closed soon: it does not count any more */
    s->strangers--;
}

static struct client *stranger_oldest(struct http_server *s) {
    struct client *oldest = NULL;
    for (int i = 0; i < HTTP_CONNECTIONS; i++) {
        struct client *c = &s->clients[i];
        if (c->fd >= 0 && c->stranger && (!oldest || c->since_ms < oldest->since_ms))
            oldest = c;
    }
    return oldest;
}

static void strangers_expire(struct http_server *s) {
    for (struct client *c; (c = stranger_oldest(s)) && clock_mono_ms() - c->since_ms >= HTTP_STRANGER_MS;)
        stranger_close(s, c);
}

static void client_open(struct http_server *s, struct MHD_Connection *connection, void **ret) {
    const union MHD_ConnectionInfo *info = s->http->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct client *c = s->clients;
    while (c < s->clients + HTTP_CONNECTIONS - 1 && c->fd >= 0)
        c++;
    if (!info || c->fd >= 0)
        return;
    if (s->strangers == HTTP_STRANGERS)
        stranger_close(s, stranger_oldest(s));
    *c = (struct client){
        .fd = info->connect_fd, .number = ++s->connections, .stranger = true, .since_ms = clock_mono_ms()
    };
    s->strangers++;
    *ret = c;
}

static void connection_changed(void *ctx, struct MHD_Connection *connection, void **socket_context,
                               enum MHD_ConnectionNotificationCode code) {
    struct http_server *s = ctx;
    struct client *c = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        client_open(s, connection, socket_context);
    } else if (c) {
        s->strangers -= c->stranger;
        *c = (struct client){ .fd = -1 };
        *socket_context = NULL;
    }
}

static struct client *client_of(const struct http_server *s, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = s->http->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void client_known(struct http_server *s, struct MHD_Connection *connection) {
    struct client *c = client_of(s, connection);
    if (c && c->stranger) {
        c->stranger = false;
        s->strangers--;
    }
}

/* ---- requests ---- */

static enum MHD_Result answer(const struct http_library *http, struct MHD_Connection *connection, unsigned code,
                              const void *body, size_t n) {
    struct MHD_Response *r = http->create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    enum MHD_Result ok = http->add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    if (ok == MHD_YES)
        ok = http->queue_response(connection, code, r);
    http->destroy_response(r);
    return ok;
}

/* Takes the same time wherever they differ. */
static bool same_bytes(const char *a, const char *b, size_t n) {
    unsigned char differ = 0;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}

static bool same_text(const char *given, const char *wanted) {
    const size_t n = strlen(wanted);
    return given && strlen(given) == n && same_bytes(given, wanted, n);
}

/* The path behind the token, or the whole path if a header has the token; NULL: neither has. */
static const char *path_allowed(const struct http_server *s, struct MHD_Connection *connection, const char *path) {
    const char *header = s->http->lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (same_text(header, s->bearer) || same_text(header, s->basic))
        return path;
    const bool long_enough = strlen(path) > HTTP_TOKEN_DIGITS + 1 && path[HTTP_TOKEN_DIGITS + 1] == '/';
    return long_enough && same_bytes(path + 1, s->token, HTTP_TOKEN_DIGITS) ? path + HTTP_TOKEN_DIGITS + 1 : NULL;
}

/* libmicrohttpd does not read from the connection until resume. */
static void rest(struct http_server *s, struct pending *p, struct MHD_Connection *connection) {
    p->connection = connection;
    p->next_resting = s->resting;
    s->resting = p;
    s->http->suspend_connection(connection);
}

static void resume(struct http_server *s, struct pending *p) {
    struct pending **at = &s->resting;
    while (*at != p)
        at = &(*at)->next_resting;
    *at = p->next_resting;
    s->http->resume_connection(p->connection);
    p->connection = NULL;
}

void http_server_continue(struct http_server *s, const void *upload, bool ended) {
    struct pending *p = s ? s->resting : NULL;
    while (p && p->upload != upload)
        p = p->next_resting;
    if (!p)
        return;
    if (ended)
        p->upload = NULL;
    resume(s, p);
}

static void pending_free(struct http_server *s, struct pending *p) {
    if (p->upload)
        s->handler.upload_drop(p->upload);
    s->bodies -= p->body.len;
    bytes_done(&p->body);
    free(p);
}

/* True: the connection rests until the piece is written. */
static bool body_take(struct http_server *s, struct pending *p, const char *method, const char *piece, size_t n) {
    p->received += (int64_t)n;
    if (p->upload)
        return s->handler.upload_write(p->upload, piece, n);
    if (p->dropped || strcmp(method, MHD_HTTP_METHOD_PUT) == 0 || s->bodies + n > HTTP_BODIES_BYTES ||
        bytes_append(&p->body, piece, n, NULL) != ST_OK) {
        s->bodies -= p->body.len;
        bytes_done(&p->body);
        p->dropped = true;
    } else {
        s->bodies += n;
    }
    return false;
}

static enum MHD_Result answer_file(const struct http_library *http, struct MHD_Connection *connection, int fd,
                                   int64_t bytes) {
    struct MHD_Response *r = http->create_response_from_fd((uint64_t)bytes, fd); /* closes fd, unless it fails */
    if (!r) {
        close(fd);
        return MHD_NO;
    }
    const enum MHD_Result ok = http->queue_response(connection, MHD_HTTP_OK, r);
    http->destroy_response(r);
    return ok;
}

static enum MHD_Result request_finish(struct http_server *s, struct MHD_Connection *connection, const char *method,
                                      struct pending *p) {
    const struct client *client = client_of(s, connection);
    int file = -1;
    int64_t n_file = 0;
    const struct http_request request = { .method = method,
                                          .path = p->path,
                                          .body = p->body.data ? p->body.data : "",
                                          .n_body = p->body.len,
                                          .received = p->received,
                                          .dropped = p->dropped,
                                          .connection = connection,
                                          .client = client ? client->number : 0,
                                          .uploaded = p->uploaded,
                                          .file = &file,
                                          .n_file = &n_file };
    struct bytes body;
    bytes_init(&body, ANSWER_BYTES);
    const unsigned code = s->handler.serve(s->ctx, &request, &body);
    const enum MHD_Result ok = file >= 0 ? answer_file(s->http, connection, file, n_file)
                                         : answer(s->http, connection, code, body.data ? body.data : "", body.len);
    bytes_done(&body);
    return ok;
}

static enum MHD_Result take(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                            const char *version, const char *piece, size_t *n_piece, void **state) {
    static const char refused[] =
        "{\"error_code\": \"UNAUTHENTICATED\", \"message\": \"the token of this job's rank is "
        "required\"}";
    (void)version;
    struct http_server *s = ctx;
    struct pending *p = *state;
    if (!p) {
        *state = p = alloc_zeroed(1, sizeof *p);
        bytes_init(&p->body, HTTP_BODY_BYTES);
        p->path = path_allowed(s, connection, url);
        if (!p->path && strncmp(url, OPEN_PATH, sizeof OPEN_PATH - 1) == 0)
            return answer(s->http, connection, MHD_HTTP_OK, "", 0);
        if (!p->path)
            return answer(s->http, connection, MHD_HTTP_UNAUTHORIZED, refused, sizeof refused - 1);
        client_known(s, connection);
        if (strcmp(method, MHD_HTTP_METHOD_PUT) == 0)
            p->upload = s->handler.upload_begin(s->ctx, p->path);
        return MHD_YES;
    }
    if (*n_piece > 0) {
        if (body_take(s, p, method, piece, *n_piece))
            rest(s, p, connection);
        *n_piece = 0;
        return MHD_YES;
    }
    if (p->upload) {
        p->uploaded = true;
        if (s->handler.upload_end(p->upload)) {
            rest(s, p, connection);
            return MHD_YES;
        }
        p->upload = NULL;
    }
    return request_finish(s, connection, method, p);
}

static void request_done(void *ctx, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why) {
    (void)connection, (void)why;
    if (*state)
        pending_free(ctx, *state);
    *state = NULL;
}

const char *http_argument(const struct http_request *request, const char *name) {
    const struct http_library *http;
    if (!request->connection || http_library_get(&http, NULL) != ST_OK)
        return NULL;
    return http->lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* ---- the server ---- */

/* libcrypto has this function, and would cost each rank half a millisecond at its start. */
static void base64_append(const char *text, char *ret) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (uint8_t)text[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *ret++ = i + k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    *ret = '\0';
}

static status_t token_make(struct http_server *s, struct err *e) {
    uint8_t bytes[TOKEN_BYTES];
    char user[HTTP_TOKEN_DIGITS + 8];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return err_errno(e, "make a token");
    for (int i = 0; i < TOKEN_BYTES; i++)
        snprintf(s->token + 2 * i, 3, "%02x", bytes[i]);
    snprintf(s->bearer, sizeof s->bearer, "Bearer %s", s->token);
    snprintf(user, sizeof user, "api:%s", s->token);
    strcpy(s->basic, "Basic ");
    base64_append(user, s->basic + strlen(s->basic));
    return ST_OK;
}

static status_t listen_on_loopback(int *ret_fd, int *ret_port, struct err *e) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    CLEANUP(closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) < 0 || listen(fd, HTTP_CONNECTIONS) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) < 0)
        return err_errno(e, "listen on 127.0.0.1");
    *ret_port = ntohs(at.sin_port);
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

status_t http_server_open(const struct http_handler *handler, void *ctx, struct http_server **ret, struct err *e) {
    CLEANUP(http_server_closep) struct http_server *s = alloc_zeroed(1, sizeof *s);
    s->handler = *handler;
    s->ctx = ctx;
    s->listening = -1;
    for (int i = 0; i < HTTP_CONNECTIONS; i++)
        s->clients[i].fd = -1;
    TRY(token_make(s, e));
    TRY(listen_on_loopback(&s->listening, &s->port, e));
    *ret = take_ptr(&s);
    return ST_OK;
}

struct http_server *http_server_close(struct http_server *s) {
    while (s && s->resting) /* libmicrohttpd's condition */
        resume(s, s->resting);
    if (s && s->daemon)
        s->http->stop_daemon(s->daemon);
    if (s)
        closep(&s->listening);
    free(s);
    return NULL;
}

static status_t daemon_start(struct http_server *s, struct err *e) {
    TRY(http_library_get(&s->http, e));
    s->daemon = s->http->start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, take, s, MHD_OPTION_LISTEN_SOCKET, s->listening,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_NOTIFY_CONNECTION, connection_changed,
        s, MHD_OPTION_NOTIFY_COMPLETED, request_done, s, MHD_OPTION_END);
    if (!s->daemon)
        return err_set(e, ST_INTERNAL, "libmicrohttpd does not start");
    take_fd(&s->listening); /* MHD_stop_daemon closes it */
    return ST_OK;
}

int http_server_port(const struct http_server *s) { return s->port; }
const char *http_server_token(const struct http_server *s) { return s->token; }

int http_server_fd(const struct http_server *s) {
    const union MHD_DaemonInfo *info = s->daemon ? s->http->get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    return info ? info->epoll_fd : s->listening;
}

status_t http_server_run(struct http_server *s, bool *ret_more, struct err *e) {
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    struct pollfd p = { .fd = s->listening, .events = POLLIN };
    *ret_more = false;
    if (!s->daemon && poll(&p, 1, 0) <= 0)
        return ST_OK;
    if (!s->daemon)
        TRY(daemon_start(s, e));
    strangers_expire(s);
    for (int i = 0; i < TURNS; i++) {
        s->http->run(s->daemon);
        if (s->http->get_timeout(s->daemon, &wait_ms) != MHD_YES || wait_ms > 0)
            return ST_OK;
    }
    *ret_more = true;
    return ST_OK;
}
