/* The access check: finds the holder of a token and compares the holder's role with the rule of the method.
 *
 * All tokens are kept in memory, sorted by digest. A check first searches the copy in memory if it is at most
 * ACCESS_FRESH_MS old. If the token is not found there, the tokens are read from PostgreSQL once more, and the search
 * is repeated. One read runs at a time. A caller that waited for a read uses its result if the read began after the
 * call arrived, so many callers share one read. While the copy is fresh, only ACCESS_MAX_STRANGERS callers may wait for
 * a read, so that callers with invented tokens cannot occupy all worker threads.
 *
 * A thread reads the tokens every ACCESS_REFRESH_MS, lets the server check its open streams again, and logs the
 * refusals of that period in one line. The thread does not query the tokens before one is checked.
 *
 * A user who calls over a unix socket without a token is found in a table that does not change (access_users.c). */
#include "service/rpc/access.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/rpc/project_access.h"
#include "service/store/token.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/access.pb-c.h>

#define MS_NS 1000000LL
/* The field of access.proto. protobuf-c generates no constant for it; tests/e2e/test_access.py reads all rules by
 * it. */
#define OPTION_ALLOW 51700
#define ROLE(name)   TRAINYARD__V1__ROLE__##name

_Static_assert(STORE_TOKEN_DIGEST == SHA256_BYTES, "a token is found by its SHA-256");

struct access {
    struct rpc_access rules;
    struct store *store;
    struct access_users users; /* constant */
    atomic_bool used;          /* a call was checked: the tokens are needed from then on */
    atomic_int strangers;      /* checks that wait for a read because of an unknown token */

    pthread_mutex_t lock; /* guards the result of the newest successful read, and the refusals */
    struct store_memory *memory;
    struct store_token *tokens; /* [n], sorted by digest */
    size_t n;
    int64_t seen_ns; /* when that read began; 0 before the first */
    int64_t refusals;
    struct err refused; /* the sentence of the last refusal */

    pthread_mutex_t refreshing; /* held during a read: one at a time. Guards refreshed_ns and refreshed */
    int64_t refreshed_ns;
    status_t refreshed;

    struct rpc_server *server;
    pthread_t thread;
    bool watching, stopping;
    pthread_mutex_t stop_lock;
    pthread_cond_t stop;
};

static const char *role_name(int role) {
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&trainyard__v1__role__descriptor, role);
    return v ? v->name : "another role";
}

/* VIEWER, USER and ADMIN are ordered: a higher role may do everything that a lower role may. EXECUTOR and JOIN are
 * separate. */
static bool allows(int role, int rule) {
    if (role == ROLE(EXECUTOR) || rule == ROLE(EXECUTOR) || role == ROLE(JOIN) || rule == ROLE(JOIN))
        return role == rule;
    return role >= rule && role <= ROLE(ADMIN); /* a role that this version does not know may call nothing */
}

/* ---- reading the tokens ---- */

static status_t read_tokens(struct access *a, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *memory = store_memory_new();
    struct store_token *tokens;
    size_t n;
    int64_t asked_ns = clock_mono_ns();
    TRY(store_token_all(a->store, memory, &tokens, &n, e));
    pthread_mutex_lock(&a->lock);
    struct store_memory *old = a->memory;
    a->memory = memory;
    a->tokens = tokens;
    a->n = n;
    a->seen_ns = asked_ns;
    pthread_mutex_unlock(&a->lock);
    memory = old;
    return ST_OK;
}

/* With `refreshing` held. */
static void refresh_locked(struct access *a) {
    struct err why;
    bool was_good = a->refreshed == ST_OK;
    a->refreshed_ns = clock_mono_ns();
    a->refreshed = read_tokens(a, &why);
    if (a->refreshed != ST_OK && was_good) /* one line for each outage */
        log_event(LOG_WARN, "tokens_not_read", "reason", LOG_STR(why.msg), NULL);
}

/* Returns the result of a read that began at `since` or later: a read by another thread, or a new one. */
static status_t refresh(struct access *a, int64_t since, struct err *e) {
    pthread_mutex_lock(&a->refreshing);
    if (a->refreshed_ns < since)
        refresh_locked(a);
    status_t st = a->refreshed;
    if (st !=
        ST_OK) /* the cause may contain the database's host and user, and the caller is unknown: only the log gets it */
        st = err_set(e, ST_UNAVAILABLE, "cannot authenticate the caller: the tokens could not be read from PostgreSQL");
    pthread_mutex_unlock(&a->refreshing);
    return st;
}

struct holder {
    char name[RPC_CALLER_BYTES];
    char project[RPC_SCOPE_BYTES]; /* "": the whole cluster */
    int role;
    enum store_token_state state;
};

