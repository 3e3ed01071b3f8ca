/* A plan: everything that one rank does in a step, and where every byte lives, decided before the first step. It is a
 * value: built, verified, costed, printed and compared without a device; run/ only walks it.
 *
 *     TRY(plan_build(graph, &layout, &plan, e));      // stages, spaces, order, places
 *     TRY(plan_verify(plans, n, e));                  // all ranks of a step, simulated (verify.h)
 *
 * RANKS. world size = data degree D x stages P; rank = stage * D + d: the D data ranks of a stage are neighbours. With
 * V virtual stages a model is cut in P V chunks of consecutive blocks (stage.c); stage s holds chunks s, s + P, s + 2P,
 * ..., which it numbers locally 0 .. V-1. Lanes are shared over the data ranks: d owns lanes [d n, (d + 1) n), n =
 * lanes / D. Every stage of column d computes the same micro-batches, in the same sequence q = 0, 1, ...
 * (plan_micro_batch). The plans of the data ranks of one stage are translations of each other: instruction by
 * instruction the same but for micro_batch (+ d n), peer (+ d), and the ranges of elements and pieces that d owns,
 * which may be empty. An empty range is legal everywhere and means nothing to do.
 *
 * QUEUES. Compute is an ordered list. The others are lists whose entry i may start when compute instructions [0, after)
 * are done:
 *   QUEUE_DATA         REDUCE, GATHER, EXCHANGE, EXCHANGE_NORMS, one after the other, in order: a thread or stream.
 *   QUEUE_ACTIVATIONS  SEND, RECV of boundary tensors, and of weights that return to another user's stage
 *   QUEUE_GRADIENTS    SEND, RECV of boundary gradients, and of gradients on their way to the owner's stage
 * Entries of the last two are posted when compute reaches `after` and complete in any order. Between two ranks, in one
 * direction, on one queue, the n-th SEND meets the n-th RECV. Nothing is buffered: a SEND ends when its bytes are
 * taken. `after` never falls along a queue. WAIT (compute queue) holds until entry `entry` of queue `queue` is done; on
 * QUEUE_DATA that means all entries before it too. Every entry is waited for in its step. This is all the
 * synchronisation there is.
 *
 * GRADIENT SPACE of a rank, in elements: the slots (parameter, group) of its stage, one behind the other in the order
 * in which the backward pass finishes them, each starting on a chunk of 1,024 elements (the unit of norms) and padded
 * with zeros. A bucket is a range of it, reduced as one as soon as its last gradient is written. No bucket spans two
 * chunks of the pipeline; under ZeRO-3 none spans two blocks; under ZeRO-2/3 and for optimizers that step whole tensors
 * its edges are slot edges. A slot with siblings (a parameter used in several groups) shares no bucket with another
 * slot, and is cut like its siblings. Behind the end of gradient space (slot_begin >= gradient_elements) lie, for
 * landing only, the siblings that other stages compute and this stage owns.
 *
 * CUTS. A bucket has D + 1 cuts, multiples of PLAN_CHUNK from its begin (plan_cut). Part j belongs to data rank
 * bit_reverse(j) (plan_part), so that recursive halving ends with it there: at level k, ranks d and d xor 2^k halve the
 * range of parts they share. ZeRO 0: REDUCE is halving and all-gather, every rank ends with all of it. ZeRO 1-3:
 * halving only, the rank ends with its own part. Sums are element by element: no bit depends on the cuts.
 *
 * PIECES: what this rank steps, (owner slot intersected with what it owns), in the order of gradient space. ZeRO 0:
 * whole slots. Instructions name ranges of pieces. A piece tells where its gradient, weight, master, optimizer states
 * and EMA lie. Masters, states and EMA are fp32. With fp32 elements the weight is its own master.
 *
 * PARAMETER SPACE of a rank, in elements of the graph's type: ZeRO 0-2: all parameters that its stage reads, whole,
 * owned ones in the order of gradient space. After STEP, ZeRO 1-2 GATHER each bucket's parameters over the data group.
 * ZeRO-3: only own pieces; GATHER brings a bucket's parameters ("a unit") to FAMILY_COMMUNICATION a block ahead of
 * their use, DROP ends their life. Going back, an op that gives its input no gradient (op_kind.differentiable 0:
 * embeddings) reads no weight, and none is gathered for it.
 *
 * GRADIENT BUFFERS. `buffer` in an instruction names one; plan_gradient_place tells where an element of it lies.
 * Buffers 0 .. lane_buffers-1 hold all of gradient space and add up lanes (engine's README, "Same bits"). With
 * ZeRO-2/3, one lane a rank and every micro-batch a round of its own (`reduce: micro_batch`, or one round), buffer 0 is
 * staging: a bucket has bytes in FAMILY_COMMUNICATION only from its first gradient until its reduced part was added to
 * the accumulator, at most PLAN_IN_FLIGHT reductions being under way. Otherwise ZeRO-2/3 need whole lane buffers, which
 * the plan counts. Buffer `accumulator` (-1: none) holds own parts only. The step's sum ends in buffer `result`.
 *
 * FAST. With lanes of its own order a rank adds them as a tree, in 1 + log2(lanes / D) buffers. `fast` makes a rank one
 * lane (lanes = D): it folds all its micro-batches into one buffer, which is reduced once a step (`reduce: step`).
 * Where that takes more bytes than it saves, under ZeRO-2/3 with one lane a rank and `reduce: micro_batch`, nothing
 * changes. The bits then depend on D.
 *
 * A slot may be written by several reverse ops of one micro-batch (a weight shared by iterations): the first in
 * backward order overwrites where `first` is set, the others add.
 *
 * FLIGHTS. `flight` is the micro-batch's number q on this rank. A tensor that must outlive instructions of other
 * micro-batches has several copies, used in turn: plan_tensor_place(plan, tensor, flight, life). A tensor that is
 * recomputed lives twice: LIFE_FORWARD in the forward pass, LIFE_BACKWARD from its RECOMPUTE on, at other bytes;
 * instruction_life tells which an instruction means. A kept tensor has one place for both.
 *
 * ARRIVALS. With uploads_ahead a batch input has room in FAMILY_BATCH beside its copies, where the host's upload of a
 * micro-batch arrives while the one before is computed; LOAD waits for it and makes the tensor from it. LOAD alone
 * reads it, and from its end until the next LOAD it is the upload's: so one is enough, in whatever order micro-batches
 * go.
 *
 * NORMS. Sums of squares over chunks stand in one array of norm_chunks doubles for the whole model, in the order of the
 * whole model's gradient space whatever the layout (statistics have none). It is zero when a step starts, NORM fills in
 * this rank's chunks, EXCHANGE_NORMS adds the group's arrays element by element, where all terms but one are zero,
 * hence exactly; DECIDE adds the array in order.
 *
 * ZERO BUBBLE. BACKWARD_WEIGHT is delayed. Where a later reverse op would overwrite the gradient that it reads, KEEP
 * copies it first (`kept`).
 *
 * Bytes: every place is a family and an offset; families start on 64 bytes, in one arena. Evaluation plans of the same
 * layout agree with the training plan in FAMILY_PARAMETERS and FAMILY_OPTIMIZER. */
