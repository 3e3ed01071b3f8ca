/* A plan: everything that one rank does in one step, and the address of every byte, decided before the first step. A
 * plan is a value: it is built, verified, costed, printed and compared without a device. run/ executes it.
 *
 *     TRY(plan_build(graph, &layout, &plan, e));      // build/plan_build.h
 *     TRY(plan_verify(plans, n, e));                  // verify/verify.h: all ranks of a step, simulated
 *
 * The words in capitals below are the manual's chapters. Letters: D data ranks, P stages, V virtual stages per rank.
 *
 * RANKS. The world size is D P. Rank = stage * D + d, so the D data ranks of a stage are neighbours. A column is the
 * ranks of all stages with one d. Example, D = 2 and P = 2:
 *
 *                 stage 0 (blocks 0..3)    stage 1 (blocks 4..7)
 *       d = 0     rank 0                   rank 2                  a column: micro-batches of lanes 0 and 1
 *       d = 1     rank 1                   rank 3                  a column: micro-batches of lanes 2 and 3
 *
 * A model is divided into P V virtual stages of consecutive blocks (build/stage_cut.h). Stage s holds virtual stages s,
 * s + P, s + 2 P, ..., which it numbers locally 0 .. V-1. Data rank d owns lanes [d n, (d + 1) n), n = lanes / D. Every
 * stage of a column computes the same micro-batches in the same sequence q = 0, 1, ... (plan_micro_batch).
 *
 * The plans of the data ranks of one stage are translations of each other: instruction by instruction the same, except
 * for micro_batch (+ d n), peer (+ d), and the ranges of elements and shards that d owns. An owned range may be empty.
 * An empty range is legal everywhere and means that there is nothing to do.
 *
 * QUEUES. The compute queue is an ordered list. Entry i of another queue may start when compute instructions
 * [0, i.after) are done:
 *   QUEUE_DATA         REDUCE, GATHER, EXCHANGE, EXCHANGE_NORMS: one after the other, in order (a thread or a stream)
 *   QUEUE_ACTIVATIONS  SEND and RECV of boundary tensors, and of weights that return to another stage
 *   QUEUE_GRADIENTS    SEND and RECV of boundary gradients, and of gradients for the stage that owns a shared parameter
 * Entries of the last two are posted when compute reaches `after`, and complete in any order. Between two ranks, in one
 * direction, on one queue, the n-th SEND matches the n-th RECV. Nothing is buffered: a SEND is done when its bytes are
 * taken. `after` never decreases along a queue. WAIT, on the compute queue, blocks until entry `entry` of queue `queue`
 * is done; on QUEUE_DATA that includes all entries before it. Every entry is waited for within its step. There is no
 * other synchronisation.
 *
 * GRADIENT SPACE of a rank, in elements: the gradients of the uses (graph.h) of its stage, in the order in which the
 * backward pass finishes them. Each starts on a multiple of a chunk (1,024 elements) and is padded with zeros.
 *
 *       uses       | head.weight | ln.weight | ... | h.0.attn.weight | wte.weight |  -> siblings from other stages
 *       buckets    |      bucket 0      |       bucket 1      |       bucket 2    |
 *       parts      |  d = 0  |  d = 1   |  d = 0   |  d = 1   |  ...
 *
 * A bucket is a range of gradient space. It is reduced with one collective as soon as its last gradient is written. No
 * bucket spans two virtual stages. With ZeRO 3 none spans two blocks. With ZeRO 2 and 3, and for optimizers that step
 * whole tensors, buckets end where uses end. A parameter with several uses is shared: its uses are siblings. The first
 * use owns the parameter: the other gradients are added to its gradient, which is normed and stepped. A sibling shares
 * no bucket with another use, and all siblings are divided alike. Siblings that other stages compute and this stage
 * owns lie behind gradient space (use_begin >= gradient_elements), only to be received.
 *
 * PARTS. A bucket has D parts, which begin at multiples of a chunk (plan_part_begin). Part j belongs to data rank
 * bit_reverse(j) (plan_part_of), so that recursive halving ends with the part on its owner: at level k, ranks d and
 * d xor 2^k halve the range of parts that they share. With ZeRO 0, REDUCE is halving and all-gather: every rank ends
 * with the whole bucket. With ZeRO 1 to 3 it is halving only: a rank ends with its own part. Sums are element by
 * element, so no bit depends on the boundaries.
 *
 * SHARDS: what this rank steps, in the order of gradient space: the part of an owning use that this rank owns; with
 * ZeRO 0 whole uses. Instructions name ranges of shards. A shard holds the places of its gradient, weight, master,
 * optimizer states and EMA. Masters, states and EMA are fp32. When elements are fp32, the weight is its own master.
 *
 * PARAMETER SPACE of a rank, in elements of the graph's type. ZeRO 0 to 2: all parameters that its stage reads, whole;
 * owned ones come first, in the order of gradient space. After STEP, ZeRO 1 and 2 GATHER each bucket's parameters from
 * the data ranks. ZeRO 3: own shards only. GATHER brings the parameters of a bucket to FAMILY_COMMUNICATION one block
 * before they are used, and DROP ends their lifetime. In the backward pass an op without an input gradient
 * (op_kind.differentiable 0: embeddings) reads no weight, so none is gathered for it.
 *
 * GRADIENT BUFFERS. `buffer` in an instruction names one; plan_gradient_place returns an element's address. Buffers
 * 0 .. lane_buffers-1 each hold all of gradient space, and add up lanes (engine/README.md, "Same bits"). There is one
 * exception: with ZeRO 2 or 3, one lane per rank, and a reduction for each micro-batch (`reduce: micro_batch`, or only
 * one round), buffer 0 is staging. Then a bucket has bytes in FAMILY_COMMUNICATION only from its first gradient until
 * its reduced part is added to the accumulator, and at most PLAN_REDUCTIONS_IN_FLIGHT buckets are being reduced. Buffer
 * `accumulator` (-1: none) holds own parts only. The sum of the step ends in buffer `result`.
 *
 * FAST. In the usual order of sums a rank adds its lanes as a tree, in 1 + log2(lanes / D) buffers. `fast` makes a rank
 * one lane (lanes = D): it adds all its micro-batches into one buffer, which is reduced once a step (`reduce: step`).
 * ZeRO 2 and 3 with one lane per rank and `reduce: micro_batch` stay as they are, because the change would take more
 * bytes than it saves. With `fast` the bits depend on D.
 *
 * When several reverse ops of one micro-batch write a use (a weight that iterations share), the first one in backward
 * order overwrites if `first` is set, and the others add.
 *
 * COPIES OF TENSORS. `in_flight` is the number q of a micro-batch on this rank. A tensor that must outlive instructions
 * of other micro-batches has several copies, used in turn: plan_tensor_place(plan, tensor, in_flight, lifetime). A
 * tensor that is recomputed has two lifetimes with different bytes: LIFETIME_FORWARD in the forward pass, and
 * LIFETIME_BACKWARD from its RECOMPUTE on. instruction_lifetime returns the one that an instruction means. A stored
 * tensor has one place for both.
 *
 * UPLOAD BUFFERS. With uploads_ahead a batch input has a buffer in FAMILY_BATCH beside its copies. The host uploads the
 * next micro-batch to it while the current one is computed. LOAD waits for the upload and makes the tensor from it.
 * LOAD alone reads the buffer, and between two LOADs it belongs to the upload, so one buffer is enough in every order
 * of micro-batches.
 *
 * NORMS. The sums of squares of all chunks of the model are in one array of norm_chunks doubles, in the order of the
 * whole model's gradient space, which is the same in every layout (statistics have none). The array is zero when a step
 * starts. NORM fills in this rank's chunks. EXCHANGE_NORMS adds the arrays of the group: in each element all terms but
 * one are zero, so the sum is exact. DECIDE adds the array in order.
 *
 * ZERO BUBBLE. BACKWARD_WEIGHT runs later than BACKWARD_INPUT. If a reverse op in between would overwrite the gradient
 * that it reads, COPY_GRADIENT copies that gradient first (`gradient_copy`).
 *
 * AVERAGES. A plan of the kind PLAN_AVERAGE computes no micro-batch. Each weight and its average (EMA) change places,
 * and the ranks that read the weight get it as after a STEP. So an evaluation reads the averages as weights, without a
 * copy of either. Executed once more, the plan restores both, bit by bit: a 16-bit weight is its master rounded.
 *
 * STATISTICS. Running moments have fp32 masters, on the data rank that owns their shard. Ops of an evaluation in 16
 * bits read the moments in fp32. So such a plan begins with STATISTICS, which copies the own shards to an array of all
 * moments that the stage reads, and, if they are sharded, with EXCHANGE_STATISTICS, which adds the arrays of the data
 * ranks: in each element all terms but one are zero.
 *
 * MEMORY. Every place is a family and an offset. Families start on 64 bytes, in one arena. Plans of any kind of the
 * same layout agree with the training plan in FAMILY_PARAMETERS and FAMILY_OPTIMIZER. */
