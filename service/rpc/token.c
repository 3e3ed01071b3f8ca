#include "service/store/token.h"

#include "base/log.h"
#include "base/secret.h"
#include "base/sha256.h"
#include "service/controller/authority.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <trainyard/v1/token.pb-c.h>

#define STATE(name) TRAINYARD__V1__TOKEN__STATE__##name
_Static_assert((int)STATE(GOOD) == STORE_TOKEN_GOOD && (int)STATE(EXPIRED) == STORE_TOKEN_EXPIRED &&
                   (int)STATE(REVOKED) == STORE_TOKEN_REVOKED,
               "the states are those of the store");

enum { SECRET_BYTES = 32 };
#define JOIN_TTL_MAX_S (7LL * 86400)
#define TTL_MAX_S      (100LL * 366 * 86400) /* a century: a longer lifetime is a mistake */
_Static_assert(SECRET_TOKEN_DIGITS == 2 * SECRET_BYTES, "files that hold a token are known by its length");
#define SECRET_TEXT_BYTES (sizeof SECRET_TOKEN_PREFIX + SECRET_TOKEN_DIGITS)

static Trainyard__V1__Token *convert_token(struct arena *a, const struct store_token *row) {
    Trainyard__V1__Token *t = arena_message(a, &trainyard__v1__token__descriptor);
    t->name = arena_printf(a, "tokens/%s", row->name);
    t->role = (Trainyard__V1__Role)row->role;
    t->state = (Trainyard__V1__Token__State)row->state;
    t->create_time = convert_timestamp(a, row->create_time_us);
    t->expire_time = convert_timestamp(a, row->expire_time_us);
    t->revoke_time = convert_timestamp(a, row->revoke_time_us);
    if (*row->executor)
        t->executor = arena_printf(a, "executors/%s", row->executor);
    t->shared = row->shared;
    t->project = (char *)(uintptr_t)row->project;
    return t;
}

static status_t make_secret(char ret[SECRET_TEXT_BYTES], struct err *e) {
    uint8_t random[SECRET_BYTES];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(e, "random bytes for a token");
    size_t used = (size_t)sprintf(ret, "%s", SECRET_TOKEN_PREFIX);
    for (size_t i = 0; i < sizeof random; i++)
        used += (size_t)sprintf(ret + used, "%02x", random[i]);
    explicit_bzero(random, sizeof random);
    return ST_OK;
}

static status_t check_create(const Trainyard__V1__CreateTokenRequest *in, struct err *e) {
    const ProtobufCEnumDescriptor *roles = &trainyard__v1__role__descriptor;
    if (in->role == TRAINYARD__V1__ROLE__ROLE_UNSPECIFIED ||
        !protobuf_c_enum_descriptor_get_value(roles, (int)in->role))
        return err_set(e, ST_INVALID_ARGUMENT, "role: it must be VIEWER, USER, ADMIN, EXECUTOR or JOIN");
    if (in->shared && in->role != TRAINYARD__V1__ROLE__EXECUTOR)
        return err_set(e, ST_INVALID_ARGUMENT, "shared: only a token of role EXECUTOR can be shared");
    if (*in->project)
        TRY(name_queue(in->project, "project", e));
    if (*in->project && in->role != TRAINYARD__V1__ROLE__VIEWER && in->role != TRAINYARD__V1__ROLE__USER)
        return err_set(e, ST_INVALID_ARGUMENT, "project: only a token of role VIEWER or USER can be for a project");
    if (in->ttl_seconds < 0 || in->ttl_seconds > TTL_MAX_S)
        return err_set(e, ST_INVALID_ARGUMENT, "ttl_seconds: %lld is not from 0 to %lld", (long long)in->ttl_seconds,
                       TTL_MAX_S);
    if (in->role == TRAINYARD__V1__ROLE__JOIN && (in->ttl_seconds < 1 || in->ttl_seconds > JOIN_TTL_MAX_S))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "ttl_seconds: %lld is not from 1 to %lld, the limit of a token of role JOIN",
                       (long long)in->ttl_seconds, JOIN_TTL_MAX_S);
    return ST_OK;
}

