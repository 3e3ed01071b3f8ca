#include "service/store/token.h"

#include "service/store/pool.h"

#define TEXT_OF(n)  TEXT_OF_(n)
#define TEXT_OF_(n) #n

#define COLUMNS                                                                                                        \
    "name, digest, role, CASE WHEN revoke_time IS NOT NULL THEN 3 WHEN expire_time <= now() THEN 2 ELSE 1 END, "       \
    "create_time, expire_time, revoke_time"

static const struct sql TOKEN_PRUNE = { "token_prune",
                                        "DELETE FROM token WHERE least(expire_time, revoke_time) < now() - interval '1 "
                                        "day' * " TEXT_OF(STORE_TOKEN_KEEP_DAYS) };
static const struct sql TOKEN_FULL = { "token_full", "SELECT count(*) >= " TEXT_OF(STORE_TOKENS_MOST) " FROM token" };
/* The same digest: a COMMIT whose answer was lost. */
static const struct sql TOKEN_CREATE = {
    "token_create", "INSERT INTO token (name, digest, role, expire_time) "
                    "VALUES ($1, $2, $3, CASE WHEN $4 > 0 THEN now() + interval '1 second' * $4 END) "
                    "ON CONFLICT (name) DO UPDATE SET digest = EXCLUDED.digest, role = EXCLUDED.role, "
                    "create_time = now(), expire_time = EXCLUDED.expire_time, revoke_time = NULL "
                    "WHERE token.digest = EXCLUDED.digest OR token.revoke_time IS NOT NULL "
                    "OR token.expire_time <= now() RETURNING " COLUMNS
};
/* now() is when the transaction began, which may be before the row was there. */
static const struct sql TOKEN_REVOKE = {
    "token_revoke", "UPDATE token SET revoke_time = coalesce(revoke_time, greatest(now(), create_time)) "
                    "WHERE name = $1 RETURNING " COLUMNS
};
static const struct sql TOKEN_LIST = { "token_list", "SELECT " COLUMNS " FROM token WHERE name > $1 ORDER BY name "
                                                     "LIMIT $2" };
static const struct sql TOKEN_ALL = { "token_all", "SELECT " COLUMNS " FROM token ORDER BY digest" };

static struct store_token read_token(const PGresult *r, int row) {
    return (struct store_token){
        .name = sql_text(r, row, 0),
        .digest = (const uint8_t *)sql_text(r, row, 1),
        .role = sql_int2(r, row, 2),
        .state = (enum store_token_state)sql_int4(r, row, 3),
        .create_time_us = sql_time(r, row, 4),
        .expire_time_us = sql_time(r, row, 5),
        .revoke_time_us = sql_time(r, row, 6),
    };
}

struct change {
    struct store_memory *m;
    const struct store_token *new;
    const char *name;
    int64_t ttl_s;
    struct store_token *ret;
};

static status_t create_body(struct connection *c, void *ctx, struct err *e) {
    struct change *x = ctx;
    CLEANUP(sql_clearp) PGresult *full = NULL, *r = NULL;
    TRY(sql_run(c, &TOKEN_PRUNE, NULL, NULL, e));
    TRY(sql_run_one(c, &TOKEN_FULL, NULL, &full, "no answer about the tokens", e));
    if (sql_bool(full, 0, 0))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "there are %d tokens already, the revoked ones of %d days included",
                       STORE_TOKENS_MOST, STORE_TOKEN_KEEP_DAYS);
    struct sql_args a = { 0 };
    sql_add_text(&a, x->new->name);
    sql_add_bytes(&a, x->new->digest, STORE_TOKEN_DIGEST);
    sql_add_int2(&a, x->new->role);
    sql_add_int8(&a, x->ttl_s);
    TRY(sql_run(c, &TOKEN_CREATE, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_ALREADY_EXISTS, "the token '%s' exists already: revoke it first", x->new->name);
    *x->ret = read_token(r, 0);
    return store_memory_keep(x->m, &r, e);
}

status_t store_token_create(struct store *s, struct store_memory *m, int64_t epoch, const struct store_token *new,
                            int64_t ttl_s, struct store_token *ret, struct err *e) {
    struct change x = { .m = m, .new = new, .ttl_s = ttl_s, .ret = ret };
    return store_transact(s, epoch, create_body, &x, e);
}

static status_t revoke_body(struct connection *c, void *ctx, struct err *e) {
    struct change *x = ctx;
    struct sql_args a = { 0 };
    sql_add_text(&a, x->name);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &TOKEN_REVOKE, &a, &r, e));
    if (PQntuples(r) == 0)
        return err_set(e, ST_NOT_FOUND, "there is no token '%s'", x->name);
    *x->ret = read_token(r, 0);
    return store_memory_keep(x->m, &r, e);
}

status_t store_token_revoke(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                            struct store_token *ret, struct err *e) {
    struct change x = { .m = m, .name = name, .ret = ret };
    return store_transact(s, epoch, revoke_body, &x, e);
}

struct list {
    struct store_memory *m;
    const struct sql *sql;
    struct sql_args args;
    struct store_token *rows;
    size_t n;
};

static status_t list_body(struct connection *c, void *ctx, struct err *e) {
    struct list *x = ctx;
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, x->sql, &x->args, &r, e));
    x->n = (size_t)PQntuples(r);
    TRY(store_memory_get(x->m, x->n, sizeof *x->rows, &x->rows, e));
    for (size_t i = 0; i < x->n; i++)
        x->rows[i] = read_token(r, (int)i);
    return store_memory_keep(x->m, &r, e);
}

static status_t list(struct store *s, struct list *x, struct store_token **ret, size_t *ret_n, struct err *e) {
    TRY(store_query(s, list_body, x, e));
    *ret = x->rows;
    *ret_n = x->n;
    return ST_OK;
}

/* The arguments' scratch is pointed into: they are made where they stay. */
status_t store_token_list(struct store *s, struct store_memory *m, const char *after, int limit,
                          struct store_token **ret, size_t *ret_n, struct err *e) {
    struct list x = { .m = m, .sql = &TOKEN_LIST };
    sql_add_text(&x.args, after);
    sql_add_int8(&x.args, limit);
    return list(s, &x, ret, ret_n, e);
}

status_t store_token_all(struct store *s, struct store_memory *m, struct store_token **ret, size_t *ret_n,
                         struct err *e) {
    struct list x = { .m = m, .sql = &TOKEN_ALL };
    return list(s, &x, ret, ret_n, e);
}
