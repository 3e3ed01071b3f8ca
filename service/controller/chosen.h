/* What became of `auto`: rank 0's plan, taken over into the job's stored spec. */
#ifndef SERVICE_CONTROLLER_CHOSEN_H
#define SERVICE_CONTROLLER_CHOSEN_H

#include "base/status.h"

#include <stddef.h>

/* A store_chosen_fn (service/store/report.h) over a Trainyard__V1__PlanChosen. Of the worker's spec it takes what the
 * stored one leaves open, train.micro_batch, lanes and recompute, and nothing else; a stored spec that leaves nothing
 * open stays. INVALID_ARGUMENT when the whole would be no good spec, or still leave something open. */
MUST_CHECK status_t chosen_apply(const void *plan, const void *spec, size_t n, void **ret, size_t *ret_n,
                                 struct err *e);

#endif
