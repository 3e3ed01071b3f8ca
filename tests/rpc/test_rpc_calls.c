/* Calls of each kind, over a unix socket and over TCP. */
#include "tests/rpc/fixture.h"

static void a_unary_call_is_answered(void **state) {
    struct echo_fixture *y = *state;
    Test__V1__EchoReply *reply = NULL;
    OK(ask(y->channel, "hello é", 0, &reply, NULL, why));
    assert_string_equal(reply->text, "hello é");
    assert_int_equal(reply->number, 7);
    test__v1__echo_reply__free_unpacked(reply, NULL);
}

static void a_failure_travels_with_its_sentence_and_reason(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    char reason[RPC_REASON_BYTES];
    assert_int_equal(ask(y->channel, "fail", 0, NULL, reason, &e), ST_NOT_FOUND);
    assert_string_equal(e.msg, "the écho is away");
    assert_string_equal(reason, "ECHO_FAILED");
    assert_int_equal(ask(y->channel, "plainly", 0, NULL, reason, &e), ST_ABORTED);
    assert_string_equal(e.msg, "a race was lost");
    assert_string_equal(reason, "ABORTED");
    assert_int_equal(ask(y->channel, "garbled", 0, NULL, reason, &e), ST_NOT_FOUND);
    assert_string_equal(
        e.msg,
        "open 'a?\?': no such file ?"); /* the message on the wire is UTF-8; otherwise the reason would be lost */
    assert_string_equal(reason, "NOT_FOUND");
}

static void a_handler_without_an_answer_is_an_internal_error_that_names_its_call(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    assert_int_equal(ask(y->channel, "silent", 0, NULL, NULL, &e), ST_INTERNAL);
    static const char head[] = "the method gave no answer (request ";
    assert_memory_equal(e.msg, head, sizeof head - 1);
    assert_int_equal(strspn(e.msg + sizeof head - 1, "0123456789abcdef"), 8); /* made by the server */
}

static void a_channel_with_a_request_id_sends_it_with_each_call(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    struct rpc_channel_config config = { .address = y->address, .request_id = "build-7_a.b" };
    CLEANUP(rpc_channel_closep) struct rpc_channel *channel = NULL;
    OK(rpc_channel_open(&config, &channel, why));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(channel, "silent", 0, NULL, NULL, &e), ST_INTERNAL);
        assert_string_equal(e.msg, "the method gave no answer (request build-7_a.b)");
    }
}

static void a_channel_refuses_a_request_id_that_the_server_would_replace(void **state) {
    struct echo_fixture *y = *state;
    char longer[RPC_REQUEST_ID_BYTES + 1];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    const char *const wrong[] = { "a b", "a/b", "\xc3\xa9", longer };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err e;
        struct rpc_channel *channel;
        struct rpc_channel_config config = { .address = y->address, .request_id = wrong[i] };
        assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "is not 1 to 64 letters, digits, '.', '_' and '-'"));
    }
}

