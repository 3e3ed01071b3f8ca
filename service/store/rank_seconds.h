/* Rank-seconds: where the time of each rank of an attempt went.
 *
 * The wall time of an attempt is from its creation, when its ranks are placed, to its end, or to now. For each rank the
 * causes add up to the wall time, whatever was killed meanwhile:
 *
 *   start       from the creation of the attempt until the rank of a model has joined the others and has loaded its
 *               state; of a program until rank 0 has reported its first metric. For a rank that died before, until it
 *               died. A program that ends without a metric has begun when its ranks had joined
 *   data        waiting for batches
 *   compute     everything else between two reports of steps: passes, optimizer, evaluation; the step in which a rank
 *               died or that it computes now. Of a program: its time after the start, until the rank ended
 *   waiting     waiting for other ranks
 *   checkpoint  standing still for a checkpoint; after the last step, writing and committing the last one
 *   repeated    steps that an earlier attempt had already reported and that are computed again, with all their waits
 *   idle        the rest: after a rank has ended until the attempt ends; and all time after the last report of a rank
 *               whose end was not reported, because its host was lost
 *
 * The time in which a job is queued, paused, or waits for its next attempt belongs to no attempt.
 *
 * data, waiting, checkpoint and repeated are measured by the ranks and stored with their reports (report_seconds.h).
 * The other causes follow from the times of the attempt and of its ranks when the rows are read. Ranks of a program
 * need not report metrics: each is divided as rank 0 is, up to its own end. If the clocks of a host and of the database
 * differ, start and idle are wrong by the difference; the sum is right. */
#ifndef SERVICE_STORE_RANK_SECONDS_H
#define SERVICE_STORE_RANK_SECONDS_H

#include "service/store/store.h"

struct store_rank_seconds {
    double start, data, compute, waiting, checkpoint, repeated, idle;
};

/* The sums of all ranks of an attempt. */
struct store_attempt_seconds {
    int attempt, ranks;
    double wall;
    struct store_rank_seconds sum;
};
/* The attempts of a job, oldest first; none for an imported run, or if the job does not exist. */
MUST_CHECK status_t store_attempt_seconds(struct store *s, struct store_memory *m, int64_t job,
                                          struct store_attempt_seconds **ret, size_t *ret_n, struct err *e);

struct store_one_rank_seconds {
    int rank;
    struct store_rank_seconds sum;
};
/* The ranks of one attempt, in order. */
MUST_CHECK status_t store_rank_seconds(struct store *s, struct store_memory *m, int64_t job, int attempt,
                                       struct store_one_rank_seconds **ret, size_t *ret_n, struct err *e);

struct store_job_seconds {
    int64_t job;
    struct store_rank_seconds sum;
};
/* The sums of all attempts of each of these jobs that has an attempt, by job. The step in progress is left out: its
 * report divides it. So the causes of a job that has not ended only grow, as counters do, with two exceptions: a start
 * that ends becomes smaller by the delay of its report, and a clock may be changed. */
MUST_CHECK status_t store_job_seconds(struct store *s, struct store_memory *m, const int64_t *jobs, size_t n,
                                      struct store_job_seconds **ret, size_t *ret_n, struct err *e);

#endif
