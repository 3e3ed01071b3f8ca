/* The value of a metric at a step. */
#ifndef SERVICE_STORE_METRIC_AT_H
#define SERVICE_STORE_METRIC_AT_H

#include "service/store/store.h"

#include <stdbool.h>

/* The first point of rank 0 with this step or a later one, without points that a later attempt repeats (metric.h).
 * *ret_found false: there is none. NOT_FOUND without the job. */
MUST_CHECK status_t store_metric_at(struct store *s, int64_t job, const char *name, int64_t step, bool *ret_found,
                                    int64_t *ret_step, double *ret_value, struct err *e);

#endif