#ifndef EXECUTOR_ENGINE_PLAN_PLAN_H
#define EXECUTOR_ENGINE_PLAN_PLAN_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/graph/graph.h"
#include "executor/engine/plan/settings.h"

struct optimizer_kind; /* executor/engine/optimizer/optimizer.h */

enum { PLAN_CHUNK = 1024, PLAN_ALIGN = 64, PLAN_STATES = 2, PLAN_IN_FLIGHT = 2 };

enum plan_family {
    FAMILY_PARAMETERS,    /* what ops read (ZeRO-3: own pieces of it) */
    FAMILY_GRADIENTS,     /* lane buffers, accumulator */
    FAMILY_OPTIMIZER,     /* masters, states, EMA */
    FAMILY_ACTIVATIONS,   /* activations, their gradients, boundary tensors on their way */
    FAMILY_BATCH,         /* batch inputs, and where they arrive */
    FAMILY_COMMUNICATION, /* gathered units, gradient staging, siblings' gradients on their way */
    FAMILY_WORKSPACE,     /* chunk sums, then kernels' workspace */
    FAMILIES,
};

enum plan_kind {
    PLAN_TRAIN,    /* one optimizer step */
    PLAN_EVALUATE, /* losses of micro-batches, forward only; stages as in training */
    PLAN_SAMPLE,   /* logits of one sample; one rank, whole model */
};