static void the_client_distinguishes_unserved_and_unknown_methods(void **state) {
    struct echo_fixture *y = *state;
    struct err e;
    ProtobufCMessage *reply;
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    assert_int_equal(rpc_call_unary(y->channel, &test__v1__echo__descriptor, "Unserved", &in.base, 0, &reply, &e),
                     ST_UNIMPLEMENTED);
    assert_string_equal(e.msg, "the method /test.v1.Echo/Unserved does not exist");
    assert_int_equal(rpc_call_unary(y->channel, &test__v1__echo__descriptor, "Nothing", &in.base, 0, &reply, &e),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the service test.v1.Echo has no method Nothing");
}

static void a_unary_call_always_has_a_deadline_and_the_server_sees_it(void **state) {
    struct echo_fixture *y = *state;
    Test__V1__EchoReply *reply = NULL;
    OK(ask(y->channel, "left", 0, &reply, NULL, why));
    assert_in_range(reply->number, 1, 30300);
    test__v1__echo_reply__free_unpacked(reply, NULL);
    OK(ask(y->channel, "left", 5000, &reply, NULL, why));
    assert_in_range(reply->number, 1, 5050);
    test__v1__echo_reply__free_unpacked(reply, NULL);
}

static void a_late_answer_is_a_deadline_and_its_handler_learns_it(void **state) {
    struct echo_fixture *y = *state;
    char expected[400];
    snprintf(expected, sizeof expected, "the server at %s did not answer within 100 ms", y->address);
    int64_t give_up = clock_mono_ms() + 60000;
    do { /* repeated: on a busy machine, a call may time out before its handler begins */
        struct err e;
        assert_int_equal(ask(y->channel, "block", 100, NULL, NULL, &e), ST_DEADLINE_EXCEEDED);
        assert_string_equal(e.msg, expected);
    } while (atomic_load(&y->echo.cancelled) == 0 && clock_mono_ms() < give_up);
    AWAIT(atomic_load(&y->echo.cancelled) > 0);
}

static struct rpc_stream *count(struct echo_fixture *y, int64_t n, int bytes, bool endless, bool by_work) {
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = n;
    in.bytes = bytes;
    in.endless = endless;
    in.by_work = by_work;
    struct rpc_stream *stream;
    OK(rpc_stream_open(y->channel, &test__v1__echo__descriptor, "Count", &in.base, 0, &stream, why));
    return stream;
}

static void read_all(struct rpc_stream *stream, int64_t n) {
    const ProtobufCMessage *message;
    for (int64_t i = 0; i < n; i++) {
        OK(rpc_stream_next(stream, &message, why));
        assert_non_null(message);
        assert_int_equal(((const Test__V1__EchoReply *)(const void *)message)->number, i);
    }
}

static void a_server_stream_is_read_to_its_end(void **state) {
    struct echo_fixture *y = *state;
    const ProtobufCMessage *message;
    struct rpc_stream *stream = count(y, 5000, 16, false, false);
    read_all(stream, 5000);
    for (int i = 0; i < 2; i++) {
        OK(rpc_stream_next(stream, &message, why));
        assert_null(message);
    }
    rpc_stream_close(stream);
}

static void work_runs_on_workers_one_at_a_time_and_never_gets_lost(void **state) {
    struct echo_fixture *y = *state;
    const ProtobufCMessage *message;
    for (int round = 0; round < 20; round++) {
        struct rpc_stream *stream = count(y, 2000, 1000, false, true);
        read_all(stream, 2000);
        OK(rpc_stream_next(stream, &message, why));
        assert_null(message);
        rpc_stream_close(stream);
    }
    assert_int_equal(atomic_load(&y->echo.work_most), 1);
}

static void closing_a_stream_early_notifies_the_server(void **state) {
    struct echo_fixture *y = *state;
    struct rpc_stream *stream = count(y, 10, 0, true, false);
    read_all(stream, 10);
    rpc_stream_close(stream);
    AWAIT(atomic_load(&y->echo.done) == 1);
    assert_int_equal(atomic_load(&y->echo.cancelled), 1);
}

/* The events that a call received. */
struct seen {
    int pause_at; /* after so many messages; 0: never */
    atomic_int opened, messages, writables, dones;
    atomic_llong number;
    status_t status;
    char why[480], reason[RPC_REASON_BYTES];
};

static void on_open(struct rpc_call *call) { atomic_fetch_add(&((struct seen *)rpc_user(call))->opened, 1); }
static void on_writable(struct rpc_call *call) { atomic_fetch_add(&((struct seen *)rpc_user(call))->writables, 1); }

static void on_message(struct rpc_call *call, const ProtobufCMessage *message) {
    struct seen *seen = rpc_user(call);
    atomic_store(&seen->number, ((const Test__V1__EchoReply *)(const void *)message)->number);
    if (atomic_load(&seen->messages) + 1 == seen->pause_at)
        rpc_pause(call);
    atomic_fetch_add(&seen->messages, 1);
}

static void on_done(struct rpc_call *call, status_t status, const char *why) {
    struct seen *seen = rpc_user(call);
    seen->status = status;
    snprintf(seen->why, sizeof seen->why, "%s", why);
    snprintf(seen->reason, sizeof seen->reason, "%s", rpc_reason(call));
    atomic_fetch_add(&seen->dones, 1);
}

static const struct rpc_events seeing = {
    .open = on_open, .message = on_message, .writable = on_writable, .done = on_done
};

static struct rpc_call *start(struct echo_fixture *y, const char *method, enum rpc_kind kind, struct seen *seen,
                              const char *text) {
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    in.text = (char *)text;
    struct rpc_call *call;
    OK(rpc_start(y->channel, &test__v1__echo__descriptor, method, kind, &seeing, seen, text ? &in.base : NULL, 0, &call,
                 why));
    return call;
}

static enum rpc_sent say(struct rpc_call *call, const char *text, int64_t number, size_t bytes) {
    static uint8_t blob[64 << 10];
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    in.text = (char *)text;
    in.number = number;
    in.blob = (ProtobufCBinaryData){ bytes, blob };
    return rpc_send(call, &in.base);
}

static void a_unary_call_with_events_is_answered(void **state) {
    struct echo_fixture *y = *state;
    struct seen seen = { 0 };
    struct rpc_call *call = start(y, "Unary", RPC_UNARY, &seen, "x");
    AWAIT(atomic_load(&seen.dones));
    assert_int_equal(seen.status, ST_OK);
    assert_int_equal(atomic_load(&seen.messages), 1);
    rpc_unref(call);
}

static void a_client_stream_is_summed(void **state) {
    struct echo_fixture *y = *state;
    struct seen seen = { 0 };
    struct rpc_call *call = start(y, "Sum", RPC_CLIENT_STREAM, &seen, NULL);
    for (int i = 1; i <= 1000; i++)
        while (say(call, "", i, 0) != RPC_SENT)
            sched_yield();
    rpc_send_end(call);
    AWAIT(atomic_load(&seen.dones));
    assert_int_equal(seen.status, ST_OK);
    assert_int_equal(atomic_load(&seen.number), 500500);
    rpc_unref(call);
}

static void a_chat_goes_both_ways_and_ends_well(void **state) {
    struct echo_fixture *y = *state;
    struct seen seen = { 0 };
    struct rpc_call *call = start(y, "Chat", RPC_BIDI, &seen, NULL);
    AWAIT(atomic_load(&seen.opened)); /* the server sends before the first message */
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(say(call, "on", i, 0), RPC_SENT);
        AWAIT(atomic_load(&seen.messages) == i);
        assert_int_equal(atomic_load(&seen.number), i);
    }
    rpc_send_end(call);
    AWAIT(atomic_load(&seen.dones));
    assert_int_equal(seen.status, ST_OK);
    assert_int_equal(say(call, "on", 1, 0), RPC_CLOSED);
    rpc_unref(call);
}