#ifndef ENGINE_PLAN_PLAN_H
#define ENGINE_PLAN_PLAN_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/plan/schedule_kind.h"
#include "engine/plan/settings.h"

struct optimizer_kind; /* engine/optimizer/optimizer.h */

enum { PLAN_CHUNK = 1024, PLAN_ALIGN = 64, PLAN_STATES = 2, PLAN_REDUCTIONS_IN_FLIGHT = 2 };

enum plan_family {
    FAMILY_PARAMETERS,    /* what ops read (ZeRO 3: own shards of it) */
    FAMILY_GRADIENTS,     /* lane buffers, accumulator */
    FAMILY_OPTIMIZER,     /* masters, states, EMA */
    FAMILY_ACTIVATIONS,   /* activations, their gradients, boundary tensors */
    FAMILY_BATCH,         /* batch inputs and their upload buffers */
    FAMILY_COMMUNICATION, /* gathered weights, staged gradients, siblings' gradients from other stages */
    FAMILY_WORKSPACE,     /* sums of squares by chunk, then kernels' workspace */
    FAMILIES,
};

enum plan_kind {
    PLAN_TRAIN,    /* one optimizer step */
    PLAN_EVALUATE, /* losses of micro-batches, forward only; stages as in training */
    PLAN_AVERAGE,  /* AVERAGES: weights and averages change places; with ema only */
    PLAN_SAMPLE,   /* logits of one sample; one rank, whole model */
};

