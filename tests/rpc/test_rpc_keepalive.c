/* A stopped peer keeps its connection open and sends nothing. Pings detect it, on either side, within little more than
 * 15 s. Both sides are tested at once, because the test mostly waits. */
#include "tests/rpc/fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
/* 10 s between pings, 5 s for the answer, and time for a busy machine. With gRPC's default of 20 s for an answer it
 * would be 30 s. */
enum { NOTICED_MS = 28000 };

static pid_t spawn_told(char **argv, char *line, size_t n) {
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, argv[0], &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    ssize_t got = read(out[0], line, n - 1);
    close(out[0]);
    line[got > 0 ? got : 0] = '\0';
    return pid;
}

/* Everything that lives during the test. The teardown ends the rest, also after a failed assertion. */
struct peers {
    struct echo_fixture *fixture;
    pid_t server, client; /* the stopped processes */
    struct rpc_channel *channel;
    struct rpc_stream *to_stopped, *to_healthy;
};

static int setup_peers(void **state) {
    struct peers *p = calloc(1, sizeof *p);
    *state = p;
    return setup_tcp((void **)&p->fixture);
}

static void end(pid_t *pid) {
    if (*pid > 0) {
        kill(*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

static void end_peers(struct peers *p) {
    end(&p->server);
    end(&p->client);
    p->to_stopped = rpc_stream_close(p->to_stopped);
    p->to_healthy = rpc_stream_close(p->to_healthy);
    p->channel = rpc_channel_close(p->channel);
}

static int teardown_peers(void **state) {
    struct peers *p = *state;
    end_peers(p);
    int failed = teardown((void **)&p->fixture);
    free(p);
    return failed;
}

static struct rpc_stream *endless(struct rpc_channel *channel) {
    struct rpc_stream *stream;
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = 1;
    in.endless = true;
    OK(rpc_stream_open(channel, &test__v1__echo__descriptor, "Count", &in.base, 0, &stream, why));
    return stream;
}

static void read_one(struct rpc_stream *stream) {
    const ProtobufCMessage *message;
    OK(rpc_stream_next(stream, &message, why));
}

static void start_server_to_stop(struct peers *p) {
    char program[512], line[RPC_ADDRESS_BYTES + 8];
    snprintf(program, sizeof program, "%s/tests/rpc_echo_server", getenv("TRAINYARD_BUILD"));
    char *argv[] = { program, (char *)"127.0.0.1:0", NULL };
    p->server = spawn_told(argv, line, sizeof line);
    line[strcspn(line, "\n")] = '\0';
    struct rpc_channel_config config = { .address = line + strlen("ready "), .peer = "the stopped server" };
    OK(rpc_channel_open(&config, &p->channel, why));
    p->to_stopped = endless(p->channel);
    read_one(p->to_stopped);
}

/* Returns false if this machine has no grpcio. */
static bool start_client_to_stop(struct peers *p) {
    const char *script =
        "import grpc,sys,time\n"
        "c=grpc.insecure_channel(sys.argv[1])\n"
        "s=c.stream_stream('/test.v1.Echo/Chat')(iter(lambda: time.sleep(0.1) or b'\\x0a\\x01x', None))\n"
        "next(s); print('x', flush=True)\n"
        "time.sleep(600)\n";
    char line[8],
        *argv[] = { (char *)"/usr/bin/python3", (char *)"-c", (char *)(uintptr_t)script, p->fixture->address, NULL };
    p->client = spawn_told(argv, line, sizeof line);
    return line[0] == 'x';
}

static void a_stopped_peer_is_noticed_by_its_silence(void **state) {
    struct peers *p = *state;
    struct echo *echo = &p->fixture->echo;
    if (!getenv("TRAINYARD_BUILD"))
        skip();
    start_server_to_stop(p);
    p->to_healthy = endless(p->fixture->channel);
    read_one(p->to_healthy);
    bool have_grpcio = start_client_to_stop(p);

    int64_t stopped = clock_mono_ms();
    kill(p->server, SIGSTOP);
    kill(p->client, SIGSTOP);
    struct err e;
    const ProtobufCMessage *message;
    assert_int_equal(rpc_stream_next(p->to_stopped, &message, &e), ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - stopped, 1000, NOTICED_MS);
    assert_non_null(strstr(e.msg, "the stopped server at 127.0.0.1:"));
    if (have_grpcio)
        AWAIT(atomic_load(&echo->cancelled) == 1);
    assert_in_range(clock_mono_ms() - stopped, 1000, NOTICED_MS);
    /* A peer that answers pings keeps its idle stream. */
    assert_int_equal(atomic_load(&echo->streams), 1);
    end_peers(p);
    AWAIT(atomic_load(&echo->streams) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stopped_peer_is_noticed_by_its_silence, setup_peers, teardown_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