static int compare_digest(const void *digest, const void *token) {
    return memcmp(digest, ((const struct store_token *)token)->digest, STORE_TOKEN_DIGEST);
}

/* Searches the tokens in memory if they were read at `since` or later. */
static bool find(struct access *a, const uint8_t digest[SHA256_BYTES], int64_t since, struct holder *ret) {
    pthread_mutex_lock(&a->lock);
    const struct store_token *t = NULL;
    if (a->seen_ns && a->seen_ns >= since)
        t = bsearch(digest, a->tokens, a->n, sizeof *a->tokens, compare_digest);
    if (t) {
        snprintf(ret->name, sizeof ret->name, "%s", t->name);
        snprintf(ret->project, sizeof ret->project, "%s", t->project);
        ret->role = t->role;
        ret->state = t->state;
    }
    pthread_mutex_unlock(&a->lock);
    return t != NULL;
}

static bool is_fresh(struct access *a, int64_t since) {
    pthread_mutex_lock(&a->lock);
    bool fresh = a->seen_ns && a->seen_ns >= since;
    pthread_mutex_unlock(&a->lock);
    return fresh;
}

/* Reads the tokens again because one is unknown. Only a few worker threads may wait here: otherwise callers that invent
 * tokens would block all workers, and callers with a valid token would get no answer. */
static status_t refresh_for_stranger(struct access *a, int64_t since, struct err *e) {
    status_t st;
    if (atomic_fetch_add(&a->strangers, 1) < ACCESS_MAX_STRANGERS)
        st = refresh(a, since, e);
    else
        st = err_set(e, ST_UNAVAILABLE, "cannot authenticate the caller: %d unknown tokens are already being looked up",
                     ACCESS_MAX_STRANGERS);
    atomic_fetch_sub(&a->strangers, 1);
    return st;
}

static status_t find_holder(struct access *a, const uint8_t *token, const char *method, struct holder *ret,
                            struct err *e) {
    int64_t now = clock_mono_ns();
    if (!token)
        return err_set(e, ST_UNAUTHENTICATED,
                       "%s needs a token, and none was sent: set TRAINYARD_TOKEN, or TRAINYARD_TOKEN_FILE", method);
    if (find(a, token, now - ACCESS_FRESH_MS * MS_NS, ret))
        return ST_OK;
    TRY(is_fresh(a, now - ACCESS_FRESH_MS * MS_NS) ? refresh_for_stranger(a, now, e) : refresh(a, now, e));
    if (!find(a, token, now, ret))
        return err_set(e, ST_UNAUTHENTICATED, "the token that was sent is not known here");
    return ST_OK;
}

static bool has_name(const struct rpc_peer *peer, const char *name) {
    for (int i = 0; i < peer->n_names; i++)
        if (strcmp(peer->names[i], name) == 0)
            return true;
    return false;
}

static status_t judge(const struct holder *h, const struct rpc_peer *peer, int rule, const char *method,
                      struct err *e) {
    if (h->state != STORE_TOKEN_GOOD)
        return err_set(e, ST_UNAUTHENTICATED, "the token '%s' %s", h->name,
                       h->state == STORE_TOKEN_REVOKED ? "was revoked" : "has expired");
    if (!allows(h->role, rule))
        return err_set(e, ST_PERMISSION_DENIED, "%s needs the role %s, and the token '%s' has %s", method,
                       role_name(rule), h->name, role_name(h->role));
    /* Over TLS, an executor's token is valid only together with the certificate of that name. */
    if (h->role == ROLE(EXECUTOR) && peer->tls && !has_name(peer, h->name))
        return err_set(e, ST_PERMISSION_DENIED,
                       "the token '%s' has the role EXECUTOR and belongs to the certificate of that name; this call "
                       "came with %s%s%s",
                       h->name, peer->n_names ? "that of '" : "none", peer->n_names ? peer->names[0] : "",
                       peer->n_names ? "'" : "");
    return ST_OK;
}

static void count_refusal(struct access *a, const struct err *e) {
    pthread_mutex_lock(&a->lock);
    a->refusals++;
    a->refused = *e;
    pthread_mutex_unlock(&a->lock);
}

static status_t check(void *ctx, const uint8_t token[SHA256_BYTES], const struct rpc_peer *peer, int rule,
                      const char *method, char ret_caller[RPC_CALLER_BYTES], struct err *e) {
    struct access *a = ctx;
    struct holder h;
    atomic_store(&a->used, true);
    status_t st = find_holder(a, token, method, &h, e);
    if (st == ST_OK) {
        snprintf(ret_caller, RPC_CALLER_BYTES, "%s", h.name);
        st = judge(&h, peer, rule, method, e);
    }
    if (st != ST_OK)
        count_refusal(a, e);
    return st;
}

