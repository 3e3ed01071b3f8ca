#include "service/store/secret.h"

#include "service/store/pool.h"

#define TEXT_OF(n)  TEXT_OF_(n)
#define TEXT_OF_(n) #n

static const struct sql_column SECRET_COLUMNS[] = {
    SQL_COLUMN(struct store_secret, name, "name"),
    SQL_COLUMN(struct store_secret, key, "key"),
    SQL_COLUMN(struct store_secret, creator, "creator"),
    SQL_COLUMN(struct store_secret, create_time_us, "create_time"),
    SQL_COLUMN(struct store_secret, update_time_us, "update_time"),
    SQL_COLUMN(struct store_secret, ciphertext_bytes, "length(ciphertext)"),
};
static const struct sql_row SECRET = SQL_ROW_OF(struct store_secret, SECRET_COLUMNS);
/* The columns of a list, and the value. */
#define WITH_CIPHERTEXT                                                                                                \
    SQL_ROW_AFTER(&SECRET, struct store_secret, SQL_COLUMN_BYTES(struct store_secret, ciphertext, n, "ciphertext"))

/* Two calls must not both find space for the last secret. */
static const struct sql SECRET_LOCK = { "secret_lock", "LOCK TABLE secret IN SHARE ROW EXCLUSIVE MODE" };
static const struct sql_query SECRET_FULL = { { "secret_full", "SELECT {columns} FROM secret WHERE name <> $1" },
                                              SQL_SCALAR(bool, "count(*) >= " TEXT_OF(STORE_MAX_SECRETS)) };
static const struct sql_query SECRET_SET = {
    { "secret_set", "INSERT INTO secret (name, key, ciphertext, creator) VALUES ($1, $2, $3, $4) "
                    "ON CONFLICT (name) DO UPDATE SET key = EXCLUDED.key, ciphertext = EXCLUDED.ciphertext, "
                    "update_time = greatest(now(), secret.create_time) RETURNING {columns}" },
    &SECRET
};
static const struct sql_query SECRET_DELETE = {
    { "secret_delete", "DELETE FROM secret WHERE name = $1 RETURNING {columns}" }, &SECRET
};
static const struct sql_query SECRET_LIST = {
    { "secret_list", "SELECT {columns} FROM secret WHERE name > $1 ORDER BY name LIMIT $2" }, &SECRET
};
static const struct sql_query SECRET_SOME = {
    { "secret_some", "SELECT {columns} FROM secret WHERE name = ANY ($1) ORDER BY name" }, WITH_CIPHERTEXT
};
static const struct sql_query SECRET_OTHER_KEY = {
    { "secret_other_key", "SELECT {columns} FROM secret WHERE key <> $1 AND name > $2 ORDER BY name LIMIT $3" }, &SECRET
};
static const struct sql SECRET_ENCRYPT_AGAIN = {
    "secret_encrypt_again", "UPDATE secret SET key = $3, ciphertext = $4 WHERE name = $1 AND ciphertext = $2"
};

static status_t set_secret(struct connection *c, struct store_memory *m, const struct store_secret *new,
                           struct store_secret *ret, struct err *e) {
    bool full;
    *ret = (struct store_secret){ 0 };
    TRY(sql_execute(c, &SECRET_LOCK, NULL, NULL, e));
    TRY(sql_get(c, NULL, &SECRET_FULL, ARGS(arg_text(new->name)), &full, "PostgreSQL returned no count of the secrets",
                e));
    if (full)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "there are %d secrets already: delete one first", STORE_MAX_SECRETS);
    return sql_get(
        c, m, &SECRET_SET,
        ARGS(arg_text(new->name), arg_text(new->key), arg_bytes(new->ciphertext, new->n), arg_text(new->creator)), ret,
        "PostgreSQL returned no row of the secret", e);
}

status_t store_secret_set(struct store *s, struct store_memory *m, int64_t epoch, const struct store_secret *new,
                          struct store_secret *ret, struct err *e) {
    return STORE_WRITE(s, epoch, c, set_secret(c, m, new, ret, e), e);
}

status_t store_secret_delete(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                             struct store_secret *ret, struct err *e) {
    bool found = false;
    *ret = (struct store_secret){ 0 };
    TRY(STORE_WRITE(s, epoch, c, sql_find(c, m, &SECRET_DELETE, ARGS(arg_text(name)), ret, &found, e), e));
    return found ? ST_OK : err_set(e, ST_NOT_FOUND, "there is no secret '%s'", name);
}

status_t store_secret_list(struct store *s, struct store_memory *m, const char *after, int limit,
                           struct store_secret **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &SECRET_LIST, ARGS(arg_text(after), arg_int8(limit)), ret, ret_n, e);
}

status_t store_secret_some(struct store *s, struct store_memory *m, const char *const *names, size_t n,
                           struct store_secret **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &SECRET_SOME, ARGS(arg_texts(names, n)), ret, ret_n, e);
}

status_t store_secret_other_key(struct store *s, struct store_memory *m, const char *key, const char *after, int limit,
                                struct store_secret **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &SECRET_OTHER_KEY, ARGS(arg_text(key), arg_text(after), arg_int8(limit)), ret, ret_n, e);
}

status_t store_secret_encrypt_again(struct store *s, int64_t epoch, const struct store_secret *old,
                                    const struct store_secret *new, struct err *e) {
    return STORE_WRITE(s, epoch, c,
                       sql_execute(c, &SECRET_ENCRYPT_AGAIN,
                                   ARGS(arg_text(old->name), arg_bytes(old->ciphertext, old->n), arg_text(new->key),
                                        arg_bytes(new->ciphertext, new->n)),
                                   NULL, e),
                       e);
}
