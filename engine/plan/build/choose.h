/* Chooses the micro-batch and recompute if a spec leaves them to `auto`.
 *
 * The result is the largest micro-batch whose fullest rank fits the limit: without recompute if any fits so, else with
 * `selective`, else with `block`. A larger micro-batch saves more time than recompute costs (less than a third of a
 * forward pass). A micro-batch must divide the global batch into a multiple of `lanes` micro-batches. A pipeline gets
 * at least 4 P V micro-batches per rank if the batch has them (Huang et al. 2019: from 4 P on, the bubble is
 * negligible). The choice changes the bits of a job, so it is made once, before the first step, and stored with the
 * job. */
#ifndef ENGINE_PLAN_BUILD_CHOOSE_H
#define ENGINE_PLAN_BUILD_CHOOSE_H

#include "engine/plan/host_memory.h"
#include "engine/plan/plan.h"

struct choose_request {
    struct plan_layout layout; /* lanes 0: plan_lanes; micro_batches, rank, workspace
                                  and recompute are set by the choice */
    int global_batch;
    int micro_batch;                     /* 0 = choose */
    enum plan_recompute recompute;       /* AUTO = choose */
    size_t memory_bytes;                 /* of a rank; 0 = no limit, and then micro_batch must be given */
    const struct host_memory_rule *host; /* NULL: a rank's memory is its arena */
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

/* INVALID_ARGUMENT: nothing fits; the sentence names the bytes that the request needs and the largest that fits. */
MUST_CHECK status_t plan_choose(const struct choose_request *request, struct choice *ret, struct err *e);

/* The lanes of a batch that is cut into micro-batches of this many samples: the layout's or, where it has 0, the
 * largest power of two up to LIMIT_DEFAULT_LANES that divides. 0 = the batch cannot be cut so. */
int plan_lanes(const struct plan_layout *layout, int global_batch, int micro_batch);

/* Bytes of the fullest rank of a layout (its rank is not read), as far as a limit covers them. host may be NULL. */
MUST_CHECK status_t plan_max_bytes(const struct graph *graph, const struct plan_layout *layout,
                                   const struct host_memory_rule *host, size_t *ret, int *ret_rank, struct err *e);

#endif
