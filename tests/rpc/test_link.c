/* The agent's streams on an event loop that does not run. */
#include "executor/agent/grpc_stream.h"
#include "tests/rpc/fixture.h"

struct ended {
    struct reactor *loop;
    int messages, ends;
    status_t status;
    char why[200];
};

static void on_message(void *ctx, const ProtobufCMessage *message) {
    (void)message;
    ((struct ended *)ctx)->messages++;
}

static void on_writable(void *ctx) { (void)ctx; }

static void on_ended(void *ctx, status_t status, const char *why) {
    struct ended *ended = ctx;
    ended->ends++;
    ended->status = status;
    snprintf(ended->why, sizeof ended->why, "%s", why);
    reactor_quit(ended->loop);
}

static void nothing(void *ctx, void *payload) {
    (void)ctx;
    (void)payload;
}

static status_t method_open(struct echo_fixture *y, const char *method, struct ended *ended, struct grpc_stream **ret,
                            struct err *e) {
    Test__V1__EchoRequest first = TEST__V1__ECHO_REQUEST__INIT;
    first.text = (char *)(uintptr_t) "hello";
    struct grpc_stream_owner owner = {
        .ctx = ended, .message = on_message, .writable = on_writable, .ended = on_ended
    };
    return grpc_stream_open(ended->loop, y->channel, &test__v1__echo__descriptor, method, &first.base, &owner, ret, e);
}

static status_t chat_open(struct echo_fixture *y, struct ended *ended, struct grpc_stream **ret, struct err *e) {
    return method_open(y, "Chat", ended, ret, e);
}

static void a_full_loop_ends_a_link_and_handles_its_end(void **state) {
    struct echo_fixture *y = *state;
    struct ended ended = { 0 };
    struct grpc_stream *link;
    OK(reactor_open(&ended.loop, why));
    struct reactor_post post = { .fn = nothing };
    int posts = 1;
    OK(reactor_reserve(ended.loop, why)); /* for the link's end */
    while (posts < 5000 && reactor_post(ended.loop, &post, NULL) == ST_OK)
        posts++;
    assert_int_equal(posts, 4096);

    struct err e;
    assert_int_equal(chat_open(y, &ended, &link, &e), ST_RESOURCE_EXHAUSTED); /* none opens that could not end */
    reactor_unreserve(ended.loop);
    for (int i = 0; i < 2; i++) /* one that does not start needs no place for its end */
        assert_int_equal(method_open(y, "Nothing", &ended, &link, &e), ST_INVALID_ARGUMENT);
    OK(chat_open(y, &ended, &link, why));
    AWAIT(atomic_load(&y->echo.cancelled) == 1); /* the queue had no capacity for its answer */
    OK(reactor_run(ended.loop, why));
    assert_int_equal(ended.ends, 1);
    assert_int_equal(ended.messages, 0);
    assert_int_equal(ended.status, ST_RESOURCE_EXHAUSTED);
    assert_string_equal(ended.why, "the agent's loop has 4096 messages waiting");
    reactor_close(ended.loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_loop_ends_a_link_and_handles_its_end, setup_unix, teardown),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