static void a_chat_that_the_server_ends_carries_its_reason(void **state) {
    struct echo_fixture *y = *state;
    struct seen seen = { 0 };
    struct rpc_call *call = start(y, "Chat", RPC_BIDI, &seen, "finish");
    AWAIT(atomic_load(&seen.dones));
    assert_int_equal(seen.status, ST_ABORTED);
    assert_string_equal(seen.why, "enough");
    assert_string_equal(seen.reason, "CHAT_FENCED");
    rpc_unref(call);
}

static void a_sender_is_held_back_by_a_paused_reader(void **state) {
    struct echo_fixture *y = *state;
    struct seen seen = { 0 };
    struct rpc_call *call = start(y, "Chat", RPC_BIDI, &seen, "pause");
    AWAIT(atomic_load(&seen.opened));
    size_t sent = 0;
    enum rpc_sent said;
    /* The capacity on the way: our queue, HTTP/2's window, the sockets, and gRPC's own buffers. */
    for (int64_t until = clock_mono_ms() + 60000; clock_mono_ms() < until; sent += said == RPC_SENT) {
        said = say(call, "on", 1, 16 << 10);
        int64_t quiet = clock_mono_ms() + 300;
        while (said == RPC_FULL && clock_mono_ms() < quiet && !atomic_load(&seen.writables))
            sched_yield();
        if (said == RPC_FULL && !atomic_load(&seen.writables))
            break; /* the queue stays full */
        atomic_store(&seen.writables, 0);
    }
    assert_int_equal(said, RPC_FULL);
    assert_in_range(sent << 14, RPC_QUEUE_BYTES / 2, 16 << 20);
    rpc_cancel(call);
    AWAIT(atomic_load(&seen.dones));
    assert_int_equal(seen.status, ST_CANCELLED);
    assert_int_equal(atomic_load(&seen.messages), 0);
    AWAIT(atomic_load(&y->echo.cancelled) == 1);
    rpc_unref(call);
}