struct plan_layout {
    enum plan_kind kind;
    int rank;                             /* 0 .. data * stages - 1 */
    int data, stages, virtual_stages;     /* D, P, V; 0 means 1 */
    int world_size;                       /* set by plan_build: data * stages */
    int zero;                             /* 0..3; with data 1 it becomes 0 */
    const struct schedule_kind *schedule; /* of stages > 1; NULL means 1f1b; plan_build sets it */
    enum plan_recompute recompute;
    int lanes;         /* power of two dividing micro_batches; D divides it */
    int micro_batches; /* of the step (or evaluation), over all ranks */
    enum plan_reduce reduce;
    bool fast;                              /* FAST: plan_build changes lanes and reduce */
    int64_t bucket_bytes;                   /* of fp32 gradients */
    size_t workspace_bytes;                 /* the largest that an op's kernel or the optimizer needs */
    bool uploads_ahead;                     /* UPLOAD BUFFERS: if the device copies while it computes */
    const struct optimizer_kind *optimizer; /* NULL: nothing is stepped (evaluation, sampling), no state */
    bool ema;
};

enum plan_queue { QUEUE_COMPUTE, QUEUE_DATA, QUEUE_ACTIVATIONS, QUEUE_GRADIENTS, QUEUES };
enum plan_group { GROUP_DATA, GROUP_STAGES, GROUP_WORLD }; /* same stage; same d; all */

enum instruction_kind {
    INSTRUCTION_LOAD,            /* the batch inputs that this stage reads, of micro_batch */
    INSTRUCTION_FORWARD,         /* op */
    INSTRUCTION_RECOMPUTE,       /* op: forward again, LIFETIME_BACKWARD; adds no loss */
    INSTRUCTION_BACKWARD_INPUT,  /* reverse op */
    INSTRUCTION_BACKWARD_WEIGHT, /* reverse op; reads plan->gradient_copy[op], if there is one, instead of d_out[0] */
    INSTRUCTION_COPY_GRADIENT,   /* reverse op: d_out[0] is copied to tensor plan->gradient_copy[op] */
    INSTRUCTION_ADD,             /* [begin, end) of gradient space: buffer += source, or buffer = source if `first` */
    INSTRUCTION_ADD_USE,         /* shards [begin, end) of an owning use += the same elements of use `source` */
    INSTRUCTION_NORM,            /* shards [begin, end) with norm >= 0: sums of squares by chunk, of `buffer` */
    INSTRUCTION_DECIDE,          /* adds the sums in order; sets the clipping scale and whether STEP applies */
    INSTRUCTION_STEP,            /* shards [begin, end): the optimizer, from `buffer`; does nothing if DECIDE said so */
    INSTRUCTION_STATISTICS,      /* STATISTICS: shards [begin, end) with a running moment, to the array */
    INSTRUCTION_SWITCH_AVERAGES, /* shards [begin, end): weights and averages change places */
    INSTRUCTION_WAIT,            /* for entry `entry` of queue `queue` */
    INSTRUCTION_DROP,            /* ZeRO 3: the gathered weights of bucket `entry` are not used any more */
    INSTRUCTION_SEND,            /* `payload` to peer */
    INSTRUCTION_RECV,            /* `payload` from peer */
    INSTRUCTION_REDUCE,          /* data: bucket `entry` of `buffer` over GROUP_DATA; begin, end: the bucket's */
    INSTRUCTION_GATHER,          /* data: parameters of bucket `entry` from their parts, over GROUP_DATA */
    INSTRUCTION_EXCHANGE,        /* data: the ranks' step results (losses, flags), united by OR over GROUP_WORLD */
    INSTRUCTION_EXCHANGE_NORMS,  /* data: the array of chunk sums, united by OR over `group` */
    INSTRUCTION_EXCHANGE_STATISTICS, /* data: the array of running moments, united by OR over GROUP_DATA */
    INSTRUCTION_KINDS,
};

