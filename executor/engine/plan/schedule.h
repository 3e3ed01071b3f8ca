/* Schedules: pure generators of the order in which one stage runs its micro-batches. A schedule is one file with one
 * const struct; nothing else knows its name but the table in schedule.c. It sees no tensors and no bytes: what must be
 * sent, kept and reduced follows from the order (lower.c), and the verifier says whether it is right.
 *
 * Every generator keeps these rules: each (chunk, q) is forwarded once and then goes back once; per chunk, q ascends in
 * each kind of phase (gradients are added in ascending order, so gpipe too goes back in ascending order); the order is
 * a function of the shape alone. */
#ifndef EXECUTOR_ENGINE_PLAN_SCHEDULE_H
#define EXECUTOR_ENGINE_PLAN_SCHEDULE_H

#include "executor/engine/plan/plan.h"

enum phase_kind {
    PHASE_FORWARD,
    PHASE_BACKWARD, /* input gradients, and weight gradients too unless the schedule splits them off */
    PHASE_WEIGHT,
    PHASE_KINDS,
};

struct phase {
    enum phase_kind kind;
    int chunk; /* local */
    int q;     /* micro-batch's number on this rank */
};

struct schedule_shape {
    int stage, stages, virtual_stages;
    int micro_batches; /* of one rank */
};

struct phase_list {
    struct phase *items;
    int n;
};
MUST_CHECK status_t phase_list_add(struct phase_list *list, enum phase_kind kind, int chunk, int q, struct err *e);
void phase_list_done(struct phase_list *list);

struct schedule_kind {
    bool splits_weight; /* has PHASE_WEIGHT */
    bool interleaves;   /* takes virtual_stages > 1 */
    /* INVALID_ARGUMENT names the field where the shape does not suit. What a failure left in `ret` is the caller's. */
    status_t (*order)(const struct schedule_shape *shape, struct phase_list *ret, struct err *e);
};

/* Huang et al. 2019, "GPipe": all forward, then all backward. Bubble (P-1)(F+B); keeps all micro-batches. */
extern const struct schedule_kind schedule_gpipe;
/* Narayanan et al. 2019, "PipeDream": P - stage forwards ahead, then one forward, one backward. Bubble as GPipe's;
 * keeps at most P - stage micro-batches. */
extern const struct schedule_kind schedule_1f1b;
/* Narayanan et al. 2021, "Efficient Large-Scale Language Model Training": V chunks a stage, bubble (P-1)(F+B)/V. */
extern const struct schedule_kind schedule_interleaved;
/* Qi et al. 2023, "Zero Bubble Pipeline Parallelism", ZB-H1: weight gradients fill the bubble, (P-1)(F+B-W) with B, W
 * the two parts; keeps no more micro-batches than 1F1B's first stage. */
extern const struct schedule_kind schedule_zero_bubble;

const struct schedule_kind *schedule_of(enum plan_schedule_kind kind);
/* The order of a plan's rank: its schedule, or forward passes only. phase_list_done, after a failure too. */
MUST_CHECK status_t schedule_order(const struct plan_layout *layout, struct phase_list *ret, struct err *e);
/* Most micro-batches of a chunk whose `from` has started and whose `to` has not ended. */
int schedule_flights(const struct phase_list *list, int chunk, enum phase_kind from, enum phase_kind to);

#endif
