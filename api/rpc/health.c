/* grpc.health.v1: whether a service serves.
 *
 * The server keeps a list of services that do not serve; every other known service is SERVING. A watch is a stream that
 * is sent the state when it opens and after each change. If its queue is full, the newest state is sent when the queue
 * is writable again; states between are skipped. One lock protects the list and the watchers. */
#include "api/rpc/health.h"

#include "base/alloc.h"

#include "api/rpc/server_state.h"

#include <grpc/health/v1/health.pb-c.h>
#include <stdio.h>
#include <string.h>

typedef Grpc__Health__V1__HealthCheckRequest request_t;
typedef Grpc__Health__V1__HealthCheckResponse response_t;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus state_t;
#define SERVING          GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING      GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN  GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN
#define NOTHING_REPORTED GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__UNKNOWN

enum { MAX_OUTAGES = 32, SERVICE_BYTES = 128 };

struct watcher {
    struct watcher *next, **at;
    struct rpc_call *call;
    state_t reported;
};

struct health {
    struct rpc_server *server;
    pthread_mutex_t lock;
    bool stopped;
    char outages[MAX_OUTAGES][SERVICE_BYTES]; /* services that do not serve; "" as an entry is the server itself */
    size_t n_outages;
    struct watcher *watchers;
};

static bool exists(const struct health *h, const char *service) {
    bool found = !service[0];
    for (size_t i = 0; i < h->server->n_routes; i++)
        found = found || !strcmp(h->server->routes[i].service_name, service);
    return found;
}

/* With the lock held. */
static state_t state_of(const struct health *h, const char *service) {
    if (!exists(h, service))
        return SERVICE_UNKNOWN;
    bool out = h->stopped;
    for (size_t i = 0; i < h->n_outages; i++)
        out = out || !strcmp(h->outages[i], service);
    return out ? NOT_SERVING : SERVING;
}

static status_t check(void *service, struct rpc_call *call, const ProtobufCMessage *message, struct err *e) {
    struct health *h = service;
    const request_t *request = (const void *)message;
    response_t response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    pthread_mutex_lock(&h->lock);
    response.status = state_of(h, request->service);
    pthread_mutex_unlock(&h->lock);
    if (response.status == SERVICE_UNKNOWN)
        return err_set(e, ST_NOT_FOUND, "the service '%s' does not exist", request->service);
    rpc_reply(call, &response.base);
    return ST_OK;
}

/* With the lock held. If the queue is full, the state is reported when it is writable again. */
static void report(const struct health *h, struct watcher *w) {
    const request_t *request = (const void *)rpc_request(w->call);
    response_t response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = state_of(h, request->service);
    if (response.status != w->reported && rpc_send(w->call, &response.base) == RPC_SENT)
        w->reported = response.status;
}

static void watch_open(struct rpc_call *call, const ProtobufCMessage *message) {
    (void)message; /* rpc_request returns the same message until the call ends */
    struct health *h = rpc_service(call);
    struct watcher *w = alloc_zeroed(1, sizeof *w);
    *w = (struct watcher){ .call = call, .reported = NOTHING_REPORTED };
    rpc_set_user(call, w);
    pthread_mutex_lock(&h->lock);
    w->next = h->watchers;
    w->at = &h->watchers;
    if (w->next)
        w->next->at = &w->next;
    h->watchers = w;
    report(h, w);
    if (h->stopped)
        rpc_finish(call, ST_OK, NULL);
    pthread_mutex_unlock(&h->lock);
}

static void watch_writable(struct rpc_call *call) {
    struct health *h = rpc_service(call);
    pthread_mutex_lock(&h->lock);
    report(h, rpc_user(call));
    pthread_mutex_unlock(&h->lock);
}

static void watch_done(struct rpc_call *call, status_t st, const char *why) {
    (void)st;
    (void)why;
    struct health *h = rpc_service(call);
    struct watcher *w = rpc_user(call);
    if (!w)
        return;
    pthread_mutex_lock(&h->lock);
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    pthread_mutex_unlock(&h->lock);
    free(w);
}

static const struct rpc_method methods[] = {
    { "Check", RPC_UNARY, .unary = check },
    { "Watch", RPC_SERVER_STREAM, .events = { .message = watch_open, .writable = watch_writable, .done = watch_done } },
};

status_t health_open(struct rpc_server *server, struct health **ret, struct err *e) {
    struct health *h = alloc_zeroed(1, sizeof *h);
    h->server = server;
    pthread_mutex_init(&h->lock, NULL);
    *ret = h;
    return server_add_with_rule(server, &grpc__health__v1__health__descriptor, methods, 2, h, RULE_ANYONE, e);
}

static void report_to_all(const struct health *h) {
    for (struct watcher *w = h->watchers; w; w = w->next)
        report(h, w);
}

void health_set(struct health *h, const char *service, bool serving) {
    pthread_mutex_lock(&h->lock);
    size_t at = 0;
    while (at < h->n_outages && strcmp(h->outages[at], service) != 0)
        at++;
    if (serving && at < h->n_outages)
        memmove(h->outages[at], h->outages[--h->n_outages], SERVICE_BYTES);
    if (!serving && at == h->n_outages && at < MAX_OUTAGES)
        snprintf(h->outages[h->n_outages++], SERVICE_BYTES, "%s", service);
    report_to_all(h);
    pthread_mutex_unlock(&h->lock);
}

void health_stop(struct health *h) {
    pthread_mutex_lock(&h->lock);
    h->stopped = true;
    report_to_all(h);
    for (struct watcher *w = h->watchers; w; w = w->next)
        rpc_finish(w->call, ST_OK, NULL); /* after the state that was just reported */
    pthread_mutex_unlock(&h->lock);
}

struct health *health_close(struct health *h) {
    if (!h)
        return NULL;
    pthread_mutex_destroy(&h->lock);
    free(h);
    return NULL;
}
