/* The life cycle of a server: its addresses, its end, its health, and what clients see of each. */
#include "tests/rpc/fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpc/health/v1/health.pb-c.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

extern char **environ;

static int setup_directory(void **state) {
    struct echo_fixture *y = calloc(1, sizeof *y);
    echo_directory(y);
    snprintf(y->address, sizeof y->address, "unix:%s/s", y->directory);
    *state = y;
    return 0;
}

static struct rpc_server *second_server(struct echo *echo) {
    struct rpc_server *server;
    OK(echo_open(NULL, echo, &server, why));
    return server;
}

static void a_second_server_on_a_socket_is_refused_and_the_first_continues(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    struct echo echo = { 0 };
    char expected[400];
    struct rpc_server *second = second_server(&echo);
    assert_int_equal(rpc_server_listen(second, y->address, NULL, NULL, &e), ST_ALREADY_EXISTS);
    snprintf(expected, sizeof expected, "the socket '%s' is in use by another process", y->address + strlen("unix:"));
    assert_string_equal(e.msg, expected);
    rpc_server_close(second);
    OK(ask(y->channel, "x", 0, NULL, NULL, why));
}

static void a_second_server_on_a_port_is_refused_and_the_first_continues(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    struct echo echo = { 0 };
    char expected[400];
    struct rpc_server *second = second_server(&echo);
    assert_int_equal(rpc_server_listen(second, y->address, NULL, NULL, &e), ST_ALREADY_EXISTS);
    snprintf(expected, sizeof expected, "the address %s is in use by another process", y->address);
    assert_string_equal(e.msg, expected);
    rpc_server_close(second);
    OK(ask(y->channel, "x", 0, NULL, NULL, why));
}

static void the_socket_is_for_its_owner_only_and_is_removed_with_the_server(void **state) {
    struct echo_fixture *y = *state;
    struct stat st;
    const char *path = y->address + strlen("unix:");
    echo_start(y, NULL, y->address);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    y->server = rpc_server_close(y->server);
    assert_int_equal(stat(path, &st), -1); /* teardown finds the folder empty: the lock's file is gone, too */
}

static void a_stale_socket_is_replaced(void **state) {
    struct echo_fixture *y = *state;
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    strcpy(name.sun_path, y->address + strlen("unix:"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    close(fd);
    echo_start(y, NULL, y->address);
    echo_dial(y);
    OK(ask(y->channel, "x", 0, NULL, NULL, why));
}

static void a_file_that_is_no_socket_is_left_alone(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    const char *path = y->address + strlen("unix:");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    y->server = second_server(&y->echo);
    assert_int_equal(rpc_server_listen(y->server, y->address, NULL, NULL, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "exists and is not a socket"));
    assert_int_equal(unlink(path), 0);
}

static void other_machines_are_not_served_without_tls(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    y->server = second_server(&y->echo);
    static const char *const addresses[] = { "0.0.0.0:0", "[::]:0", "192.0.2.1:7700", "[2001:db8::1]:7700" };
    for (size_t i = 0; i < 4; i++) {
        char expected[200];
        assert_int_equal(rpc_server_listen(y->server, addresses[i], NULL, NULL, &e), ST_FAILED_PRECONDITION);
        snprintf(
            expected, sizeof expected,
            "the address %s can be reached by other machines: it needs a TLS certificate with its key, and the CA of "
            "the certificates that clients must show",
            addresses[i]);
        assert_string_equal(e.msg, expected);
    }
    char bound[RPC_ADDRESS_BYTES];
    OK(rpc_server_listen(y->server, "localhost:0", NULL, bound, why));
    assert_int_equal(strncmp(bound, "localhost:", 10), 0);
    assert_true(atoi(bound + 10) > 0);
}

static void an_address_that_is_none_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        { "", "the address '' is neither host:port nor unix:/path" },
        { "localhost", "the address 'localhost' is neither host:port nor unix:/path" },
        { ":7700", "the address ':7700' is neither host:port nor unix:/path" },
        { "::1:7700", "the address '::1:7700' is neither host:port nor unix:/path" },
        { "a b:1", "the address 'a b:1' is neither host:port nor unix:/path" },
        { "h:", "the address 'h:' needs a port from 0 to 65535 after the last colon" },
        { "h:65536", "the address 'h:65536' needs a port from 0 to 65535 after the last colon" },
        { "h:-1", "the address 'h:-1' needs a port from 0 to 65535 after the last colon" },
        { "h:1x", "the address 'h:1x' needs a port from 0 to 65535 after the last colon" },
        { "unix:relative", "the address 'unix:relative' needs an absolute path after unix:" },
    };
    struct err e;
    struct rpc_address address;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(rpc_address_parse(cases[i].text, &address, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, cases[i].sentence);
    }
    char path[200] = "unix:/";
    memset(path + 6, 'x', 107);
    assert_int_equal(rpc_address_parse(path, &address, &e), ST_INVALID_ARGUMENT);
    path[5 + 107] = '\0';
    OK(rpc_address_parse(path, &address, why));
    OK(rpc_address_parse("[::1]:7700", &address, why));
    assert_string_equal(address.host, "::1");
    assert_string_equal(address.text, "[::1]:7700");
    assert_int_equal(address.port, 7700);
}

