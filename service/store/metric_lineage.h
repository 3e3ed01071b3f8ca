/* Which points of each attempt count. An attempt that starts from step S repeats the steps after S, so that the points
 * after S of all earlier attempts are hidden.
 *
 * A program continues where it likes. Each of its series is judged by itself: the first step that an attempt reports of
 * the series is the first that it repeats. Internal to the store. */
#ifndef SERVICE_STORE_METRIC_LINEAGE_H
#define SERVICE_STORE_METRIC_LINEAGE_H

#include "service/store/pool.h"

/* The first chunk of a series in an attempt. */
struct series_start {
    int name_id, rank, attempt;
    int64_t first_step;
};

/* The arrays are in the store_memory. */
struct lineage {
    int attempts;
    int64_t *cutoff;             /* [attempts + 1] by the attempt's number: points after this step are hidden */
    struct series_start *starts; /* [n_starts] of a program, sorted; a model has none */
    size_t n_starts;
};

/* The lineage of attempts 1 to max_attempt; INT_MAX: of all attempts. NOT_FOUND without the job. */
MUST_CHECK status_t lineage_read(struct connection *c, struct store_memory *m, int64_t job, int max_attempt,
                                 struct lineage *ret, struct err *e);
/* Points of the attempt's series after this step are hidden. */
int64_t lineage_cutoff(const struct lineage *l, int name_id, int rank, int attempt);

#endif