enum plan_payload {
    PAYLOAD_TENSOR,   /* op: tensor, of micro_batch; place by in_flight and instruction_lifetime */
    PAYLOAD_GRADIENT, /* op: use; elements [begin, end) of it, fp32. SEND: from `buffer`; RECV: to its place */
    PAYLOAD_WEIGHT,   /* op: parameter; elements [begin, end) of it, in the graph's type, in parameter space */
};

struct instruction {
    enum instruction_kind kind;
    enum plan_queue queue;     /* WAIT */
    enum plan_group group;     /* data queue */
    enum plan_payload payload; /* SEND, RECV */
    int op; /* FORWARD, RECOMPUTE: op; BACKWARD_*, COPY_GRADIENT: reverse op; SEND, RECV: see payload; else -1 */
    int micro_batch;    /* number in the step; LOAD .. COPY_GRADIENT, and SEND, RECV of tensors; else -1 */
    int in_flight;      /* its number on this rank; -1 with micro_batch -1 */
    int virtual_stage;  /* local, 0 .. V-1: FORWARD .. COPY_GRADIENT, SEND, RECV of tensors; else -1 */
    int buffer, source; /* gradient buffers; ADD_USE: source is a use */
    int entry;          /* WAIT: entry; REDUCE, GATHER, DROP: bucket; else -1 */
    int peer;           /* SEND, RECV: rank; else -1 */
    int after;          /* queues other than compute */
    bool first;         /* BACKWARD_*: a lane's first micro-batch: first writers overwrite. ADD: copies */
    int64_t begin, end; /* as the kind says: elements or shards */
};

struct instruction_list {
    struct instruction *items;
    int n;
};

struct plan_bucket {
    int64_t begin, end; /* gradient space */
    int64_t parameter;  /* parameter space (ZeRO 0-2) of `begin`; -1: a sibling whose parameter is in another bucket */
    int64_t own_weight; /* ZeRO-3: parameter space of this rank's part; -1 likewise */
    int virtual_stage, block;  /* the local one; the block that writes its last gradient */
    int ready;                 /* reverse op that writes its last gradient */
    int ready_weight;          /* the last whose BACKWARD_WEIGHT writes in it; -1: none */
    int *part_begin;           /* [D + 1] in chunks from begin, for whole tensors; NULL: even (plan_part_begin) */
    int rotation;              /* even parts: which of them get the remaining chunks */
    int first_shard, n_shards; /* ZeRO 1-3: this rank's in the bucket. ZeRO 0: those that end in it */
};

struct plan_shard {
    int use, parameter;        /* the owning use */
    int64_t begin;             /* gradient space */
    int64_t first, count;      /* elements of the parameter: [first, first + count), padding not counted */
    int64_t weight;            /* parameter space of `first` */
    int64_t norm;              /* first of ceil(count / PLAN_CHUNK) chunk sums; -1: a statistic */
    size_t master, ema;        /* bytes in FAMILY_OPTIMIZER; SIZE_MAX = none (master: the weight is it) */
    size_t state[PLAN_STATES]; /* bytes in FAMILY_OPTIMIZER, fp32, optimizer->state_elements many; SIZE_MAX = none */
};