static void a_wrong_table_is_refused_at_the_start(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    y->server = second_server(&y->echo);
    static const struct rpc_events some = { .work = rpc_wake };
    const struct rpc_method unknown = { "Nothing", RPC_BIDI, .events = some };
    const struct rpc_method wrong_kind = { "Unserved", RPC_SERVER_STREAM, .events = some };
    const struct rpc_method twice = { "Chat", RPC_BIDI, .events = some };
    const struct rpc_method unhandled = { "Unserved", RPC_UNARY, .unary = NULL };
    static const char *const sentences[] = { "the service test.v1.Echo has no method Nothing",
                                             "the method Unserved of test.v1.Echo is of another kind in its proto",
                                             "the method Chat of test.v1.Echo is there twice",
                                             "nothing handles the method Unserved of test.v1.Echo" };
    const struct rpc_method *const tables[] = { &unknown, &wrong_kind, &twice, &unhandled };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rpc_server_add(y->server, &test__v1__echo__descriptor, tables[i], 1, NULL, &e),
                         ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, sentences[i]);
    }
    struct rpc_server *none;
    struct rpc_server_config broken = { .descriptors = "\xff\xff\xff", .descriptors_len = 3 };
    assert_int_equal(rpc_server_open(&broken, &none, &e), ST_INVALID_ARGUMENT);
}

struct asker {
    struct rpc_channel *channel;
    const char *text;
    status_t status;
    struct err e;
};

static void *ask_thread(void *arg) {
    struct asker *a = arg;
    a->status = ask(a->channel, a->text, 0, NULL, NULL, &a->e);
    return NULL;
}

static void *stop_thread(void *arg) {
    rpc_server_stop(arg, 30000);
    return NULL;
}

static void a_graceful_stop_lets_running_calls_end(void **state) {
    struct echo_fixture *y = *state;
    struct asker a = { .channel = y->channel, .text = "block" };
    pthread_t asking, stopping;
    pthread_create(&asking, NULL, ask_thread, &a);
    AWAIT(atomic_load(&y->echo.blocked) == 1);
    pthread_create(&stopping, NULL, stop_thread, y->server);
    struct err e;
    AWAIT(ask(y->channel, "x", 0, NULL, NULL, &e) == ST_UNAVAILABLE); /* new calls are refused */
    atomic_store(&y->echo.released, true);
    pthread_join(asking, NULL);
    pthread_join(stopping, NULL);
    assert_int_equal(a.status, ST_OK);
}

static void a_stop_cancels_what_outlives_its_grace(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    const ProtobufCMessage *message;
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = 1;
    in.endless = true;
    struct rpc_stream *streams[50];
    for (int i = 0; i < 50; i++) {
        OK(rpc_stream_open(y->channel, &test__v1__echo__descriptor, "Count", &in.base, 0, &streams[i], why));
        OK(rpc_stream_next(streams[i], &message, why));
    }
    struct asker a = { .channel = y->channel, .text = "block" };
    pthread_t asking;
    pthread_create(&asking, NULL, ask_thread, &a);
    AWAIT(atomic_load(&y->echo.blocked) == 1);
    rpc_server_stop(y->server, 50);
    assert_int_equal(atomic_load(&y->echo.streams), 0);
    assert_int_equal(atomic_load(&y->echo.cancelled), 51);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(rpc_stream_next(streams[i], &message, &e), ST_UNAVAILABLE);
        rpc_stream_close(streams[i]);
    }
    pthread_join(asking, NULL);
    assert_int_equal(a.status, ST_UNAVAILABLE);
}

