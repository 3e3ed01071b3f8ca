/* A model as data: tensors, parameters and ops in order, divided into blocks. model/ builds a graph, plan/ compiles it,
 * run/ walks the plan. Shapes and types are known when an op is added. Nothing here computes.
 *
 * BLOCKS. A pipeline may divide a model between two blocks, and recompute treats a block as one. An op may read tensors
 * of its own block, batch inputs, and tensors of any earlier block: the output of the block before it, or a skip
 * connection from further back. A tensor that a later block reads is a boundary tensor. It is stored, and a pipeline
 * passes it from stage to stage up to its last reader, and its gradient back.
 *
 * USES. An op does not read a parameter directly, but one of its uses. A use is a parameter and a number that the model
 * gives, and has one gradient. A parameter that one op reads has one use. GPT's tied embedding has two: one for the
 * embedding, one for the head. Their gradients are reduced separately and then added, so that the sum is the same
 * whether a pipeline separates the two or not. Several ops of one stage may share a use: an unrolled network reads the
 * same weights in each iteration. Then the first reverse op writes the gradient and the others add to it.
 *
 * GRADIENTS. graph_differentiate appends a reverse op for each op that a loss depends on, in reverse order, and a
 * gradient tensor for each activation that depends on a parameter. When several ops read a tensor, the first reverse op
 * writes its gradient and the others add to it, if their kinds can (op_kind.accumulates). Ops of other kinds read the
 * tensor through op_branch.
 *
 * LOSSES. A graph may have several ops that leave a gradient in their input (op_kind.gradient_in_forward): gradients of
 * all of them are added. `losses` is the output of the one that is reported and averaged. graph_add_report reports the
 * others.
 *
 * One thread builds a graph; any number may read it. It owns everything in it. Indices, not pointers, connect its
 * parts; -1 means none. */
#ifndef ENGINE_GRAPH_GRAPH_H
#define ENGINE_GRAPH_GRAPH_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/data/batch.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OP_INPUTS = 4,
    OP_OUTPUTS = 4,
    OP_PARAMETERS = 16,
    SHAPE_DIMS = 4,
    GRAPH_NAME = 64,
    GRAPH_BATCH = 4,
    GRAPH_REPORTS = 4
};

struct op_kind; /* op.h */

enum dtype { DTYPE_F32, DTYPE_I32, DTYPE_BF16, DTYPE_F16 };
size_t dtype_bytes(enum dtype dtype);

struct shape {
    int n;                   /* dimensions used */
    int64_t dim[SHAPE_DIMS]; /* row-major */
};
#define SHAPE(...) ((struct shape){ .n = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), .dim = { __VA_ARGS__ } })
int64_t shape_elements(const struct shape *s);
/* The same of the dimensions from `first` on. */
int64_t shape_elements_from(const struct shape *s, int first);

enum tensor_role {
    TENSOR_BATCH,      /* filled by LOAD */
    TENSOR_ACTIVATION, /* an op's output */
    TENSOR_GRADIENT,   /* of an activation */
};

struct tensor {
    char name[GRAPH_NAME]; /* "h.0.attn.qkv"; a gradient is "d:" and its activation's name */
    enum tensor_role role;
    enum dtype dtype;
    enum batch_input input; /* TENSOR_BATCH */
    struct shape shape;     /* of one micro-batch */
    int block;
    int alias_of; /* shares the bytes of this older tensor: an op that works in place */
};

enum init { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_UNIFORM };

/* A statistic is state that no optimizer steps: batch norm's running mean and variance. It has a use like a weight. In
 * the place of the gradient it has the values that a micro-batch measured, which are summed by the same tree. Norms do
 * not include it. Its step: running += momentum (sum / micro-batches - running). */
enum parameter_kind { PARAMETER_WEIGHT, PARAMETER_STATISTIC };

struct parameter {
    char name[GRAPH_NAME]; /* as in the family's Hugging Face checkpoints */
    enum parameter_kind kind;
    struct shape shape;
    enum init init;
    double init_std;  /* INIT_NORMAL; INIT_UNIFORM: the numbers are between -bound and bound = sqrt(3) init_std */
    double momentum;  /* PARAMETER_STATISTIC */
    bool decay;       /* weight decay applies: matrices */
    bool matrix;      /* the weight of a matrix product, which Muon steps; false for embeddings and heads */
    bool input_first; /* stored (in, out), as GPT-2's matrices are; else (out, in) */
    int packed;       /* matrices of equal numbers of outputs that lie side by side in it, as q, k, v; 0 means 1 */
    int first_use;    /* the gradients of later uses are added to its gradient, which is normed and stepped */
};

struct parameter_use {
    int parameter;
    int number;   /* given by the model */
    int next_use; /* of the same parameter */
};

struct op_attributes {
    int heads;        /* attention, rope */
    int kv_heads;     /* the same; 0 = heads */
    bool causal;      /* attention */
    double epsilon;   /* norms */
    double dropout;   /* probability: attention, dropout */
    bool transposed;  /* linear: W is (out, in) */
    bool gelu_erf;    /* linear_gelu: GELU by erf; else by tanh */
    struct rope rope; /* rope */
    int kernel;       /* max_pool, patches: pixels a side */
    int stride;       /* convolution, max_pool */
    int padding;      /* the same: pixels on each side */
    bool relu;        /* batch norm: max(., 0) of the result */
};

