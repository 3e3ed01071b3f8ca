#include "service/rpc/access.h"

#include "base/clock.h"
#include "base/log.h"
#include "service/store/token.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/access.pb-c.h>

#define MS_NS 1000000LL
/* The field of access.proto, which protobuf-c does not generate; tests/e2e/test_access.py reads it from there. */
#define OPTION_ALLOW 51700
#define ROLE(name)   TRAINYARD__V1__ROLE__##name

_Static_assert(STORE_TOKEN_DIGEST == SHA256_BYTES, "a token is found by its SHA-256");

struct access {
    struct rpc_access rules;
    struct store *store;
    atomic_bool used;     /* a call was checked: before that nobody needs the tokens */
    atomic_int strangers; /* checks that wait for a look at tokens which the others know without */

    pthread_mutex_t lock; /* of what the newest good look saw, and of refusals */
    struct store_memory *memory;
    struct store_token *tokens; /* [n] by digest */
    size_t n;
    int64_t seen_ns; /* when it was asked for; 0 before the first */
    int64_t refusals;
    struct err refused; /* the last one's sentence */

    pthread_mutex_t looking; /* one look at a time; and of its outcome */
    int64_t looked_ns;
    status_t look;

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

static bool allows(int role, int rule) {
    if (role == ROLE(EXECUTOR) || rule == ROLE(EXECUTOR))
        return role == rule;
    return role >= rule && role <= ROLE(ADMIN); /* one that is not known here may nothing */
}

/* ---- what tokens there are ---- */

static status_t look_now(struct access *a, struct err *e) {
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

/* With `looking` held. */
static void look_again(struct access *a) {
    struct err why;
    bool was_good = a->look == ST_OK;
    a->looked_ns = clock_mono_ns();
    a->look = look_now(a, &why);
    if (a->look != ST_OK && was_good) /* once for each outage */
        log_event(LOG_WARN, "tokens_not_read", "reason", LOG_STR(why.msg), NULL);
}

/* A look that began after `since`, by us or by whom we waited for. */
static status_t look(struct access *a, int64_t since, struct err *e) {
    pthread_mutex_lock(&a->looking);
    if (a->looked_ns < since)
        look_again(a);
    status_t st = a->look;
    if (st != ST_OK) /* why is for the log: it may name the database's host and user, and nobody knows who asks */
        st = err_set(e, ST_UNAVAILABLE, "who calls cannot be told: the tokens could not be read from PostgreSQL");
    pthread_mutex_unlock(&a->looking);
    return st;
}

struct holder {
    char name[RPC_CALLER_BYTES];
    int role;
    enum store_token_state state;
};

static int compare_digest(const void *digest, const void *token) {
    return memcmp(digest, ((const struct store_token *)token)->digest, STORE_TOKEN_DIGEST);
}

/* Among the tokens as they were at `since` or later. */
static bool find(struct access *a, const uint8_t digest[SHA256_BYTES], int64_t since, struct holder *ret) {
    pthread_mutex_lock(&a->lock);
    const struct store_token *t = NULL;
    if (a->seen_ns && a->seen_ns >= since)
        t = bsearch(digest, a->tokens, a->n, sizeof *a->tokens, compare_digest);
    if (t) {
        snprintf(ret->name, sizeof ret->name, "%s", t->name);
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

/* While the tokens are known, waiting for one that may be new is for a few of the server's workers alone: else whoever
 * made tokens up would keep all of them from those who have one. */
static status_t look_for_stranger(struct access *a, int64_t since, struct err *e) {
    status_t st;
    if (atomic_fetch_add(&a->strangers, 1) < ACCESS_STRANGERS_MOST)
        st = look(a, since, e);
    else
        st = err_set(e, ST_UNAVAILABLE, "who calls cannot be told: %d unknown tokens are looked for already",
                     ACCESS_STRANGERS_MOST);
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
    TRY(is_fresh(a, now - ACCESS_FRESH_MS * MS_NS) ? look_for_stranger(a, now, e) : look(a, now, e));
    if (!find(a, token, now, ret))
        return err_set(e, ST_UNAUTHENTICATED, "the token that was sent is not known here");
    return ST_OK;
}

static status_t judge(const struct holder *h, int rule, const char *method, struct err *e) {
    if (h->state != STORE_TOKEN_GOOD)
        return err_set(e, ST_UNAUTHENTICATED, "the token '%s' %s", h->name,
                       h->state == STORE_TOKEN_REVOKED ? "was revoked" : "has expired");
    if (!allows(h->role, rule))
        return err_set(e, ST_PERMISSION_DENIED, "%s needs the role %s, and the token '%s' has %s", method,
                       role_name(rule), h->name, role_name(h->role));
    return ST_OK;
}

static status_t check(void *ctx, const uint8_t token[SHA256_BYTES], int rule, const char *method,
                      char ret_caller[RPC_CALLER_BYTES], struct err *e) {
    struct access *a = ctx;
    struct holder h;
    atomic_store(&a->used, true);
    status_t st = find_holder(a, token, method, &h, e);
    if (st == ST_OK)
        st = judge(&h, rule, method, e);
    if (st == ST_OK) {
        snprintf(ret_caller, RPC_CALLER_BYTES, "%s", h.name);
        return ST_OK;
    }
    pthread_mutex_lock(&a->lock);
    a->refusals++;
    a->refused = *e;
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* ---- the watch ---- */

/* One line a second at most: whoever is refused may try as often as it likes. */
static void tell_refusals(struct access *a) {
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
        struct timespec next = deadline_timespec(deadline_in(ACCESS_LOOK_MS));
        pthread_cond_clockwait(&a->stop, &a->stop_lock, CLOCK_MONOTONIC, &next);
        if (a->stopping || !atomic_load(&a->used))
            continue;
        pthread_mutex_unlock(&a->stop_lock);
        if (look(a, clock_mono_ns(), &e) == ST_OK)
            rpc_server_review(a->server);
        tell_refusals(a);
        pthread_mutex_lock(&a->stop_lock);
    }
    pthread_mutex_unlock(&a->stop_lock);
    return NULL;
}

status_t access_watch(struct access *a, struct rpc_server *server, struct err *e) {
    sigset_t all, before;
    a->server = server;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own thread */
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

/* ---- life ---- */

status_t access_open(struct store *store, bool plain_too, struct access **ret, struct err *e) {
    struct access *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the check of tokens");
    a->store = store;
    a->rules = (struct rpc_access){
        .rule_option = OPTION_ALLOW, .rule_reflection = ROLE(VIEWER), .plain_too = plain_too, .check = check, .ctx = a
    };
    pthread_mutex_init(&a->lock, NULL);
    pthread_mutex_init(&a->looking, NULL);
    pthread_mutex_init(&a->stop_lock, NULL);
    pthread_cond_init(&a->stop, NULL);
    *ret = a;
    return ST_OK;
}

const struct rpc_access *access_rules(const struct access *a) { return &a->rules; }

struct access *access_close(struct access *a) {
    if (!a)
        return NULL;
    access_unwatch(a);
    store_memory_free(a->memory);
    pthread_cond_destroy(&a->stop);
    pthread_mutex_destroy(&a->stop_lock);
    pthread_mutex_destroy(&a->looking);
    pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}
