/* Opening, starting and stopping a server.
 *
 * Routes are registered per service: the table of methods is compared with the descriptor, and the rule of each method
 * is found. Starting sorts the routes by path and arms the slots that accept calls.
 *
 * Stopping: new calls are refused, running ones get the grace period and are then cancelled, and the completion queue
 * is shut down last, when gRPC has released every call. gRPC aborts the process if a batch meets a queue that was shut
 * down, so this order must not change. */
#include "api/rpc/credentials.h"
#include "api/rpc/health.h"
#include "api/rpc/log.h"
#include "api/rpc/reflection.h"
#include "api/rpc/request_id.h"
#include "api/rpc/server_state.h"
#include "api/rpc/socket_accept.h"
#include "api/rpc/socket_lock.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Limits for peers. gRPC's defaults are less strict. */
enum {
    METADATA_BYTES = 8 << 10,
    HANDSHAKE_TIMEOUT_MS = 10000, /* default 120 s: a silent connection would keep a descriptor that long */
    KEEPALIVE_MS = 10000,
    KEEPALIVE_TIMEOUT_MS = 5000,
    CLIENT_PING_MIN_MS = 5000, /* half of the clients' interval; the default, 5 min, would disconnect them */
};

static grpc_arg integer(const char *key, int value) {
    return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value };
}

static grpc_server *core_new(const struct rpc_server_config *config) {
    grpc_arg args[] = {
        integer(GRPC_ARG_ALLOW_REUSEPORT, 0), /* default on: a second server would silently share the port */
        integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LIMIT_RPC_MESSAGE_BYTES),
        integer(GRPC_ARG_MAX_CONCURRENT_STREAMS, config->streams),
        integer(GRPC_ARG_MAX_METADATA_SIZE, METADATA_BYTES),
        integer(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_TIMEOUT_MS),
        integer(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        integer(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        integer(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        integer(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, CLIENT_PING_MIN_MS),
    };
    grpc_channel_args list = { sizeof args / sizeof args[0], args };
    return grpc_server_create(&list, NULL);
}

static void went_down(struct tag *tag, bool ok) {
    (void)ok;
    struct rpc_server *s = TAG_OWNER(tag, struct rpc_server, down);
    pthread_mutex_lock(&s->lock);
    s->is_down = true;
    pthread_cond_broadcast(&s->went_down);
    pthread_mutex_unlock(&s->lock);
}

status_t rpc_server_open(const struct rpc_server_config *config, struct rpc_server **ret, struct err *e) {
    struct rpc_server *fresh = alloc_zeroed(1, sizeof *fresh);
    fresh->config = *config;
    fresh->config.workers = config->workers ? config->workers : 8;
    fresh->config.readers = config->readers ? config->readers : fresh->config.workers;
    fresh->config.queue = config->queue ? config->queue : 256;
    fresh->config.calls = config->calls ? config->calls : 16384;
    fresh->config.streams = config->streams ? config->streams : 256;
    fresh->stop_fd = -1;
    rpc_log_own();
    grpc_init();
    owner_init(&fresh->owner);
    pthread_mutex_init(&fresh->lock, NULL);
    pthread_cond_init(&fresh->went_down, NULL);
    fresh->down.run = went_down;
    request_id_prefix(fresh);
    fresh->core = core_new(&fresh->config);
    loop_open(&fresh->loop);
    grpc_server_register_completion_queue(fresh->core, fresh->loop.queue, NULL);
    CLEANUP(rpc_server_closep) struct rpc_server *s = fresh;
    TRY(descriptors_open(config->descriptors, config->descriptors_len, &s->descriptors, e));
    TRY(pool_open(s->config.workers, s->config.queue, s->config.readers, &s->pool, e));
    TRY(health_open(s, &s->health, e));
    TRY(reflection_add(s, e));
    *ret = take_ptr(&s);
    return ST_OK;
}

static status_t find_rule(const struct rpc_server *s, const ProtobufCServiceDescriptor *d, const struct rpc_method *m,
                          int *ret, struct err *e) {
    uint64_t rule = descriptors_method_option(s->descriptors, d->name, m->name, s->config.access->rule_option);
    if (rule == 0 || rule > INT_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the proto of %s does not declare which role may call %s", d->name,
                       m->name);
    *ret = (int)rule;
    return ST_OK;
}

/* A request is checked on a worker thread, and `message` runs on the thread of the loop. */
static status_t check_stream(const struct rpc_server *s, const ProtobufCServiceDescriptor *d,
                             const struct rpc_method *m, struct err *e) {
    if (m->kind != RPC_SERVER_STREAM || !m->events.message || !s->config.access || !s->config.access->check_request)
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "the method %s of %s would see its request before it is checked", m->name,
                   d->name);
}

static const ProtobufCMethodDescriptor *find_method(const ProtobufCServiceDescriptor *d, const char *name) {
    for (unsigned i = 0; i < d->n_methods; i++)
        if (!strcmp(d->methods[i].name, name))
            return &d->methods[i];
    return NULL;
}

static status_t check_method(struct rpc_server *s, const ProtobufCServiceDescriptor *d, const struct rpc_method *m,
                             struct err *e) {
    if (!find_method(d, m->name))
        return err_set(e, ST_INVALID_ARGUMENT, "the service %s has no method %s", d->name, m->name);
    bool handled = m->kind == RPC_UNARY ? m->unary != NULL : m->events.message || m->events.work;
    if (!handled)
        return err_set(e, ST_INVALID_ARGUMENT, "nothing handles the method %s of %s", m->name, d->name);
    enum rpc_kind kind;
    TRY(descriptors_method_kind(s->descriptors, d->name, m->name, &kind, e));
    if (kind != m->kind)
        return err_set(e, ST_INVALID_ARGUMENT, "the method %s of %s is of another kind in its proto", m->name, d->name);
    for (size_t i = 0; i < s->n_routes; i++)
        if (!strcmp(s->routes[i].service_name, d->name) && !strcmp(s->routes[i].method->name, m->name))
            return err_set(e, ST_INVALID_ARGUMENT, "the method %s of %s is there twice", m->name, d->name);
    return ST_OK;
}

status_t server_add_with_rule(struct rpc_server *s, const ProtobufCServiceDescriptor *d,
                              const struct rpc_method *methods, size_t n, void *service, int rule, struct err *e) {
    s->routes = alloc_resize(s->routes, s->n_routes + n, sizeof *s->routes);
    for (size_t i = 0; i < n; i++) {
        TRY(check_method(s, d, &methods[i], e));
        int found = rule;
        if (!rule && s->config.access)
            TRY(find_rule(s, d, &methods[i], &found, e));
        const ProtobufCMethodDescriptor *descriptor = find_method(d, methods[i].name);
        struct recorded recorded = { 0 };
        if (!rule)
            TRY(check_stream(s, d, &methods[i], e));
        if (!rule)
            TRY(recorded_find(s, d, descriptor, found, &recorded, e));
        struct route *r = &s->routes[s->n_routes];
        *r = (struct route){ .service_name = d->name,
                             .method = &methods[i],
                             .rule = found,
                             .recorded = recorded,
                             .input = descriptor->input,
                             .service = service,
                             .times = call_times_new(methods[i].kind == RPC_UNARY),
                             .serves = true };
        s->n_routes++;
        int length = snprintf(r->path, sizeof r->path, "/%s/%s", d->name, methods[i].name);
        if (length >= (int)sizeof r->path)
            return err_set(e, ST_INVALID_ARGUMENT, "the name of the method %s is too long", methods[i].name);
    }
    return ST_OK;
}

status_t rpc_server_add(struct rpc_server *s, const ProtobufCServiceDescriptor *d, const struct rpc_method *methods,
                        size_t n, void *service, struct err *e) {
    return server_add_with_rule(s, d, methods, n, service, 0, e);
}

static int compare_routes(const void *a, const void *b) {
    return strcmp(((const struct route *)a)->path, ((const struct route *)b)->path);
}

status_t rpc_server_start(struct rpc_server *s, struct err *e) {
    qsort(s->routes, s->n_routes, sizeof *s->routes, compare_routes);
    grpc_server_start(s->core);
    accept_start(s);
    TRY(socket_accept_start(s, e));
    return loop_run(&s->loop, e);
}

status_t rpc_server_reload_tls(struct rpc_server *s, struct err *e) {
    for (size_t i = 0; i < s->n_certificates; i++)
        TRY(certificates_reload(s->certificates[i], e));
    return ST_OK;
}

void rpc_server_set_serving(struct rpc_server *s, const char *service, bool serving) {
    for (size_t i = 0; i < s->n_routes; i++)
        if (!strcmp(s->routes[i].service_name, service))
            atomic_store(&s->routes[i].serves, serving);
    health_set(s->health, service, serving);
}

/* Waits until gRPC has released every call, or until the deadline. */
static bool wait_down(struct rpc_server *s, deadline_ms_t deadline) {
    struct timespec at = deadline_timespec(deadline);
    int timed_out = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->is_down && !timed_out)
        timed_out = pthread_cond_clockwait(&s->went_down, &s->lock, CLOCK_MONOTONIC, &at);
    bool is_down = s->is_down;
    pthread_mutex_unlock(&s->lock);
    return is_down;
}

