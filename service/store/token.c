#include "service/store/token.h"

#include "service/store/pool.h"

#include <string.h>

#define TEXT_OF(n)  TEXT_OF_(n)
#define TEXT_OF_(n) #n

static const struct sql_column TOKEN_COLUMNS[] = {
    SQL_COLUMN(struct store_token, name, "name"),
    SQL_COLUMN(struct store_token, digest, "digest"),
    SQL_COLUMN(struct store_token, role, "role"),
    SQL_COLUMN(struct store_token, state,
               "CASE WHEN revoke_time IS NOT NULL THEN 3 WHEN expire_time <= now() THEN 2 ELSE 1 END"),
    SQL_COLUMN(struct store_token, create_time_us, "create_time"),
    SQL_COLUMN(struct store_token, expire_time_us, "expire_time"),
    SQL_COLUMN(struct store_token, revoke_time_us, "revoke_time"),
    SQL_COLUMN(struct store_token, executor, "executor"),
    SQL_COLUMN(struct store_token, shared, "shared"),
    SQL_COLUMN(struct store_token, project, "project"),
};
static const struct sql_row TOKEN = SQL_ROW_OF(struct store_token, TOKEN_COLUMNS);

static const struct sql TOKEN_DELETE_OLD = {
    "token_delete_old", "DELETE FROM token WHERE least(expire_time, revoke_time) < now() - interval '1 "
                        "day' * " TEXT_OF(STORE_TOKEN_KEEP_DAYS)
};
static const struct sql_query TOKEN_FULL = { { "token_full", "SELECT {columns} FROM token" },
                                             SQL_SCALAR(bool, "count(*) >= " TEXT_OF(STORE_MAX_TOKENS)) };
/* A row with the same digest is the row of this call, whose COMMIT was not answered. */
static const struct sql_query TOKEN_CREATE = {
    { "token_create", "INSERT INTO token (name, digest, role, expire_time, shared, project) "
                      "VALUES ($1, $2, $3, CASE WHEN $4 > 0 THEN now() + interval '1 second' * $4 END, $5, $6) "
                      "ON CONFLICT (name) DO UPDATE SET digest = EXCLUDED.digest, role = EXCLUDED.role, "
                      "create_time = now(), expire_time = EXCLUDED.expire_time, revoke_time = NULL, "
                      "executor = CASE WHEN token.digest = EXCLUDED.digest THEN token.executor END, "
                      "shared = EXCLUDED.shared, project = EXCLUDED.project "
                      "WHERE token.digest = EXCLUDED.digest OR token.revoke_time IS NOT NULL "
                      "OR token.expire_time <= now() RETURNING {columns}" },
    &TOKEN
};
/* now() is the start of the transaction, which may be earlier than the row's creation. */
static const struct sql_query TOKEN_REVOKE = {
    { "token_revoke", "UPDATE token SET revoke_time = coalesce(revoke_time, greatest(now(), create_time)) "
                      "WHERE name = $1 RETURNING {columns}" },
    &TOKEN
};
static const struct sql_query TOKEN_JOIN = {
    { "token_join", "UPDATE token SET digest = $2, role = 4, expire_time = NULL WHERE name = $1 AND (digest = $2 "
                    "OR role = 5 AND revoke_time IS NULL AND expire_time > now()) RETURNING {columns}" },
    &TOKEN
};
static const struct sql_query TOKEN_LIST = {
    { "token_list", "SELECT {columns} FROM token WHERE name > $1 ORDER BY name LIMIT $2" }, &TOKEN
};
static const struct sql_query TOKEN_ALL = { { "token_all", "SELECT {columns} FROM token ORDER BY digest" }, &TOKEN };

#define EXPIRED_NOT "(expire_time IS NULL OR expire_time > now())"
/* An expired token would keep its executor from the next one: the index knows only of those that were revoked. */
static const struct sql TOKEN_UNBIND = { "token_unbind",
                                         "UPDATE token SET executor = NULL WHERE executor = $1 AND name "
                                         "<> $2 AND expire_time <= now() AND revoke_time IS NULL" };
/* The usual case writes nothing: the executor's own token, or a shared one, which a fleet attaches with at once. */
static const struct sql_query TOKEN_BOUND = {
    { "token_bound", "SELECT {columns} FROM token t WHERE name = $1 AND role = 4 AND revoke_time IS NULL "
                     "AND " EXPIRED_NOT " AND (shared OR executor = $2) AND NOT EXISTS (SELECT 1 FROM token o WHERE "
                     "o.executor = $2 AND o.name <> $1 AND o.revoke_time IS NULL) FOR SHARE OF t" },
    SQL_SCALAR(bool, "true")
};
static const struct sql TOKEN_BIND = {
    "token_bind", "UPDATE token SET executor = CASE WHEN NOT shared THEN $2 END WHERE name = $1 AND role = 4 AND "
                  "revoke_time IS NULL AND " EXPIRED_NOT " AND (shared OR coalesce(executor, $2) = $2) AND NOT EXISTS "
                  "(SELECT 1 FROM token o WHERE o.executor = $2 AND o.name <> $1 AND o.revoke_time IS NULL)"
};
static const struct sql_query TOKEN_NAMED = { { "token_named", "SELECT {columns} FROM token WHERE name = $1" },
                                              &TOKEN };
