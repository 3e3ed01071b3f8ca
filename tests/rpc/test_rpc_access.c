/* Access control: the rules in the protos, tokens, and the end of a stream whose token was revoked. */
#include "api/rpc/bearer.h"
#include "base/file.h"
#include "tests/rpc/fixture.h"

#include <echo/descriptors.h>
#include <grpc/health/v1/health.pb-c.h>
#include <grpc/reflection/v1/reflection.pb-c.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The owner of token "one" may call methods with rule 1; the owner of "two", those with rules 1 and 2. */
struct gate {
    struct rpc_access access;
    atomic_int checks;
    atomic_int user_rule; /* the rules up to this one are for users of the machine */
    atomic_bool one_is_revoked, nobody_knows, hold, held, within;
};

static bool is_token(const uint8_t *token, const char *text) {
    uint8_t digest[SHA256_BYTES];
    sha256_of(text, strlen(text), digest);
    return !memcmp(token, digest, sizeof digest);
}

static status_t check(void *ctx, const uint8_t token[SHA256_BYTES], const struct rpc_peer *peer, int rule,
                      const char *method, char ret_caller[RPC_CALLER_BYTES], struct err *e) {
    struct gate *gate = ctx;
    assert_true(peer->tls == atomic_load(&gate->within) && peer->n_names == 0);
    atomic_fetch_add(&gate->checks, 1);
    while (atomic_load(&gate->hold)) {
        atomic_store(&gate->held, true);
        sched_yield();
    }
    if (atomic_load(&gate->nobody_knows))
        return err_set(e, ST_UNAVAILABLE, "nobody knows");
    if (!token)
        return err_set(e, ST_UNAUTHENTICATED, "%s needs a token", method);
    bool one = is_token(token, "one");
    if ((!one && !is_token(token, "two")) || (one && atomic_load(&gate->one_is_revoked)))
        return err_set(e, ST_UNAUTHENTICATED, "the token is unknown");
    if (rule > (one ? 1 : 2))
        return err_set(e, ST_PERMISSION_DENIED, "%s needs rule %d", method, rule);
    snprintf(ret_caller, RPC_CALLER_BYTES, "%s", one ? "one" : "two");
    return ST_OK;
}

struct gated {
    struct gate gate;
    struct echo_fixture fixture;
};

static status_t check_user(void *ctx, uid_t uid, int rule, const char *method, char ret_caller[RPC_CALLER_BYTES],
                           struct err *e) {
    struct gate *gate = ctx;
    assert_int_equal(uid, geteuid());
    atomic_fetch_add(&gate->checks, 1);
    snprintf(ret_caller, RPC_CALLER_BYTES, "me");
    return rule > atomic_load(&gate->user_rule) ? err_set(e, ST_PERMISSION_DENIED, "%s needs rule %d", method, rule)
                                                : ST_OK;
}

typedef status_t check_user_fn(void *ctx, uid_t uid, int rule, const char *method, char ret_caller[RPC_CALLER_BYTES],
                               struct err *e);

static struct gated *open_gated_by(check_user_fn *users, int calls, const char *listen) {
    struct gated *g = calloc(1, sizeof *g);
    g->gate.access = (struct rpc_access){
        .rule_option = 51701, .rule_reflection = 1, .check = check, .check_user = users, .ctx = &g->gate
    };
    struct rpc_server_config config = { .access = &g->gate.access, .calls = calls };
    char address[RPC_ADDRESS_BYTES];
    echo_directory(&g->fixture);
    snprintf(address, sizeof address, listen, g->fixture.directory);
    echo_start(&g->fixture, &config, address);
    return g;
}

static struct gated *open_gated_for(int calls, const char *listen) { return open_gated_by(check_user, calls, listen); }

static struct gated *open_gated(const char *listen) { return open_gated_for(0, listen); }

static void close_gated(struct gated *g) {
    g->fixture.server = rpc_server_close(g->fixture.server);
    assert_int_equal(rmdir(g->fixture.directory), 0);
    free(g);
}