struct plan_layout {
    enum plan_kind kind;
    int rank;                         /* 0 .. data * stages - 1 */
    int data, stages, virtual_stages; /* D, P, V; 0 means 1 */
    int world_size;                   /* set by plan_build: data * stages */
    int zero;                         /* 0..3; with data 1 it becomes 0 */
    enum plan_schedule_kind schedule; /* of stages > 1 */
    enum plan_recompute recompute;
    int lanes;         /* power of two dividing micro_batches; D divides it */
    int micro_batches; /* of the step (or evaluation), over all ranks */
    enum plan_reduce reduce;
    bool fast;              /* sums in whatever order costs least (FAST): plan_build changes lanes and reduce */
    int64_t bucket_bytes;   /* of fp32 gradients */
    size_t workspace_bytes; /* the most that any op's kernel or the optimizer asks for */
    bool uploads_ahead;     /* ARRIVALS: where the device copies beside what it computes */
    const struct optimizer_kind *optimizer; /* NULL: nothing is stepped (evaluation, sampling), no state */
    bool ema;
};

enum plan_queue { QUEUE_COMPUTE, QUEUE_DATA, QUEUE_ACTIVATIONS, QUEUE_GRADIENTS, QUEUES };
enum plan_group { GROUP_DATA, GROUP_STAGES, GROUP_WORLD }; /* same stage; same d; all */

enum instruction_kind {
    INSTRUCTION_LOAD,            /* the batch inputs that this stage reads, of micro_batch */
    INSTRUCTION_FORWARD,         /* op */
    INSTRUCTION_RECOMPUTE,       /* op: forward once more, LIFE_BACKWARD; notes no loss */
    INSTRUCTION_BACKWARD_INPUT,  /* reverse op */
    INSTRUCTION_BACKWARD_WEIGHT, /* reverse op; reads plan->kept[op] in place of d_out[0] where that is >= 0 */
    INSTRUCTION_KEEP,            /* reverse op: d_out[0] is copied to tensor plan->kept[op] */
    INSTRUCTION_ADD,             /* [begin, end) of gradient space: buffer += source, or buffer = source if `first` */
    INSTRUCTION_ADD_SLOT,        /* pieces [begin, end) of an owner's slot += the same elements of slot `source` */
    INSTRUCTION_NORM,            /* pieces [begin, end) with norm >= 0: sums of squares by chunk, of `buffer` */
    INSTRUCTION_DECIDE,          /* adds the sums in order; sets the scale of clipping and the flag that STEP obeys */
    INSTRUCTION_STEP,            /* pieces [begin, end): the optimizer, from `buffer`; predicated */
    INSTRUCTION_WAIT,            /* for entry `entry` of queue `queue` */
    INSTRUCTION_DROP,            /* unit `entry` (a bucket) is dead: ZeRO-3 */
    INSTRUCTION_SEND,            /* `what` to peer */
    INSTRUCTION_RECV,            /* `what` from peer */
    INSTRUCTION_REDUCE,          /* data: bucket `entry` of `buffer` over GROUP_DATA; begin, end: the bucket's */
    INSTRUCTION_GATHER,          /* data: parameters of bucket `entry` from their parts, over GROUP_DATA */
    INSTRUCTION_EXCHANGE,        /* data: the ranks' step records (losses, flags), united by OR over GROUP_WORLD */
    INSTRUCTION_EXCHANGE_NORMS,  /* data: the array of chunk sums, united by OR over `group` */
    INSTRUCTION_KINDS,
};

enum plan_what {
    WHAT_TENSOR,   /* op: tensor, of micro_batch; place by flight, LIFE_FORWARD (an activation) or LIFE_BACKWARD */
    WHAT_GRADIENT, /* op: slot; elements [begin, end) of it, fp32. SEND: from buffer `buffer`; RECV: to its landing */
    WHAT_WEIGHT,   /* op: parameter; elements [begin, end) of it, in the graph's type, in parameter space */
};

struct instruction {
    enum instruction_kind kind;
    enum plan_queue queue; /* WAIT */
    enum plan_group group; /* data queue */
    enum plan_what what;   /* SEND, RECV */
    int op;                /* FORWARD, RECOMPUTE: op; BACKWARD_*, KEEP: reverse op; SEND, RECV: see what; else -1 */
    int micro_batch;       /* number in the step; LOAD .. KEEP, and SEND, RECV of tensors; else -1 */
    int flight;            /* its number on this rank; -1 with micro_batch -1 */
    int chunk;             /* local, 0 .. V-1: FORWARD .. KEEP, SEND, RECV of tensors; else -1 */
    int buffer, source;    /* gradient buffers; ADD_SLOT: source is a slot */
    int entry;             /* WAIT: entry; REDUCE, GATHER, DROP: bucket; else -1 */
    int peer;              /* SEND, RECV: rank; else -1 */
    int after;             /* queues other than compute */
    bool first;            /* BACKWARD_*: a lane's first micro-batch: first writers overwrite. ADD: copies */
    int64_t begin, end;    /* as the kind says: elements or pieces */
};

struct instruction_list {
    struct instruction *items;
    int n;
};

