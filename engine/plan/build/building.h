/* What the steps of plan_build share. They run in this order:
 *
 *   stage_cut.c             which blocks belong to which virtual stage
 *   gradient_layout.c       gradient space, buckets, parts, shards, parameter space, optimizer state
 *   schedule.c              phases: the order of micro-batches
 *   phase_programs.c        the instructions of one phase of each kind and virtual stage; what is recomputed
 *   place_tensors.c         addresses of activations and batch inputs, and how many copies each has
 *   lower.c                 phases become queues: sends, receives, waits; lower_zero3.c: gathers of weights;
 *                           lower_gradients.c: sums, norms, the optimizer
 *   place_communication.c   addresses of communication buffers, and the families' bytes */
#ifndef ENGINE_PLAN_BUILD_BUILDING_H
#define ENGINE_PLAN_BUILD_BUILDING_H

#include "base/array.h"
#include "engine/plan/build/schedule.h"
#include "engine/plan/plan.h"

/* The instructions of one phase; micro-batch, buffer and `first` are filled in when it is lowered. */
struct program {
    struct instruction *items;
    int n;
};

struct building {
    struct plan *plan;
    const struct schedule_kind *schedule;
    struct phase_list phases;
    struct program *programs[PHASE_KINDS]; /* [virtual_stages] */
    bool splits_weight;
    int *last_block; /* [n_tensors] stage_last_blocks */
    bool *received;  /* [n_tensors] received from another rank: has its own storage */
    bool *sent;      /* [n_tensors] */
    bool *stored;    /* [n_tensors] of the graph: not recomputed */

    /* Lifetimes of communication buffers over one micro-batch: bit i = instruction i of the forward program, then of
     * the backward one. Objects are the gathered weights of each bucket, then its staged gradients. */
    uint64_t *alive; /* [2 n_buckets][words] */
    int words;
};

MUST_CHECK status_t plan_cut_stages(struct building *b, struct err *e);          /* stage_cut.c */
MUST_CHECK status_t plan_lay_out_gradients(struct building *b, struct err *e);   /* gradient_layout.c */
MUST_CHECK status_t plan_write_programs(struct building *b, struct err *e);      /* phase_programs.c */
MUST_CHECK status_t plan_place_tensors(struct building *b, struct err *e);       /* place_tensors.c */
MUST_CHECK status_t plan_lower(struct building *b, struct err *e);               /* lower.c */
MUST_CHECK status_t plan_place_communication(struct building *b, struct err *e); /* place_communication.c */

/* An instruction of this kind, with all other fields at -1; and appending one to a list. */
struct instruction plan_instruction(enum instruction_kind kind);
MUST_CHECK status_t plan_emit(struct instruction_list *list, struct instruction i, struct err *e);

#endif
