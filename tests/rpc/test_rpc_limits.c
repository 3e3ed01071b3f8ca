/* Input from a hostile or broken peer: one clear error message, bounded memory, and a server that continues. */
#include "tests/rpc/fixture.h"

/* A request whose only content is raw bytes under field 1, 2, ... with the given wire type. */
struct raw {
    Test__V1__EchoRequest request;
    ProtobufCMessageUnknownField field;
};

static const ProtobufCMessage *raw(struct raw *r, uint32_t number, unsigned type, const void *data, size_t n) {
    test__v1__echo_request__init(&r->request);
    r->field = (ProtobufCMessageUnknownField){ number, (ProtobufCWireType)type, n, (uint8_t *)(uintptr_t)data };
    r->request.base.n_unknown_fields = 1;
    r->request.base.unknown_fields = &r->field;
    return &r->request.base;
}

static status_t send(struct echo_fixture *y, const ProtobufCMessage *request, struct err *e) {
    ProtobufCMessage *reply = NULL;
    status_t st = rpc_call_unary(y->channel, &test__v1__echo__descriptor, "Unary", request, 0, &reply, e);
    if (st == ST_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static void malformed_messages_are_refused_with_the_field(void **state) {
    struct echo_fixture *y = *state;
    static const struct {
        uint32_t number;
        unsigned type;
        const char *data;
        size_t n;
        const char *sentence;
    } cases[] = {
        { 1, 2, "\x03\xffxy", 4, "text: the text is not valid UTF-8" },
        { 1, 2, "\x02\xc0\x80", 3, "text: the text is not valid UTF-8" },
        { 1, 2, "\x03\xed\xa0\x80", 4, "text: the text is not valid UTF-8" },
        { 1, 2,
          "\x03"
          "a\0b",
          4, "text: the text holds a NUL" },
        { 1, 0, "\x05", 1, "text: the value is of another type" },
        { 2, 2, "\x01x", 2, "number: the value is of another type" },
        { 1, 2,
          "\x64"
          "abc",
          4, "the message is not a valid test.v1.EchoRequest: a field is cut short or malformed" },
        { 2, 0, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11,
          "the message is not a valid test.v1.EchoRequest: a field is cut short or malformed" },
        { 99, 3, "", 0, "the message is not a valid test.v1.EchoRequest: a field is cut short or malformed" },
        { 99, 7, "", 0, "the message is not a valid test.v1.EchoRequest: a field is cut short or malformed" },
        { 4, 2, "\x05\x12\x03\x0a\x01\xff", 6, "inner.inner.text: the text is not valid UTF-8" },
        { 4, 2, "\x06\x1a\x01\x61\x1a\x01\xff", 7, "inner.list[1]: the text is not valid UTF-8" },
        { 6, 2, "\x03\x12\x01\xff", 4, "labels[0].value: the text is not valid UTF-8" },
        { 8, 2, "\x01\xff", 2, "name: the text is not valid UTF-8" },
        { 7, 2, "\x02\x05\x85", 3, "packed[0]: the last packed element is cut short" },
        { 12, 2, "\x09\0\0\0\0\0\0\0\0\0", 10, "doubles[0]: the last packed element is cut short" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct raw r;
        struct err e = { "" };
        assert_int_equal(send(y, raw(&r, cases[i].number, cases[i].type, cases[i].data, cases[i].n), &e),
                         ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, cases[i].sentence);
    }
    OK(ask(y->channel, "still here", 0, NULL, NULL, why));
}

static void unknown_fields_and_empty_messages_are_fine(void **state) {
    struct echo_fixture *y = *state;
    struct raw r;
    OK(send(y, raw(&r, 1000, 2, "\x02\xff\xff", 3), why));
    Test__V1__EchoRequest empty = TEST__V1__ECHO_REQUEST__INIT;
    OK(send(y, &empty.base, why));
}

static void deep_nesting_is_refused_and_the_limit_itself_is_not(void **state) {
    struct echo_fixture *y = *state;
    enum { DEEP = 2000 };
    static Test__V1__EchoRequest__Inner inner[DEEP];
    for (int i = 0; i < DEEP; i++) {
        test__v1__echo_request__inner__init(&inner[i]);
        inner[i].inner = i + 1 < DEEP ? &inner[i + 1] : NULL;
    }
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    in.inner = &inner[0];
    struct err e = { "" };
    assert_int_equal(send(y, &in.base, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "inner.inner.inner"));
    assert_non_null(strstr(e.msg, "nested too deeply"));
    inner[RPC_MAX_NESTING - 2].inner = NULL;
    OK(send(y, &in.base, why));
    inner[RPC_MAX_NESTING - 2].inner = &inner[DEEP - 1];
    assert_int_equal(send(y, &in.base, &e), ST_INVALID_ARGUMENT);
}

static void a_message_that_decodes_into_too_much_is_refused(void **state) {
    struct echo_fixture *y = *state;
    size_t n = 2 << 20; /* two million empty submessages of 2 bytes each */
    uint8_t *bytes = malloc(2 * n);
    for (size_t i = 0; i < n; i++)
        memcpy(bytes + 2 * i, "\x2a", 2);
    struct raw r;
    struct err e = { "" };
    /* the first tag is written by the unknown field itself; the rest is data */
    assert_int_equal(send(y, raw(&r, 5, 2, bytes + 1, 2 * n - 1 - 64), &e), ST_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e.msg, "decoding test.v1.EchoRequest"));
    free(bytes);
    OK(ask(y->channel, "still here", 0, NULL, NULL, why));
}

static void a_message_too_large_is_refused_on_each_side(void **state) {
    struct echo_fixture *y = *state;
    struct err e = { "" };
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    in.blob.len = (4 << 20) + 1;
    in.blob.data = calloc(1, in.blob.len);
    assert_int_equal(send(y, &in.base, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "a test.v1.EchoRequest of 4194310 bytes is larger than the limit of 4194304");
    free(in.blob.data);
    assert_int_equal(ask(y->channel, "big", 0, NULL, NULL, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "a test.v1.EchoReply of 5242892 bytes is larger than the limit of 4194304");
    OK(ask(y->channel, "still here", 0, NULL, NULL, why));
}

struct asker {
    struct echo_fixture *y;
    status_t status;
    struct err e;
};

static void *ask_block(void *arg) {
    struct asker *a = arg;
    a->status = ask(a->y->channel, "block", 120000, NULL, NULL, &a->e);
    return NULL;
}

static int setup_small(void **state) {
    struct echo_fixture *y = calloc(1, sizeof *y);
    char address[96];
    echo_directory(y);
    snprintf(address, sizeof address, "unix:%s/s", y->directory);
    echo_start(y, &(struct rpc_server_config){ .workers = 2, .queue = 3 }, address);
    echo_dial(y);
    *state = y;
    return 0;
}

/* Fills the queue with calls whose clients have given up. Returns when the deadline of the last one is over on the
 * server too. A deadline may be over before the call reaches the server; the call then takes no place in the queue, and
 * the next call gets more time. */
static void fill_with_late_calls(struct echo_fixture *y) {
    struct err e = { "" };
    int64_t ms = 50;
    status_t st;
    int late = 0;
    while ((st = ask(y->channel, "block", ms, NULL, NULL, &e)) == ST_DEADLINE_EXCEEDED) {
        late++;
        ms += ms / 2;
    }
    assert_int_equal(st, ST_RESOURCE_EXHAUSTED);
    assert_true(late >= 3);
    int64_t over = clock_mono_ms() + ms; /* each had less time, and came before the refused one */
    AWAIT(clock_mono_ms() > over);
}

static void more_calls_than_the_queue_holds_are_refused(void **state) {
    struct echo_fixture *y = *state;
    struct asker askers[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        askers[i] = (struct asker){ .y = y };
        assert_int_equal(pthread_create(&threads[i], NULL, ask_block, &askers[i]), 0);
    }
    AWAIT(atomic_load(&y->echo.blocked) == 2);
    fill_with_late_calls(y); /* they stay in the queue although their clients have given up */
    struct err e = { "" };
    assert_int_equal(ask(y->channel, "one too many", 0, NULL, NULL, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "the server is busy: too many calls wait already");
    atomic_store(&y->echo.released, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(askers[i].status, ST_OK);
    }
    OK(ask(y->channel, "there is room again", 0, NULL, NULL, why));
    assert_int_equal(atomic_load(&y->echo.cancelled), 0); /* calls after their deadline never ran */
}

static int setup_few_calls(void **state) {
    struct echo_fixture *y = calloc(1, sizeof *y);
    char address[96];
    echo_directory(y);
    snprintf(address, sizeof address, "unix:%s/s", y->directory);
    echo_start(y, &(struct rpc_server_config){ .calls = 4 }, address);
    echo_dial(y);
    *state = y;
    return 0;
}

static void more_open_streams_than_allowed_are_refused(void **state) {
    struct echo_fixture *y = *state;
    struct rpc_stream *streams[4];
    const ProtobufCMessage *message;
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = 1;
    in.endless = true;
    for (int i = 0; i < 4; i++) {
        OK(rpc_stream_open(y->channel, &test__v1__echo__descriptor, "Count", &in.base, 0, &streams[i], why));
        OK(rpc_stream_next(streams[i], &message, why));
    }
    struct err e;
    assert_int_equal(ask(y->channel, "x", 0, NULL, NULL, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "the server is busy: 4 calls are open already");
    for (int i = 0; i < 4; i++)
        rpc_stream_close(streams[i]);
    AWAIT(ask(y->channel, "x", 0, NULL, NULL, &e) == ST_OK);
}

static void a_token_of_two_lines_is_refused(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    struct rpc_channel_config config = { .address = y->address, .token = "line\nbreak" };
    struct rpc_channel *channel;
    assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_INVALID_ARGUMENT);
}

static long resident_kib(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long size, resident;
    assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* The allowed part of the 1.3 GB: our queue, gRPC's and the kernel's windows. Sanitizers keep freed memory for a while.
 */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SLOW_READER_KIB = 600 << 10 };
#else
enum { SLOW_READER_KIB = 64 << 10 };
#endif

static void a_slow_reader_costs_bounded_memory(void **state) {
    struct echo_fixture *y = *state;
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = 20000;
    in.bytes = 64 << 10; /* 1.3 GB in all */
    in.by_work = true;
    struct rpc_stream *stream;
    const ProtobufCMessage *message;
    long before = resident_kib();
    OK(rpc_stream_open(y->channel, &test__v1__echo__descriptor, "Count", &in.base, 0, &stream, why));
    for (int i = 0; i < 200; i++) {
        OK(rpc_stream_next(stream, &message, why));
        for (int64_t until = clock_mono_ms() + 2; clock_mono_ms() < until;)
            sched_yield();
    }
    assert_true(resident_kib() - before < SLOW_READER_KIB);
    rpc_stream_close(stream);
    AWAIT(atomic_load(&y->echo.done) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(malformed_messages_are_refused_with_the_field, setup_unix, teardown),
        cmocka_unit_test_setup_teardown(unknown_fields_and_empty_messages_are_fine, setup_unix, teardown),
        cmocka_unit_test_setup_teardown(deep_nesting_is_refused_and_the_limit_itself_is_not, setup_unix, teardown),
        cmocka_unit_test_setup_teardown(a_message_that_decodes_into_too_much_is_refused, setup_unix, teardown),
        cmocka_unit_test_setup_teardown(a_message_too_large_is_refused_on_each_side, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(more_calls_than_the_queue_holds_are_refused, setup_small, teardown),
        cmocka_unit_test_setup_teardown(more_open_streams_than_allowed_are_refused, setup_few_calls, teardown),
        cmocka_unit_test_setup_teardown(a_token_of_two_lines_is_refused, setup_unix, teardown),
        cmocka_unit_test_setup_teardown(a_slow_reader_costs_bounded_memory, setup_tcp, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