/* gRPC aborts the process if a call or a batch uses a queue that was shut down. So the queue is shut down last, after
 * gRPC has released its calls (down) and the library has released its own (owner). */
void rpc_server_stop(struct rpc_server *s, int grace_ms) {
    if (s->stopped)
        return;
    s->stopped = true;
    if (s->health)
        health_stop(s->health);
    socket_accept_stop(s);
    tag_hand(&s->down);
    grpc_server_shutdown_and_notify(s->core, s->loop.queue, &s->down);
    if (s->loop.running) {
        if (!wait_down(s, deadline_in(grace_ms))) {
            grpc_server_cancel_all_calls(s->core);
            wait_down(s, DEADLINE_NEVER);
        }
        owner_wait_empty(&s->owner);
    }
    s->pool = pool_close(s->pool);
    loop_close(&s->loop);
}

struct rpc_server *rpc_server_close(struct rpc_server *s) {
    if (!s)
        return NULL;
    rpc_server_stop(s, 0);
    grpc_server_destroy(s->core);
    for (size_t i = 0; i < s->n_listeners; i++)
        socket_lock_give(s->listeners[i].path, s->listeners[i].lock_fd);
    for (size_t i = 0; i < s->n_certificates; i++)
        certificates_close(s->certificates[i]);
    s->health = health_close(s->health);
    s->descriptors = descriptors_close(s->descriptors);
    owner_done(&s->owner);
    pthread_cond_destroy(&s->went_down);
    pthread_mutex_destroy(&s->lock);
    for (size_t i = 0; i < s->n_routes; i++)
        free(s->routes[i].times);
    free(s->routes);
    free(s->slots);
    free(s);
    grpc_shutdown();
    return NULL;
}