/* HOST:PORT/FINGERPRINT/SECRET for `trainyard join`; "" for other roles. */
static status_t join_text(struct arena *a, const struct authority *authority, int role, const char *secret,
                          const char **ret, struct err *e) {
    char address[AUTHORITY_HOST_BYTES + 8];
    *ret = "";
    if (role != (int)TRAINYARD__V1__ROLE__JOIN)
        return ST_OK;
    if (!authority)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "no host can join: this controller has no key of a CA (its options --ca-key and --join)");
    TRY(authority_join_address(authority, address, e));
    *ret = arena_printf(a, "%s/%s/%s", address, authority_fingerprint(authority), secret);
    return ST_OK;
}

static status_t create_token(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__CreateTokenRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const char *name;
    char secret[SECRET_TEXT_BYTES];
    uint8_t digest[SHA256_BYTES];
    int64_t epoch;
    TRY(name_token(in->name, &name, e));
    TRY(check_create(in, e));
    TRY(controller_leads(service, &epoch, e));
    TRY(make_secret(secret, e));
    const char *joins;
    TRY(join_text(a, controller_authority(service), (int)in->role, secret, &joins, e));
    sha256_of(secret, strlen(secret), digest); /* only the digest is stored: the secret is shown once, in this reply */
    struct store_token row,
        new = { .name = name, .digest = digest, .role = (int)in->role, .shared = in->shared, .project = in->project };
    status_t st = store_token_create(controller_store(service), m, epoch, &new, in->ttl_seconds, &row, e);
    TRY(controller_write_status(service, epoch, st, e));
    Trainyard__V1__CreateTokenResponse out = TRAINYARD__V1__CREATE_TOKEN_RESPONSE__INIT;
    out.token = convert_token(a, &row);
    out.secret = secret;
    out.join = (char *)(uintptr_t)joins;
    rpc_reply(call, &out.base);
    explicit_bzero(secret, sizeof secret);
    const ProtobufCEnumValue *role = protobuf_c_enum_descriptor_get_value(&trainyard__v1__role__descriptor, row.role);
    log_event(LOG_INFO, "token_created", "token", LOG_STR(name), "role", LOG_STR(role ? role->name : ""), "by",
              LOG_STR(rpc_caller(call)), NULL);
    return ST_OK;
}

/* The list is ordered by name, so the page token is the last name of the page. */
static status_t list_tokens(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListTokensRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_token *rows;
    size_t n;
    int size;
    TRY(page_size(in->page_size, &size, e));
    TRY(store_token_list(controller_store(service), m, in->page_token, size, &rows, &n, e));
    Trainyard__V1__ListTokensResponse out = TRAINYARD__V1__LIST_TOKENS_RESPONSE__INIT;
    out.tokens = arena_alloc(a, n, sizeof *out.tokens);
    out.n_tokens = n;
    for (size_t i = 0; i < out.n_tokens; i++)
        out.tokens[i] = convert_token(a, &rows[i]);
    if (n == (size_t)size)
        out.next_page_token = (char *)rows[n - 1].name;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t revoke_token(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const char *name;
    struct store_token row;
    int64_t epoch;
    TRY(name_token(((const Trainyard__V1__RevokeTokenRequest *)request)->name, &name, e));
    TRY(controller_leads(service, &epoch, e));
    status_t st = store_token_revoke(controller_store(service), m, epoch, name, &row, e);
    TRY(controller_write_status(service, epoch, rpc_found(call, st, "TOKEN_NOT_FOUND"), e));
    log_event(LOG_INFO, "token_revoked", "token", LOG_STR(name), "by", LOG_STR(rpc_caller(call)), NULL);
    const Trainyard__V1__Token *t = convert_token(a, &row);
    rpc_reply(call, &t->base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "CreateToken", .kind = RPC_UNARY, .unary = create_token },
    { .name = "ListTokens", .kind = RPC_UNARY, .unary = list_tokens },
    { .name = "RevokeToken", .kind = RPC_UNARY, .unary = revoke_token },
};

const struct rpc_service rpc_token_service = { &trainyard__v1__token_service__descriptor, methods,
                                               sizeof methods / sizeof *methods };
