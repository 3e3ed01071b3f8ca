/* A channel with several addresses goes on to the next server if the current one cannot be reached or does not serve,
 * and never repeats a call that a server may have run. */
#include "tests/rpc/fixture.h"

static const char SERVICE[] = "test.v1.Echo";

struct pair {
    struct echo_fixture a, b;
    struct rpc_channel *channel; /* to both, a first */
};

static void pair_dial(struct pair *p, const char *addresses) {
    struct rpc_channel_config config = { .address = addresses, .peer = "the server" };
    OK(rpc_channel_open(&config, &p->channel, why));
}

static int pair_setup(void **state) {
    struct pair *p = calloc(1, sizeof *p);
    struct echo_fixture *each[] = { &p->a, &p->b };
    char both[RPC_ADDRESSES_BYTES];
    for (int i = 0; i < 2; i++) {
        char address[96];
        echo_directory(each[i]);
        snprintf(address, sizeof address, "unix:%s/s", each[i]->directory);
        echo_start(each[i], NULL, address);
    }
    snprintf(both, sizeof both, "%s,%s", p->a.address, p->b.address);
    pair_dial(p, both);
    *state = p;
    return 0;
}

static int pair_teardown(void **state) {
    struct pair *p = *state;
    rpc_channel_close(p->channel);
    rpc_server_close(p->a.server);
    rpc_server_close(p->b.server);
    int left = rmdir(p->a.directory) | rmdir(p->b.directory);
    free(p);
    return left;
}

static void assert_ran(struct pair *p, int a, int b) {
    assert_int_equal(atomic_load(&p->a.echo.calls), a);
    assert_int_equal(atomic_load(&p->b.echo.calls), b);
}

static void a_server_that_serves_gets_every_call(void **state) {
    struct pair *p = *state;
    struct err e;
    for (int i = 0; i < 3; i++)
        OK(ask(p->channel, "hello", 0, NULL, NULL, why));
    assert_int_equal(ask(p->channel, "fail", 0, NULL, NULL, &e), ST_NOT_FOUND);
    assert_ran(p, 4, 0);
}

static void unavailable_from_a_server_that_serves_is_not_repeated_elsewhere(void **state) {
    struct pair *p = *state;
    struct err e;
    char reason[RPC_REASON_BYTES];
    assert_int_equal(ask(p->channel, "away", 0, NULL, reason, &e), ST_UNAVAILABLE);
    assert_string_equal(reason, "UNAVAILABLE");
    assert_ran(p, 1, 0);
}

static void a_call_to_a_server_that_does_not_serve_runs_on_the_next_one(void **state) {
    struct pair *p = *state;
    struct err e;
    char reason[RPC_REASON_BYTES];
    rpc_server_set_serving(p->a.server, SERVICE, false);
    assert_int_equal(ask(p->channel, "away", 0, NULL, reason, &e), ST_UNAVAILABLE);
    assert_string_equal(reason, "UNAVAILABLE"); /* b's answer */
    assert_ran(p, 1, 1);
    OK(ask(p->channel, "hello", 0, NULL, NULL, why));
    assert_ran(p, 1, 2); /* the channel stays with b */
    rpc_server_set_serving(p->a.server, SERVICE, true);
    rpc_server_set_serving(p->b.server, SERVICE, false);
    assert_int_equal(ask(p->channel, "away", 0, NULL, reason, &e), ST_UNAVAILABLE);
    assert_ran(p, 2, 3); /* and goes back to a */
}

static void lose_the_lead(struct echo_fixture *y) {
    rpc_server_set_serving(y->server, SERVICE, false);
    atomic_store(&y->echo.released, true);
}

static void *lose_while_it_runs(void *arg) {
    struct echo_fixture *y = arg;
    AWAIT(atomic_load(&y->echo.blocked) > 0);
    lose_the_lead(y);
    return NULL;
}

