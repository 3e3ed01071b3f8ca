/* Optimizers: from a gradient to a step of the parameter. A kind is one struct and one file; plan/ asks it what state a
 * parameter has, run/ calls its step for the pieces of parameters that the rank owns, many at a time.
 *
 *     const struct optimizer_config o = { .kind = &optimizer_adamw, .adamw = { .lr = 3e-4, .beta1 = 0.9, ... } };
 *     TRY(optimizer_check(&o, e));
 *     int64_t n = optimizer_state_elements(o.kind, parameter, 0);            // of the whole parameter
 *     optimizer_rates(&o, learning_rate, rates);                             // to the device
 *     const struct optimizer_piece piece = { .parameter = parameter, .count = n, .master = ..., };
 *     TRY(optimizer_step(&o, &(struct optimizer_call){ .kernels = k, .pieces = &piece, .n_pieces = 1, ... }, e));
 *
 * A parameter has an fp32 master and fp32 states; with fp32 elements the weight is the master. A step is: gradient
 * times the update's gradient_scale, clipped by value, the kind's formula, the rounded copy to the weight, the average
 * (EMA).
 *
 * Kinds (states in fp32 numbers for each parameter element):
 *   sgd        m: 1. torch.optim.SGD's form: g += decay w; m = momentum m + g; the step is along m, or with nesterov
 *              along g + momentum m
 *   adamw      m, v: 2. Loshchilov and Hutter, arXiv 1711.05101
 *   lion       m: 1. Chen et al., arXiv 2302.06675: the sign of an interpolation of m and g
 *   adafactor  a matrix: its rows + its columns, next to nothing; a vector: 1. Shazeer and Stern, arXiv 1804.04235,
 *              algorithms 4 and 5 without first moment: factored second moment, beta2 = 1 - updates^-decay, updates
 *              clipped by their root mean square, the rate times the parameter's own. The rate is the schedule's
 *              (relative step off). More than two dimensions count as (first, all others)
 *   muon       matrices (parameter.matrix) m: 1; the rest by AdamW: 2. Keller Jordan,
 *              kellerjordan.github.io/posts/muon: Newton-Schulz iterations on the (nesterov) momentum; the rate times
 *              sqrt(max(1, rows / columns)) of the weight as it is stored, as torch.optim.Muon does
 * Statistics (PARAMETER_STATISTIC) are none of an optimizer's business.
 *
 * Elementwise kinds give the same bits wherever a parameter is cut, and step all pieces of a call together. Kinds with
 * whole_tensor step a whole parameter at a time; then first = 0 and count is all of it. No bit depends on the number of
 * threads. Pure but for their outputs. */
#ifndef EXECUTOR_ENGINE_OPTIMIZER_OPTIMIZER_H
#define EXECUTOR_ENGINE_OPTIMIZER_OPTIMIZER_H

#include "base/status.h"
#include "executor/engine/graph/graph.h"
#include "kernels/kernels.h"

enum { OPTIMIZER_STATES = 2, OPTIMIZER_RATES = 2 };
/* Pieces of a call at most. */
enum { OPTIMIZER_PIECES = 128 };

struct optimizer_kind;

/* weight_decay is for parameters with `decay` alone, and but for sgd decoupled: w -= lr weight_decay w. Field names are
 * the spec's. */
struct sgd_settings {
    double lr, momentum, weight_decay;
    bool nesterov;
};
struct adamw_settings {
    double lr, beta1, beta2, eps, weight_decay;
};
struct lion_settings {
    double lr, beta1, beta2, weight_decay;
};
struct adafactor_settings {
    double lr, beta2_decay, eps1, eps2, clip_threshold, weight_decay;
};
struct muon_settings {
    double lr, momentum, weight_decay;
    int iterations;
    bool nesterov;
    struct adamw_settings adamw; /* its rate follows the schedule in proportion: adamw.lr learning_rate / lr */
};

struct optimizer_config {
    const struct optimizer_kind *kind;
    union {
        struct sgd_settings sgd;
        struct adamw_settings adamw;
        struct lion_settings lion;
        struct adafactor_settings adafactor;
        struct muon_settings muon;
    };
};

struct optimizer_piece {
    const struct parameter *parameter; /* a PARAMETER_WEIGHT: shape, decay, matrix */
    int64_t first, count;              /* elements [first, first + count) of it; the pointers below point at `first` */
    float *master;
    element_t *weight; /* NULL: the master is the weight */
    float *
        state[OPTIMIZER_STATES]; /* [optimizer_state_elements], for a cut piece [count]; zero before the first update */
    float *ema;                  /* NULL: none */
    const float *gradient;
};

struct optimizer_call {
    const struct kernels *kernels;
    const struct optimizer_piece *pieces; /* of different elements */
    int n_pieces;                         /* 1 .. OPTIMIZER_PIECES */
    double clip_value;                    /* 0 = none; of the scaled gradient */
    const double *learning_rate;          /* [OPTIMIZER_RATES] of optimizer_rates, the device's */
    const struct update *update;          /* the device's */
    double ema_decay;
    void *workspace; /* the most optimizer_workspace bytes of any piece's parameter, 64-byte aligned */
};

struct optimizer_kind {
    const char *name; /* the spec's word */
    int n_states;
    const char *state_name[OPTIMIZER_STATES]; /* a checkpoint's tensor is "optimizer.STATE.PARAMETER" */
    bool whole_tensor;
    /* fp32 numbers of a state of the whole parameter; NULL: as many as the parameter has, cut like it. 0: the parameter
     * has no such state. */
    int64_t (*state_elements)(const struct parameter *p, int state);
    size_t (*workspace)(const struct kernels *k, const struct parameter *p); /* NULL: none */
    MUST_CHECK status_t (*check)(const struct optimizer_config *o, struct err *e);
    MUST_CHECK status_t (*step)(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e);
    double (*rate)(const struct optimizer_config *o); /* lr, which the schedule starts from */
    /* The rate of what the kind leaves to another one, when its own is learning_rate; NULL: it leaves nothing. */
    double (*second_rate)(const struct optimizer_config *o, double learning_rate);
};

extern const struct optimizer_kind optimizer_sgd, optimizer_adamw, optimizer_lion, optimizer_adafactor, optimizer_muon;

/* INVALID_ARGUMENT names the field, as "train.optimizer.adamw.beta1: ...". */
MUST_CHECK status_t optimizer_check(const struct optimizer_config *o, struct err *e);

/* Of a whole parameter; 0 for a statistic. */
int64_t optimizer_state_elements(const struct optimizer_kind *kind, const struct parameter *p, int state);
/* The shape of that state as a tensor, for checkpoints: the parameter's, or one dimension. */
struct shape optimizer_state_shape(const struct optimizer_kind *kind, const struct parameter *p, int state);
size_t optimizer_workspace(const struct optimizer_kind *kind, const struct kernels *k, const struct parameter *p);

/* What a step's calls read from the device: the schedule's rate, and the second one. */
void optimizer_rates(const struct optimizer_config *o, double learning_rate, double ret[OPTIMIZER_RATES]);

/* The whole step of the pieces, unless the update is skipped. Nothing is allocated. Errors: those of the kernels. */
MUST_CHECK status_t optimizer_step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e);

#endif