struct plan_bucket {
    int64_t begin, end; /* gradient space */
    int64_t parameter;  /* parameter space (ZeRO 0-2) of `begin`; -1: a sibling whose parameter another bucket has */
    int64_t own_weight; /* ZeRO-3: parameter space of this rank's part; -1 likewise */
    int chunk, block;   /* local chunk; block of its slots' last writer */
    int ready;          /* reverse op that writes its last gradient */
    int ready_weight;   /* the last whose BACKWARD_WEIGHT writes in it; -1: none */
    int *cut;           /* [D + 1] in PLAN_CHUNKs from begin, for whole tensors; NULL: even (ask plan_cut) */
    int rotation;       /* even cuts: which parts get the chunks that are left over */
    int first_piece, n_pieces; /* ZeRO 1-3: this rank's in it. ZeRO 0: those that end in it */
};

struct plan_piece {
    int slot, parameter;       /* owner slot */
    int64_t begin;             /* gradient space */
    int64_t first, count;      /* elements of the parameter: [first, first + count), padding not counted */
    int64_t weight;            /* parameter space of `first` */
    int64_t norm;              /* first of ceil(count / PLAN_CHUNK) chunk sums; -1: a statistic */
    size_t master, ema;        /* bytes in FAMILY_OPTIMIZER; SIZE_MAX = none (master: the weight is it) */
    size_t state[PLAN_STATES]; /* bytes in FAMILY_OPTIMIZER, fp32, optimizer->state_elements many; SIZE_MAX = none */
};

/* The blocks of a local chunk. */
struct plan_chunk {
    int number; /* in the model: 0 .. P V - 1 */
    int first_block, n_blocks;
    int input, output;     /* boundary tensors that cross ranks; -1 at the model's ends */
    int d_input, d_output; /* their gradients */
    int flights;           /* most micro-batches whose forward has started and whose backward has not ended */
};

enum plan_life { LIFE_FORWARD, LIFE_BACKWARD, LIVES };

/* Where a tensor is: offset + flight % copies * stride. offset SIZE_MAX = never live here. */
struct tensor_place {
    size_t offset, stride;
    int copies;
};

struct plan {
    const struct graph *graph; /* borrowed */
    struct plan_layout layout; /* zeros resolved */
    struct instruction_list queue[QUEUES];

    struct plan_chunk *chunks; /* [virtual_stages] */
    int *block_stage;          /* [n_blocks] stage of every block of the model */
    int *block_chunk;          /* [n_blocks] local chunk; -1: another stage's */

    int64_t *slot_begin, *slot_end; /* [n_slots] gradient space, padded; -1: not of this stage */
    int *slot_order, n_own_slots;   /* [n_own_slots] this stage's slots as they lie in gradient space */
    int *slot_writers;              /* [n_slots] reverse ops of this stage that write it in a micro-batch */
    int *slot_first;                /* [n_slots] the first of them in backward order */
    int *slot_stage;                /* [n_slots] stage that computes it */
    int64_t gradient_elements;
    int lane_buffers, accumulator, result;
    bool staged; /* buffer 0 is staging */

    int64_t *parameter_begin; /* [n_parameters] parameter space, whole (ZeRO 0-2); -1: not here, or ZeRO-3 */
    int64_t parameter_elements;
    int *parameter_stage;    /* [n_parameters] the stage that owns and steps it */
    int64_t *parameter_norm; /* [n_parameters] its first chunk sum; -1: a statistic */
    int64_t norm_chunks;

    struct plan_bucket *buckets; /* in the order in which they are ready within a chunk */
    int n_buckets;
    struct plan_piece *pieces;
    int n_pieces;

