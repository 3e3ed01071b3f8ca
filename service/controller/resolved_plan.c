#include "service/controller/resolved_plan.h"

#include "api/spec/spec.h"
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/worker.pb-c.h>

/* Copies the settings that `to` leaves open. from: the spec that a worker sent, in which any field may be missing. */
static status_t fill_open(Trainyard__V1__TrainSpec *to, const Trainyard__V1__TrainSpec *from, struct err *e) {
    if (!to->_micro_batch_case) {
        to->_micro_batch_case = from->_micro_batch_case;
        to->micro_batch = from->micro_batch;
    }
    if (!to->_lanes_case) {
        to->_lanes_case = from->_lanes_case;
        to->lanes = from->lanes;
    }
    if (!to->recompute || strcmp(to->recompute, "auto") != 0)
        return ST_OK;
    if (!from->recompute)
        return err_set(e, ST_INVALID_ARGUMENT, "a chosen plan without recompute");
    free(to->recompute);
    to->recompute = alloc_copy_text(from->recompute);
    return ST_OK;
}

status_t resolved_plan_apply(const void *plan, const void *spec, size_t n, void **ret, size_t *ret_n, struct err *e) {
    const Trainyard__V1__PlanChosen *chosen = plan;
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *stored = trainyard__v1__job_spec__unpack(NULL, n, spec);
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *whole = NULL;
    *ret = NULL;
    if (!stored)
        return err_set(e, ST_INVALID_ARGUMENT, "the job's stored spec cannot be read");
    if (!spec_has_auto(stored))
        return ST_OK;
    if (!stored->train || !chosen->spec || !chosen->spec->train)
        return err_set(e, ST_INVALID_ARGUMENT, "a chosen plan without train");
    TRY(fill_open(stored->train, chosen->spec->train, e));
    struct err why;
    if (spec_resolve(stored, &whole, NULL, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "the chosen plan does not fit the job: %s", why.msg);
    if (spec_has_auto(whole))
        return err_set(e, ST_INVALID_ARGUMENT, "the chosen plan leaves something open");
    *ret = alloc_zeroed(trainyard__v1__job_spec__get_packed_size(whole), 1);
    *ret_n = trainyard__v1__job_spec__pack(whole, *ret);
    return ST_OK;
}
