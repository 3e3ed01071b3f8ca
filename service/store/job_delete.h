/* Jobs that are deleted. First the mark, under the job's lock: from then on no question finds the job, and its
 * checkpoints are DELETING; then their files, which are the caller's; then the rows in bounded batches, the job's own
 * last. A mark stays until the last batch, so that whoever leads next goes on. */
#ifndef SERVICE_STORE_JOB_DELETE_H
#define SERVICE_STORE_JOB_DELETE_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows of one kind that one batch takes at most. */
#define STORE_DELETE_BATCH 1000

/* Marks the job; one that is marked is ST_OK. NOT_FOUND without it. FAILED_PRECONDITION while it has not ended, or
 * while another job that began with one of its checkpoints is there, or one of them is pinned. */
MUST_CHECK status_t store_job_delete(struct store *s, int64_t epoch, int64_t job, struct err *e);

/* Jobs that ended more than so many days ago, that no other began with and of which nothing is pinned, the longest
 * ended first; at most limit. */
MUST_CHECK status_t store_job_ended_before(struct store *s, struct store_memory *m, int days, int limit, int64_t **ret,
                                           size_t *ret_n, struct err *e);

/* The first job above `after` that is marked, and that no other job's rows name any more; ret->job = 0 for none. */
struct store_deleted_job {
    int64_t job;
    int attempts;
    const void *spec;
    size_t spec_bytes;
};
MUST_CHECK status_t store_job_delete_next(struct store *s, struct store_memory *m, int64_t after,
                                          struct store_deleted_job *ret, struct err *e);

/* Where a job's next batch begins; zeroed for the first. */
struct store_delete_at {
    int kind;
    int64_t key[4];
};
/* One batch of a marked job's rows; *ret_done: the job is gone. FAILED_PRECONDITION while a checkpoint of it is
 * DELETING, NOT_FOUND for a job that is not marked. */
MUST_CHECK status_t store_job_delete_rows(struct store *s, int64_t epoch, int64_t job, struct store_delete_at *at,
                                          bool *ret_done, struct err *e);

#endif
