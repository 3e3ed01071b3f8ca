/* Which points of each attempt count. An attempt that starts from step S repeats the steps after S, so that the points
 * after S of all earlier attempts are hidden. Internal to the store. */
#ifndef SERVICE_STORE_METRIC_LINEAGE_H
#define SERVICE_STORE_METRIC_LINEAGE_H

#include "service/store/pool.h"

struct lineage {
    int attempts;
    int64_t
        *cutoff; /* [attempts + 1] by the attempt's number: points after this step are hidden. In the store_memory */
};

/* The lineage of attempts 1 to max_attempt; INT_MAX: of all attempts. NOT_FOUND without the job. */
MUST_CHECK status_t lineage_read(struct connection *c, struct store_memory *m, int64_t job, int max_attempt,
                                 struct lineage *ret, struct err *e);
int64_t lineage_cutoff(const struct lineage *l, int attempt);

#endif
