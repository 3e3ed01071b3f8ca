/* Stores the choices that rank 0 made where the job's spec says `auto` (the resolved plan). */
#ifndef SERVICE_CONTROLLER_RESOLVED_PLAN_H
#define SERVICE_CONTROLLER_RESOLVED_PLAN_H

#include "base/status.h"

#include <stddef.h>

/* A store_apply_plan_fn (service/store/report.h). plan: a Trainyard__V1__PlanChosen. Copies those of train.micro_batch,
 * lanes and recompute that the stored spec leaves open from the worker's spec, and nothing else. *ret is NULL if the
 * stored spec leaves nothing open; otherwise the new packed spec, of *ret_n bytes, which the caller frees.
 * INVALID_ARGUMENT: the result would be an invalid spec, or would still leave something open. */
MUST_CHECK status_t resolved_plan_apply(const void *plan, const void *spec, size_t n, void **ret, size_t *ret_n,
                                        struct err *e);

#endif
