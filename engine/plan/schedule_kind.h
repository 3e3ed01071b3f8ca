/* A pipeline schedule: the order in which one stage runs the phases of its micro-batches. A schedule is one const
 * struct in one file, plan/build/schedule_NAME.c, which SCHEDULE_KINDS names. A schedule sees no tensors and no bytes:
 * what must be sent, stored and reduced follows from the order (lower.c), and the verifier proves that the result is
 * right.
 *
 * Every schedule keeps these rules:
 *   - each virtual stage runs each micro-batch forward once, and then backward once
 *   - within a virtual stage and a kind of phase, micro-batches ascend. Gradients are added in that order, so gpipe
 *     runs its backward phases in ascending order too
 *   - the order depends on the shape only */
#ifndef ENGINE_PLAN_SCHEDULE_KIND_H
#define ENGINE_PLAN_SCHEDULE_KIND_H

#include "base/status.h"

#include <stdbool.h>

enum phase_kind {
    PHASE_FORWARD,
    PHASE_BACKWARD, /* input gradients, and weight gradients too unless the schedule splits them off */
    PHASE_WEIGHT,
    PHASE_KINDS,
};

struct phase {
    enum phase_kind kind;
    int virtual_stage; /* local */
    int q;             /* micro-batch's number on this rank */
};

struct schedule_shape {
    int stage, stages, virtual_stages;
    int micro_batches; /* of one rank */
};

struct phase_list {
    struct phase *items;
    int n;
};
MUST_CHECK status_t phase_list_add(struct phase_list *list, enum phase_kind kind, int virtual_stage, int q,
                                   struct err *e);
void phase_list_done(struct phase_list *list);

/* The seconds of one rank and one micro-batch, over all its virtual stages. */
struct phase_seconds {
    double forward, backward_input, backward_weight; /* F, B, W */
};

struct schedule_kind {
    const char *name;      /* a choice of the spec's parallel.pipeline_schedule */
    bool splits_weight;    /* has PHASE_WEIGHT */
    bool interleaves;      /* allows more than one virtual stage per rank; takes micro-batches in groups of P */
    bool stages_keep_same; /* with plenty of micro-batches every stage keeps P of them; else stage s keeps P - s */
    /* INVALID_ARGUMENT names the field where the shape does not suit. What a failure left in `ret` is the caller's. */
    status_t (*order)(const struct schedule_shape *shape, struct phase_list *ret, struct err *e);
    /* The idle seconds of a step by the formula of the schedule's paper, without communication, of stages P and virtual
     * stages V. A step's formula time is m (F + B + W) plus this. NULL: (P - 1)(F + B + W) */
    double (*bubble)(int stages, int virtual_stages, const struct phase_seconds *seconds);
};

/* The schedules: schedule_NAME is in plan/build/schedule_NAME.c.
 *   1f1b         Narayanan et al. 2019, "PipeDream"; 2021, section 2.2.1: P - stage forwards ahead, then one forward,
 *                one backward
 *   gpipe        Huang et al. 2019, "GPipe": all forward, then all backward; keeps all micro-batches
 *   interleaved  Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters": V virtual
 *                stages a stage; bubble (P - 1)(F + B + W) / V
 *   zero_bubble  Qi et al. 2023, "Zero Bubble Pipeline Parallelism", ZB-H1: weight gradients fill the bubble,
 *                (P - 1)(F + B - W), never below 0; m >= P; keeps no more micro-batches than 1f1b's first stage */
#define SCHEDULE_KINDS(KIND) KIND(1f1b) KIND(gpipe) KIND(interleaved) KIND(zero_bubble)

#define SCHEDULE_DECLARE(name) extern const struct schedule_kind schedule_##name;
SCHEDULE_KINDS(SCHEDULE_DECLARE)
#undef SCHEDULE_DECLARE

#define SCHEDULE_COUNT(name) +1
enum { SCHEDULES = SCHEDULE_KINDS(SCHEDULE_COUNT) };
#undef SCHEDULE_COUNT

/* All of them; NULL follows the last. */
extern const struct schedule_kind *const schedule_kinds[];

/* NULL if the name is not in SCHEDULE_KINDS. */
const struct schedule_kind *schedule_kind_find(const char *name);
/* The schedule of a layout that may name none: NULL means 1f1b. */
const struct schedule_kind *schedule_of(const struct schedule_kind *given);
double schedule_bubble(const struct schedule_kind *kind, int stages, int virtual_stages,
                       const struct phase_seconds *seconds);

#endif
