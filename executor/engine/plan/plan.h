/* A plan: everything that one rank does in a step, and where every byte lives, decided before the first step. It is a
 * value: built, verified, printed and compared without a device; run/ only walks it.
 *
 *     TRY(plan_build(graph, &layout, &plan, e));      // order (schedule.c), gradients (layout.c), memory (memory.c)
 *     TRY(plan_verify(plans, world_size, e));         // all ranks of a step, simulated (verify.h)
 *
 * Queues. The compute queue is an ordered list of instructions. Each channel is a second list, run by a thread (or
 * stream) of its own: entry i starts when compute instruction `after` is done, and REDUCE and EXCHANGE happen there.
 * WAIT, in the compute queue, holds until an entry of a channel is done. These two numbers are all the synchronisation
 * there is.
 *
 * Gradient space. The slots of the graph (parameter, group) lie one behind the other in the order in which the backward
 * pass finishes them, each starting on a chunk of 1,024 elements (the unit of norms) and padded with zeros. A bucket is
 * a range of whole chunks; it is reduced as one, as soon as its last gradient is written. A gradient buffer holds the
 * whole space; accumulating over lanes needs several (engine's README, "Same bits"). Parameter space: owner slots in
 * the same order. Weights, both moments and snapshots share its offsets.
 *
 * Offsets: bytes for activations, elements for the two spaces; all families start on 64 bytes, in one arena. */
#ifndef EXECUTOR_ENGINE_PLAN_PLAN_H
#define EXECUTOR_ENGINE_PLAN_PLAN_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/graph/graph.h"

enum { PLAN_CHUNK = 1024, PLAN_ALIGN = 64, PLAN_BUFFERS_MOST = 32 };

enum plan_family {
    FAMILY_PARAMETERS,
    FAMILY_GRADIENTS,
    FAMILY_OPTIMIZER,
    FAMILY_ACTIVATIONS,
    FAMILY_BATCH,
    FAMILY_COMMUNICATION,
    FAMILY_WORKSPACE,
    FAMILIES,
};

enum plan_kind {
    PLAN_TRAIN,    /* one optimizer step */
    PLAN_EVALUATE, /* losses of micro-batches, forward only */
    PLAN_SAMPLE,   /* logits of one sample */
};

enum plan_reduce { PLAN_REDUCE_STEP, PLAN_REDUCE_MICRO_BATCH };

struct plan_layout {
    enum plan_kind kind;
    int rank, world_size; /* data degree; a power of two dividing lanes */
    int lanes;            /* power of two dividing micro_batches */
    int micro_batches;    /* of the step (or evaluation), over all ranks */
    enum plan_reduce reduce;
    int64_t bucket_bytes;
    size_t workspace_bytes; /* the most that any op's kernel asks for */
};

enum instruction_kind {
    INSTRUCTION_LOAD,            /* batch inputs of micro_batch */
    INSTRUCTION_FORWARD,         /* op */
    INSTRUCTION_BACKWARD_INPUT,  /* reverse op */
    INSTRUCTION_BACKWARD_WEIGHT, /* reverse op */
    INSTRUCTION_RECOMPUTE,       /* op: forward once more. No schedule here emits it */
    INSTRUCTION_SEND,            /* boundary tensor to peer. No schedule here emits it */
    INSTRUCTION_RECV,            /* boundary tensor from peer. No schedule here emits it */
    INSTRUCTION_ADD,             /* gradient range: buffer += source buffer */
    INSTRUCTION_ADD_SLOT,        /* in buffer 0: owner slot += slot */
    INSTRUCTION_REDUCE,          /* channel: bucket of buffer, over all ranks */
    INSTRUCTION_EXCHANGE,        /* channel: the ranks' step records (losses, flags), all-gathered */
    INSTRUCTION_WAIT,            /* for entry of the channel */
    INSTRUCTION_NORM,            /* gradient range: sums of squares by chunk */
    INSTRUCTION_DECIDE,          /* adds the sums in order; sets the scale of clipping and the flag that STEP obeys */
    INSTRUCTION_STEP,            /* optimizer on one slot's parameter; predicated */
    INSTRUCTION_KINDS,
};

struct instruction {
    enum instruction_kind kind;
    int op;             /* FORWARD: op; BACKWARD_*: reverse op; ADD_SLOT, STEP: slot */
    int micro_batch;    /* number in the step; LOAD, FORWARD, BACKWARD_* */
    int buffer, source; /* gradient buffers; ADD_SLOT: source is a slot */
    int entry;          /* REDUCE: bucket; WAIT: entry of the channel; SEND, RECV: tensor */
    int peer;           /* SEND, RECV: rank */
    int after;          /* channel: compute instructions that must be done before */
    bool first;         /* BACKWARD_*: the first micro-batch of a lane, which overwrites; LOAD: unused */
    int64_t begin, end; /* gradient range in elements: ADD, NORM, REDUCE */
};

struct instruction_list {
    struct instruction *items;
    int n;
};

struct plan_bucket {
    int64_t begin, end; /* elements in gradient space */
    int ready;          /* reverse op whose weight gradient completes it */
};

struct plan {
    const struct graph *graph; /* borrowed */
    struct plan_layout layout;
    struct instruction_list compute, channel;

    int64_t *slot_begin, *slot_end; /* [n_slots] gradient space, elements, padded */
    int64_t *parameter_begin;       /* [n_parameters] parameter space, elements */
    int64_t gradient_elements, parameter_elements;
    int *slot_order; /* [n_slots] slots as they lie in gradient space */
    int gradient_buffers;
    struct plan_bucket *buckets;
    int n_buckets;

    size_t *tensor_offset; /* [n_tensors] bytes in FAMILY_ACTIVATIONS or FAMILY_BATCH; SIZE_MAX = never live */
    size_t family_bytes[FAMILIES];
};

/* Graph and layout to plan. INVALID_ARGUMENT names the spec's field when the layout is impossible. */
MUST_CHECK status_t plan_build(const struct graph *graph, const struct plan_layout *layout, struct plan **ret,
                               struct err *e);
struct plan *plan_free(struct plan *plan);
CLEANUP_DEFINE(struct plan *, plan_free)

/* A human's view: bytes by family, then queues, one instruction a line (micro-batch 0 in full, then counts unless
 * `whole`). */
MUST_CHECK status_t plan_print(const struct plan *plan, bool whole, struct bytes *ret, struct err *e);

/* The rank that computes micro-batch k. */
int plan_owner(const struct plan_layout *layout, int k);
/* The sums of squares by chunk stand at the start of FAMILY_WORKSPACE, kernels' workspace behind them. */
size_t plan_chunk_sum_bytes(const struct plan *plan);

const char *instruction_name(enum instruction_kind kind);

/* The tensors that an instruction touches: reads must be live; writes make live (and kill what shares the bytes); views
 * become live without changing a byte. */
struct tensor_access {
    int reads[OP_INPUTS + 2 * OP_OUTPUTS], n_reads;
    int writes[OP_INPUTS + OP_OUTPUTS], n_writes;
    int views[OP_INPUTS], n_views;
};
void plan_access(const struct plan *plan, const struct instruction *i, struct tensor_access *ret);

/* Parts of plan_build, in the order in which they run. */
MUST_CHECK status_t plan_lay_out_gradients(struct plan *plan, struct err *e); /* layout.c */
MUST_CHECK status_t plan_schedule(struct plan *plan, struct err *e);          /* schedule.c */
MUST_CHECK status_t plan_place_tensors(struct plan *plan, struct err *e);     /* memory.c */

#endif