struct op {
    const struct op_kind *kind;
    char name[GRAPH_NAME];
    int block;
    uint32_t id; /* its number in the whole model: identifies its random stream, in every layout */
    int in[OP_INPUTS], out[OP_OUTPUTS], use[OP_PARAMETERS];
    struct op_attributes attr;
};

struct reverse_op {
    int op;
    int d_out[OP_OUTPUTS]; /* gradient tensors read; -1 where nothing reads that output */
    int d_in[OP_INPUTS];   /* gradient tensors written; -1 where none is needed */
    bool accumulate[OP_INPUTS];
};

/* A figure of each sample beside its loss, averaged over the samples of an evaluation. */
struct graph_report {
    char name[24]; /* "accuracy": the metric is validation_accuracy */
    int tensor;    /* (B) fp32, written by a forward op, read by no other */
};

struct block {
    char name[GRAPH_NAME];
    int first_op, n_ops;
    int first_reverse, n_reverse; /* in graph.reverse */
    int input, output;            /* what model/ passes from block to block; -1 = none */
};

struct graph {
    struct tensor *tensors;
    struct parameter *parameters;
    struct parameter_use *uses;
    struct op *ops;
    struct reverse_op *reverse; /* ascending = the order in which the backward pass runs */
    struct block *blocks;
    int n_tensors, n_parameters, n_uses, n_ops, n_reverse, n_blocks;
    enum dtype element;     /* of activations, their gradients and weights; statistics and losses are fp32 */
    int batch[GRAPH_BATCH]; /* batch inputs, in the order they were added */
    int n_batch;
    int tokens, targets; /* batch inputs (B, T), i32; -1 where the model reads none */
    int logits;          /* (B, T, V) or (B, V): what sampling reads; -1 = none */
    int losses;          /* fp32, one per target, 0 where the target is -1 */
    struct graph_report report[GRAPH_REPORTS];
    int n_reports;
    int micro_batch;            /* B */
    int64_t targets_per_sample; /* losses of a sample: what the sum of losses is divided by, times the samples */
};

struct graph *graph_new(enum dtype element);
struct graph *graph_free(struct graph *g);
CLEANUP_DEFINE(struct graph *, graph_free)

/* Builders, for model/. Each returns an index. */
int graph_add_batch(struct graph *g, const char *name, enum batch_input input, enum dtype dtype, struct shape shape);
int graph_add_parameter(struct graph *g, const struct parameter *p);
/* Use `number` of this parameter; added when it does not exist yet. */
int graph_use(struct graph *g, int parameter, int number);
/* Opens the next block. Its input is the output of the block before it (-1 for the first). */
int graph_begin_block(struct graph *g, const char *name);
void graph_end_block(struct graph *g, int output);

/* Adds an op to the open block: applies the kind's shape rule, which makes the outputs. in and uses are filled up with
 * -1. INVALID_ARGUMENT names the op and what does not fit. */
struct op_arguments {
    const char *name;
    int in[OP_INPUTS], n_in;
    int use[OP_PARAMETERS], n_uses;
    struct op_attributes attr;
};
MUST_CHECK status_t graph_add_op(struct graph *g, const struct op_kind *kind, const struct op_arguments *args,
                                 int ret_out[OP_OUTPUTS], struct err *e);

/* For shape rules: makes output i of the op as a new activation. suffix is "" for the main output. alias_of: an input
 * tensor whose bytes it takes over, or -1. */
void graph_add_output(struct graph *g, struct op *op, int i, const char *suffix, struct shape shape, int alias_of);
/* The same, always in fp32: statistics and losses. */
void graph_add_statistic(struct graph *g, struct op *op, int i, const char *suffix, struct shape shape);

/* For autodiff: a tensor for the gradient of activation t. */
int graph_add_gradient(struct graph *g, int t, int alias_of);

/* Builds `reverse` from the losses back to the first op. Called once, after the last block. INTERNAL, our bug: an op
 * that works in place of what another keeps for its reverse, or cannot add to a gradient. RESOURCE_EXHAUSTED, of the
 * builders too. */
MUST_CHECK status_t graph_differentiate(struct graph *g, struct err *e);

/* Makes an op's output a report of the model. */
void graph_add_report(struct graph *g, const char *name, int tensor);

/* Sums over the model: parameters counted once. */
int64_t graph_parameter_elements(const struct graph *g);
/* FLOPs of one micro-batch: matrix products and attention, forward and backward. */
double graph_flops(const struct graph *g);

/* The tensor whose bytes t uses: itself, or the end of its alias chain. */
int graph_storage(const struct graph *g, int t);
size_t graph_tensor_bytes(const struct graph *g, int t);
/* Of a batch input as the host has it: narrow elements come as floats (batch.h). */
size_t graph_batch_bytes(const struct graph *g, int t);

#endif
