/* Functions that the families' files share: names with a prefix, parameters with the usual initial values, linear
 * layers. Parameters are named ROOT PREFIX NAME, ops PREFIX NAME. If a parameter of the same name exists, it is used
 * again: blocks share weights in this way. */
#ifndef ENGINE_MODEL_BUILDER_H
#define ENGINE_MODEL_BUILDER_H

#include "engine/graph/graph.h"
#include "engine/graph/op.h"
#include "engine/model/kind.h"

struct builder {
    struct graph *g;
    const char *root; /* "transformer." */
    char prefix[48];  /* of the block: "h.0." */
};

/* printf into the prefix. */
void builder_prefix(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Opens a block of this name; returns the output tensor of the block before it. */
int builder_block(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A matrix or table, initially normal with this standard deviation, with weight decay; and a vector without weight
 * decay. Each returns the parameter's number. */
int builder_table(struct builder *b, const char *name, struct shape shape, double std);
int builder_vector(struct builder *b, const char *name, int64_t n, enum init init);
/* The same table without weight decay. */
int builder_undecayed(struct builder *b, const char *name, struct shape shape, double std);
/* A running moment: state that no optimizer changes. */
int builder_statistic(struct builder *b, const char *name, int64_t n, enum init init, double momentum);
/* One number, without weight decay; its initial value is 0 or 1. */
int builder_constant(struct builder *b, const char *name, double start);
/* Use 0 of a new parameter: a matrix, which Muon may change; a vector. */
int builder_matrix_use(struct builder *b, const char *name, struct shape shape, double std);
int builder_vector_use(struct builder *b, const char *name, int64_t n, enum init init);

/* *y is the op's first output. If out is not NULL, it gets all outputs. */
MUST_CHECK status_t builder_op(struct builder *b, const struct op_kind *kind, const char *name,
                               struct op_arguments args, int *y, int out[OP_OUTPUTS], struct err *e);

struct linear_layer {
    const char *name; /* of the parameters: NAME.weight, NAME.bias */
    int64_t out;
    double std;
    bool bias, gelu, gelu_erf, transposed; /* gelu: by tanh */
    bool uniform; /* weight and bias begin uniform, as torch.nn.Linear's; else normal, and zero */
    int packed;   /* as in struct parameter */
};
MUST_CHECK status_t builder_linear(struct builder *b, const struct linear_layer *l, int x, int *y, struct err *e);

/* y = layernorm(x); NAME.weight, NAME.bias. With a branch (else -1): r = x + branch, y = layernorm(r). */
MUST_CHECK status_t builder_layernorm(struct builder *b, const char *name, double epsilon, int x, int branch, int *r,
                                      int *y, struct err *e);
/* Applies dropout to *x if probability is above 0. */
MUST_CHECK status_t builder_dropout(struct builder *b, const char *name, double probability, int *x, struct err *e);
/* y = a + branch; y overwrites `branch`. */
MUST_CHECK status_t builder_add(struct builder *b, const char *name, int a, int branch, int *y, struct err *e);
/* The batch inputs that tell the classes of samples. partners, shares: -1 if the data are not mixed. */
struct builder_labels {
    int own, partners, shares;
};
struct builder_labels builder_add_labels(struct builder *b, const struct model_data *data);
/* Accuracy as a report, and the cross-entropy of logits (B, classes): ends the last block. The accuracy counts a
 * sample's own label. */
MUST_CHECK status_t builder_classify(struct builder *b, int logits, const struct builder_labels *labels, struct err *e);

#endif
