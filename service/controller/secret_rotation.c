#include "service/controller/secret_rotation.h"

#include "base/alloc.h"
#include "base/log.h"
#include "service/controller/background_task.h"
#include "service/store/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 64 };

struct secret_rotation {
    struct store *store;
    const struct keyring *keys;
    struct background_task *background_task;
    int64_t reported_unreadable; /* -1: none yet */
    int64_t reported_damaged;
};

/* What one pass has found. */
struct pass {
    int64_t again, unreadable, damaged;
    char key[STORE_SECRET_KEY_BYTES]; /* a missing one */
    char name[144];                   /* of a secret that it encrypts */
    char damaged_name[144];           /* of a damaged one */
    struct err why;                   /* it cannot be read */
};

static status_t encrypt_again(const struct secret_rotation *r, int64_t epoch, const struct store_secret *old,
                              struct err *e) {
    const size_t n = old->n - KEYRING_EXTRA_BYTES;
    CLEANUP(freep) uint8_t *value = alloc_zeroed(n + 1, 1), *ciphertext = alloc_zeroed(old->n, 1);
    const struct store_secret new = { .key = keyring_id(r->keys, 0), .ciphertext = ciphertext, .n = old->n };
    status_t st = keyring_decrypt(r->keys, old->key, old->name, old->ciphertext, old->n, value, e);
    if (st == ST_OK)
        st = keyring_encrypt(r->keys, old->name, value, n, ciphertext, e);
    explicit_bzero(value, n);
    TRY(st);
    return store_secret_encrypt_again(r->store, epoch, old, &new, e);
}

/* Reads the value, which may be gone meanwhile, and encrypts it. */
static status_t read_and_encrypt(const struct secret_rotation *r, int64_t epoch, const char *name, bool *ret_again,
                                 struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_secret *row;
    size_t n;
    *ret_again = false;
    TRY(store_secret_some(r->store, m, &name, 1, &row, &n, e));
    if (n == 0 || !keyring_has(r->keys, row->key))
        return ST_OK;
    TRY(encrypt_again(r, epoch, row, e));
    *ret_again = true;
    return ST_OK;
}

static status_t handle(const struct secret_rotation *r, int64_t epoch, const struct store_secret *row,
                       struct pass *pass, struct err *e) {
    if (!keyring_has(r->keys, row->key)) {
        pass->unreadable++;
        snprintf(pass->key, sizeof pass->key, "%s", row->key);
        snprintf(pass->name, sizeof pass->name, "%s", row->name);
        return ST_OK;
    }
    bool again;
    status_t st = read_and_encrypt(r, epoch, row->name, &again, e);
    if (st == ST_DATA_LOSS) { /* of this row only; a job that needs it fails with the same sentence */
        pass->damaged++;
        snprintf(pass->damaged_name, sizeof pass->damaged_name, "%s", row->name);
        pass->why = *e;
        return ST_OK;
    }
    pass->again += again;
    return st;
}

static status_t walk(struct secret_rotation *r, int64_t epoch, struct pass *pass, struct err *e) {
    const char *first = keyring_size(r->keys) > 0 ? keyring_id(r->keys, 0) : "";
    char after[144] = "";
    size_t n;
    do {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_secret *rows;
        TRY(store_secret_other_key(r->store, m, first, after, PAGE, &rows, &n, e));
        for (size_t i = 0; i < n && background_task_continues(r->background_task, epoch); i++)
            TRY(handle(r, epoch, &rows[i], pass, e));
        if (n > 0)
            snprintf(after, sizeof after, "%s", rows[n - 1].name);
    } while (n == PAGE && background_task_continues(r->background_task, epoch));
    return ST_OK;
}

static void report(struct secret_rotation *r, const struct pass *pass) {
    if (pass->again > 0)
        log_event(LOG_INFO, "secrets_encrypted_again", "key", LOG_STR(keyring_id(r->keys, 0)), "secrets",
                  LOG_INT(pass->again), NULL);
    if (pass->unreadable > 0 && pass->unreadable != r->reported_unreadable)
        log_event(LOG_ERROR, "secrets_unreadable", "secrets", LOG_INT(pass->unreadable), "for_example",
                  LOG_STR(pass->name), "key", LOG_STR(pass->key), "reason",
                  LOG_STR("this controller does not have the key: start it with --secret-key-file of that key, or set "
                          "these secrets again"),
                  NULL);
    r->reported_unreadable = pass->unreadable;
    if (pass->damaged > 0 && pass->damaged != r->reported_damaged)
        log_event(LOG_ERROR, "secret_damaged", "secrets", LOG_INT(pass->damaged), "for_example",
                  LOG_STR(pass->damaged_name), "reason", LOG_STR(pass->why.msg), NULL);
    r->reported_damaged = pass->damaged;
}

static bool run_pass(struct background_task *task, void *ctx, int64_t epoch, bool all) {
    (void)task;
    (void)all;
    struct secret_rotation *r = ctx;
    struct pass pass = { 0 };
    struct err e;
    if (walk(r, epoch, &pass, &e) != ST_OK) {
        log_event(LOG_WARN, "secrets_not_read", "reason", LOG_STR(e.msg), NULL);
        return false;
    }
    report(r, &pass);
    return true;
}

status_t secret_rotation_open(struct store *store, const struct keyring *keys, struct secret_rotation **ret,
                              struct err *e) {
    CLEANUP(secret_rotation_closep) struct secret_rotation *r = alloc_zeroed(1, sizeof *r);
    *r = (struct secret_rotation){ .store = store, .keys = keys, .reported_unreadable = -1 };
    TRY(background_task_open("keys of secrets", SECRET_ROTATION_PERIOD_MS, run_pass, r, &r->background_task, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

struct secret_rotation *secret_rotation_close(struct secret_rotation *r) {
    if (!r)
        return NULL;
    background_task_close(r->background_task);
    free(r);
    return NULL;
}

void secret_rotation_lead(struct secret_rotation *r, int64_t epoch) { background_task_lead(r->background_task, epoch); }
