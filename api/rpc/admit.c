/* Admission: whether a call may run.
 *
 * Every call is checked, unless its route is open to anyone. A call over a unix socket without a token is checked by
 * the user at the other end, at once: the loop thread asks the kernel and the access check, which does not block. A
 * worker thread checks any other call, because it may query the database: it reads the bearer token and the names in
 * the client's certificate, calls the access check, and dispatches or ends the call. Nothing of the request is read
 * before. rpc_server_review repeats the check for open streams, so that a revoked token ends them. */
#include "api/rpc/bearer.h"

#include "api/rpc/call_state.h"
#include "api/rpc/peer.h"
#include "api/rpc/server_state.h"
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static const char AUTHORIZATION[] = "authorization";

bool admit_needed(const struct rpc_server *s, const struct route *route) {
    return s->config.access && route->rule != RULE_ANYONE;
}

static bool has_authorization(const struct rpc_call *c) {
    for (size_t i = 0; i < c->metadata.count; i++)
        if (grpc_slice_str_cmp(c->metadata.metadata[i].key, AUTHORIZATION) == 0)
            return true;
    return false;
}

/* *ret_found: a token was sent, and ret is its SHA-256. */
static status_t read_token(const struct rpc_call *c, bool *ret_found, uint8_t ret[SHA256_BYTES], struct err *e) {
    *ret_found = false;
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        const uint8_t *token;
        size_t n;
        if (grpc_slice_str_cmp(m->key, AUTHORIZATION) != 0)
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

/* token NULL: no token was sent. */
static status_t check_token(struct rpc_call *c, const uint8_t *token, char *ret_caller, struct err *e) {
    const struct rpc_access *access = c->access;
    struct rpc_peer peer;
    peer_read(c->owned.call, &peer);
    return access->check(access->ctx, token, &peer, c->route->rule, c->route->method->name, ret_caller, e);
}

static status_t check(struct rpc_call *c, struct err *e) {
    bool found;
    TRY(read_token(c, &found, c->token, e));
    return check_token(c, found ? c->token : NULL, c->caller, e);
}

static void refuse(struct rpc_call *c, status_t st, const char *why) {
    recorded_refusal(c, st, why);
    rpc_finish(c, st, why);
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
            refuse(c, st, e.msg);
    }
    pthread_mutex_lock(&c->lock);
    call_end_of(c);
}

static void admit_user(const struct rpc_access *access, struct rpc_call *c, uid_t uid) {
    struct err e = { "" };
    status_t st = access->check_user(access->ctx, uid, c->route->rule, c->route->method->name, c->caller, &e);
    if (st == ST_OK)
        call_dispatch(c);
    else
        refuse(c, st, e.msg);
}

void admit_begin(struct rpc_server *s, struct rpc_call *c) {
    uid_t uid;
    const struct rpc_access *access = s->config.access;
    if (access->check_user && !has_authorization(c) && peer_user(c->owned.call, &uid)) {
        admit_user(access, c, uid);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->access = access;
    rpc_ref(c);
    c->running++;
    pthread_mutex_unlock(&c->lock);
    c->work.job.run = admit_run;
    pool_post(c->work.pool, &c->work.job, false); /* at most `calls` such jobs exist */
}

const char *rpc_caller(const struct rpc_call *c) { return c->caller; }

bool rpc_has_token(const struct rpc_call *c) { return atomic_load(&c->admitted); }

/* ---- the review of open streams ---- */

/* Takes a reference, unless the last one is already released: such a call is about to leave the list. */
static bool ref_if_alive(struct rpc_call *c) {
    int refs = atomic_load(&c->refs);
    while (refs > 0)
        if (atomic_compare_exchange_weak(&c->refs, &refs, refs + 1))
            return true;
    return false;
}

/* The streams of admitted callers; the caller owns the references and frees the array. */
static struct rpc_call **streams_of(struct rpc_server *s, size_t *ret_n) {
    size_t n = 0;
    pthread_mutex_lock(&s->owner.lock);
    struct rpc_call **found = alloc_zeroed(s->owner.n + 1, sizeof(struct rpc_call *));
    for (struct owned *o = s->owner.calls; o; o = o->next) {
        struct rpc_call *c = TAG_OWNER(o, struct rpc_call, owned);
        if (atomic_load(&c->admitted) && c->kind != RPC_UNARY && ref_if_alive(c)) /* admitted: its kind is set */
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
        status_t st = check_token(c, c->token, caller, &e);
        /* Other errors mean that the check itself failed at the moment: the stream continues. */
        if (st == ST_UNAUTHENTICATED || st == ST_PERMISSION_DENIED)
            rpc_finish(c, st, e.msg);
        rpc_unref(c);
    }
    free(streams);
}
