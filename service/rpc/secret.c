#include "service/store/secret.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/keyring.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"

#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/secret.pb-c.h>

static Trainyard__V1__Secret *convert_secret(struct arena *a, const struct store_secret *row) {
    Trainyard__V1__Secret *s = arena_message(a, &trainyard__v1__secret__descriptor);
    s->name = arena_printf(a, "secrets/%s", row->name);
    s->creator = arena_printf(a, "%s", row->creator);
    s->create_time = convert_timestamp(a, row->create_time_us);
    s->update_time = convert_timestamp(a, row->update_time_us);
    s->bytes = row->ciphertext_bytes - KEYRING_EXTRA_BYTES;
    s->key = arena_printf(a, "%s", row->key);
    return s;
}

static status_t check_value(const ProtobufCBinaryData *value, struct err *e) {
    if (value->len == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "value: is empty");
    if (value->len > LIMIT_SECRET_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "value: has %zu bytes, at most %d are allowed", value->len,
                       LIMIT_SECRET_BYTES);
    if (memchr(value->data, '\0', value->len))
        return err_set(e, ST_INVALID_ARGUMENT, "value: has a zero byte, which an environment variable cannot have");
    return ST_OK;
}

static status_t store_value(struct controller *c, struct rpc_call *call, const char *name,
                            const ProtobufCBinaryData *value, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const struct keyring *keys = controller_keyring(c);
    const size_t n = value->len + KEYRING_EXTRA_BYTES;
    CLEANUP(freep) uint8_t *ciphertext = alloc_zeroed(n, 1);
    struct store_secret row;
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    TRY(keyring_encrypt(keys, name, value->data, value->len, ciphertext, e));
    const struct store_secret new = {
        .name = name, .key = keyring_id(keys, 0), .creator = rpc_caller(call), .ciphertext = ciphertext, .n = n
    };
    status_t st = store_secret_set(controller_store(c), m, epoch, &new, &row, e);
    TRY(controller_write_status(c, epoch, st, e));
    log_event(LOG_INFO, "secret_set", "secret", LOG_STR(name), "by", LOG_STR(rpc_caller(call)), NULL);
    const Trainyard__V1__Secret *s = convert_secret(a, &row);
    rpc_reply(call, &s->base);
    return ST_OK;
}

/* The value is overwritten in the request, which is freed after the call. */
static status_t set_secret(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__SetSecretRequest *in = (const void *)request;
    const char *name;
    status_t st = name_secret(in->name, &name, e);
    if (st == ST_OK)
        st = check_value(&in->value, e);
    if (st == ST_OK)
        st = store_value(service, call, name, &in->value, e);
    if (in->value.len > 0)
        explicit_bzero(in->value.data, in->value.len);
    return st;
}

/* The list is ordered by name, so the page token is the last name of the page. */
static status_t list_secrets(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListSecretsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_secret *rows;
    size_t n;
    int size;
    TRY(page_size(in->page_size, &size, e));
    TRY(store_secret_list(controller_store(service), m, in->page_token, size, &rows, &n, e));
    Trainyard__V1__ListSecretsResponse out = TRAINYARD__V1__LIST_SECRETS_RESPONSE__INIT;
    out.secrets = arena_alloc(a, n, sizeof *out.secrets);
    out.n_secrets = n;
    for (size_t i = 0; i < out.n_secrets; i++)
        out.secrets[i] = convert_secret(a, &rows[i]);
    if (n == (size_t)size)
        out.next_page_token = (char *)rows[n - 1].name;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t delete_secret(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const char *name;
    struct store_secret row;
    int64_t epoch;
    TRY(name_secret(((const Trainyard__V1__DeleteSecretRequest *)request)->name, &name, e));
    TRY(controller_leads(service, &epoch, e));
    status_t st = store_secret_delete(controller_store(service), m, epoch, name, &row, e);
    TRY(controller_write_status(service, epoch, rpc_found(call, st, "SECRET_NOT_FOUND"), e));
    log_event(LOG_INFO, "secret_deleted", "secret", LOG_STR(name), "by", LOG_STR(rpc_caller(call)), NULL);
    const Trainyard__V1__Secret *s = convert_secret(a, &row);
    rpc_reply(call, &s->base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "SetSecret", .kind = RPC_UNARY, .unary = set_secret },
    { .name = "ListSecrets", .kind = RPC_UNARY, .unary = list_secrets },
    { .name = "DeleteSecret", .kind = RPC_UNARY, .unary = delete_secret },
};

const struct rpc_service rpc_secret_service = { &trainyard__v1__secret_service__descriptor, methods,
                                                sizeof methods / sizeof *methods };