static const struct sql_query TOKEN_OF_EXECUTOR = {
    { "token_of_executor", "SELECT {columns} FROM token WHERE executor = $1 AND revoke_time IS NULL" }, &TOKEN
};

static status_t refuse_bind(struct connection *c, const char *name, const char *executor, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_token own = { 0 }, other;
    bool found, taken;
    TRY(sql_find(c, m, &TOKEN_NAMED, ARGS(arg_text(name)), &own, &found, e));
    TRY(sql_find(c, m, &TOKEN_OF_EXECUTOR, ARGS(arg_text(executor)), &other, &taken, e));
    if (found && *own.executor && strcmp(own.executor, executor) != 0)
        return err_set(
            e, ST_PERMISSION_DENIED,
            "executor %.80s: the token '%s' speaks for executor %.80s only: create a token for each executor, "
            "or a shared one",
            executor, name, own.executor);
    if (taken && strcmp(other.name, name) != 0)
        return err_set(e, ST_PERMISSION_DENIED, "executor %.80s: the token '%s' speaks for it: revoke that one first",
                       executor, other.name);
    return err_set(e, ST_PERMISSION_DENIED, "executor %.80s: '%s' is no token of role EXECUTOR any more", executor,
                   name);
}

status_t token_bind_executor(struct connection *c, const char *name, const char *executor, struct err *e) {
    int64_t n;
    bool bound, found;
    TRY(sql_find(c, NULL, &TOKEN_BOUND, ARGS(arg_text(name), arg_text(executor)), &bound, &found, e));
    if (found)
        return ST_OK;
    TRY(sql_execute(c, &TOKEN_UNBIND, ARGS(arg_text(executor), arg_text(name)), NULL, e));
    TRY(sql_execute(c, &TOKEN_BIND, ARGS(arg_text(name), arg_text(executor)), &n, e));
    return n ? ST_OK : refuse_bind(c, name, executor, e);
}

static status_t create_token(struct connection *c, struct store_memory *m, const struct store_token *new, int64_t ttl_s,
                             struct store_token *ret, struct err *e) {
    bool full, created;
    TRY(sql_execute(c, &TOKEN_DELETE_OLD, NULL, NULL, e));
    TRY(sql_get(c, NULL, &TOKEN_FULL, NULL, &full, "PostgreSQL returned no count of the tokens", e));
    if (full)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "there are %d tokens already, the revoked ones of %d days included",
                       STORE_MAX_TOKENS, STORE_TOKEN_KEEP_DAYS);
    TRY(sql_find(c, m, &TOKEN_CREATE,
                 ARGS(arg_text(new->name), arg_bytes(new->digest, STORE_TOKEN_DIGEST), arg_int2(new->role),
                      arg_int8(ttl_s), arg_bool(new->shared), arg_text(new->project ? new->project : "")),
                 ret, &created, e));
    return created ? ST_OK : err_set(e, ST_ALREADY_EXISTS, "the token '%s' exists already: revoke it first", new->name);
}

status_t store_token_create(struct store *s, struct store_memory *m, int64_t epoch, const struct store_token *new,
                            int64_t ttl_s, struct store_token *ret, struct err *e) {
    return STORE_WRITE(s, epoch, c, create_token(c, m, new, ttl_s, ret, e), e);
}

status_t store_token_revoke(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                            struct store_token *ret, struct err *e) {
    bool found = false;
    TRY(STORE_WRITE(s, epoch, c, sql_find(c, m, &TOKEN_REVOKE, ARGS(arg_text(name)), ret, &found, e), e));
    return found ? ST_OK : err_set(e, ST_NOT_FOUND, "there is no token '%s'", name);
}

status_t store_token_join(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                          const uint8_t digest[STORE_TOKEN_DIGEST], struct store_token *ret, struct err *e) {
    bool found = false;
    TRY(STORE_WRITE(
        s, epoch, c,
        sql_find(c, m, &TOKEN_JOIN, ARGS(arg_text(name), arg_bytes(digest, STORE_TOKEN_DIGEST)), ret, &found, e), e));
    return found ? ST_OK : err_set(e, ST_UNAUTHENTICATED, "the token '%s' was used, has expired or was revoked", name);
}

status_t store_token_list(struct store *s, struct store_memory *m, const char *after, int limit,
                          struct store_token **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &TOKEN_LIST, ARGS(arg_text(after), arg_int8(limit)), ret, ret_n, e);
}

status_t store_token_all(struct store *s, struct store_memory *m, struct store_token **ret, size_t *ret_n,
                         struct err *e) {
    return store_rows(s, m, &TOKEN_ALL, NULL, ret, ret_n, e);
}