static struct rpc_channel *dial(const struct gated *g, const char *token) {
    struct rpc_channel_config config = { .address = g->fixture.address, .peer = "the server", .token = token };
    struct rpc_channel *channel;
    OK(rpc_channel_open(&config, &channel, why));
    return channel;
}

static void expect(const struct gated *g, const char *token, status_t status, const char *text) {
    CLEANUP(rpc_channel_closep) struct rpc_channel *channel = dial(g, token);
    Test__V1__EchoReply *reply = NULL;
    struct err e = { "" };
    assert_int_equal(ask(channel, "caller", 0, &reply, NULL, &e), status);
    assert_string_equal(status == ST_OK ? reply->text : e.msg, text);
    if (reply)
        test__v1__echo_reply__free_unpacked(reply, NULL);
}

static status_t never(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    (void)service;
    (void)call;
    (void)request;
    return err_set(e, ST_INTERNAL, "it was called");
}

static void a_method_without_a_rule_is_not_served(void **state) {
    (void)state;
    static const struct rpc_method method = { "Unserved", RPC_UNARY, .unary = never };
    struct gate gate = { .access = { .rule_option = 51701, .rule_reflection = 1, .check = check } };
    struct rpc_server_config config = { .access = &gate.access };
    struct echo echo = { 0 };
    struct rpc_server *server;
    struct err e;
    OK(echo_open(&config, &echo, &server, why));
    assert_int_equal(rpc_server_add(server, &test__v1__echo__descriptor, &method, 1, NULL, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the proto of test.v1.Echo does not declare which role may call Unserved");
    rpc_server_close(server);
    gate.access.rule_option = 51799; /* and an option that no method has */
    assert_int_equal(echo_open(&config, &echo, &server, &e), ST_INVALID_ARGUMENT);
}

static status_t check_request(void *ctx, const uint8_t token[SHA256_BYTES], const char *service, const char *method,
                              const ProtobufCMessage *request, char ret_scope[RPC_SCOPE_BYTES], struct err *e) {
    const char *text = ((const Test__V1__EchoRequest *)request)->text;
    (void)ctx;
    assert_string_equal(service, "test.v1.Echo");
    assert_string_equal(method, "Unary");
    if (is_token(token, "one") && strcmp(text, "caller") == 0)
        return err_set(e, ST_PERMISSION_DENIED, "one may not ask for the %s", text);
    snprintf(ret_scope, RPC_SCOPE_BYTES, "%s", text);
    return ST_OK;
}

static status_t reply_scope(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    (void)service;
    (void)request;
    (void)e;
    Test__V1__EchoReply reply = TEST__V1__ECHO_REPLY__INIT;
    reply.text = (char *)(uintptr_t)rpc_scope(call);
    rpc_reply(call, &reply.base);
    return ST_OK;
}

static void a_request_is_checked_before_its_handler_runs(void **state) {
    (void)state;
    static const struct rpc_method method = { "Unary", RPC_UNARY, .unary = reply_scope };
    struct gated *g = calloc(1, sizeof *g);
    struct rpc_server_config config = { .access = &g->gate.access,
                                        .descriptors = echo_descriptors,
                                        .descriptors_len = echo_descriptors_len };
    struct err e;
    g->gate.access = (struct rpc_access){
        .rule_option = 51701, .rule_reflection = 1, .check = check, .check_request = check_request, .ctx = &g->gate
    };
    assert_int_equal(echo_open(&config, &g->fixture.echo, &g->fixture.server, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the method Count of test.v1.Echo would see its request before it is checked");
    echo_directory(&g->fixture);
    OK(rpc_server_open(&config, &g->fixture.server, why));
    OK(rpc_server_add(g->fixture.server, &test__v1__echo__descriptor, &method, 1, NULL, why));
    OK(rpc_server_listen(g->fixture.server, "127.0.0.1:0", NULL, g->fixture.address, why));
    OK(rpc_server_start(g->fixture.server, why));
    expect(g, "two", ST_OK, "caller"); /* the scope is the text of the request */
    expect(g, "one", ST_PERMISSION_DENIED, "one may not ask for the caller");
    close_gated(g);
}

static void a_method_that_does_not_declare_its_record_is_not_served(void **state) {
    (void)state;
    struct gate gate = { .access = { .rule_option = 51701, .rule_reflection = 1, .check = check } };
    struct rpc_audit audit = { .object_option = 51702, .exempt_rule = 1 };
    struct rpc_server_config config = { .access = &gate.access, .audit = &audit };
    struct echo echo = { 0 };
    struct rpc_server *server;
    struct err e;
    OK(echo_open(&config, &echo, &server, why)); /* Sum and Chat have rule 2 and declare theirs */
    rpc_server_close(server);
    audit.object_option = 51799;
    assert_int_equal(echo_open(&config, &echo, &server, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the proto of test.v1.Echo does not declare what the audit log has about Sum");
    audit.object_option = 51703; /* which names a field that is no string */
    assert_int_equal(echo_open(&config, &echo, &server, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg,
                        "the proto of test.v1.Echo declares 'x/{number}' for the audit log about Sum, which names "
                        "no string of its request");
}

static void a_call_by_a_unix_socket_is_checked_by_its_user_unless_it_has_a_token(void **state) {
    (void)state;
    struct gated *g = open_gated("unix:%s/s");
    expect(g, NULL, ST_PERMISSION_DENIED, "Unary needs rule 1");
    atomic_store(&g->gate.user_rule, 1);
    expect(g, NULL, ST_OK, "me");
    assert_int_equal(atomic_load(&g->gate.checks), 2);
    expect(g, "unknown", ST_UNAUTHENTICATED, "the token is unknown");
    expect(g, "two", ST_OK, "two");
    close_gated(g);
    g = open_gated_by(NULL, 0, "unix:%s/s");
    expect(g, NULL, ST_UNAUTHENTICATED, "Unary needs a token");
    close_gated(g);
}

/* What /proc shows of a descriptor: "socket:[INODE]". */
static void read_descriptor(int fd, char ret[64]) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, ret, 63);
    ret[n > 0 ? n : 0] = '\0';
}

/* A connection that the server, which is this process, has accepted on its socket. */
static int accepted_connection(const struct gated *g) {
    const char *path = g->fixture.address + strlen("unix:");
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_un own = { .sun_family = AF_UNSPEC };
        socklen_t size = sizeof own, flag = sizeof(int);
        int listens = 1;
        if (getsockname(fd, (struct sockaddr *)&own, &size) == 0 && own.sun_family == AF_UNIX &&
            strcmp(own.sun_path, path) == 0 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag) == 0 &&
            !listens)
            return fd;
    }
    return -1;
}

/* The user of a call is found by the descriptor of its connection: while the call exists, no other connection may have
 * that number, also if the client is gone. */
static void a_call_keeps_the_descriptor_of_its_connection(void **state) {
    (void)state;
    struct gated *g = open_gated("unix:%s/s");
    char before[64], now[64];
    struct err e;
    Test__V1__EchoReply *reply = NULL;
    atomic_store(&g->gate.user_rule, 1);
    atomic_store(&g->gate.hold, true);
    struct rpc_channel *channel = dial(g, "two");
    for (int64_t timeout_ms = 100; !atomic_load(&g->gate.held); timeout_ms *= 2) /* a call may be too late to arrive */
        assert_int_equal(ask(channel, "caller", timeout_ms, &reply, NULL, &e), ST_DEADLINE_EXCEEDED);
    const int fd = accepted_connection(g);
    assert_true(fd >= 0);
    read_descriptor(fd, before);
    rpc_channel_close(channel);
    struct pollfd gone = { .fd = fd, .events = POLLRDHUP };
    AWAIT(poll(&gone, 1, 0) == 1);
    for (int i = 0; i < 10; i++)
        expect(g, NULL, ST_OK, "me"); /* other connections come and go */
    read_descriptor(fd, now);
    assert_string_equal(now, before);
    atomic_store(&g->gate.hold, false);
    AWAIT(accepted_connection(g) < 0);
    close_gated(g);
}

static void a_call_over_plain_tcp_is_checked(void **state) {
    (void)state;
    struct gated *g = open_gated("127.0.0.1:0%.0s");
    expect(g, NULL, ST_UNAUTHENTICATED, "Unary needs a token");
    expect(g, "unknown", ST_UNAUTHENTICATED, "the token is unknown");
    expect(g, "one two", ST_UNAUTHENTICATED, "the authorization header is not 'Bearer' with a token");
    expect(g, "one", ST_OK, "one");
    expect(g, "two", ST_OK, "two");
    atomic_store(&g->gate.nobody_knows, true);
    expect(g, "two", ST_UNAVAILABLE, "nobody knows");
    close_gated(g);
}

static void asked_as(struct rpc_channel *channel, status_t status, const char *text) {
    Test__V1__EchoReply *reply = NULL;
    struct err e = { "" };
    assert_int_equal(ask(channel, "caller", 0, &reply, NULL, &e), status);
    assert_string_equal(status == ST_OK ? reply->text : e.msg, text);
    if (reply)
        test__v1__echo_reply__free_unpacked(reply, NULL);
}

/* Several callers share the connection. */
static void calls_within_the_process_are_checked_each_with_its_own_token(void **state) {
    (void)state;
    struct gate gate = { .access = { .rule_option = 51701, .rule_reflection = 1, .check = check }, .within = true };
    gate.access.ctx = &gate;
    struct rpc_server_config config = { .access = &gate.access };
    struct echo echo = { 0 };
    struct rpc_server *server;
    struct rpc_channel *channel, *one, *two, *plain;
    char address[RPC_ADDRESS_BYTES];
    OK(echo_open(&config, &echo, &server, why));
    OK(rpc_server_listen_within(server, address, why));
    OK(rpc_server_start(server, why));
    OK(rpc_channel_open(&(struct rpc_channel_config){ .address = address, .within = true }, &channel, why));
    OK(rpc_channel_as(channel, "one", &one, why));
    OK(rpc_channel_as(channel, "two", &two, why));
    asked_as(channel, ST_UNAUTHENTICATED, "Unary needs a token");
    asked_as(one, ST_OK, "one");
    asked_as(two, ST_OK, "two");
    one = rpc_channel_close(one);
    asked_as(two, ST_OK, "two");
    two = rpc_channel_close(two);
    struct err e;
    assert_int_equal(rpc_channel_as(channel, "a\nb", &one, &e), ST_INVALID_ARGUMENT);
    OK(rpc_channel_open(&(struct rpc_channel_config){ .address = address }, &plain, why));
    Test__V1__EchoReply *reply = NULL;
    assert_int_not_equal(ask(plain, "caller", 0, &reply, NULL, &e), ST_OK); /* of another program of this machine */
    rpc_channel_close(plain);
    rpc_channel_close(channel);
    rpc_server_close(server);
}

static void no_process_listens_within_itself_without_rules(void **state) {
    (void)state;
    struct echo echo = { 0 };
    struct rpc_server *server;
    char address[RPC_ADDRESS_BYTES];
    struct err e;
    OK(echo_open(NULL, &echo, &server, why));
    assert_int_equal(rpc_server_listen_within(server, address, &e), ST_FAILED_PRECONDITION);
    rpc_server_close(server);
}

struct heard {
    atomic_bool opened, done;
    status_t status;
    char why[256];
};

static void heard_open(struct rpc_call *call) { atomic_store(&((struct heard *)rpc_user(call))->opened, true); }

static void heard_done(struct rpc_call *call, status_t status, const char *why) {
    struct heard *h = rpc_user(call);
    h->status = status;
    snprintf(h->why, sizeof h->why, "%s", why);
    atomic_store(&h->done, true);
}

static struct rpc_call *begin(struct rpc_channel *channel, const char *method, enum rpc_kind kind,
                              const ProtobufCMessage *request, struct heard *h) {
    static const struct rpc_events events = { .open = heard_open, .done = heard_done };
    struct rpc_call *call;
    *h = (struct heard){ 0 };
    OK(rpc_start(channel, &test__v1__echo__descriptor, method, kind, &events, h, request, 0, &call, why));
    return call;
}

static void no_kind_of_call_reaches_its_handler_unasked(void **state) {
    (void)state;
    struct gated *g = open_gated("127.0.0.1:0%.0s");
    struct rpc_channel *channel = dial(g, "one");
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    static const enum rpc_kind kinds[] = { RPC_CLIENT_STREAM, RPC_BIDI };
    static const char *const methods[] = { "Sum", "Chat" }; /* methods with rule 2 */
    for (int i = 0; i < 2; i++) {
        struct heard h;
        struct rpc_call *call = begin(channel, methods[i], kinds[i], &in.base, &h);
        AWAIT(atomic_load(&h.done));
        assert_int_equal(h.status, ST_PERMISSION_DENIED);
        rpc_unref(call);
    }
    atomic_store(&g->gate.one_is_revoked, true);
    Test__V1__CountRequest count = TEST__V1__COUNT_REQUEST__INIT;
    struct heard h;
    struct rpc_call *call = begin(channel, "Count", RPC_SERVER_STREAM, &count.base, &h);
    AWAIT(atomic_load(&h.done));
    assert_int_equal(h.status, ST_UNAUTHENTICATED);
    rpc_unref(call);
    assert_int_equal(atomic_load(&g->fixture.echo.streams) + atomic_load(&g->fixture.echo.done), 0);
    rpc_channel_close(channel);
    close_gated(g);
}

static void a_review_ends_the_streams_of_a_token_that_is_gone(void **state) {
    (void)state;
    struct gated *g = open_gated("127.0.0.1:0%.0s");
    struct rpc_channel *one = dial(g, "one"), *two = dial(g, "two");
    Test__V1__CountRequest count = TEST__V1__COUNT_REQUEST__INIT;
    count.endless = true;
    struct heard gone, stays;
    struct rpc_call *a = begin(one, "Count", RPC_SERVER_STREAM, &count.base, &gone);
    struct rpc_call *b = begin(two, "Count", RPC_SERVER_STREAM, &count.base, &stays);
    AWAIT(atomic_load(&g->fixture.echo.streams) == 2);
    atomic_store(&g->gate.nobody_knows, true);
    rpc_server_review(g->fixture.server);
    atomic_store(&g->gate.nobody_knows, false);
    assert_int_equal(atomic_load(&g->fixture.echo.done), 0);
    atomic_store(&g->gate.one_is_revoked, true);
    rpc_server_review(g->fixture.server);
    AWAIT(atomic_load(&gone.done));
    assert_int_equal(gone.status, ST_UNAUTHENTICATED);
    assert_string_equal(gone.why, "the token is unknown");
    AWAIT(atomic_load(&g->fixture.echo.done) == 1);
    assert_false(atomic_load(&stays.done));
    rpc_cancel(b);
    AWAIT(atomic_load(&stays.done));
    rpc_unref(a);
    rpc_unref(b);
    rpc_channel_close(one);
    rpc_channel_close(two);
    close_gated(g);
}

/* A unary call runs to its end, because its effect may have happened, and its caller needs the result. */
static void a_review_lets_a_unary_call_end(void **state) {
    (void)state;
    struct gated *g = open_gated("127.0.0.1:0%.0s");
    struct rpc_channel *one = dial(g, "one");
    Test__V1__EchoRequest in = TEST__V1__ECHO_REQUEST__INIT;
    in.text = "block";
    struct heard h;
    struct rpc_call *call = begin(one, "Unary", RPC_UNARY, &in.base, &h);
    AWAIT(atomic_load(&g->fixture.echo.blocked) == 1);
    atomic_store(&g->gate.one_is_revoked, true);
    rpc_server_review(g->fixture.server);
    atomic_store(&g->fixture.echo.released, true);
    AWAIT(atomic_load(&h.done));
    assert_int_equal(h.status, ST_OK);
    rpc_unref(call);
    rpc_channel_close(one);
    close_gated(g);
}

static void a_call_that_is_cancelled_while_it_is_checked_leaves_nothing(void **state) {
    (void)state;
    struct gated *g = open_gated("127.0.0.1:0%.0s");
    struct rpc_channel *channel = dial(g, "two");
    atomic_store(&g->gate.hold, true);
    struct heard h;
    struct rpc_call *call = begin(channel, "Chat", RPC_BIDI, NULL, &h);
    AWAIT(atomic_load(&g->gate.held));
    rpc_cancel(call);
    AWAIT(atomic_load(&h.done));
    rpc_unref(call);
    rpc_channel_close(channel);
    atomic_store(&g->gate.hold, false);
    rpc_server_stop(g->fixture.server, 0); /* waits for the check */
    assert_int_equal(atomic_load(&g->fixture.echo.streams), 0);
    close_gated(g);
}

static void health_is_for_all_and_reflection_has_its_rule(void **state) {
    (void)state;
    struct gated *g = open_gated("127.0.0.1:0%.0s");
    struct rpc_channel *channel = dial(g, NULL);
    Grpc__Health__V1__HealthCheckRequest ask_health = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    ProtobufCMessage *reply;
    OK(rpc_call_unary(channel, &grpc__health__v1__health__descriptor, "Check", &ask_health.base, 0, &reply, why));
    protobuf_c_message_free_unpacked(reply, NULL);
    static const struct rpc_events events = { .open = heard_open, .done = heard_done };
    struct heard h = { 0 };
    struct rpc_call *call;
    OK(rpc_start(channel, &grpc__reflection__v1__server_reflection__descriptor, "ServerReflectionInfo", RPC_BIDI,
                 &events, &h, NULL, 0, &call, why));
    AWAIT(atomic_load(&h.done));
    assert_int_equal(h.status, ST_UNAUTHENTICATED);
    assert_string_equal(h.why, "ServerReflectionInfo needs a token");
    rpc_unref(call);
    rpc_channel_close(channel);
    close_gated(g);
}

static void calls_without_a_token_leave_capacity_for_those_with_one(void **state) {
    (void)state;
    struct gated *g = open_gated_for(6, "127.0.0.1:0%.0s");
    struct rpc_channel *channel = dial(g, NULL);
    Grpc__Health__V1__HealthCheckRequest ask_health = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const ProtobufCServiceDescriptor *health = &grpc__health__v1__health__descriptor;
    struct rpc_stream *watches[3], *another;
    const ProtobufCMessage *message;
    for (int i = 0; i < 3; i++) {
        OK(rpc_stream_open(channel, health, "Watch", &ask_health.base, 0, &watches[i], why));
        OK(rpc_stream_next(watches[i], &message, why));
    }
    struct err e;
    OK(rpc_stream_open(channel, health, "Watch", &ask_health.base, 0, &another, why));
    assert_int_equal(rpc_stream_next(another, &message, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "the server is busy: 3 calls are open already");
    rpc_stream_close(another);
    expect(g, "one", ST_OK, "one");
    for (int i = 0; i < 3; i++)
        rpc_stream_close(watches[i]);
    rpc_channel_close(channel);
    close_gated(g);
}

static void a_bearer_is_read_and_nothing_else(void **state) {
    (void)state;
    static const char *const good[] = { "Bearer abc", "bearer a-._~+/=Z9", "BEARER x" };
    static const char *const bad[] = { "",          "Bearer", "Bearer ", "Bearer  a",       "Bearer a b", "Bearer a\n",
                                       "Basic abc", "abc",    "Bearera", "Bearer \xc3\xa9", "Bearer a,b" };
    const uint8_t *token;
    size_t n;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(bearer_read((const uint8_t *)good[i], strlen(good[i]), &token, &n));
        assert_ptr_equal(token, good[i] + 7);
        assert_int_equal(n, strlen(good[i]) - 7);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(bearer_read((const uint8_t *)bad[i], strlen(bad[i]), &token, &n));
    char large[8 + MAX_BEARER_BYTES];
    memset(large, 'a', sizeof large);
    memcpy(large, "Bearer ", 7);
    assert_true(bearer_read((uint8_t *)large, 7 + MAX_BEARER_BYTES, &token, &n));
    assert_false(bearer_read((uint8_t *)large, 8 + MAX_BEARER_BYTES, &token, &n));
    large[20] = '\0';
    assert_false(bearer_read((uint8_t *)large, 100, &token, &n));
}

static void a_token_does_not_leave_this_machine_in_the_clear(void **state) {
    (void)state;
    struct rpc_channel *channel;
    struct err e;
    struct rpc_channel_config config = { .address = "192.0.2.1:7700", .token = "secret" };
    assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "a token is not sent to 192.0.2.1:7700 without TLS: the CA of the server's certificate "
                               "is needed");
    config.token = NULL;
    config.token_file = "/nowhere";
    assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_FAILED_PRECONDITION);
    config.token_file = "";
    OK(rpc_channel_open(&config, &channel, why)); /* nothing to keep */
    rpc_channel_close(channel);
}

static void a_token_may_stand_in_a_file(void **state) {
    (void)state;
    struct gated *g = open_gated("127.0.0.1:0%.0s");
    char path[128];
    snprintf(path, sizeof path, "%s/token", g->fixture.directory);
    struct rpc_channel_config config = { .address = g->fixture.address, .token_file = path };
    struct rpc_channel *channel;
    struct err e;
    assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_NOT_FOUND);
    static const char *const bad[] = { "", "\n", "\n\nsecret" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        OK(file_write_atomic(path, bad[i], strlen(bad[i]), 0600, why));
        assert_int_equal(rpc_channel_open(&config, &channel, &e), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, path));
        assert_null(strstr(e.msg, "secret"));
    }
    OK(file_write_atomic(path, "two\n", 4, 0600, why));
    OK(rpc_channel_open(&config, &channel, why));
    Test__V1__EchoReply *reply = NULL;
    OK(ask(channel, "caller", 0, &reply, NULL, why));
    assert_string_equal(reply->text, "two");
    test__v1__echo_reply__free_unpacked(reply, NULL);
    rpc_channel_close(channel);
    assert_int_equal(unlink(path), 0);
    close_gated(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_method_without_a_rule_is_not_served),
        cmocka_unit_test(a_request_is_checked_before_its_handler_runs),
        cmocka_unit_test(a_method_that_does_not_declare_its_record_is_not_served),
        cmocka_unit_test(a_call_by_a_unix_socket_is_checked_by_its_user_unless_it_has_a_token),
        cmocka_unit_test(a_call_keeps_the_descriptor_of_its_connection),
        cmocka_unit_test(a_call_over_plain_tcp_is_checked),
        cmocka_unit_test(calls_within_the_process_are_checked_each_with_its_own_token),
        cmocka_unit_test(no_process_listens_within_itself_without_rules),
        cmocka_unit_test(no_kind_of_call_reaches_its_handler_unasked),
        cmocka_unit_test(a_review_ends_the_streams_of_a_token_that_is_gone),
        cmocka_unit_test(a_review_lets_a_unary_call_end),
        cmocka_unit_test(a_call_that_is_cancelled_while_it_is_checked_leaves_nothing),
        cmocka_unit_test(health_is_for_all_and_reflection_has_its_rule),
        cmocka_unit_test(calls_without_a_token_leave_capacity_for_those_with_one),
        cmocka_unit_test(a_bearer_is_read_and_nothing_else),
        cmocka_unit_test(a_token_does_not_leave_this_machine_in_the_clear),
        cmocka_unit_test(a_token_may_stand_in_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
