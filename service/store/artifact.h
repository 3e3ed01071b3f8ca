/* The files that a job's program has logged to a tracker: their names, sizes and digests. The bytes are in the folder
 * artifacts/attempt-N
 * of the job, N being the attempt of the row. */
#ifndef SERVICE_STORE_ARTIFACT_H
#define SERVICE_STORE_ARTIFACT_H

#include "service/store/report.h"

/* As many as the ranks that store the files allow (executor/program/tracking/artifacts.h). */
#define STORE_ARTIFACTS_PER_JOB 10000
#define STORE_ARTIFACT_PATH     440 /* bytes */

struct store_artifact {
    const char *path, *sha256; /* sha256: hex */
    int64_t bytes, time_us;
    int attempt, rank;
};
/* In the order of the bytes of the paths, without the first `skip`; at most limit. A job that does not exist has
 * none. */
MUST_CHECK status_t store_artifact_list(struct store *s, struct store_memory *m, int64_t job, int64_t skip, int limit,
                                        struct store_artifact **ret, size_t *ret_n, struct err *e);

/* The attempt that logged the file last; 0: the job has none of this path. */
MUST_CHECK status_t store_artifact_attempt(struct store *s, int64_t job, const char *path, int *ret, struct err *e);

struct connection;
/* Adds the row of a record, or replaces that of the same path. INVALID_ARGUMENT: a path or digest that cannot be
 * stored. RESOURCE_EXHAUSTED: the job has STORE_ARTIFACTS_PER_JOB. Internal to the store. */
MUST_CHECK status_t artifact_write(struct connection *c, int64_t job, int attempt, int rank,
                                   const struct store_record *record, struct err *e);

#endif
