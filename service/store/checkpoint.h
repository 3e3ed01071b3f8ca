/* Checkpoints. A row appears with the first shard's report and becomes COMMITTED in the transaction that stores the
 * last one (report.h). Deleting has two phases: DELETING is stored, files are removed, DELETED is stored. */
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
    bool has_validation_loss, pinned, final;
    double validation_loss;
};

/* Newest (highest id) first; those below `before` (0 = from the newest). Without DELETED ones. */
MUST_CHECK status_t store_checkpoint_list(struct store *s, struct store_memory *m, int64_t job, int64_t before,
                                          int limit, struct store_checkpoint **ret, size_t *ret_n, struct err *e);
MUST_CHECK status_t store_checkpoint_get(struct store *s, struct store_memory *m, int64_t job, int64_t id,
                                         struct store_checkpoint *ret, struct err *e);
/* The newest COMMITTED one of the job's story: the highest step, of equals the latest attempt's. NOT_FOUND when there
 * is none. */
MUST_CHECK status_t store_checkpoint_newest(struct store *s, struct store_memory *m, int64_t job,
                                            struct store_checkpoint *ret, struct err *e);

/* The COMMITTED one of that step, of the latest attempt that has one. NOT_FOUND when there is none. */
MUST_CHECK status_t store_checkpoint_at(struct store *s, struct store_memory *m, int64_t job, int64_t step,
                                        struct store_checkpoint *ret, struct err *e);

/* The checkpoint that the attempt started from becomes CORRUPT, with an event "checkpoint_corrupt". NOT_FOUND when it
 * started from none. Idempotent. */
MUST_CHECK status_t store_checkpoint_corrupt(struct store *s, int64_t epoch, int64_t job, int attempt,
                                             const char *reason, struct err *e);

/* Only a COMMITTED one is pinned (FAILED_PRECONDITION); any is unpinned, and what the job then no longer keeps
 * is marked as store_checkpoint_retire does. NOT_FOUND without it. What changes anything is an event
 * "checkpoint_pinned" or "checkpoint_unpinned". */
MUST_CHECK status_t store_checkpoint_pin(struct store *s, int64_t epoch, int64_t job, int64_t id, bool pinned,
                                         struct err *e);

/* Marks DELETING what the job's keep_last and keep_best do not keep, and returns all that are DELETING, those of an
 * earlier call included. Kept always: the newest COMMITTED one, pinned ones, the one that the current attempt started
 * from, the final one, and those that another job begins with, until it has one of its own or has ended. WRITING ones
 * of attempts that are over count as not kept. */
MUST_CHECK status_t store_checkpoint_retire(struct store *s, struct store_memory *m, int64_t epoch, int64_t job,
                                            struct store_checkpoint **ret, size_t *ret_n, struct err *e);
/* Of the next STORE_OVERDUE_JOBS jobs above `after`, those of which store_checkpoint_retire may mark any: they have
 * more COMMITTED ones than keep_last, or WRITING ones of attempts that are over. *ret_last: the last job that was
 * looked at; 0: there are no others. */
#define STORE_OVERDUE_JOBS 1000
MUST_CHECK status_t store_checkpoint_overdue(struct store *s, struct store_memory *m, int64_t after, int64_t **ret,
                                             size_t *ret_n, int64_t *ret_last, struct err *e);
/* A COMMITTED or CORRUPT one becomes DELETING, with an event "checkpoint_deleted"; one that is DELETING or DELETED is
 * ST_OK. FAILED_PRECONDITION for a pinned one, one that is still written, and while it is needed: the newest of a job
 * that has not ended, the one that its attempt started from, and one that another job began with and still needs. */
MUST_CHECK status_t store_checkpoint_delete(struct store *s, int64_t epoch, int64_t job, int64_t id, struct err *e);
/* All that are DELETING. */
MUST_CHECK status_t store_checkpoint_deleting(struct store *s, struct store_memory *m, int64_t job,
                                              struct store_checkpoint **ret, size_t *ret_n, struct err *e);
/* The first job above `after` that has one; 0 for none. */
MUST_CHECK status_t store_checkpoint_deleting_next(struct store *s, int64_t after, int64_t *ret_job, struct err *e);
/* The files are gone. */
MUST_CHECK status_t store_checkpoint_deleted(struct store *s, int64_t epoch, int64_t id, struct err *e);

#endif
