/* Channels and calls of a client.
 *
 * A channel has a gRPC channel for each address (endpoints.c), its credentials and its token. gRPC reconnects by
 * itself; its settings here keep the backoff and the keepalive below a lease. A call with events runs on the one loop
 * thread of the process; a call that blocks has a completion queue of its own and runs on its caller's thread
 * (blocking.c). Closing a channel waits until its last call has ended. */
#include "api/rpc/bearer.h"
#include "api/rpc/call_state.h"
#include "api/rpc/client_state.h"
#include "api/rpc/credentials.h"
#include "api/rpc/log.h"
#include "api/rpc/request_id.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"

#include <grpc/support/time.h>
#include <stdio.h>
#include <string.h>

enum {
    METADATA_BYTES = 8 << 10,
    KEEPALIVE_MS = 10000, /* a dead peer is noticed after 15 s; the server allows a ping every 5 s */
    KEEPALIVE_TIMEOUT_MS = 5000,
    PATH_BYTES = 256,
};

static grpc_arg integer(const char *key, int value) {
    return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value };
}

static grpc_channel *core_new(const char *target, grpc_channel_credentials *credentials, const char *tls_name) {
    grpc_arg args[] = {
        integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LIMIT_RPC_MESSAGE_BYTES),
        integer(GRPC_ARG_MAX_METADATA_SIZE, METADATA_BYTES),
        integer(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        integer(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        integer(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        integer(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, REDIAL_FIRST_MS),
        integer(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                CONNECT_TIMEOUT_MS), /* in gRPC this limits the time of one connect */
        integer(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, REDIAL_MAX_MS),
        integer(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1), /* a connection of its own */
        integer(GRPC_ARG_ENABLE_RETRIES, 0),            /* an RPC may have run: repeating is the caller's decision */
        integer(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        { .type = GRPC_ARG_STRING, .key = (char *)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, .value.string = (char *)tls_name },
    };
    grpc_channel_args list = { sizeof args / sizeof args[0] - !tls_name, args };
    return grpc_channel_create(target, credentials, &list);
}

/* Refuses to send a token in plain text to another machine: anyone who reads the traffic could use it. */
static status_t check_unread(const struct rpc_channel_config *config, const struct rpc_address *address,
                             struct err *e) {
    bool local;
    if (config->tls.ca && config->tls.ca[0])
        return ST_OK;
    TRY(rpc_address_is_local(address, &local, e));
    if (!local)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "a token is not sent to %s without TLS: the CA of the server's certificate is needed",
                       address->text);
    return ST_OK;
}

static status_t set_token(struct rpc_channel *ch, const char *token, struct err *e) {
    size_t n = strlen(token);
    grpc_slice value = grpc_slice_from_static_string(token);
    if (n == 0 || n > MAX_BEARER_BYTES || !grpc_header_nonbin_value_is_legal(value))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the token is empty, too long, or holds characters that a header cannot carry");
    ch->authorization = alloc_zeroed(1, n + sizeof "Bearer ");
    sprintf(ch->authorization, "Bearer %s", token);
    return ST_OK;
}

static status_t read_token(struct rpc_channel *ch, const char *path, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, MAX_BEARER_BYTES + 2); /* and the end of a line */
    TRY(file_read(path, &text, e));
    if (text.len)
        text.data[strcspn(text.data, "\r\n")] = '\0';
    status_t st = set_token(ch, text.len ? text.data : "", e);
    explicit_bzero(text.data, text.len);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "'%s': ", path);
}

static status_t find_token(struct rpc_channel *ch, const struct rpc_channel_config *config,
                           const struct rpc_address_list *addresses, struct err *e) {
    bool given = config->token && config->token[0], file = config->token_file && config->token_file[0];
    if (!given && !file)
        return ST_OK;
    for (int i = 0; i < addresses->n; i++)
        TRY(check_unread(config, &addresses->items[i], e));
    return given ? set_token(ch, config->token, e) : read_token(ch, config->token_file, e);
}