static void a_server_that_never_started_can_be_closed(void **state) {
    struct echo_fixture *y = *state;
    y->server = second_server(&y->echo);
    OK(rpc_server_listen(y->server, y->address, NULL, NULL, why));
    OK(rpc_server_listen(y->server, "127.0.0.1:0", NULL, NULL, why));
    y->server = rpc_server_close(y->server);
}

static void an_absent_server_is_named_with_the_reason(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    char expected[400];
    echo_dial(y);
    assert_int_equal(ask(y->channel, "x", 0, NULL, NULL, &e), ST_UNAVAILABLE);
    snprintf(expected, sizeof expected, "the server at %s cannot be reached: No such file or directory", y->address);
    assert_string_equal(e.msg, expected);
    y->channel = rpc_channel_close(y->channel);

    int fd = socket(AF_INET, SOCK_STREAM, 0); /* a port that is in use without a listener */
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof in;
    assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
    snprintf(y->address, sizeof y->address, "127.0.0.1:%d", ntohs(in.sin_port));
    echo_dial(y);
    assert_int_equal(ask(y->channel, "x", 0, NULL, NULL, &e), ST_UNAVAILABLE);
    snprintf(expected, sizeof expected, "the server at %s cannot be reached: Connection refused", y->address);
    assert_string_equal(e.msg, expected);
    close(fd);
}

static pid_t spawn_server(const char *address) {
    char program[512], address_of[RPC_ADDRESS_BYTES];
    snprintf(program, sizeof program, "%s/tests/rpc_echo_server", getenv("TRAINYARD_BUILD"));
    snprintf(address_of, sizeof address_of, "%s", address);
    char *argv[] = { program, address_of, NULL };
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, program, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    char line[RPC_ADDRESS_BYTES + 8];
    ssize_t got = read(out[0], line, sizeof line);
    close(out[0]);
    assert_true(got > 6 && !memcmp(line, "ready ", 6));
    return pid;
}

static void a_killed_server_is_noticed_at_once_and_dialled_again(void **state) {
    struct echo_fixture *y = *state;
    if (!getenv("TRAINYARD_BUILD"))
        skip();
    pid_t pid = spawn_server(y->address);
    echo_dial(y);
    struct rpc_stream *stream;
    const ProtobufCMessage *message;
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = 1;
    in.endless = true;
    OK(rpc_stream_open(y->channel, &test__v1__echo__descriptor, "Count", &in.base, 0, &stream, why));
    OK(rpc_stream_next(stream, &message, why));
    int64_t killed = clock_mono_ms();
    kill(pid, SIGKILL);
    struct err e;
    assert_int_equal(rpc_stream_next(stream, &message, &e), ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - killed, 0, 30000);
    assert_non_null(strstr(e.msg, "the connection to the server at "));
    rpc_stream_close(stream);
    waitpid(pid, NULL, 0);
    /* The socket and lock of the dead server still exist. The next server takes over, and the same channel finds it. */
    pid = spawn_server(y->address);
    int64_t ready = clock_mono_ms();
    AWAIT(ask(y->channel, "x", 0, NULL, NULL, &e) == ST_OK);
    assert_in_range(clock_mono_ms() - ready, 0, 30000);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

static void a_killed_client_is_noticed_by_the_server(void **state) {
    struct echo_fixture *y = *state;
    int told[2];
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    /* grpcio in a process of its own, killed in the middle of a stream */
    const char *script = "import grpc,sys,time\n"
                         "c=grpc.insecure_channel(sys.argv[1])\n"
                         "def one():\n"
                         "  yield b'\\x0a\\x01x'\n"
                         "  time.sleep(600)\n"
                         "s=c.stream_stream('/test.v1.Echo/Chat')(one())\n"
                         "next(s); print('x', flush=True)\n"
                         "time.sleep(600)\n";
    char *argv[] = { (char *)"/usr/bin/python3", (char *)"-c", (char *)(uintptr_t)script, y->address, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, told[1], 1);
    pid_t pid;
    if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environ) != 0)
        skip();
    posix_spawn_file_actions_destroy(&actions);
    close(told[1]);
    char x;
    bool runs = read(told[0], &x, 1) == 1;
    close(told[0]);
    if (runs)
        assert_int_equal(atomic_load(&y->echo.streams), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (!runs)
        skip(); /* no grpcio here */
    AWAIT(atomic_load(&y->echo.cancelled) == 1);
    assert_int_equal(atomic_load(&y->echo.streams), 0);
}