static void a_call_that_was_running_when_the_lead_was_lost_is_not_repeated(void **state) {
    struct pair *p = *state;
    struct err e;
    char reason[RPC_REASON_BYTES];
    pthread_t loser;
    assert_int_equal(pthread_create(&loser, NULL, lose_while_it_runs, &p->a), 0);
    assert_int_equal(ask(p->channel, "block, away", 0, NULL, reason, &e), ST_UNAVAILABLE);
    pthread_join(loser, NULL);
    assert_string_equal(reason, "UNAVAILABLE");
    assert_ran(p, 1, 0);
}

static void when_none_serves_each_is_asked_once(void **state) {
    struct pair *p = *state;
    struct err e;
    char reason[RPC_REASON_BYTES];
    rpc_server_set_serving(p->a.server, SERVICE, false);
    rpc_server_set_serving(p->b.server, SERVICE, false);
    assert_int_equal(ask(p->channel, "away", 0, NULL, reason, &e), ST_UNAVAILABLE);
    assert_string_equal(reason, RPC_NOT_SERVING);
    assert_string_equal(e.msg, "the echo is away");
    assert_ran(p, 1, 1);
}

static void a_server_that_is_gone_gives_way_to_the_next_one(void **state) {
    struct pair *p = *state;
    p->a.server = rpc_server_close(p->a.server);
    for (int i = 0; i < 2; i++)
        OK(ask(p->channel, "hello", 0, NULL, NULL, why));
    assert_ran(p, 0, 2);
}

static void a_stream_that_is_opened_again_goes_to_the_next_server(void **state) {
    struct pair *p = *state;
    p->a.server = rpc_server_close(p->a.server);
    Test__V1__CountRequest in = TEST__V1__COUNT_REQUEST__INIT;
    in.n = 1;
    for (int i = 0; i < 2; i++) {
        struct rpc_stream *stream;
        const ProtobufCMessage *message = NULL;
        struct err e;
        OK(rpc_stream_open(p->channel, &test__v1__echo__descriptor, "Count", &in.base, 0, &stream, why));
        status_t st = rpc_stream_next(stream, &message, &e);
        assert_int_equal(st, i ? ST_OK : ST_UNAVAILABLE);
        assert_int_equal(message != NULL, i);
        rpc_stream_close(stream);
    }
}

static void a_list_is_refused_with_its_error(void **state) {
    (void)state;
    const struct {
        const char *text, *says;
    } wrong[] = {
        { "", "neither host:port nor unix:/path" },
        { "a:1,", "neither host:port nor unix:/path" },
        { "a:1,,b:1", "neither host:port nor unix:/path" },
        { "a:1,b:0", "the address b:0 has no port to dial" },
        { "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1", "the list has more than 8 addresses" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct rpc_address_list list;
        struct err e = { "" };
        assert_int_equal(rpc_address_list_parse(wrong[i].text, &list, &e), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, wrong[i].says));
    }
    struct rpc_address_list list;
    OK(rpc_address_list_parse("a:1,[::1]:2,unix:/tmp/s", &list, why));
    assert_int_equal(list.n, 3);
    assert_string_equal(list.items[1].text, "[::1]:2");
    assert_true(list.items[2].is_unix);
}

static void no_token_goes_in_plain_text_to_any_of_the_addresses(void **state) {
    (void)state;
    struct rpc_channel *channel;
    struct err e;
    struct rpc_channel_config config = { .address = "127.0.0.1:1,192.0.2.1:1", .token = "secret" };
    assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "a token is not sent to 192.0.2.1:1 without TLS"));
}

#define ON_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_PAIR(a_server_that_serves_gets_every_call),
        ON_PAIR(unavailable_from_a_server_that_serves_is_not_repeated_elsewhere),
        ON_PAIR(a_call_to_a_server_that_does_not_serve_runs_on_the_next_one),
        ON_PAIR(a_call_that_was_running_when_the_lead_was_lost_is_not_repeated),
        ON_PAIR(when_none_serves_each_is_asked_once),
        ON_PAIR(a_server_that_is_gone_gives_way_to_the_next_one),
        ON_PAIR(a_stream_that_is_opened_again_goes_to_the_next_server),
        cmocka_unit_test(a_list_is_refused_with_its_error),
        cmocka_unit_test(no_token_goes_in_plain_text_to_any_of_the_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