/* Directions of boundary tensors: activations forward, gradients backward. */
enum plan_way { WAY_FORWARD, WAY_BACKWARD, WAYS };

/* Boundary tensors (graph.h) that one transfer of a micro-batch carries, in ascending order. */
struct plan_boundary {
    int *tensor;
    int n;
};

/* A local virtual stage. It receives activations from virtual stage number - 1 and gradients from number + 1, and sends
 * the other way. A tensor that it only passes on is in both lists. */
struct plan_virtual_stage {
    int number; /* in the model: 0 .. P V - 1 */
    int first_block, n_blocks;
    struct plan_boundary receive[WAYS], send[WAYS];
    int max_in_flight; /* the largest number of micro-batches between the start of forward and the end of backward */
};

enum plan_lifetime { LIFETIME_FORWARD, LIFETIME_BACKWARD, LIFETIMES };

/* Where a tensor is: offset + in_flight % copies * stride. offset SIZE_MAX = not on this rank. */
struct tensor_place {
    size_t offset, stride;
    int copies;
};

struct plan {
    const struct graph *graph; /* borrowed */
    struct plan_layout layout; /* zeros resolved */
    struct instruction_list queue[QUEUES];

    struct plan_virtual_stage *virtual_stages; /* [layout.virtual_stages] */
    int *block_stage;                          /* [n_blocks] stage of every block of the model */
    int *block_virtual_stage;                  /* [n_blocks] local virtual stage; -1: another stage's */

    int64_t *use_begin, *use_end; /* [n_uses] gradient space, padded; -1: not of this stage */
    int *use_order, n_own_uses;   /* [n_own_uses] this stage's uses as they lie in gradient space */
    int *use_writers;             /* [n_uses] reverse ops of this stage that write it in a micro-batch */
    int *use_first;               /* [n_uses] the first of them in backward order */
    int *use_stage;               /* [n_uses] stage that computes it */
    int64_t gradient_elements;
    int lane_buffers, accumulator, result;
    bool staged; /* buffer 0 is staging */

    int64_t *parameter_begin; /* [n_parameters] parameter space, whole (ZeRO 0-2); -1: not here, or ZeRO-3 */
    int64_t parameter_elements;
    int *parameter_stage;    /* [n_parameters] the stage that owns and steps it */
    int64_t *parameter_norm; /* [n_parameters] its first chunk sum; -1: a statistic */
    int64_t norm_chunks;

    struct plan_bucket *buckets; /* in the order in which they are ready within a virtual stage */
    int n_buckets;
    struct plan_shard *shards;
    int n_shards;

    bool *loaded;          /* [n_tensors] batch inputs that LOAD fills on this rank */
    int *storage;          /* [n_tensors] the tensor whose bytes it uses on this rank (a received tensor has its own) */
    int *gradient_copy;    /* [n_reverse] tensor number >= graph->n_tensors that COPY_GRADIENT fills; -1 = none */
    int n_tensors;         /* the graph's, then gradient copies */
    int *gradient_copy_of; /* [copies] the reverse op whose d_out[0] the copy holds */
    struct tensor_place *tensors[LIFETIMES]; /* [n_tensors] FAMILY_BATCH for batch inputs, else FAMILY_ACTIVATIONS */
    size_t *statistic_offset; /* [n_parameters] STATISTICS, FAMILY_ACTIVATIONS: fp32, whole; SIZE_MAX = none */
    size_t statistics_begin, statistics_bytes; /* the array; 0 bytes: none */
    size_t *upload_offset;      /* [n_tensors] FAMILY_BATCH: a batch input's upload buffer; SIZE_MAX = none */
    size_t *gathered_offset;    /* [n_buckets] ZeRO-3: FAMILY_COMMUNICATION, gathered weights; SIZE_MAX = none */
    size_t *staging_offset;     /* [n_buckets] staged: FAMILY_COMMUNICATION */
    size_t *sibling_offset;     /* [n_uses] siblings from other stages: FAMILY_COMMUNICATION; SIZE_MAX */
    size_t *accumulator_offset; /* [n_buckets] FAMILY_GRADIENTS: this rank's part; NULL = no accumulator */
    size_t family_bytes[FAMILIES];
};

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
/* The ways in which a plan's boundary tensors go: both, forward only, or none. */
int plan_ways(const struct plan_layout *layout);
/* Micro-batches that each rank computes, and which of the step is the q-th of data rank d. */
int plan_own_micro_batches(const struct plan_layout *layout);
int plan_micro_batch(const struct plan_layout *layout, int d, int q);