static void expect_health(struct rpc_stream *watch, int status) {
    const ProtobufCMessage *message;
    OK(rpc_stream_next(watch, &message, why));
    assert_non_null(message);
    assert_int_equal(((const Grpc__Health__V1__HealthCheckResponse *)(const void *)message)->status, status);
}

static void health_is_watched_through_outage_recovery_and_stop(void **state) {
    struct echo_fixture *y = *state;
    Grpc__Health__V1__HealthCheckRequest in = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    in.service = (char *)"test.v1.Echo";
    struct rpc_stream *watch;
    OK(rpc_stream_open(y->channel, &grpc__health__v1__health__descriptor, "Watch", &in.base, 0, &watch, why));
    expect_health(watch, 1);
    rpc_server_set_serving(y->server, "test.v1.Echo", false);
    expect_health(watch, 2);
    rpc_server_set_serving(y->server, "another.Service", false); /* another service: no effect */
    rpc_server_set_serving(y->server, "test.v1.Echo", true);
    expect_health(watch, 1);
    rpc_server_stop(y->server, 30000); /* an open watch does not delay it */
    expect_health(watch, 2);
    const ProtobufCMessage *message;
    OK(rpc_stream_next(watch, &message, why));
    assert_null(message);
    rpc_stream_close(watch);
}

static void grpc_writes_no_log_of_its_own(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    struct echo echo = { 0 };
    char path[128];
    snprintf(path, sizeof path, "%s/stderr", y->directory);
    fflush(stderr);
    int kept = dup(2), file = open(path, O_CREAT | O_RDWR, 0600);
    dup2(file, 2);
    struct rpc_server *second = second_server(&echo);
    status_ignore(rpc_server_listen(second, y->address, NULL, NULL, &e)); /* gRPC logs an error: the port is taken */
    dup2(kept, 2);
    close(kept);
    struct stat st;
    assert_int_equal(fstat(file, &st), 0);
    close(file);
    unlink(path);
    rpc_server_close(second);
    assert_int_equal(st.st_size, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_second_server_on_a_socket_is_refused_and_the_first_continues, setup_unix,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_second_server_on_a_port_is_refused_and_the_first_continues, setup_tcp,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_socket_is_for_its_owner_only_and_is_removed_with_the_server,
                                        setup_directory, teardown),
        cmocka_unit_test_setup_teardown(a_stale_socket_is_replaced, setup_directory, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_is_no_socket_is_left_alone, setup_directory, teardown),
        cmocka_unit_test_setup_teardown(other_machines_are_not_served_without_tls, setup_directory, teardown),
        cmocka_unit_test(an_address_that_is_none_is_refused),
        cmocka_unit_test_setup_teardown(a_wrong_table_is_refused_at_the_start, setup_directory, teardown),
        cmocka_unit_test_setup_teardown(a_graceful_stop_lets_running_calls_end, setup_unix, teardown),
        cmocka_unit_test_setup_teardown(a_stop_cancels_what_outlives_its_grace, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(a_server_that_never_started_can_be_closed, setup_directory, teardown),
        cmocka_unit_test_setup_teardown(an_absent_server_is_named_with_the_reason, setup_directory, teardown),
        cmocka_unit_test_setup_teardown(a_killed_server_is_noticed_at_once_and_dialled_again, setup_directory,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_killed_client_is_noticed_by_the_server, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(health_is_watched_through_outage_recovery_and_stop, setup_unix, teardown),
        cmocka_unit_test_setup_teardown(grpc_writes_no_log_of_its_own, setup_tcp, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