    bool *loaded;  /* [n_tensors] batch inputs that LOAD fills on this rank */
    int *storage;  /* [n_tensors] the tensor whose bytes it uses on this rank (a received tensor has its own) */
    int *kept;     /* [n_reverse] tensor number >= graph->n_tensors that KEEP fills; -1 = none */
    int n_tensors; /* graph's and kept ones: kept tensor t is like the d_out[0] of reverse op kept_of[t - graph's] */
    int *kept_of;
    struct tensor_place *tensors[LIVES]; /* [n_tensors] FAMILY_BATCH for batch inputs, else FAMILY_ACTIVATIONS */
    size_t *arrival_offset;              /* [n_tensors] FAMILY_BATCH: a batch input's arrival; SIZE_MAX = none */
    size_t *unit_offset;                 /* [n_buckets] ZeRO-3: FAMILY_COMMUNICATION, gathered; SIZE_MAX = no unit */
    size_t *staging_offset;              /* [n_buckets] staged: FAMILY_COMMUNICATION */
    size_t *landing_offset;              /* [n_slots] siblings from other stages: FAMILY_COMMUNICATION; SIZE_MAX */
    size_t *accumulator_offset;          /* [n_buckets] FAMILY_GRADIENTS: this rank's part; NULL = no accumulator */
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

/* --- who does what --- */

/* Stage and data rank of a rank. */
int plan_stage(const struct plan_layout *layout);
int plan_data_rank(const struct plan_layout *layout);
/* The rank that knows micro-batch k's loss: the last stage's, of the column that computes it. */
int plan_owner(const struct plan_layout *layout, int k);
/* Micro-batches that each rank computes, and which of the step is the q-th of data rank d. */
int plan_own_micro_batches(const struct plan_layout *layout);
int plan_micro_batch(const struct plan_layout *layout, int d, int q);

/* --- places --- */

struct plan_place {
    enum plan_family family;
    size_t offset; /* SIZE_MAX = nowhere */
};
struct plan_place plan_tensor_place(const struct plan *plan, int tensor, int flight, enum plan_life life);
size_t plan_tensor_bytes(const struct plan *plan, int tensor); /* kept tensors too */
/* Where a batch input arrives, graph_batch_bytes of it; nowhere without uploads_ahead. */
struct plan_place plan_arrival_place(const struct plan *plan, int tensor);
enum plan_life instruction_life(const struct plan *plan, const struct instruction *i);
/* Element `at` of gradient space in a buffer; what follows it up to its bucket's end (staging, accumulator: up to the
 * part's end) lies behind it. In lane buffers that are not staging, the whole space is contiguous. An `at` behind
 * gradient space: the landing of a sibling; any buffer. */
struct plan_place plan_gradient_place(const struct plan *plan, int buffer, int64_t at);
/* A parameter as ops read it, whole, in the graph's type: parameter space, or under ZeRO-3 its gathered unit. */
struct plan_place plan_parameter_place(const struct plan *plan, int parameter);
/* GATHER of a bucket: (bucket's elements) go to `to`, part by part; this rank's part comes from `own`, which is inside
 * `to` under ZeRO 1-2. */
void plan_gather_places(const struct plan *plan, int bucket, struct plan_place *to, struct plan_place *own);
/* A piece's weight, in the graph's type. */
struct plan_place plan_weight_place(const struct plan *plan, const struct plan_piece *piece);
/* Elements [ret, ...) of gradient space where part j of a bucket begins; j = D gives its end. */
int64_t plan_cut(const struct plan *plan, int bucket, int j);
/* The part that data rank d owns: d's bits reversed. An involution. */
int plan_part(const struct plan_layout *layout, int d);
/* What data rank d of this stage owns of a bucket: all of it under ZeRO 0. */
void plan_own_range(const struct plan *plan, int bucket, int d, int64_t *begin, int64_t *end);
/* The sums of squares by chunk stand at the start of FAMILY_WORKSPACE, kernels' workspace behind them. */
size_t plan_chunk_sum_bytes(const struct plan *plan);
int plan_bucket_at(const struct plan *plan, int64_t at); /* the bucket that holds an element; -1: none */

/* --- what instructions touch --- */

const char *instruction_name(enum instruction_kind kind);
const char *plan_family_name(enum plan_family family);

/* Tensors: reads must be live; writes make live (and kill what shares the bytes); views become live without changing a
 * byte. SEND and RECV too. The life is the instruction's, except that RECOMPUTE and BACKWARD_* read what is kept, which
 * has one place for both lives. */
struct tensor_access {
    int reads[OP_INPUTS + 2 * OP_OUTPUTS + GRAPH_BATCH], n_reads;
    int writes[OP_INPUTS + OP_OUTPUTS + GRAPH_BATCH], n_writes;
    int views[OP_INPUTS], n_views;
};
void plan_access(const struct plan *plan, const struct instruction *i, struct tensor_access *ret);
/* Slots whose gradients a BACKWARD_INPUT or BACKWARD_WEIGHT writes, and whether each is this micro-batch's first writer
 * of it. Returns how many. */
int plan_written_slots(const struct plan *plan, const struct instruction *i, int ret_slot[OP_PARAMETERS],
                       bool ret_first_writer[OP_PARAMETERS]);
/* LOAD fills this batch input on this rank. */
bool plan_loads(const struct plan *plan, int tensor);

/* --- choices, before a plan is built: choose.h; the cut in stages: stage.h; schedules: schedule.h --- */

#endif
