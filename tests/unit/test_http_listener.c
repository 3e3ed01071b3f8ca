/* The guards of an HTTP listener: which addresses need what, the versions of TLS, and the limits of connections. Each
 * test talks to a listener of its own over sockets. */
#include "api/http/listener.h"
#include "base/cleanup.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Far more than any answer takes, and less than the limit of the idle connections that must stay open. */
enum { WAIT_MS = 60 * 1000, LONG_IDLE_S = 600 };

static char folder[] = "/tmp/ty-http-XXXXXX", cert[64], key[64], other_key[64];

static int setup(void **state) {
    (void)state;
    char command[512];
    if (!mkdtemp(folder))
        return -1;
    snprintf(cert, sizeof cert, "%s/cert", folder);
    snprintf(key, sizeof key, "%s/key", folder);
    snprintf(other_key, sizeof other_key, "%s/other", folder);
    snprintf(command, sizeof command,
             "cd %s && exec 2>log && for k in other key; do openssl req -x509 -newkey ec -pkeyopt "
             "ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=here -keyout $k -out cert || exit 1; done",
             folder);
    return system(command);
}

static int teardown(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static enum MHD_Result hello(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                             const char *version, const char *body, size_t *n_body, void **request) {
    (void)ctx, (void)url, (void)method, (void)version, (void)body, (void)n_body;
    static char text[] = "hello";
    const bool head = !*request;
    *request = text;
    if (head) /* an answer before the whole request would end the connection */
        return MHD_YES;
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result ok = MHD_queue_response(connection, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return ok;
}

static struct http_listener_config config_of(const char *address) {
    return (struct http_listener_config){ .address = address,
                                          .connections = 16,
                                          .per_host = 16,
                                          .idle_s = LONG_IDLE_S,
                                          .threads = 1,
                                          .cert = cert,
                                          .key = key,
                                          .tokens = true,
                                          .page = "this page needs a certificate",
                                          .serve = hello };
}

static void opens(const struct http_listener_config *config, struct http_listener *ret) {
    struct err e = { "" };
    *ret = (struct http_listener){ 0 };
    if (http_listener_open(config, ret, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static void refuses(const struct http_listener_config *config, status_t status, const char *words) {
    struct http_listener l = { 0 };
    struct err e = { "" };
    assert_int_equal(http_listener_open(config, &l, &e), status);
    if (!strstr(e.msg, words))
        fail_msg("'%s' does not contain '%s'", e.msg, words);
    http_listener_close(&l);
}

/* ---- clients ---- */

static int dial(const struct http_listener *l) {
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)l->port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static bool readable(int fd, int ms) { return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, ms) == 1; }

static void ask(int fd) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    assert_int_equal(send(fd, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
}

static void answered(int fd) {
    char text[1024] = "";
    for (size_t n = 0; !strstr(text, "\r\n\r\nhello");) {
        assert_true(readable(fd, WAIT_MS));
        const ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        assert_true(got > 0);
        text[n += (size_t)got] = '\0';
    }
}

static bool closed_by_peer(int fd) {
    char byte;
    return readable(fd, WAIT_MS) && read(fd, &byte, 1) <= 0;
}

/* Whether a client that knows no later version than `newest` shakes hands. */
static bool shakes_hands(const struct http_listener *l, int newest) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(ctx);
    assert_int_equal(SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0"), 1); /* without it OpenSSL refuses before GnuTLS */
    SSL_CTX_set_min_proto_version(ctx, newest);
    SSL_CTX_set_max_proto_version(ctx, newest);
    SSL *tls = SSL_new(ctx);
    CLEANUP(closep) int fd = dial(l);
    SSL_set_fd(tls, fd);
    const bool ok = SSL_connect(tls) == 1;
    SSL_free(tls);
    SSL_CTX_free(ctx);
    return ok;
}

/* ---- claims ---- */

static void an_address_that_other_machines_reach_needs_a_certificate_and_tokens(void **state) {
    (void)state;
    struct http_listener_config c = config_of("0.0.0.0:0");
    static const char words[] = "'0.0.0.0:0' can be reached by other machines: this page needs a certificate";
    c.cert = NULL;
    refuses(&c, ST_FAILED_PRECONDITION, words);
    c.cert = "";
    refuses(&c, ST_FAILED_PRECONDITION, words);
    c = config_of("0.0.0.0:0");
    c.key = NULL;
    refuses(&c, ST_FAILED_PRECONDITION, words);
    c = config_of("0.0.0.0:0");
    c.tokens = false;
    refuses(&c, ST_FAILED_PRECONDITION, words);
    c.address = "[::]:0";
    refuses(&c, ST_FAILED_PRECONDITION, "'[::]:0' can be reached by other machines");
}

static void a_loopback_address_needs_nothing(void **state) {
    (void)state;
    struct http_listener l;
    struct http_listener_config c = config_of("127.0.0.1:0");
    c.cert = c.key = NULL;
    c.tokens = false;
    opens(&c, &l);
    assert_true(l.local);
    CLEANUP(closep) int fd = dial(&l);
    ask(fd);
    answered(fd);
    c.address = l.address;
    refuses(&c, ST_ALREADY_EXISTS, "is in use by another program");
    http_listener_close(&l);
    http_listener_close(&l); /* a second time */
    c.address = "nonsense";
    refuses(&c, ST_INVALID_ARGUMENT, "not host:port");
}

static void files_that_are_no_pair_are_refused(void **state) {
    (void)state;
    struct http_listener_config c = config_of("0.0.0.0:0");
    c.key = other_key;
    refuses(&c, ST_INTERNAL, "PEM files that belong together");
    c.key = "/nonexistent/key";
    refuses(&c, ST_NOT_FOUND, "/nonexistent/key");
}

static void tls_is_1_2_or_later(void **state) {
    (void)state;
    struct http_listener l;
    struct http_listener_config c = config_of("0.0.0.0:0");
    opens(&c, &l);
    assert_false(l.local);
    assert_true(shakes_hands(&l, TLS1_3_VERSION));
    assert_true(shakes_hands(&l, TLS1_2_VERSION));
    assert_false(shakes_hands(&l, TLS1_1_VERSION));
    assert_false(shakes_hands(&l, TLS1_VERSION));
    http_listener_close(&l);
}

static void one_host_cannot_take_all_connections(void **state) {
    (void)state;
    for (unsigned threads = 0; threads < 2; threads++) {
        struct http_listener l;
        struct http_listener_config c = config_of("0.0.0.0:0");
        c.threads = threads;
        c.per_host = 2;
        opens(&c, &l);
        CLEANUP(closep) int first = dial(&l);
        CLEANUP(closep) int second = dial(&l);
        CLEANUP(closep) int third = dial(&l);
        assert_true(closed_by_peer(third));
        assert_false(readable(first, 0) || readable(second, 0));
        http_listener_close(&l);
    }
}

/* A connection above the limit waits or is closed: it has no answer after others had a hundred each. */
static void connections_have_a_limit(void **state) {
    (void)state;
    for (unsigned threads = 0; threads < 2; threads++) {
        struct http_listener l;
        struct http_listener_config c = config_of("127.0.0.1:0");
        c.threads = threads;
        c.connections = 2;
        opens(&c, &l);
        CLEANUP(closep) int first = dial(&l);
        CLEANUP(closep) int second = dial(&l);
        ask(first);
        answered(first);
        ask(second);
        answered(second);
        CLEANUP(closep) int third = dial(&l);
        ask(third);
        for (int i = 0; i < 100; i++) {
            ask(first);
            answered(first);
        }
        assert_false(readable(third, 0) && !closed_by_peer(third));
        http_listener_close(&l);
    }
}

static void a_connection_on_which_nothing_moves_is_closed(void **state) {
    (void)state;
    for (unsigned threads = 0; threads < 2; threads++) {
        struct http_listener l;
        struct http_listener_config c = config_of("127.0.0.1:0");
        c.threads = threads;
        c.idle_s = 1;
        opens(&c, &l);
        CLEANUP(closep) int fd = dial(&l);
        assert_true(closed_by_peer(fd));
        http_listener_close(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_that_other_machines_reach_needs_a_certificate_and_tokens),
        cmocka_unit_test(a_loopback_address_needs_nothing),
        cmocka_unit_test(files_that_are_no_pair_are_refused),
        cmocka_unit_test(tls_is_1_2_or_later),
        cmocka_unit_test(one_host_cannot_take_all_connections),
        cmocka_unit_test(connections_have_a_limit),
        cmocka_unit_test(a_connection_on_which_nothing_moves_is_closed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
