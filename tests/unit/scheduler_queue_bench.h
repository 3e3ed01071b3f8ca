/* Jobs of queues with settings, on a scheduler without a controller (scheduler_bench.h). */
#ifndef TESTS_UNIT_SCHEDULER_QUEUE_BENCH_H
#define TESTS_UNIT_SCHEDULER_QUEUE_BENCH_H

#include "service/scheduler/explain.h"
#include "tests/unit/scheduler_bench.h"

#include <limits.h>

#define NO_LIMITS(queue_name)                                                                                          \
    .name = (queue_name), .weight = 1, .max_priority = INT_MAX, .quota = { -1, -1 }, .borrow = { -1, -1 },             \
    .lend = { -1, -1 }, .user_slots = { -1, -1 }

struct submitted {
    int64_t job;
    const char *queue, *user;
    int priority, world_size;
};

/* 0 ranks: one. */
static inline void enqueue(struct bench *b, struct submitted j) {
    struct scheduler_job_row row = { .job = j.job,
                                     .state = JOB_STATE_QUEUED,
                                     .priority = j.priority,
                                     .world_size = j.world_size ? j.world_size : 1,
                                     .no_final_checkpoint = true };
    snprintf(row.queue, sizeof row.queue, "%s", j.queue);
    snprintf(row.user, sizeof row.user, "%s", j.user ? j.user : "");
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
}

/* The job whose attempt the last event has started; 0: none. */
static inline int64_t started(const struct bench *b) {
    const struct scheduler_action *a = find(b, ACT_ATTEMPT_CREATE);
    return a ? a->job : 0;
}

/* Ends the job, which runs on one host; returns the job that starts on its slots. */
static inline int64_t end_on(struct bench *b, const char *executor, int64_t job, int world_size) {
    struct rank_end ends[16];
    for (int r = 0; r < world_size; r++)
        ends[r] = (struct rank_end){ .rank = r, .cause = RANK_END_FINISHED };
    tell(b, (struct scheduler_event){ .kind = EV_PART_ENDED,
                                      .executor = executor,
                                      .job = job,
                                      .attempt = 1,
                                      .ends = ends,
                                      .n_ends = world_size });
    const int64_t next = started(b);
    for (int r = 0; r < world_size; r++)
        store(b, job, 1, r);
    return next;
}

static inline struct scheduler_reason first_reason(const struct bench *b, int64_t job) {
    struct scheduler_explanation x;
    scheduler_explain(b->s, job, b->now, &x);
    assert_true(x.n_reasons > 0);
    return x.reasons[0];
}

#endif