static status_t check_user(void *ctx, uid_t uid, int rule, const char *method, char ret_caller[RPC_CALLER_BYTES],
                           struct err *e) {
    struct access *a = ctx;
    const struct access_user *u = access_users_find(&a->users, uid);
    snprintf(ret_caller, RPC_CALLER_BYTES, "%s", u ? u->name : "");
    if (u && (u->role == ACCESS_EVERY_ROLE || allows(u->role, rule)))
        return ST_OK;
    status_t st = u ? err_set(e, ST_PERMISSION_DENIED, "%s needs the role %s, and the user '%s' has %s", method,
                              role_name(rule), u->name, role_name(u->role))
                    : err_set(e, ST_UNAUTHENTICATED,
                              "%s needs a token: the user with the number %u has no role at this socket (the "
                              "controller's --socket-role)",
                              method, (unsigned)uid);
    count_refusal(a, e);
    return st;
}

/* A digest that was admitted is in memory: the token is unknown only if its row was deleted since. */
static status_t check_request(void *ctx, const uint8_t token[SHA256_BYTES], const char *service, const char *method,
                              const ProtobufCMessage *request, char ret_scope[RPC_SCOPE_BYTES], struct err *e) {
    struct access *a = ctx;
    struct holder h;
    if (!find(a, token, 1, &h))
        return err_set(e, ST_UNAUTHENTICATED, "the token that was sent is not known here");
    if (!*h.project)
        return ST_OK;
    snprintf(ret_scope, RPC_SCOPE_BYTES, "%s", h.project);
    const struct project_call call = {
        .service = service, .method = method, .request = request, .token = h.name, .project = h.project
    };
    status_t st = project_access_judge(a->store, &call, e);
    if (st == ST_PERMISSION_DENIED)
        count_refusal(a, e);
    return st;
}

/* ---- the watch ---- */

/* At most one line per second: a refused caller may try again as often as it wants. */
static void log_refusals(struct access *a) {
    pthread_mutex_lock(&a->lock);
    int64_t n = a->refusals;
    struct err last = a->refused;
    a->refusals = 0;
    pthread_mutex_unlock(&a->lock);
    if (n)
        log_event(LOG_WARN, "calls_refused", "calls", LOG_INT(n), "last", LOG_STR(last.msg), NULL);
}

static void *watch_main(void *arg) {
    struct access *a = arg;
    struct err e;
    pthread_mutex_lock(&a->stop_lock);
    while (!a->stopping) {
        struct timespec next = deadline_timespec(deadline_in(ACCESS_REFRESH_MS));
        pthread_cond_clockwait(&a->stop, &a->stop_lock, CLOCK_MONOTONIC, &next);
        if (a->stopping)
            continue;
        pthread_mutex_unlock(&a->stop_lock);
        if (atomic_load(&a->used) && refresh(a, clock_mono_ns(), &e) == ST_OK)
            rpc_server_review(a->server);
        log_refusals(a);
        pthread_mutex_lock(&a->stop_lock);
    }
    pthread_mutex_unlock(&a->stop_lock);
    return NULL;
}

status_t access_watch(struct access *a, struct rpc_server *server, struct err *e) {
    sigset_t all, before;
    a->server = server;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by the main thread only */
    int failed = pthread_create(&a->thread, NULL, watch_main, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread to watch tokens: %s", strerror(failed));
    a->watching = true;
    return ST_OK;
}

void access_unwatch(struct access *a) {
    if (!a->watching)
        return;
    pthread_mutex_lock(&a->stop_lock);
    a->stopping = true;
    pthread_cond_signal(&a->stop);
    pthread_mutex_unlock(&a->stop_lock);
    pthread_join(a->thread, NULL);
    a->watching = false;
}

/* ---- open and close ---- */

struct access *access_new(struct store *store, const struct access_users *users) {
    struct access *a = alloc_zeroed(1, sizeof *a);
    a->store = store;
    a->users = *users;
    a->rules = (struct rpc_access){ .rule_option = OPTION_ALLOW,
                                    .rule_reflection = ROLE(VIEWER),
                                    .rule_reads = ROLE(VIEWER),
                                    .check = check,
                                    .check_user = check_user,
                                    .check_request = check_request,
                                    .ctx = a };
    pthread_mutex_init(&a->lock, NULL);
    pthread_mutex_init(&a->refreshing, NULL);
    pthread_mutex_init(&a->stop_lock, NULL);
    pthread_cond_init(&a->stop, NULL);
    return a;
}

const struct rpc_access *access_rules(const struct access *a) { return &a->rules; }

struct access *access_free(struct access *a) {
    if (!a)
        return NULL;
    access_unwatch(a);
    store_memory_free(a->memory);
    pthread_cond_destroy(&a->stop);
    pthread_mutex_destroy(&a->stop_lock);
    pthread_mutex_destroy(&a->refreshing);
    pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}
