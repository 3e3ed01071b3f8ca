/* What the families' files have in common: names with a prefix, parameters that start in the usual ways, linear layers.
 * Parameters are named ROOT PREFIX NAME, ops PREFIX NAME; a parameter whose name is there already is that one: weights
 * that blocks share. */
#ifndef EXECUTOR_ENGINE_MODEL_BUILDER_H
#define EXECUTOR_ENGINE_MODEL_BUILDER_H

#include "executor/engine/graph/graph.h"
#include "executor/engine/graph/op.h"

struct builder {
    struct graph *g;
    const char *root; /* "transformer." */
    char prefix[48];  /* of the block: "h.0." */
};

/* printf into the prefix. */
void builder_prefix(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Opens a block of this name; gives the tensor that the block before it gave out. */
int builder_block(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A matrix or table, normal with this deviation, with weight decay; and a vector without. Each gives its number. */
int builder_table(struct builder *b, const char *name, struct shape shape, double std);
int builder_vector(struct builder *b, const char *name, int64_t n, enum init init);
/* A running moment: state that no optimizer steps. */
int builder_statistic(struct builder *b, const char *name, int64_t n, enum init init, double momentum);
/* One number, without decay; it starts at 0 or 1. */
int builder_constant(struct builder *b, const char *name, double start);
/* The slot of group 0 of: a matrix that Muon may take; a vector. */
int builder_matrix_slot(struct builder *b, const char *name, struct shape shape, double std);
int builder_vector_slot(struct builder *b, const char *name, int64_t n, enum init init);

/* *y is the op's first output; where more are wanted, `out` gets all (else NULL). */
MUST_CHECK status_t builder_op(struct builder *b, const struct op_kind *kind, const char *name,
                               struct op_arguments args, int *y, int out[OP_OUTPUTS], struct err *e);

struct linear_layer {
    const char *name; /* of the parameters: NAME.weight, NAME.bias */
    int64_t out;
    double std;
    bool bias, gelu, transposed;
};
MUST_CHECK status_t builder_linear(struct builder *b, const struct linear_layer *l, int x, int *y, struct err *e);

/* y = layernorm(x); NAME.weight, NAME.bias. With a branch (else -1): r = x + branch, y = layernorm(r). */
MUST_CHECK status_t builder_layernorm(struct builder *b, const char *name, double epsilon, int x, int branch, int *r,
                                      int *y, struct err *e);
/* *x goes through dropout, where there is any. */
MUST_CHECK status_t builder_dropout(struct builder *b, const char *name, double probability, int *x, struct err *e);
/* y = a + b, in b's place. */
MUST_CHECK status_t builder_add(struct builder *b, const char *name, int a, int branch, int *y, struct err *e);
/* Accuracy as a report, and the cross-entropy of logits (B, classes): ends the last block. */
MUST_CHECK status_t builder_classify(struct builder *b, int logits, int labels, struct err *e);

#endif
