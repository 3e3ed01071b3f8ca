/* Secrets in the start orders of attempts. They are read and tried when an attempt is created, so that a missing secret
 * fails the job with a sentence before a rank starts. If only this controller's key is missing, the attempt ends
 * without an order, and the job is tried again until a controller has the key.
 *
 * Secrets stay encrypted in the order, and are decrypted for each message to an executor. After a change of the leader
 * they are read again, if an order must be sent again. If they cannot be read any more, the attempt ends. */
#include "api/spec/secret_fields.h"
#include "api/spec/spec.h"
#include "base/log.h"
#include "service/controller/state.h"

#include <string.h>

static status_t read_of_job(struct controller *c, int64_t job, struct attempt_secrets *ret, struct err *ret_problem,
                            struct err *ret_lacks_key, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    TRY(store_job_get(c->store, m, job, &row, e));
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = trainyard__v1__job_spec__unpack(NULL, row.spec_bytes, row.spec);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "job %lld: its stored spec cannot be read", (long long)job);
    return attempt_secrets_read(c->store, c->keyring, spec, ret, ret_problem, ret_lacks_key, e);
}

void secret_orders_read(struct controller *c, int64_t job, struct attempt_secrets *ret, struct err *ret_refusal,
                        struct err *ret_lacks_key) {
    struct err e = { "" };
    ret_refusal->msg[0] = ret_lacks_key->msg[0] = '\0';
    if (WRITE_REPEATED(c, read_of_job(c, job, ret, ret_refusal, ret_lacks_key, &e), &e) != WRITE_DONE &&
        !leadership_over(c))
        *ret_refusal = e;
}

static bool lacks_secrets(const struct start_order *order) {
    return order->start->spec && spec_names_secrets(order->start->spec) && !order->has_secrets;
}

/* After a change of the leader, or without a key. */
static status_t read_again(struct controller *c, const struct start_order *order, struct err *e) {
    struct attempt_secrets secrets = { 0 };
    struct err refusal, lacks_key;
    secret_orders_read(c, order->job, &secrets, &refusal, &lacks_key);
    if (leadership_over(c) || refusal.msg[0] || lacks_key.msg[0]) {
        attempt_secrets_done(&secrets);
        return err_set(e, ST_FAILED_PRECONDITION, "%s", refusal.msg[0] ? refusal.msg : lacks_key.msg);
    }
    start_orders_take_secrets(&c->start_orders, order->job, order->start->attempt, &secrets);
    return ST_OK;
}

bool secret_orders_open(struct controller *c, const struct start_order *order, Trainyard__V1__AttemptStart *start,
                        struct err *ret_refusal) {
    status_t st = lacks_secrets(order) ? read_again(c, order, ret_refusal) : ST_OK;
    if (st == ST_OK)
        st = attempt_secrets_open(&order->secrets, c->keyring, start, ret_refusal);
    if (st == ST_OK)
        return true;
    attempt_secrets_wipe(start);
    if (!leadership_over(c))
        log_event(LOG_ERROR, "attempt_not_sent", "job", LOG_INT(order->job), "reason", LOG_STR(ret_refusal->msg), NULL);
    return false;
}
