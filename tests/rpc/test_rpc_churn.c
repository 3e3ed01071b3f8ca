/* Concurrent load: threads call, stream, chat, cancel and miss deadlines, while their server is stopped and started
 * again. The program must not abort, hang, leak (checked by the ASan build) or race (checked by the TSan build). */
#include "tests/rpc/fixture.h"
#include "tests/sanitized.h"

#include <semaphore.h>
#include <time.h>

enum { CALLERS = 6, SERVERS = SANITIZED ? 4 : 12, PATIENCE_S = 60 };
enum { ANSWERS = SANITIZED ? 3 : 50 }; /* of each server */

struct caller {
    struct echo_fixture *y;
    unsigned seed;
    atomic_bool *over;
    atomic_long *answered, *failed;
    sem_t *answers; /* each answer posts it */
};

static void tolerate(struct caller *c, status_t st, const struct err *e) {
    atomic_fetch_add(st == ST_OK ? c->answered : c->failed, 1);
    if (st == ST_OK)
        sem_post(c->answers);
    /* Between servers every call is refused at once. Without a pause, six callers that retry immediately would delay
     * the start of the next server. */
    if (st == ST_UNAVAILABLE)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    if (st != ST_OK && st != ST_UNAVAILABLE && st != ST_DEADLINE_EXCEEDED && st != ST_NOT_FOUND)
        fail_msg("%s: %s", status_name(st), e->msg);
    assert_true(st == ST_OK || e->msg[0]);
}

static void call_unary(struct caller *c) {
    static const char *const texts[] = { "x", "fail", "left", "block" };
    struct err e = { "" };
    status_t st = ask(c->y->channel, texts[rand_r(&c->seed) % 4], 1 + rand_r(&c->seed) % 30, NULL, NULL, &e);
    tolerate(c, st, &e);
}

static void call_stream(struct caller *c) {
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = rand_r(&c->seed) % 300;
    in.bytes = rand_r(&c->seed) % 10000;
    in.endless = rand_r(&c->seed) % 2;
    in.by_work = rand_r(&c->seed) % 2;
    struct err e = { "" };
    struct rpc_stream *stream;
    const ProtobufCMessage *message = NULL;
    OK(rpc_stream_open(c->y->channel, &test__v1__echo__descriptor, "Count", &in.base, 1 + rand_r(&c->seed) % 100,
                       &stream, why));
    status_t st;
    int reads = rand_r(&c->seed) % 300;
    do
        st = rpc_stream_next(stream, &message, &e);
    while (st == ST_OK && message && reads--);
    tolerate(c, st, &e);
    rpc_stream_close(stream);
}

static void chat_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    atomic_fetch_add((atomic_int *)rpc_user(call), 1);
}

static void call_chat(struct caller *c) {
    static const struct rpc_events events = { .done = chat_done };
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    atomic_int dones = 0;
    struct rpc_call *call;
    OK(rpc_start(c->y->channel, &test__v1__echo__descriptor, "Chat", RPC_BIDI, &events, &dones, NULL, 0, &call, why));
    for (int n = rand_r(&c->seed) % 50; n; n--) {
        in.text = (char *)(rand_r(&c->seed) % 40 ? "on" : "finish");
        (void)rpc_send(call, &in.base);
        if (rand_r(&c->seed) % 10 == 0)
            rpc_pause(call);
        if (rand_r(&c->seed) % 10 == 0)
            rpc_resume(call);
    }
    if (rand_r(&c->seed) % 2)
        rpc_send_end(call);
    rpc_cancel(call);
    AWAIT(atomic_load(&dones) == 1);
    rpc_cancel(call); /* after the end: has no effect */
    assert_int_equal(rpc_send(call, &in.base), RPC_CLOSED);
    rpc_unref(call);
}

static void *churn(void *arg) {
    struct caller *c = arg;
    while (!atomic_load(c->over)) {
        switch (rand_r(&c->seed) % 3) {
        case 0: call_unary(c); break;
        case 1: call_stream(c); break;
        default: call_chat(c);
        }
    }
    return NULL;
}

static void let_server_answer(sem_t *answers) {
    struct timespec until = deadline_timespec(deadline_in(PATIENCE_S * 1000));
    for (int i = 0; i < ANSWERS; i++)
        if (sem_clockwait(answers, CLOCK_MONOTONIC, &until) != 0)
            fail_msg("%d answers in %d s", i, PATIENCE_S);
}

static void calls_survive_servers_that_come_and_go(void **state) {
    struct echo_fixture *y = *state;
    const char *given = getenv("TRAINYARD_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    print_message("TRAINYARD_SEED=%u\n", seed);
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    atomic_bool over = false;
    atomic_long answered = 0, failed = 0;
    sem_t answers;
    sem_init(&answers, 0, 0);
    echo_dial(y);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){ y, seed + (unsigned)i, &over, &answered, &failed, &answers };
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &callers[i]), 0);
    }
    for (int i = 0; i < SERVERS || atomic_load(&failed) == 0; i++) {
        echo_start(y, NULL, y->address);
        let_server_answer(&answers);
        rpc_server_stop(y->server, rand_r(&seed) % 2 ? 0 : 50);
        y->server = rpc_server_close(y->server);
    }
    atomic_store(&over, true);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    sem_destroy(&answers);
    print_message("%ld calls answered, %ld not\n", atomic_load(&answered), atomic_load(&failed));
    assert_int_equal(atomic_load(&y->echo.streams), 0);
}

static int setup(void **state) {
    struct echo_fixture *y = calloc(1, sizeof *y);
    echo_directory(y);
    snprintf(y->address, sizeof y->address, "unix:%s/s", y->directory);
    *state = y;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_survive_servers_that_come_and_go, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
