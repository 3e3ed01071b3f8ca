/* Checkpoints. The report of the first shard inserts the row. The transaction that stores the last shard makes it
 * COMMITTED (report.h). Deletion has two phases: the state DELETING is stored, the files are removed, and the state
 * DELETED is stored. */
#ifndef SERVICE_STORE_CHECKPOINT_H
#define SERVICE_STORE_CHECKPOINT_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

struct store_checkpoint {
    int64_t id, job;
    int attempt;
    int64_t step;
    enum store_checkpoint_state state;
    int64_t bytes;
    int shards, world_size; /* reported; expected */
    const char *directory, *weights_sha256, *reason;
    int64_t create_time_us, commit_time_us;
    int64_t unreadable_time_us; /* since when its files cannot be read; 0: they can, or no host has tried */
    bool has_validation_loss, pinned, final;
    double validation_loss;
};

/* Newest (highest id) first, only ids below `before` (0: from the newest). DELETED ones are left out. */
MUST_CHECK status_t store_checkpoint_list(struct store *s, struct store_memory *m, int64_t job, int64_t before,
                                          int limit, struct store_checkpoint **ret, size_t *ret_n, struct err *e);
MUST_CHECK status_t store_checkpoint_get(struct store *s, struct store_memory *m, int64_t job, int64_t id,
                                         struct store_checkpoint *ret, struct err *e);
/* The newest COMMITTED checkpoint: that of the highest step, and among equals of the latest attempt. NOT_FOUND if there
 * is none. */
MUST_CHECK status_t store_checkpoint_newest(struct store *s, struct store_memory *m, int64_t job,
                                            struct store_checkpoint *ret, struct err *e);

/* The COMMITTED checkpoint of a step, of the latest attempt that has one. NOT_FOUND if there is none. */
MUST_CHECK status_t store_checkpoint_at(struct store *s, struct store_memory *m, int64_t job, int64_t step,
                                        struct store_checkpoint *ret, struct err *e);

/* The checkpoint that the attempt started from becomes CORRUPT, with an event "checkpoint_corrupt". NOT_FOUND if the
 * attempt started from none. Idempotent. */
MUST_CHECK status_t store_checkpoint_corrupt(struct store *s, int64_t epoch, int64_t job, int attempt,
                                             const char *reason, struct err *e);

/* The checkpoint that the attempt began with, which may belong to another job, becomes MISSING, with an event
 * "checkpoint_missing" of this job. Idempotent. */
MUST_CHECK status_t store_checkpoint_missing(struct store *s, int64_t epoch, int64_t job, int attempt,
                                             const char *reason, struct err *e);

enum store_check_result { STORE_CHECK_GOOD, STORE_CHECK_CORRUPT, STORE_CHECK_UNREADABLE };
/* Stores the result of reading a COMMITTED, CORRUPT or MISSING checkpoint again: all bytes match (it becomes
 * COMMITTED), they do not (CORRUPT), or it could not be read, which changes only unreadable_time and the reason. Writes
 * an event "checkpoint_verified", "checkpoint_corrupt" or "checkpoint_unreadable". NOT_FOUND: the checkpoint is no
 * longer in one of these states. */
MUST_CHECK status_t store_checkpoint_verified(struct store *s, int64_t epoch, int64_t job, int64_t id,
                                              enum store_check_result result, const char *reason, struct err *e);

/* Pins or unpins a checkpoint, with an event "checkpoint_pinned" or "checkpoint_unpinned" if that changes anything.
 * Only a COMMITTED one can be pinned (else FAILED_PRECONDITION). Unpinning also marks garbage, as
 * store_checkpoint_mark_garbage does. NOT_FOUND without the checkpoint. */
MUST_CHECK status_t store_checkpoint_pin(struct store *s, int64_t epoch, int64_t job, int64_t id, bool pinned,
                                         struct err *e);

/* Marks as DELETING the checkpoints that the job's keep_last and keep_best do not keep, and returns all that are
 * DELETING, including those of earlier calls. Always kept: the newest COMMITTED one, pinned ones, the one that the
 * current attempt started from, the final one, and those that another job begins with, until that job has one of its
 * own or has ended. WRITING ones of attempts that are over are not kept. */
MUST_CHECK status_t store_checkpoint_mark_garbage(struct store *s, struct store_memory *m, int64_t epoch, int64_t job,
                                                  struct store_checkpoint **ret, size_t *ret_n, struct err *e);
/* Of the next STORE_OVERDUE_JOBS jobs above `after`, those of which store_checkpoint_mark_garbage may mark any: they
 * have more COMMITTED ones than keep_last, or WRITING ones of attempts that are over. *ret_last: the last job that was
 * checked; 0: there are no more. */
#define STORE_OVERDUE_JOBS 1000
MUST_CHECK status_t store_checkpoint_overdue(struct store *s, struct store_memory *m, int64_t after, int64_t **ret,
                                             size_t *ret_n, int64_t *ret_last, struct err *e);
/* A COMMITTED, CORRUPT or MISSING checkpoint becomes DELETING, with an event "checkpoint_deleted". ST_OK for one that
 * is DELETING or DELETED. FAILED_PRECONDITION for a pinned one, one that is still being written, and one that is
 * needed: the newest of a job that has not ended, the one that its attempt started from, and one that another job began
 * with and still needs. */
MUST_CHECK status_t store_checkpoint_delete(struct store *s, int64_t epoch, int64_t job, int64_t id, struct err *e);
/* All checkpoints of the job that are DELETING. */
MUST_CHECK status_t store_checkpoint_deleting(struct store *s, struct store_memory *m, int64_t job,
                                              struct store_checkpoint **ret, size_t *ret_n, struct err *e);
/* The first job above `after` that has a DELETING checkpoint; 0: none. */
MUST_CHECK status_t store_checkpoint_deleting_next(struct store *s, int64_t after, int64_t *ret_job, struct err *e);
/* Stores that the files were removed. */
MUST_CHECK status_t store_checkpoint_deleted(struct store *s, int64_t epoch, int64_t id, struct err *e);

#endif
