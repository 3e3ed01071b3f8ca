/* What the parts of plan_build hand to each other; for the files of plan/ only. They run in this order:
 *
 *   stage.c         chunks: which blocks are whose
 *   layout.c        gradient space, buckets, cuts, pieces, parameter space
 *   schedule.c      phases: the order of micro-batches
 *   program.c       what one phase of each kind and chunk computes, and what is computed again
 *   memory.c        where activations and batch inputs lie, how many copies of each
 *   lower.c         phases become queues: sends, receives, waits, gathers; lower_gradients.c: sums, norms, the
 *                   optimizer
 *   transit.c       what is in transit, and the families' bytes */
#ifndef EXECUTOR_ENGINE_PLAN_BUILD_H
#define EXECUTOR_ENGINE_PLAN_BUILD_H

#include "base/array.h"
#include "executor/engine/plan/plan.h"
#include "executor/engine/plan/schedule.h"

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
    bool *received; /* [n_tensors] arrives from another rank: the root of its own storage */
    bool *sent;     /* [n_tensors] */
    bool *kept;     /* [n_tensors] of the graph: not computed again */

    /* Communication's lifetimes over one micro-batch: bit i = instruction i of forward programs, then backward ones.
     * Objects are buckets' units, then buckets' staging. */
    uint64_t *alive; /* [2 n_buckets][words] */
    int words;
};

size_t plan_aligned(size_t n);
int64_t plan_padded(int64_t elements);

MUST_CHECK status_t plan_cut_stages(struct building *b, struct err *e);     /* stage.c */
MUST_CHECK status_t plan_lay_out(struct building *b, struct err *e);        /* layout.c */
MUST_CHECK status_t plan_write_programs(struct building *b, struct err *e); /* program.c */
MUST_CHECK status_t plan_place_tensors(struct building *b, struct err *e);  /* memory.c */
MUST_CHECK status_t plan_lower(struct building *b, struct err *e);          /* lower.c */
MUST_CHECK status_t plan_place_transit(struct building *b, struct err *e);  /* transit.c */

/* An instruction of this kind, with what is not said at -1; and its place at the end of a list. */
struct instruction plan_instruction(enum instruction_kind kind);
MUST_CHECK status_t plan_emit(struct instruction_list *list, struct instruction i, struct err *e);

#endif