/* An id that the server would replace finds nothing in its access log. */
static status_t set_request_id(struct rpc_channel *ch, const char *id, struct err *e) {
    if (!id || !*id)
        return ST_OK;
    if (!request_id_valid(id, strlen(id)))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the request id '%.80s' is not 1 to %d letters, digits, '.', '_' and '-'", id,
                       RPC_REQUEST_ID_BYTES - 1);
    snprintf(ch->request_id, sizeof ch->request_id, "%s", id);
    return ST_OK;
}

static status_t core_of(const struct rpc_address *address, const void *ctx, grpc_channel **ret, struct err *e) {
    const struct rpc_channel_config *config = ctx;
    const struct rpc_tls none = { 0 }; /* a server does not use TLS on a unix socket either */
    grpc_channel_credentials *credentials;
    if (config->within)
        credentials = grpc_local_credentials_create(LOCAL_TCP);
    else
        TRY(credentials_client(address->is_unix ? &none : &config->tls, &credentials, e));
    *ret = core_new(address->text, credentials, config->tls_name);
    grpc_channel_credentials_release(credentials);
    return ST_OK;
}

status_t rpc_channel_open(const struct rpc_channel_config *config, struct rpc_channel **ret, struct err *e) {
    struct rpc_address_list addresses;
    TRY(rpc_address_list_parse(config->address, &addresses, e));
    struct rpc_channel *fresh = alloc_zeroed(1, sizeof *fresh);
    owner_init(&fresh->owner);
    rpc_log_own();
    grpc_init();
    CLEANUP(rpc_channel_closep) struct rpc_channel *ch = fresh;
    TRY(find_token(ch, config, &addresses, e));
    TRY(set_request_id(ch, config->request_id, e));
    TRY(endpoints_open(&addresses, config->peer ? config->peer : "the controller", core_of, config, &ch->endpoints, e));
    TRY(loop_shared_take(&ch->loop, e));
    *ret = take_ptr(&ch);
    return ST_OK;
}

status_t rpc_channel_as(struct rpc_channel *connection, const char *token, struct rpc_channel **ret, struct err *e) {
    struct rpc_channel *fresh = alloc_zeroed(1, sizeof *fresh);
    owner_init(&fresh->owner);
    grpc_init();
    CLEANUP(rpc_channel_closep) struct rpc_channel *ch = fresh;
    ch->endpoints = endpoints_ref(connection->endpoints);
    TRY(set_token(ch, token, e));
    TRY(loop_shared_take(&ch->loop, e));
    *ret = take_ptr(&ch);
    return ST_OK;
}

bool rpc_channel_is_idle(struct rpc_channel *ch) {
    pthread_mutex_lock(&ch->owner.lock);
    const bool idle = ch->owner.n == 0;
    pthread_mutex_unlock(&ch->owner.lock);
    return idle;
}

struct rpc_channel *rpc_channel_close(struct rpc_channel *ch) {
    if (!ch)
        return NULL;
    owner_cancel_all(&ch->owner);
    owner_wait_empty(&ch->owner);
    owner_done(&ch->owner);
    endpoints_close(ch->endpoints);
    if (ch->loop)
        loop_shared_give();
    if (ch->authorization)
        explicit_bzero(ch->authorization, strlen(ch->authorization));
    free(ch->authorization);
    free(ch);
    grpc_shutdown();
    return NULL;
}

gpr_timespec channel_deadline(int64_t timeout_ms) {
    if (timeout_ms <= 0)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
}

