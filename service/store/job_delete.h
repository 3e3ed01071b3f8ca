/* Deletion of jobs, in three steps. First the job is marked under its lock: from then on no query finds it, and its
 * checkpoints are DELETING. Then the caller removes the files of the checkpoints. Then the rows are deleted in bounded
 * batches, the job's own row last. The mark stays until the last batch, so that the next leader can continue. */
#ifndef SERVICE_STORE_JOB_DELETE_H
#define SERVICE_STORE_JOB_DELETE_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows of one table that one batch deletes at most. */
#define STORE_DELETE_BATCH 1000

/* Marks the job. ST_OK if it is marked already, NOT_FOUND without it. FAILED_PRECONDITION if it has not ended, if
 * another job began with one of its checkpoints, or if one of them is pinned. */
MUST_CHECK status_t store_job_delete(struct store *s, int64_t epoch, int64_t job, struct err *e);

/* At most `limit` jobs that ended more than `days` days ago, without pinned checkpoints and without jobs that began
 * with one of their checkpoints; the one that ended first comes first. */
MUST_CHECK status_t store_job_ended_before(struct store *s, struct store_memory *m, int days, int limit, int64_t **ret,
                                           size_t *ret_n, struct err *e);

/* The first marked job above `after` that no row of another job refers to; ret->job = 0: none. */
struct store_deleted_job {
    int64_t job;
    int attempts;
    const void *spec;
    size_t spec_bytes;
};
MUST_CHECK status_t store_job_delete_next(struct store *s, struct store_memory *m, int64_t after,
                                          struct store_deleted_job *ret, struct err *e);

/* Where a job's next batch begins. All zero: at the first row. */
struct store_delete_at {
    int kind;
    int64_t key[4];
};
/* Deletes one batch of a marked job's rows. *ret_done: no row of the job is left. FAILED_PRECONDITION while one of its
 * checkpoints is DELETING, NOT_FOUND for a job that is not marked. */
MUST_CHECK status_t store_job_delete_rows(struct store *s, int64_t epoch, int64_t job, struct store_delete_at *at,
                                          bool *ret_done, struct err *e);

#endif