/* --- places --- */

struct plan_place {
    enum plan_family family;
    size_t offset; /* SIZE_MAX = nowhere */
};
struct plan_place plan_tensor_place(const struct plan *plan, int tensor, int in_flight, enum plan_lifetime lifetime);
size_t plan_tensor_bytes(const struct plan *plan, int tensor); /* gradient copies too */
/* The upload buffer of a batch input, graph_batch_bytes of it; SIZE_MAX without uploads_ahead. */
struct plan_place plan_upload_place(const struct plan *plan, int tensor);
enum plan_lifetime instruction_lifetime(const struct plan *plan, const struct instruction *i);
/* Element `at` of gradient space in a buffer. The elements behind it are contiguous up to the end of its bucket
 * (staging), of this rank's part (accumulator), or of the whole space (other lane buffers). If `at` is behind gradient
 * space, the place is a sibling's, in any buffer. */
struct plan_place plan_gradient_place(const struct plan *plan, int buffer, int64_t at);
/* A parameter as ops read it, whole, in the graph's type: parameter space, or with ZeRO 3 the gathered weights. */
struct plan_place plan_parameter_place(const struct plan *plan, int parameter);
/* STATISTICS: a running moment in fp32, whole; SIZE_MAX: ops read it as any parameter. */
struct plan_place plan_statistic_place(const struct plan *plan, int parameter);
/* GATHER of a bucket: its elements go to `to`, part by part. This rank's part comes from `own`, which is inside `to`
 * with ZeRO 1 and 2. */
void plan_gather_places(const struct plan *plan, int bucket, struct plan_place *to, struct plan_place *own);
/* A shard's weight, in the graph's type. */
struct plan_place plan_weight_place(const struct plan *plan, const struct plan_shard *shard);
/* The element of gradient space where part j of a bucket begins; j = D returns the bucket's end. */
int64_t plan_part_begin(const struct plan *plan, int bucket, int j);
/* The part that data rank d owns: d's bits reversed. An involution. */
int plan_part_of(const struct plan_layout *layout, int d);
/* What data rank d of this stage owns of a bucket: all of it under ZeRO 0. */
void plan_own_range(const struct plan *plan, int bucket, int d, int64_t *begin, int64_t *end);
/* Bytes of the sums of squares, which lie at the start of FAMILY_WORKSPACE; kernels' workspace follows them. */
size_t plan_chunk_sum_bytes(const struct plan *plan);
int plan_bucket_at(const struct plan *plan, int64_t at); /* the bucket that holds an element; -1: none */

/* --- sizes --- */

size_t plan_aligned(size_t n);         /* the next multiple of PLAN_ALIGN */
int64_t plan_padded(int64_t elements); /* the next multiple of PLAN_CHUNK */
size_t plan_bytes(const struct plan *plan);
/* The data rank that owns the largest share of a plan's stage (the first of several), and the ratio of that share to
 * the mean. Ranks differ by the chunks that remain when buckets are divided. */
int plan_fullest(const struct plan *plan, double *ret_balance);

/* --- what instructions touch --- */

const char *instruction_name(enum instruction_kind kind);
const char *plan_family_name(enum plan_family family);
const char *plan_queue_name(enum plan_queue queue);

/* Tensors that an instruction touches, SEND and RECV included. Reads must be live. Writes become live, and end the
 * lifetime of everything else in their bytes. Views become live without a change of bytes. The lifetime is
 * instruction_lifetime. RECOMPUTE and BACKWARD_* also read stored tensors, which have one place for both lifetimes. */
struct tensor_access {
    int reads[OP_INPUTS + 2 * OP_OUTPUTS + GRAPH_BATCH], n_reads;
    int writes[OP_INPUTS + OP_OUTPUTS + GRAPH_BATCH], n_writes;
    int views[OP_INPUTS], n_views;
};
void plan_access(const struct plan *plan, const struct instruction *i, struct tensor_access *ret);
/* Uses whose gradients a BACKWARD_INPUT or BACKWARD_WEIGHT writes, and whether each is this micro-batch's first writer
 * of it. Returns how many. */
int plan_written_uses(const struct plan *plan, const struct instruction *i, int ret_use[OP_PARAMETERS],
                      bool ret_first_writer[OP_PARAMETERS]);
/* LOAD fills this batch input on this rank. */
bool plan_loads(const struct plan *plan, int tensor);

#endif
