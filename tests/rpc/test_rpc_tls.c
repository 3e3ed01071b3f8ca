/* TLS and mutual TLS: which clients are accepted, which are refused, and what each side knows of the other. */
#include "base/file.h"
#include "tests/rpc/fixture.h"

#include <sys/wait.h>

static char folder[64];

static const char *file(const char *name) {
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_certificates(void **state) {
    (void)state;
    strcpy(folder, "/tmp/rpc-tls-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    char command[512];
    snprintf(command, sizeof command, "sh '%s/tests/rpc/certificates.sh' %s >%s/log 2>&1",
             getenv("TRAINYARD_SOURCE") ? getenv("TRAINYARD_SOURCE") : ".", folder, folder);
    int st = system(command);
    return WIFEXITED(st) && WEXITSTATUS(st) == 0 ? 0 : -1;
}

static int remove_certificates(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static struct rpc_server *serve(struct echo *echo, const char *cert, const char *ca, char *address) {
    struct rpc_server *server;
    char pem[32], key[32];
    snprintf(pem, sizeof pem, "%s.pem", cert);
    snprintf(key, sizeof key, "%s.key", cert);
    struct rpc_tls tls = { .cert = file(pem), .key = file(key), .ca = ca ? file(ca) : NULL };
    OK(echo_open(NULL, echo, &server, why));
    OK(rpc_server_listen(server, "127.0.0.1:0", &tls, address, why));
    OK(rpc_server_start(server, why));
    return server;
}

static status_t try_token(const char *address, const char *ca, const char *cert, const char *tls_name,
                          const char *token, struct err *e) {
    struct rpc_channel_config config = {
        .address = address, .peer = "the server", .tls_name = tls_name, .token = token
    };
    char pem[32], key[32];
    if (ca)
        config.tls.ca = file(ca);
    if (cert) {
        snprintf(pem, sizeof pem, "%s.pem", cert);
        snprintf(key, sizeof key, "%s.key", cert);
        config.tls.cert = file(pem);
        config.tls.key = file(key);
    }
    CLEANUP(rpc_channel_closep) struct rpc_channel *channel = NULL;
    OK(rpc_channel_open(&config, &channel, why));
    return ask(channel, "x", 10000, NULL, NULL, e);
}

static status_t try_call(const char *address, const char *ca, const char *cert, const char *tls_name, struct err *e) {
    return try_token(address, ca, cert, tls_name, NULL, e);
}

struct attempt {
    const char *ca, *cert, *tls_name;
    status_t status;
};

static void try_all(const char *address, const struct attempt *attempts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct err e = { "" };
        status_t st = try_call(address, attempts[i].ca, attempts[i].cert, attempts[i].tls_name, &e);
        if (st != attempts[i].status)
            fail_msg("attempt %zu: %s, %s", i, status_name(st), e.msg);
        if (st != ST_OK)
            assert_non_null(strstr(e.msg, address));
    }
}

static void a_server_with_tls_proves_who_it_is(void **state) {
    (void)state;
    struct echo echo = { 0 };
    char address[RPC_ADDRESS_BYTES];
    struct rpc_server *server = serve(&echo, "server", NULL, address);
    static const struct attempt attempts[] = {
        { "good.pem", NULL, NULL, ST_OK },
        { "good.pem", "executor-7", NULL, ST_OK }, /* the server did not request it */
        { "good.pem", NULL, "localhost", ST_OK },
        { "other.pem", NULL, NULL, ST_UNAVAILABLE },
        { "good.pem", NULL, "elsewhere.example", ST_UNAVAILABLE },
        { NULL, NULL, NULL, ST_UNAVAILABLE }, /* plain */
    };
    try_all(address, attempts, sizeof attempts / sizeof attempts[0]);
    rpc_server_close(server);
}

static void a_server_with_mutual_tls_lets_only_its_own_in(void **state) {
    (void)state;
    struct echo echo = { 0 };
    char address[RPC_ADDRESS_BYTES];
    struct rpc_server *server = serve(&echo, "server", "good.pem", address);
    static const struct attempt attempts[] = {
        { "good.pem", "executor-7", NULL, ST_OK },           { "good.pem", NULL, NULL, ST_UNAVAILABLE },
        { "good.pem", "stranger", NULL, ST_UNAVAILABLE },    { "good.pem", "expired", NULL, ST_UNAVAILABLE },
        { "other.pem", "executor-7", NULL, ST_UNAVAILABLE }, { NULL, NULL, NULL, ST_UNAVAILABLE },
    };
    try_all(address, attempts, sizeof attempts / sizeof attempts[0]);
    rpc_server_close(server);
}

static void a_certificate_of_another_host_is_not_believed(void **state) {
    (void)state;
    struct echo echo = { 0 };
    char address[RPC_ADDRESS_BYTES];
    struct rpc_server *server = serve(&echo, "elsewhere", NULL, address);
    static const struct attempt attempts[] = {
        { "good.pem", NULL, NULL, ST_UNAVAILABLE },
        { "good.pem", NULL, "elsewhere.example", ST_OK },
    };
    try_all(address, attempts, sizeof attempts / sizeof attempts[0]);
    rpc_server_close(server);
}

/* Accepts only the token "token". */
static status_t check(void *ctx, const uint8_t token[SHA256_BYTES], const struct rpc_peer *peer, int rule,
                      const char *method, char ret_caller[RPC_CALLER_BYTES], struct err *e) {
    assert_true(peer->tls);
    (void)ctx;
    (void)rule;
    uint8_t digest[SHA256_BYTES];
    sha256_of("token", 5, digest);
    if (!token || memcmp(token, digest, sizeof digest) != 0)
        return err_set(e, ST_UNAUTHENTICATED, "%s needs a token", method);
    strcpy(ret_caller, "somebody");
    return ST_OK;
}

static const struct rpc_access tokens = { .rule_option = 51701, .rule_reflection = 1, .check = check };

static void all_addresses_may_be_listened_on_with_mutual_tls_and_tokens(void **state) {
    (void)state;
    struct echo echo = { 0 };
    struct err e;
    char bound[RPC_ADDRESS_BYTES];
    struct rpc_server *server;
    struct rpc_tls tls = { .cert = file("server.pem"), .key = file("server.key"), .ca = file("good.pem") };
    OK(echo_open(NULL, &echo, &server, why));
    assert_int_equal(rpc_server_listen(server, "0.0.0.0:0", &tls, bound, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg,
                        "the address 0.0.0.0:0 can be reached by other machines, and the server has no access rules");
    rpc_server_close(server);
    OK(echo_open(&(struct rpc_server_config){ .access = &tokens }, &echo, &server, why));
    tls.ca = NULL;
    assert_int_equal(rpc_server_listen(server, "0.0.0.0:0", &tls, bound, &e), ST_FAILED_PRECONDITION);
    tls.ca = file("good.pem");
    OK(rpc_server_listen(server, "0.0.0.0:0", &tls, bound, why));
    OK(rpc_server_start(server, why));
    char dialled[64];
    snprintf(dialled, sizeof dialled, "127.0.0.1:%s", strrchr(bound, ':') + 1);
    OK(try_token(dialled, "good.pem", "executor-7", NULL, "token", why));
    assert_int_equal(try_call(dialled, "good.pem", "executor-7", NULL, &e), ST_UNAUTHENTICATED);
    assert_int_equal(try_token(dialled, "good.pem", NULL, NULL, "token", &e), ST_UNAVAILABLE);
    rpc_server_close(server);
}

static void who_comes_by_tls_is_checked_on_loopback_too(void **state) {
    (void)state;
    struct echo echo = { 0 };
    struct err e;
    char address[RPC_ADDRESS_BYTES];
    struct rpc_server *server;
    struct rpc_tls tls = { .cert = file("server.pem"), .key = file("server.key") };
    OK(echo_open(&(struct rpc_server_config){ .access = &tokens }, &echo, &server, why));
    OK(rpc_server_listen(server, "127.0.0.1:0", &tls, address, why));
    OK(rpc_server_start(server, why));
    assert_int_equal(try_call(address, "good.pem", NULL, NULL, &e), ST_UNAUTHENTICATED);
    assert_string_equal(e.msg, "Unary needs a token");
    OK(try_token(address, "good.pem", NULL, NULL, "token", why));
    rpc_server_close(server);
}

static void tls_files_that_do_not_fit_are_named(void **state) {
    (void)state;
    struct err e;
    struct echo echo = { 0 };
    struct rpc_server *server;
    OK(echo_open(NULL, &echo, &server, why));
    struct rpc_tls half = { .cert = file("server.pem") };
    assert_int_equal(rpc_server_listen(server, "127.0.0.1:0", &half, NULL, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "TLS needs a certificate together with its key");
    struct rpc_tls absent = { .cert = file("nothing.pem"), .key = file("server.key") };
    assert_int_equal(rpc_server_listen(server, "127.0.0.1:0", &absent, NULL, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "nothing.pem': No such file"));
    struct rpc_tls noise = { .cert = file("log"), .key = file("server.key") };
    assert_int_equal(rpc_server_listen(server, "127.0.0.1:0", &noise, NULL, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "log' holds no PEM certificate"));
    struct rpc_tls swapped = { .cert = file("server.pem"), .key = file("executor-7.pem") };
    assert_int_equal(rpc_server_listen(server, "127.0.0.1:0", &swapped, NULL, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "executor-7.pem' holds no PEM private key"));
    struct rpc_tls anybody = { .cert = file("server.pem"), .key = file("server.key"), .ca = file("empty") };
    OK(file_write_atomic(anybody.ca, "", 0, 0600, why));
    assert_int_equal(rpc_server_listen(server, "127.0.0.1:0", &anybody, NULL, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "empty' holds no PEM certificate"));
    struct rpc_tls unfit = { .cert = file("server.pem"), .key = file("executor-7.key") };
    assert_int_equal(rpc_server_listen(server, "127.0.0.1:0", &unfit, NULL, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "do not belong together"));
    rpc_server_close(server);
    struct rpc_channel *channel;
    struct rpc_channel_config config = { .address = "127.0.0.1:1", .tls = { .cert = file("server.pem") } };
    assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "TLS needs the CA that signed the server's certificate");
    config.tls = anybody;
    assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "empty' holds no PEM certificate"));
    config.tls = unfit;
    config.tls.ca = file("good.pem");
    OK(rpc_channel_open(&config, &channel, why));
    assert_int_equal(ask(channel, "x", 0, NULL, NULL, &e), ST_UNAVAILABLE);
    assert_string_equal(e.msg, "the controller at 127.0.0.1:1 cannot be reached: the files of TLS do not fit each "
                               "other, or the name has no address");
    rpc_channel_close(channel);
}

static void a_unix_socket_is_spoken_to_without_tls(void **state) {
    (void)state;
    struct echo_fixture y = { 0 };
    char address[96];
    echo_directory(&y);
    snprintf(address, sizeof address, "unix:%s/s", y.directory);
    echo_start(&y, NULL, address);
    OK(try_call(address, "good.pem", "executor-7", NULL, why)); /* the environment names them for another address */
    rpc_server_close(y.server);
    assert_int_equal(rmdir(y.directory), 0);
}

static void copy(const char *from, const char *to) {
    char command[300];
    snprintf(command, sizeof command, "cp %s %s", file(from), file(to));
    assert_int_equal(system(command), 0);
}

/* A certificate is renewed by another CA, as on disk, and read again while a connection is open. */
static void certificates_are_read_again_and_open_connections_stay(void **state) {
    (void)state;
    struct echo echo = { 0 };
    char address[RPC_ADDRESS_BYTES];
    char cert[128], key[128], ca[128]; /* file keeps few paths */
    const struct rpc_tls tls = { .cert = cert, .key = key, .ca = ca };
    snprintf(cert, sizeof cert, "%s", file("now.pem"));
    snprintf(key, sizeof key, "%s", file("now.key"));
    snprintf(ca, sizeof ca, "%s", file("now-ca.pem"));
    struct rpc_server *server;
    struct err e = { "" };
    copy("server.pem", "now.pem");
    copy("server.key", "now.key");
    copy("good.pem", "now-ca.pem");
    OK(echo_open(NULL, &echo, &server, why));
    OK(rpc_server_listen(server, "127.0.0.1:0", &tls, address, why));
    OK(rpc_server_start(server, why));
    struct rpc_channel_config config = { .address = address, .peer = "the server" };
    config.tls = (struct rpc_tls){ .ca = file("good.pem"),
                                   .cert = file("executor-7.pem"),
                                   .key = file("executor-7.key") };
    CLEANUP(rpc_channel_closep) struct rpc_channel *open = NULL;
    OK(rpc_channel_open(&config, &open, why));
    OK(ask(open, "x", 10000, NULL, NULL, why));
    assert_int_equal(try_call(address, "good.pem", "stranger", NULL, &e), ST_UNAVAILABLE);

    copy("other-server.key", "now.key");
    assert_int_equal(rpc_server_reload_tls(server, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "do not belong together"));
    OK(try_call(address, "good.pem", "executor-7", NULL, why)); /* with what it had */

    copy("other-server.pem", "now.pem");
    copy("other.pem", "now-ca.pem");
    OK(rpc_server_reload_tls(server, why));
    OK(rpc_server_reload_tls(server, why)); /* before gRPC has taken the first */
    OK(try_call(address, "other.pem", "stranger", NULL, why));
    assert_int_equal(try_call(address, "good.pem", "executor-7", NULL, &e), ST_UNAVAILABLE);
    OK(ask(open, "x", 10000, NULL, NULL, why)); /* over the connection of the first certificate */
    rpc_server_close(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_are_read_again_and_open_connections_stay),
        cmocka_unit_test(a_server_with_tls_proves_who_it_is),
        cmocka_unit_test(a_server_with_mutual_tls_lets_only_its_own_in),
        cmocka_unit_test(a_certificate_of_another_host_is_not_believed),
        cmocka_unit_test(all_addresses_may_be_listened_on_with_mutual_tls_and_tokens),
        cmocka_unit_test(who_comes_by_tls_is_checked_on_loopback_too),
        cmocka_unit_test(tls_files_that_do_not_fit_are_named),
        cmocka_unit_test(a_unix_socket_is_spoken_to_without_tls),
    };
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
