/* Optimizers: from a gradient to a step of the parameter. A kind is one struct and one file. plan/ reads which state a
 * parameter has. run/ calls the step for many shards at a time, those that the rank owns.
 *
 *     const struct optimizer_config o = { .kind = &optimizer_adamw, .adamw = { .lr = 3e-4, .beta1 = 0.9, ... } };
 *     TRY(optimizer_check(&o, e));
 *     int64_t n = optimizer_state_elements(o.kind, parameter, 0);            // of the whole parameter
 *     optimizer_rates(&o, learning_rate, rates);                             // to the device
 *     const struct optimizer_shard shard = { .parameter = parameter, .count = n, .master = ..., };
 *     TRY(optimizer_step(&o, &(struct optimizer_call){ .kernels = k, .shards = &shard, .n_shards = 1, ... }, e));
 *
 * A parameter has an fp32 master and fp32 states; with fp32 elements the weight is the master. A step multiplies
 * the gradient by the update's gradient_scale, clips it by value, applies the kind's formula, rounds the master to the
 * weight, and updates the average (EMA).
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
 *              sqrt(max(1, outputs / inputs)), as torch.optim.Muon does for a weight stored (outputs, inputs). Each of
 *              the matrices that a weight packs (parameter.packed: q, k, v) is orthogonalised by itself
 * Optimizers do not step statistics (PARAMETER_STATISTIC); run/ does.
 *
 * Elementwise kinds give the same bits wherever shards begin, and step all shards of a call together. Kinds with
 * whole_tensor step a whole parameter at a time; then first = 0 and count is all of it. No bit depends on the number of
 * threads. Pure but for their outputs. */
#ifndef ENGINE_OPTIMIZER_OPTIMIZER_H
#define ENGINE_OPTIMIZER_OPTIMIZER_H

#include "base/member.h"
#include "base/status.h"
#include "engine/graph/graph.h"
#include "kernels/kernels.h"

enum { OPTIMIZER_STATES = 2, OPTIMIZER_RATES = 2 };
/* The largest number of shards of one call. */
enum { OPTIMIZER_SHARDS = 128 };

struct optimizer_kind;

/* weight_decay applies only to parameters with `decay`. Except for sgd it is decoupled: w -= lr weight_decay w. Field
 * names are the spec's. */
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
    struct adamw_settings adamw; /* its rate is proportional to the schedule's: adamw.lr learning_rate / lr */
};

struct optimizer_config {
    const struct optimizer_kind *kind;
    union {
        struct sgd_settings sgd;
        struct adamw_settings adamw;
        struct lion_settings lion;
        struct adafactor_settings adafactor;
        struct muon_settings muon;
        double settings[16]; /* for any kind */
    };
};

struct optimizer_shard {
    const struct parameter *parameter; /* a PARAMETER_WEIGHT: shape, decay, matrix */
    int64_t first, count;              /* elements [first, first + count) of it; the pointers below point at `first` */
    float *master;
    element_t *weight; /* NULL: the master is the weight */
    /* [optimizer_state_elements], or [count] if the shard is not a whole parameter; zero before the first update */
    float *state[OPTIMIZER_STATES];
    float *ema; /* NULL: none */
    const float *gradient;
};

struct optimizer_call {
    const struct kernels *kernels;
    const struct optimizer_shard *shards; /* of different elements */
    int n_shards;                         /* 1 .. OPTIMIZER_SHARDS */
    double clip_value;                    /* 0 = none; of the scaled gradient */
    const double *learning_rate;          /* [OPTIMIZER_RATES] of optimizer_rates, the device's */
    const struct update *update;          /* the device's */
    double ema_decay;
    void *workspace; /* the largest optimizer_workspace of the shards' parameters, 64-byte aligned */
};

enum { OPTIMIZER_LINEARS = 4 };

struct optimizer_kind {
    const char *name;             /* the spec's word */
    const struct member *members; /* of the settings: the spec's fields have the same names */
    int n_members;
    int n_states;
    const char *state_name[OPTIMIZER_STATES]; /* a checkpoint's tensor is "optimizer.STATE.PARAMETER" */
    bool whole_tensor;
    /* Elements (fp32) of a state of the whole parameter; 0: the parameter has no such state. NULL: as many as the
     * parameter has, sharded like it. */
    int64_t (*state_elements)(const struct parameter *p, int state);
    size_t (*workspace)(const struct kernels *k, const struct parameter *p); /* NULL: none */
    /* The linear layers of which a step of this parameter computes one pass, in fp32; returns how many, at most
     * OPTIMIZER_LINEARS. NULL: none. */
    int (*linears)(const struct parameter *p, struct linear_dims *ret);
    MUST_CHECK status_t (*check)(const struct optimizer_config *o, struct err *e);
    MUST_CHECK status_t (*step)(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e);
    double (*rate)(const struct optimizer_config *o); /* lr, the schedule's base */
    /* The rate of the parameters that the kind leaves to another kind; NULL: none. learning_rate: its own. */
    double (*second_rate)(const struct optimizer_config *o, double learning_rate);
};

/* The kinds: optimizer_NAME is in NAME.c. */
#define OPTIMIZER_KINDS(KIND) KIND(sgd) KIND(adamw) KIND(lion) KIND(adafactor) KIND(muon)

#define OPTIMIZER_DECLARE(name) extern const struct optimizer_kind optimizer_##name;
OPTIMIZER_KINDS(OPTIMIZER_DECLARE)
#undef OPTIMIZER_DECLARE

/* NULL for a name that is none of OPTIMIZER_KINDS. */
const struct optimizer_kind *optimizer_kind_find(const char *name);

/* INVALID_ARGUMENT names the field, as "train.optimizer.adamw.beta1: ...". */
MUST_CHECK status_t optimizer_check(const struct optimizer_config *o, struct err *e);

/* Of a whole parameter; 0 for a statistic. */
int64_t optimizer_state_elements(const struct optimizer_kind *kind, const struct parameter *p, int state);
/* The shape of that state as a tensor, for checkpoints: the parameter's, or one dimension. */
struct shape optimizer_state_shape(const struct optimizer_kind *kind, const struct parameter *p, int state);
size_t optimizer_workspace(const struct optimizer_kind *kind, const struct kernels *k, const struct parameter *p);

/* The rates that the calls of a step read from the device: the schedule's, and the second one. */
void optimizer_rates(const struct optimizer_config *o, double learning_rate, double ret[OPTIMIZER_RATES]);

/* Steps the shards, unless the update says to skip. Allocates nothing. Errors: those of the kernels. */
MUST_CHECK status_t optimizer_step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e);

#endif
