/* Which points of each attempt a job's story shows: those up to the step that the next attempt to go further back began
 * at. Internal to the store. */
#ifndef SERVICE_STORE_METRIC_STORY_H
#define SERVICE_STORE_METRIC_STORY_H

#include "service/store/pool.h"

struct story {
    int attempts;
    int64_t *cutoff; /* [attempts + 1] by number: points after it are hidden; in the store_memory */
};

/* The story as it was told before attempt `most` + 1 began; INT_MAX: as it is now. NOT_FOUND without the job. */
MUST_CHECK status_t story_read(struct connection *c, struct store_memory *m, int64_t job, int most, struct story *ret,
                               struct err *e);
int64_t story_cutoff(const struct story *s, int attempt);

#endif
