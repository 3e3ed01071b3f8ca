/* A step as it would run: every queue of every given rank, with durations in place of work. From it come the predicted
 * step time, each stage's bubble, and its drawing (timeline_svg.h).
 *
 *     struct timeline t;
 *     TRY(timeline_simulate(plans, n, &(struct timeline_costs){ .seconds = timeline_profile_seconds, .ctx = &profile },
 *                           &t, e));
 *     ... t.seconds, t.ranks[s].bubble ...
 *     timeline_done(&t);
 *
 * plans are as for plan_verify, and must have passed it. The rules are plan.h's: an entry of another queue starts when
 * compute has reached it (data: and the one before is done); a transfer lasts from when both halves are posted, one
 * after another in each direction between two ranks; a collective from when the last of its group has come; WAIT ends
 * with what it waits for. */
#ifndef ENGINE_PLAN_COST_TIMELINE_H
#define ENGINE_PLAN_COST_TIMELINE_H

#include "engine/plan/plan.h"

/* What a span of a queue is; compute first. */
enum timeline_work {
    TIMELINE_FORWARD,
    TIMELINE_RECOMPUTE,
    TIMELINE_BACKWARD, /* of the input; of both where the schedule does not split */
    TIMELINE_WEIGHT,   /* BACKWARD_WEIGHT */
    TIMELINE_UPDATE,   /* sums, norms, optimizer */
    TIMELINE_REDUCE,
    TIMELINE_GATHER,
    TIMELINE_EXCHANGE,
    TIMELINE_TRANSFER,
    TIMELINE_WORKS,
};
const char *timeline_work_name(enum timeline_work work);

struct timeline_span {
    double begin, end;
    int number; /* number in plans */
    enum plan_queue queue;
    enum timeline_work work;
    int micro_batch, in_flight, virtual_stage; /* -1: none */
};

struct timeline_rank {
    int rank, stage;
    double busy;       /* seconds that compute works */
    double data_wait;  /* that it waits for reductions and gathers */
    double stage_wait; /* that it waits for other stages: transfers, norms, step results; and, done, for the last one */
    double bubble;     /* stage_wait over the step */
    double flops;      /* of its instructions, recompute included */
    double work[TIMELINE_WORKS]; /* seconds of compute by what it is */
};

struct timeline {
    struct timeline_span *spans; /* ascending by begin within a number and queue */
    int n_spans;
    struct timeline_rank *ranks;
    int n;
    double seconds; /* of the step: until the last rank is done */
};

struct timeline_costs {
    /* Seconds of an instruction in its queue; for a transfer, asked of the SEND. */
    double (*seconds)(void *ctx, const struct plan *plan, enum plan_queue queue, const struct instruction *i);
    void *ctx;
};
/* ctx: const struct plan_profile. */
double timeline_profile_seconds(void *ctx, const struct plan *plan, enum plan_queue queue, const struct instruction *i);

MUST_CHECK status_t timeline_simulate(const struct plan *const *plans, int n, const struct timeline_costs *costs,
                                      struct timeline *ret, struct err *e);
void timeline_done(struct timeline *t);

#endif
