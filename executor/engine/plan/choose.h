/* What the planner decides where a spec leaves it open: the micro-batch and whether to compute activations again.
 *
 * The largest micro-batch whose fullest rank fits the limit, without recompute if any fits without, else with
 * `selective`, else with `block`: more samples at once save less than a third forward pass costs. A micro-batch must
 * divide the global batch into a multiple of `lanes` micro-batches; with a pipeline, as many a rank as 4 P V if the
 * batch has them (Huang et al. 2019: the bubble is negligible from 4 P on). The choice decides the bits of a job, so it
 * is made once, before the first step, and kept with it. */
#ifndef EXECUTOR_ENGINE_PLAN_CHOOSE_H
#define EXECUTOR_ENGINE_PLAN_CHOOSE_H

#include "executor/engine/plan/plan.h"

struct choose_request {
    struct plan_layout layout; /* lanes 0: the largest power of two <= 8 that divides; micro_batches, rank, workspace
                                  and recompute are set by the choice */
    int global_batch;
    int micro_batch;               /* 0 = choose */
    enum plan_recompute recompute; /* AUTO = choose */
    size_t memory_bytes;           /* of a rank; 0 = no limit, and then micro_batch must be given */
    /* The graph of this micro-batch and the workspace that its kernels and optimizer ask for. */
    status_t (*build)(void *ctx, int micro_batch, struct graph **ret, size_t *ret_workspace, struct err *e);
    void *ctx;
};

struct choice {
    int micro_batch, lanes;
    enum plan_recompute recompute;
    size_t bytes; /* of the fullest rank */
    int rank;     /* which */
};

/* INVALID_ARGUMENT: nothing fits; the sentence tells what the wish needs and what is the largest that fits. */
MUST_CHECK status_t plan_choose(const struct choose_request *request, struct choice *ret, struct err *e);

/* The lanes of a batch that is cut into micro-batches of this many samples: the layout's or, where it has 0, the
 * largest power of two <= 8 that divides. 0 = the batch cannot be cut so. */
int plan_lanes(const struct plan_layout *layout, int global_batch, int micro_batch);

/* Bytes of the fullest rank of a layout (its rank is not read). */
MUST_CHECK status_t plan_most_bytes(const struct graph *graph, const struct plan_layout *layout, size_t *ret,
                                    int *ret_rank, struct err *e);
size_t plan_bytes(const struct plan *plan);
/* The data rank that owns most of a plan's stage, the first of several, and its share over the mean one. They differ by
 * what is left over when buckets are cut. */
int plan_fullest(const struct plan *plan, double *ret_balance);

#endif