static void a_paused_client_stops_the_server_and_gets_all_after_resume(void **state) {
    struct echo_fixture *y = *state;
    struct seen seen = { .pause_at = 11 };
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = 4000;
    in.bytes = 16 << 10; /* 64 MB */
    struct rpc_call *call;
    OK(rpc_start(y->channel, &test__v1__echo__descriptor, "Count", RPC_SERVER_STREAM, &seeing, &seen, &in.base, 0,
                 &call, why));
    AWAIT(atomic_load(&seen.messages) == 11);
    for (int64_t until = clock_mono_ms() + 100; clock_mono_ms() < until;)
        sched_yield();
    assert_int_equal(atomic_load(&seen.messages), 11);
    assert_int_equal(atomic_load(&y->echo.done), 0);
    rpc_resume(call);
    AWAIT(atomic_load(&seen.dones));
    assert_int_equal(atomic_load(&seen.messages), 4000);
    assert_int_equal(seen.status, ST_OK);
    rpc_unref(call);
}

static void closing_the_channel_ends_its_calls(void **state) {
    struct echo_fixture *y = *state;
    struct seen seen = { 0 };
    struct rpc_call *call = start(y, "Chat", RPC_BIDI, &seen, "on");
    AWAIT(atomic_load(&seen.messages) == 1);
    rpc_unref(call);
    y->channel = rpc_channel_close(y->channel);
    assert_int_equal(atomic_load(&seen.dones), 1);
    assert_int_equal(seen.status, ST_CANCELLED);
}

#define BOTH(test)                                                                                                     \
    { "unix: " #test, test, setup_unix, teardown, NULL }, { "tcp: " #test, test, setup_tcp, teardown, NULL }

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH(a_unary_call_is_answered),
        BOTH(a_failure_travels_with_its_sentence_and_reason),
        BOTH(a_handler_without_an_answer_is_an_internal_error_that_names_its_call),
        BOTH(a_channel_with_a_request_id_sends_it_with_each_call),
        BOTH(a_channel_refuses_a_request_id_that_the_server_would_replace),
        BOTH(the_client_distinguishes_unserved_and_unknown_methods),
        BOTH(a_unary_call_always_has_a_deadline_and_the_server_sees_it),
        BOTH(a_late_answer_is_a_deadline_and_its_handler_learns_it),
        BOTH(a_server_stream_is_read_to_its_end),
        BOTH(work_runs_on_workers_one_at_a_time_and_never_gets_lost),
        BOTH(closing_a_stream_early_notifies_the_server),
        BOTH(a_unary_call_with_events_is_answered),
        BOTH(a_client_stream_is_summed),
        BOTH(a_chat_goes_both_ways_and_ends_well),
        BOTH(a_chat_that_the_server_ends_carries_its_reason),
        BOTH(a_sender_is_held_back_by_a_paused_reader),
        BOTH(a_paused_client_stops_the_server_and_gets_all_after_resume),
        BOTH(closing_the_channel_ends_its_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