status_t channel_call(struct rpc_channel *ch, int at, const ProtobufCServiceDescriptor *service, const char *method,
                      grpc_completion_queue *queue, gpr_timespec deadline, grpc_call **ret,
                      const ProtobufCMessageDescriptor **ret_reply, struct err *e) {
    const ProtobufCMethodDescriptor *m = protobuf_c_service_descriptor_get_method_by_name(service, method);
    if (!m)
        return err_set(e, ST_INVALID_ARGUMENT, "the service %s has no method %s", service->name, method);
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/%s/%s", service->name, m->name);
    grpc_slice slice = grpc_slice_from_copied_string(path);
    *ret = grpc_channel_create_call(endpoints_core(ch->endpoints, at), NULL, GRPC_PROPAGATE_DEFAULTS, queue, slice,
                                    NULL, deadline, NULL);
    grpc_slice_unref(slice);
    *ret_reply = m->output;
    return ST_OK;
}

static void add_header(struct call_headers *h, const char *key, const char *value) {
    h->items[h->n].key = grpc_slice_from_static_string(key);
    h->items[h->n++].value = grpc_slice_from_copied_string(value);
}

void channel_headers(const struct rpc_channel *ch, struct call_headers *ret) {
    *ret = (struct call_headers){ 0 };
    if (ch->authorization)
        add_header(ret, "authorization", ch->authorization);
    if (ch->request_id[0])
        add_header(ret, REQUEST_ID_KEY, ch->request_id);
}

status_t channel_check_size(const ProtobufCMessage *request, struct err *e) {
    size_t n = protobuf_c_message_get_packed_size(request);
    if (n <= LIMIT_RPC_MESSAGE_BYTES)
        return ST_OK;
    return err_set(e, ST_RESOURCE_EXHAUSTED, "a %s of %zu bytes is larger than the limit of %d",
                   request->descriptor->name, n, LIMIT_RPC_MESSAGE_BYTES);
}

/* With the lock held: starts the batch that ends with the call, and the batch that waits for the server's headers. */
static void start_batches(struct rpc_call *c) {
    grpc_op ends = { .op = GRPC_OP_RECV_STATUS_ON_CLIENT };
    ends.data.recv_status_on_client.trailing_metadata = &c->metadata;
    ends.data.recv_status_on_client.status = &c->code;
    ends.data.recv_status_on_client.status_details = &c->details;
    (void)call_start(c, &ends, 1, &c->ended);
    grpc_op headers = { .op = GRPC_OP_RECV_INITIAL_METADATA };
    headers.data.recv_initial_metadata.recv_initial_metadata = &c->first_metadata;
    (void)call_start(c, &headers, 1, &c->headers);
}

status_t rpc_start(struct rpc_channel *ch, const ProtobufCServiceDescriptor *service, const char *method,
                   enum rpc_kind kind, const struct rpc_events *events, void *user, const ProtobufCMessage *request,
                   int64_t timeout_ms, struct rpc_call **ret, struct err *e) {
    bool single = kind == RPC_UNARY || kind == RPC_SERVER_STREAM;
    if (single && !request)
        return err_set(e, ST_INVALID_ARGUMENT, "the method %s needs a request", method);
    if (kind == RPC_UNARY && timeout_ms <= 0)
        timeout_ms = UNARY_DEADLINE_MS;
    gpr_timespec deadline = channel_deadline(timeout_ms);
    grpc_call *core;
    const ProtobufCMessageDescriptor *reply;
    const int at = endpoints_current(ch->endpoints);
    TRY(channel_call(ch, at, service, method, ch->loop->queue, deadline, &core, &reply, e));
    struct rpc_call *c = call_new(&ch->owner, core, false, kind);
    c->incoming = reply;
    c->events = *events;
    c->user = user;
    c->deadline = deadline;
    c->timeout_ms = timeout_ms;
    c->endpoints = ch->endpoints;
    c->endpoint = at;
    channel_headers(ch, &c->own_headers);
    rpc_ref(c); /* the reference of the caller */
    pthread_mutex_lock(&c->lock);
    start_batches(c);
    send_pump(c); /* sends the headers now, because the server may send the first message */
    pthread_mutex_unlock(&c->lock);
    if (request)
        (void)rpc_send(c, request);
    if (single)
        rpc_send_end(c);
    *ret = c;
    return ST_OK;
}
