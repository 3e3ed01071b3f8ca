/* The results of trials at the rungs of a sweep (scheduler/sweep_rung.h). A result and what follows from it are stored
 * in one transaction, once. */
#ifndef SERVICE_STORE_SWEEP_RUNG_H
#define SERVICE_STORE_SWEEP_RUNG_H

#include "service/store/store.h"

#include <stddef.h>

struct store_rung_result {
    int trial, rung; /* rung: from 1 */
    int64_t step;
    double score;            /* lower is better; not NaN */
    const char *stop_reason; /* why the trial is stopped; "": it continues */
};

/* The scores at a rung, in no order. */
MUST_CHECK status_t store_rung_scores(struct store *s, struct store_memory *m, int64_t sweep, int rung, double **ret,
                                      size_t *ret_n, struct err *e);
/* Stores the next result of an open trial. Changes nothing if the trial has a result at that rung. */
MUST_CHECK status_t store_rung_write(struct store *s, int64_t epoch, int64_t sweep,
                                     const struct store_rung_result *result, struct err *e);

#endif
