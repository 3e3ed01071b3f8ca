/* Op kinds: everything that plan/ and run/ know about an operation, in one const struct. To add an operation, write one
 * file with one such struct (op_*.c) and one extern line here. No code switches over kinds.
 *
 * The functions get a call with every pointer resolved into the arena; they forward to one or two kernels. `forward`
 * may be run again by a recompute and must not update state. `backward_weight` is for matrix products (a schedule may
 * delay it); other parameter gradients are written by `backward_input`. */
#ifndef ENGINE_GRAPH_OP_H
#define ENGINE_GRAPH_OP_H

#include "base/status.h"
#include "engine/graph/graph.h"
#include "kernels/kernels.h"

struct op_call {
    const struct kernels *kernels;
    const struct graph *graph;
    const struct op *op;
    void *in[OP_INPUTS], *out[OP_OUTPUTS];
    const element_t *param[OP_PARAMETERS]; /* statistics are fp32; in training they are not read */
    element_t *d_out[OP_OUTPUTS];
    element_t *d_in[OP_INPUTS];
    bool accumulate[OP_INPUTS]; /* d_in += instead of = */
    float *d_param[OP_PARAMETERS];
    bool accumulate_param; /* false for the first micro-batch of a lane */
    void *workspace;
    bool training;           /* dropout is on */
    uint64_t seed;           /* with step, op id and sample: the random stream */
    const int64_t *step;     /* the device's: batches consumed before this one */
    int64_t first_sample;    /* number in the step's global batch of this micro-batch's first sample */
    const float *loss_scale; /* the device's: 1 / the step's valid targets, at fp16's scale */
};

#define OUT(i) (1u << (i))
#define IN(i)  (1u << (i))

struct op_kind {
    const char *name;
    status_t (*shape)(struct graph *g, struct op *op, struct err *e);
    unsigned n_in, n_out, n_uses_min;
    unsigned saved_in, saved_out; /* bit sets: what the reverse op reads */
    unsigned differentiable;      /* bit set of the inputs that get a gradient */
    unsigned accumulates;         /* bit set of the inputs whose gradient can be added to an existing one */
    /* d_in[i] takes over the bytes of d_out[gradient_alias[i] - 1]; 0 = bytes of its own. */
    uint8_t gradient_alias[OP_INPUTS];
    bool reverse_is_view;     /* the aliased gradients have the same values: no kernel runs, no byte changes */
    bool gradient_in_forward; /* in training, forward replaces its input by the input's gradient: a loss */
    bool selective;           /* "selective" recompute runs it again instead of keeping its outputs */
    bool d_out_scratch;       /* backward_input overwrites d_out[0] with what backward_weight reads */
    status_t (*forward)(const struct op_call *c, struct err *e);
    status_t (*backward_input)(const struct op_call *c, struct err *e);
    status_t (*backward_weight)(const struct op_call *c, struct err *e);
    unsigned weight_uses; /* bit set of the uses that backward_weight writes; 0 = the first */
    size_t (*workspace)(const struct kernels *k, const struct graph *g, const struct op *op); /* bytes */
    /* The linear layers that its kernels compute, at most OP_PARAMETERS; returns how many. NULL: none. */
    int (*linears)(const struct graph *g, const struct op *op, struct linear_dims *ret);
    double (*flops)(const struct graph *g, const struct op *op); /* of forward; backward is twice that */
    double (*bytes)(const struct graph *g, const struct op *op); /* moved by forward; NULL: inputs + outputs, once */
};

/* Whether backward_weight writes the gradient of this use; else backward_input does. */
static inline bool op_weight_use(const struct op_kind *kind, int use) {
    return kind->backward_weight && (kind->weight_uses ? kind->weight_uses >> use & 1 : use == 0);
}

extern const struct op_kind op_embedding;
extern const struct op_kind op_linear;
extern const struct op_kind op_linear_gelu;
extern const struct op_kind op_linear_packed;
extern const struct op_kind op_layernorm;
extern const struct op_kind op_residual_layernorm;
extern const struct op_kind op_rmsnorm;
extern const struct op_kind op_residual_rmsnorm;
extern const struct op_kind op_rope;
extern const struct op_kind op_attention;
extern const struct op_kind op_swiglu;
extern const struct op_kind op_add;
extern const struct op_kind op_branch;
extern const struct op_kind op_dropout;
extern const struct op_kind op_cross_entropy;
extern const struct op_kind op_mixed_cross_entropy;
extern const struct op_kind op_accuracy;
extern const struct op_kind op_squared_error;
extern const struct op_kind op_psnr;
extern const struct op_kind op_convolution;
extern const struct op_kind op_convolution_relu;
extern const struct op_kind op_batchnorm;
extern const struct op_kind op_batchnorm_residual;
extern const struct op_kind op_max_pool;
extern const struct op_kind op_average_pool;
extern const struct op_kind op_channels_last;
extern const struct op_kind op_patches;
extern const struct op_kind op_class_token;
extern const struct op_kind op_first_token;
extern const struct op_kind op_fourier_adjoint;
extern const struct op_kind op_fourier_step;

#endif
