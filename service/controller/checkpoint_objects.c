#include "service/controller/checkpoint_objects.h"

#include "service/controller/spec_check.h"
#include "service/controller/store_keys.h"

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
    Trainyard__V1__WorkerCheck request = TRAINYARD__V1__WORKER_CHECK__INIT;
    if (!o)
        return err_set(e, ST_UNAVAILABLE, "this service removes no objects of stores");
    struct store_keys keys;
    status_t st = store_keys_read(o->store, o->keyring, spec, &keys, e);
    if (st != ST_OK)
        st = err_prefix(e, st, "the objects of its checkpoints cannot be removed: ");
    request.spec = (Trainyard__V1__JobSpec *)(uintptr_t)spec;
    request.remove = (char *)(uintptr_t)pattern;
    request.secrets = keys.clear.secrets;
    request.n_secrets = keys.clear.n_secrets;
    if (st == ST_OK)
        st = ask(o, &request, e);
    store_keys_done(&keys);
    return st;
}
