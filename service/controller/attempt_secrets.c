#include "service/controller/attempt_secrets.h"

#include "api/spec/secret_fields.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "service/store/secret.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void attempt_secrets_done(struct attempt_secrets *s) {
    for (size_t i = 0; i < s->n; i++) {
        free(s->items[i].variable);
        free(s->items[i].name);
        free(s->items[i].ciphertext);
    }
    free(s->items);
    *s = (struct attempt_secrets){ 0 };
}

static status_t rows_read(struct store *store, struct store_memory *m, const struct secret_field *fields, size_t n,
                          struct store_secret **ret, size_t *ret_n, struct err *e) {
    const char **names = alloc_zeroed(n, sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = fields[i].secret;
    status_t st = store_secret_some(store, m, names, n, ret, ret_n, e);
    free(names);
    return st;
}

static const struct store_secret *row_of(const struct store_secret *rows, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

/* Decrypts the value once, and forgets it: the attempt must not fail later because of it. */
static status_t try_open(const struct keyring *keys, const struct store_secret *row, struct err *e) {
    uint8_t *value = alloc_zeroed(row->n + 1, 1);
    status_t st = keyring_decrypt(keys, row->key, row->name, row->ciphertext, row->n, value, e);
    explicit_bzero(value, row->n);
    free(value);
    return st;
}

/* Returns what is wrong with one secret of the job; ST_OK: nothing. */
static status_t judge(const struct keyring *keys, const struct secret_field *field, const struct store_secret *row,
                      struct err *e) {
    struct err why;
    if (!row)
        return err_set(e, ST_NOT_FOUND, "%s: there is no secret '%.128s': set it with 'trainyard secret set %.128s'",
                       field->path, field->secret, field->secret);
    status_t st = try_open(keys, row, &why);
    return st == ST_OK ? ST_OK : err_set(e, st, "%s: %s", field->path, why.msg);
}

static status_t judge_size(const Trainyard__V1__JobSpec *spec, size_t bytes, struct err *e) {
    return bytes <= LIMIT_JOB_SECRETS_BYTES
               ? ST_OK
               : err_set(e, ST_RESOURCE_EXHAUSTED, "%s: the values have %zu bytes together, at most %d are allowed",
                         spec->program ? "program.secrets" : "stores", bytes, LIMIT_JOB_SECRETS_BYTES);
}

status_t attempt_secrets_check(struct store *store, const struct keyring *keys, const Trainyard__V1__JobSpec *spec,
                               attempt_secrets_problem *problem, void *ctx, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    size_t n_fields, n, bytes = 0;
    CLEANUP(freep) struct secret_field *fields = spec_secret_fields(spec, &n_fields);
    struct store_secret *rows;
    struct err why;
    if (n_fields == 0)
        return ST_OK;
    TRY(rows_read(store, m, fields, n_fields, &rows, &n, e));
    for (size_t i = 0; i < n_fields; i++) {
        const struct store_secret *row = row_of(rows, n, fields[i].secret);
        bytes += row ? row->n - KEYRING_EXTRA_BYTES : 0;
        if (judge(keys, &fields[i], row, &why) != ST_OK)
            problem(ctx, why.msg);
    }
    if (judge_size(spec, bytes, &why) != ST_OK)
        problem(ctx, why.msg);
    return ST_OK;
}

/* The first problem is kept. */
static void keep_first(void *ctx, const char *sentence) {
    struct err *first = ctx;
    if (!first->msg[0])
        status_ignore(err_set(first, ST_NOT_FOUND, "%s", sentence));
}

static void *copy_bytes(const void *data, size_t n) {
    void *copy = alloc_zeroed(n ? n : 1, 1);
    memcpy(copy, data, n);
    return copy;
}

static void item_fill(struct attempt_secret *to, const char *variable, const struct store_secret *row) {
    to->variable = alloc_copy_text(variable);
    to->name = alloc_copy_text(row->name);
    memcpy(to->key, row->key, strnlen(row->key, sizeof to->key - 1));
    to->ciphertext = copy_bytes(row->ciphertext, row->n);
    to->n = row->n;
}

status_t attempt_secrets_read(struct store *store, const struct keyring *keys, const Trainyard__V1__JobSpec *spec,
                              struct attempt_secrets *ret, struct err *ret_problem, struct err *ret_lacks_key,
                              struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    size_t n_fields, n, bytes = 0;
    CLEANUP(freep) struct secret_field *fields = spec_secret_fields(spec, &n_fields);
    struct store_secret *rows;
    struct err why;
    ret_problem->msg[0] = ret_lacks_key->msg[0] = '\0';
    attempt_secrets_done(ret);
    if (n_fields == 0)
        return ST_OK;
    TRY(rows_read(store, m, fields, n_fields, &rows, &n, e));
    ret->items = alloc_zeroed(n_fields, sizeof *ret->items);
    for (size_t i = 0; i < n_fields; i++) {
        const struct store_secret *row = row_of(rows, n, fields[i].secret);
        bytes += row ? row->n - KEYRING_EXTRA_BYTES : 0;
        const status_t st = judge(keys, &fields[i], row, &why);
        if (st != ST_OK)
            keep_first(st == ST_FAILED_PRECONDITION ? ret_lacks_key : ret_problem, why.msg);
        else
            item_fill(&ret->items[ret->n++], fields[i].variable, row);
    }
    if (judge_size(spec, bytes, &why) != ST_OK)
        keep_first(ret_problem, why.msg);
    return ST_OK;
}

status_t attempt_secrets_open(const struct attempt_secrets *secrets, const struct keyring *keys,
                              Trainyard__V1__AttemptStart *start, struct err *e) {
    start->secrets = alloc_zeroed(secrets->n + 1, sizeof *start->secrets);
    for (size_t i = 0; i < secrets->n; i++) {
        const struct attempt_secret *from = &secrets->items[i];
        Trainyard__V1__AttemptSecret *to = alloc_zeroed(1, sizeof *to);
        trainyard__v1__attempt_secret__init(to);
        start->secrets[start->n_secrets++] = to;
        to->variable = from->variable;
        to->value.data = alloc_zeroed(from->n + 1, 1);
        to->value.len = from->n - KEYRING_EXTRA_BYTES;
        TRY(keyring_decrypt(keys, from->key, from->name, from->ciphertext, from->n, to->value.data, e));
    }
    return ST_OK;
}

void attempt_secrets_wipe(Trainyard__V1__AttemptStart *start) {
    for (size_t i = 0; i < start->n_secrets; i++) {
        explicit_bzero(start->secrets[i]->value.data, start->secrets[i]->value.len);
        free(start->secrets[i]->value.data);
        free(start->secrets[i]);
    }
    free(start->secrets);
    start->secrets = NULL;
    start->n_secrets = 0;
}
