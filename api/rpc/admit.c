#include "api/rpc/bearer.h"
#include "api/rpc/call_state.h"
#include "api/rpc/server_state.h"

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdlib.h>
#include <string.h>

/* What gRPC calls the transport of a connection without TLS. It is said for each connection, by the listener. */
static const char PLAIN[] = "insecure";

static bool is_plain(grpc_call *call) {
    grpc_auth_context *context = grpc_call_auth_context(call);
    if (!context)
        return false;
    grpc_auth_property_iterator all = grpc_auth_context_find_properties_by_name(
        context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
    const grpc_auth_property *type = grpc_auth_property_iterator_next(&all);
    bool plain = type && type->value_length == strlen(PLAIN) && !memcmp(type->value, PLAIN, strlen(PLAIN));
    grpc_auth_context_release(context);
    return plain;
}

static bool is_unix(grpc_call *call) {
    char *peer = grpc_call_get_peer(call);
    bool local = peer && !strncmp(peer, "unix:", 5);
    gpr_free(peer);
    return local;
}

/* What cannot be told apart is checked. */
bool admit_needed(const struct rpc_server *s, const struct rpc_call *c, const struct route *route) {
    const struct rpc_access *access = s->config.access;
    if (!access || route->rule == RULE_ANYONE)
        return false;
    if (!is_plain(c->owned.call))
        return true;
    return access->plain_too && !is_unix(c->owned.call);
}

/* *ret_found: a token came, and its SHA-256 is in ret. */
static status_t read_token(const struct rpc_call *c, bool *ret_found, uint8_t ret[SHA256_BYTES], struct err *e) {
    *ret_found = false;
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        const uint8_t *token;
        size_t n;
        if (grpc_slice_str_cmp(m->key, "authorization") != 0)
            continue;
        if (*ret_found)
            return err_set(e, ST_UNAUTHENTICATED, "the call has more than one authorization header");
        if (!bearer_read(GRPC_SLICE_START_PTR(m->value), GRPC_SLICE_LENGTH(m->value), &token, &n))
            return err_set(e, ST_UNAUTHENTICATED, "the authorization header is not 'Bearer' with a token");
        sha256_of(token, n, ret);
        *ret_found = true;
    }
    return ST_OK;
}

static status_t check(struct rpc_call *c, struct err *e) {
    const struct rpc_access *access = c->access;
    bool found;
    TRY(read_token(c, &found, c->token, e));
    return access->check(access->ctx, found ? c->token : NULL, c->route->rule, c->route->method->name, c->caller, e);
}

static void admit_run(struct pool_job *job) {
    struct rpc_call *c = TAG_OWNER(job, struct rpc_call, work.job);
    struct err e = { "" };
    if (!atomic_load(&c->over)) {
        status_t st = check(c, &e);
        atomic_store(&c->admitted, st == ST_OK);
        if (st == ST_OK)
            call_dispatch(c);
        else
            rpc_finish(c, st, e.msg);
    }
    pthread_mutex_lock(&c->lock);
    call_end_of(c);
}

void admit_begin(struct rpc_server *s, struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    c->access = s->config.access;
    rpc_ref(c);
    c->running++;
    pthread_mutex_unlock(&c->lock);
    c->work.job.run = admit_run;
    pool_post(c->work.pool, &c->work.job); /* not more than `calls` */
}

const char *rpc_caller(const struct rpc_call *c) { return c->caller; }

/* ---- once more ---- */

/* A call whose last reference is gone is on its way out of the list. */
static bool ref_if_alive(struct rpc_call *c) {
    int refs = atomic_load(&c->refs);
    while (refs > 0)
        if (atomic_compare_exchange_weak(&c->refs, &refs, refs + 1))
            return true;
    return false;
}

/* Their references are the caller's. NULL without memory: the next review comes soon. */
static struct rpc_call **streams_of(struct rpc_server *s, size_t *ret_n) {
    size_t n = 0;
    pthread_mutex_lock(&s->owner.lock);
    struct rpc_call **found = calloc(s->owner.n + 1, sizeof(struct rpc_call *));
    for (struct owned *o = s->owner.calls; found && o; o = o->next) {
        struct rpc_call *c = TAG_OWNER(o, struct rpc_call, owned);
        if (atomic_load(&c->admitted) && c->kind != RPC_UNARY && ref_if_alive(c)) /* its kind is known by then */
            found[n++] = c;
    }
    pthread_mutex_unlock(&s->owner.lock);
    *ret_n = n;
    return found;
}

void rpc_server_review(struct rpc_server *s) {
    size_t n;
    struct rpc_call **streams = streams_of(s, &n);
    for (size_t i = 0; i < n; i++) {
        struct rpc_call *c = streams[i];
        char caller[RPC_CALLER_BYTES];
        struct err e = { "" };
        status_t st = c->access->check(c->access->ctx, c->token, c->route->rule, c->route->method->name, caller, &e);
        if (st == ST_UNAUTHENTICATED || st == ST_PERMISSION_DENIED) /* not: nobody can tell at the moment */
            rpc_finish(c, st, e.msg);
        rpc_unref(c);
    }
    free(streams);
}
