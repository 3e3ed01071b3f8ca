#include "service/controller/checkpoint_objects.h"

#include "service/controller/attempt_secrets.h"
#include "service/controller/spec_check.h"

/* Those in clear borrow the names of the encrypted ones. */
static status_t keys_read(const struct checkpoint_objects *o, const Trainyard__V1__JobSpec *spec,
                          struct attempt_secrets *ret_encrypted, Trainyard__V1__AttemptStart *ret, struct err *e) {
    struct err missing = { "" }, lacks_key = { "" };
    status_t st = attempt_secrets_read(o->store, o->keyring, spec, ret_encrypted, &missing, &lacks_key, e);
    if (st == ST_OK && (*missing.msg || *lacks_key.msg))
        st = err_set(e, ST_FAILED_PRECONDITION, "the objects of its checkpoints cannot be removed: %s",
                     *missing.msg ? missing.msg : lacks_key.msg);
    return st == ST_OK ? attempt_secrets_open(ret_encrypted, o->keyring, ret, e) : st;
}

/* A check that did not come to its end has removed nothing for certain. */
static status_t judge(status_t st, const struct dispatch_picked *host, const struct spec_check_result *result,
                      const struct err *why, struct err *e) {
    const char *reason = st != ST_OK ? why->msg : result->n > 0 ? result->problems[0].text : result->unchecked;
    return *reason ? err_set(e, ST_UNAVAILABLE, "its objects were not removed by host %s: %s", host->hostname, reason)
                   : ST_OK;
}

static status_t ask(const struct checkpoint_objects *o, const Trainyard__V1__WorkerCheck *request, struct err *e) {
    struct dispatch_picked host;
    struct spec_check_result result;
    struct err why = { "" };
    if (!dispatch_pick_remover(o->dispatch, &host))
        return err_set(e, ST_UNAVAILABLE, "no executor is attached that removes objects of stores");
    const status_t asked = spec_check_run(o->checks, host.executor, request, deadline_in(CHECKPOINT_OBJECTS_MS),
                                          &result, &why);
    const status_t st = judge(asked, &host, &result, &why, e);
    spec_check_result_done(&result);
    return st;
}

status_t checkpoint_objects_remove(const struct checkpoint_objects *o, const Trainyard__V1__JobSpec *spec,
                                   const char *pattern, struct err *e) {
    Trainyard__V1__AttemptStart keys = TRAINYARD__V1__ATTEMPT_START__INIT;
    Trainyard__V1__WorkerCheck request = TRAINYARD__V1__WORKER_CHECK__INIT;
    if (!o)
        return err_set(e, ST_UNAVAILABLE, "this service removes no objects of stores");
    struct attempt_secrets encrypted = { 0 };
    status_t st = keys_read(o, spec, &encrypted, &keys, e);
    request.spec = (Trainyard__V1__JobSpec *)(uintptr_t)spec;
    request.remove = (char *)(uintptr_t)pattern;
    request.secrets = keys.secrets;
    request.n_secrets = keys.n_secrets;
    if (st == ST_OK)
        st = ask(o, &request, e);
    attempt_secrets_wipe(&keys);
    attempt_secrets_done(&encrypted);
    return st;
}
