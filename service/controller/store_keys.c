#include "service/controller/store_keys.h"

#include "api/spec/spec.h"
#include "service/store/job.h"

void store_keys_done(struct store_keys *keys) {
    attempt_secrets_wipe(&keys->clear);
    attempt_secrets_done(&keys->encrypted);
    keys->spec = spec_free(keys->spec);
}

static void init(struct store_keys *keys) {
    *keys = (struct store_keys){ .clear = TRAINYARD__V1__ATTEMPT_START__INIT };
}

/* Those in clear borrow the names of the encrypted ones. */
static status_t keys_read(struct store *store, const struct keyring *keyring, const Trainyard__V1__JobSpec *spec,
                          struct store_keys *ret, struct err *e) {
    struct err missing = { "" }, lacks_key = { "" };
    TRY(attempt_secrets_read(store, keyring, spec, &ret->encrypted, &missing, &lacks_key, e));
    if (*missing.msg || *lacks_key.msg)
        return err_set(e, ST_FAILED_PRECONDITION, "%s", *missing.msg ? missing.msg : lacks_key.msg);
    return attempt_secrets_open(&ret->encrypted, keyring, &ret->clear, e);
}

status_t store_keys_read(struct store *store, const struct keyring *keyring, const Trainyard__V1__JobSpec *spec,
                         struct store_keys *ret, struct err *e) {
    init(ret);
    return keys_read(store, keyring, spec, ret, e);
}

status_t store_keys_of_job(struct store *store, const struct keyring *keyring, int64_t job, struct store_keys *ret,
                           struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    init(ret);
    TRY(store_job_get(store, m, job, &row, e));
    ret->spec = trainyard__v1__job_spec__unpack(NULL, row.spec_bytes, row.spec);
    if (!ret->spec)
        return err_set(e, ST_DATA_LOSS, "job %lld: its stored spec cannot be read", (long long)job);
    return keys_read(store, keyring, ret->spec, ret, e);
}
