/* Numeric operations behind one table of functions, so that the engine never knows which device it runs on.
 *
 *     struct kernels *k;
 *     TRY(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = 2 }, &k, e));
 *     TRY(k->linear_forward(k, y, NULL, x, w, bias, &(struct linear_dims){ .rows = 768, .in = 384, .out = 1536 }, e));
 *     k = kernels_close(k);
 *
 * Conventions, for every function of the table:
 *   - the table first, then outputs, inputs, dims, workspace, and `struct err *e` last; row-major, no padding; shapes
 *     stand beside the parameters: (B,T,C) = batch, time, width; rows = B*T
 *   - `element_t *` points to numbers of the precision that the table was opened for, `float *` to fp32 always
 *   - pointers need their number's alignment; 64-byte alignment is faster. Outputs do not overlap inputs, except where
 *     a comment says "in place"
 *   - the result depends on values, shapes and the instruction set, never on the number of threads: reductions are cut
 *     in pieces by shape alone (kernels_numerics_id names what else the bits depend on)
 *   - `accumulate` true adds to the gradient, false overwrites it (uninitialised memory is fine then)
 *   - nothing is allocated after the first call with a shape (the first linear_* of a shape builds a oneDNN primitive;
 *     at most KERNELS_PRODUCTS_MOST are kept, the least recently used goes). What a call needs beyond its arguments is
 *     its `workspace`; the function of the same name + _workspace tells how many bytes. On "cuda" it also has libraries
 *     make ready for the shape: asked before the first step, so that none compiles in its midst
 *   - errors: INVALID_ARGUMENT for a token or target outside its vocabulary, INTERNAL or RESOURCE_EXHAUSTED when the
 *     library or the device fails. After an error the outputs are undefined. A wrong dimension is an assert
 *
 * Threads: a table belongs to one calling thread at a time; its team is the OpenMP team of that thread. Open a second
 * table for a second thread.
 *
 * Devices: "cpu", and "cuda" where its plugin and a driver are (kernels/plugin.h). There calls only queue work on one
 * stream: none of them waits, allocates or asks the device, but for those that say so, so that a step can be captured
 * as a CUDA graph. Sums are added in another order than on the CPU; masks are the same bit by bit. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A GPT uses 13 different products with their gradients; a large model with pipeline stages some dozens. */
#define KERNELS_PRODUCTS_MOST 128
/* sum_squares gives one sum for each chunk of this many elements. */
#define KERNELS_CHUNK 1024
/* The sentence of kernels_numerics_id fits, with its NUL. */
#define KERNELS_NUMERICS_ID_BYTES 192
/* So does the text of kernels->record. */
#define KERNELS_RECORD_BYTES ((size_t)2 << 20)

/* PLAIN is portable C, the reference that the vector code is tested against, its matrix product included. */
enum kernels_isa { KERNELS_ISA_BEST, KERNELS_ISA_PLAIN, KERNELS_ISA_AVX2, KERNELS_ISA_AVX512 };

/* What an element_t is: activations, their gradients and weights (of norms and biases too) are all of one type. Fp32 in
 * every precision: gradients of parameters, statistics (mean, rstd, lse), losses, optimizer states, and all sums inside
 * a kernel. Results are rounded to the nearest element, ties to even. */
enum kernels_precision { KERNELS_FP32, KERNELS_BF16, KERNELS_FP16 };
typedef void element_t;

struct kernels_config {
    const char *device;   /* "cpu" or "cuda" */
    int ordinal;          /* cuda: which of the devices that the process sees; cpu: unused */
    int threads;          /* cpu: 1 .. 1024; cuda: unused */
    enum kernels_isa isa; /* BEST: the highest that the processor has; another one: that, or FAILED_PRECONDITION */
    enum kernels_precision precision;
    /* cuda: how products and convolutions are computed may be chosen by timing, so that two runs may differ in bits;
     * cpu: unused */
    bool fast;
    /* Of an earlier part of the run, whose choices are taken again; of several ranks', one behind another, the first
     * that chose counts. Of another device, library or `fast` nothing is taken. NULL: none. */
    const char *record;
};

/* y (rows, out) = x (rows, in) W + bias (out). W is (in, out), or (out, in) when `transposed` (a tied embedding).
 * Several layers on one input can write side by side, each a slice of `out` columns of rows of y_stride numbers
 * (queries, keys and values of one packed tensor); y and dy then point to the slice's first number.
 * `pre` takes whole rows only. */
struct linear_dims {
    int64_t rows, in, out;
    bool transposed;
    int64_t y_stride; /* from a row of y and dy to the next; 0 = out */
};
static inline int64_t linear_stride(const struct linear_dims *d) { return d->y_stride ? d->y_stride : d->out; }

/* heads query heads of `head` numbers each share kv_heads key and value heads, heads / kv_heads to one (grouped-query
 * attention: Ainslie et al., arXiv 2305.13245); kv_heads = heads is plain multi-head attention. The packed tensor qkv
 * is (B, T, (heads + 2 kv_heads) head): the queries, then the keys, then the values, each head by head. */
struct attention_dims {
    int64_t batch, time, heads, kv_heads, head; /* kv_heads divides heads */
    bool causal;                                /* false: each position sees all of its sample */
    bool masked; /* calls may drop out probabilities: what cannot do it takes no part, and is given no room */
};

/* Rotary positions (Su et al., arXiv 2104.09864): pair i of a head, numbers i and i + head/2 (the halves' convention of
 * Hugging Face's Llama), turns at position t by the angle t theta^(-2i/head). Where scaling.factor is not 0, slow pairs
 * turn slower, as Llama 3.1 does it: wavelengths beyond context / low_frequency are divided by factor, those below
 * context / high_frequency stay, between them it goes smoothly. */
struct rope {
    double theta;
    struct rope_scaling {
        double factor, low_frequency, high_frequency; /* Llama 3.1: 8, 1, 4 */
        int64_t context;                              /* what the model was trained on before: 8,192 */
    } scaling;
};

/* Convolutions of images with the channels last: x (batch, height, width, in), y (batch, height', width', out) with
 * side' = (side + 2 padding - kernel) / stride + 1; W (out, in, kernel, kernel). */
struct convolution_dims {
    int64_t batch, height, width, in, out;
    int64_t kernel, stride, padding; /* zeros on each side */
};
static inline int64_t convolution_side(const struct convolution_dims *d, int64_t side) {
    return (side + 2 * d->padding - d->kernel) / d->stride + 1;
}

struct fourier_dims {
    int64_t batch, height, width;
};

/* Over the rows of x (rows, width), for each column; rows are a batch's pixels. */
struct batchnorm_dims {
    int64_t rows, width;
    float epsilon;
    bool relu; /* y = max(., 0) */
};

/* Random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed so that
 * a micro-batch's mask does not depend on who computes it. op is the op's global id in its graph. */
struct rng_key {
    uint64_t seed;
    const int64_t *step; /* the device's: 0 .. 2^32-1 */
    uint32_t op;
};

/* A mask: element e of sample s is kept when the number drawn for (key, s, e) is at least probability * 2^32; kept
 * values are divided by 1 - probability. probability 0 = no dropout, and the rest is not read; the pointer to the
 * struct is never NULL. */
struct dropout {
    float probability; /* [0, 1) */
    struct rng_key key;
    int64_t first_sample; /* the number in the step's global batch of the call's first sample; 0 .. 2^32-1 */
};

/* What changes from step to step is the device's, so that nothing of a step waits for the host, and its calls can be
 * made once and launched again (capture_begin): what a step is made by, how the one before ended, the learning rate. */

/* What the updates of a step read when they run. */
struct update {
    int64_t number;       /* 1 for the first that is applied: bias correction */
    float gradient_scale; /* unscaling and clipping by norm, in one factor */
    uint32_t skip;        /* enum step_skip: unless it is STEP_APPLIED an update changes nothing */
};

/* Why a step was not applied. */
enum step_skip { STEP_APPLIED, STEP_OVERFLOW, STEP_SPIKE, STEP_NOT_FINITE };

/* Norms that a spike can be told by, and how many there must be until anything is called one. */
enum { DECISION_NORMS_MOST = 1024, DECISION_NORMS_LEAST = 8 };

/* What a step came to, and what the next one begins with; how: decide.h. All zeros at first but for `scale` and
 * `loss_gradient`. */
struct decision {
    struct update update;
    double grad_norm;     /* of the unscaled gradients */
    double scale;         /* that the losses' gradients are multiplied by: fp16's, else 1 */
    int64_t growth_count; /* steps without an overflow since it changed */
    float loss_gradient;  /* what a loss's gradient is multiplied by: scale / targets */
    uint32_t n_norms;
    double norms[DECISION_NORMS_MOST]; /* [n_norms] of the newest applied steps, oldest first, where spikes are told */
};

struct decide {
    double clip_norm;        /* 0 = none */
    double z_score;          /* a norm further above the window's mean than this many deviations is a spike; 0 = none */
    int64_t window;          /* 2 .. DECISION_NORMS_MOST */
    bool dynamic_scale;      /* a norm that is not finite is an overflow, which halves the scale */
    int64_t growth_interval; /* steps without one until it doubles */
    int64_t targets;         /* that a step's loss is divided by */
};

/* What an update goes over: an array of n numbers. A call takes a list of them, which is the host's, and all of whose
 * numbers are different ones: so a model of many parameters takes few launches (kernels/cuda/spans.cuh). */
struct span {
    int64_t n;
    float *p;          /* updated in place: parameters, a statistic, an average */
    element_t *weight; /* gets p rounded; NULL: p is the weight */
    float *m, *v;      /* states, where the function has them */
    const float *x;    /* what p is updated by */
    bool decay;        /* weight_decay is for these */
};

/* What sums of squares are taken of: n numbers, whose chunks' sums these are. */
struct norm_span {
    double *sums; /* [ceil(n / KERNELS_CHUNK)] */
    const float *a;
    int64_t n;
};

/* What an optimizer sees of a gradient: g * update->gradient_scale, put within -clip_value .. clip_value unless that is
 * 0. Settings are double: 1 - beta2 would lose its digits in float. learning_rate and update are the device's. */
struct adamw {
    const double *learning_rate;
    const struct update *update;
    double beta1, beta2, epsilon, weight_decay;
    float clip_value;
};

struct sgd {
    const double *learning_rate;
    const struct update *update;
    double momentum, weight_decay;
    bool nesterov;
    float clip_value;
};

struct lion {
    const double *learning_rate;
    const struct update *update;
    double beta1, beta2, weight_decay;
    float clip_value;
};

struct adafactor {
    const double *learning_rate;
    const struct update *update;
    double beta2_decay; /* beta2 = 1 - number^-beta2_decay */
    double epsilon1, epsilon2, clip_threshold, weight_decay;
    float clip_value;
};

struct momentum {
    const struct update *update;
    double momentum;
    bool nesterov;
    float clip_value;
};

struct descent {
    const double *learning_rate;
    const struct update *update;
    double factor, weight_decay;
};

struct kernels {
    const char *device;
    int threads;
    enum kernels_precision precision;
    bool deferred;              /* calls may run after they have returned, and can be captured: "cuda" */
    bool fast;                  /* kernels_config's */
    double peak_flops;          /* of products in this precision, in a second; 0: not known, as on the CPU */
    const struct kernels *fp32; /* the same device and team in fp32; itself where that is the precision */

    /* What the table has chosen so far that bits depend on, as text for kernels_config.record: ASCII in lines, "" on
     * the CPU. free() it. */
    MUST_CHECK status_t (*record)(const struct kernels *k, char **ret, struct err *e);

    /* --- memory ---------------------------------------------------------------------------------------------------*/
    /* All pointers that the functions below take are to the device's memory, outputs of one number included; what holds
     * dims and settings is the host's, and is read before the call returns. Calls of a table and of its fp32 run in
     * the order in which they were made. On "cpu" they have run when they return and the device's memory is the host's;
     * on "cuda" they may run later: what is read or written on the host is left alone until `finish`. */
    /* Uninitialised, on a 256-byte boundary. RESOURCE_EXHAUSTED. Waits for all work on CUDA: not for the step loop. */
    MUST_CHECK status_t (*memory_new)(const struct kernels *k, size_t bytes, void **ret, struct err *e);
    void (*memory_free)(const struct kernels *k, void *p); /* NULL is fine */
    MUST_CHECK status_t (*upload)(const struct kernels *k, void *to, const void *from_host, size_t bytes,
                                  struct err *e);
    MUST_CHECK status_t (*download)(const struct kernels *k, void *to_host, const void *from, size_t bytes,
                                    struct err *e);
    /* Elements from floats of the host, rounded. */
    MUST_CHECK status_t (*upload_elements)(const struct kernels *k, element_t *to, const float *from_host, int64_t n,
                                           struct err *e);
    /* Within the device's memory. Any thread. */
    MUST_CHECK status_t (*move)(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e);
    /* Waits until all calls have run. What only the device could find is told here, once: a failed launch, and a token
     * or target outside its vocabulary, which is then counted as a token 0 and as an ignored target. */
    MUST_CHECK status_t (*finish)(const struct kernels *k, struct err *e);
    /* Memory of the host that the device reads and writes at full speed while the host does something else; what is
     * uploaded from any other may be waited for. RESOURCE_EXHAUSTED. */
    MUST_CHECK status_t (*host_memory_new)(const struct kernels *k, size_t bytes, void **ret, struct err *e);
    void (*host_memory_free)(const struct kernels *k, void *p); /* NULL is fine */
    /* A place in the order of calls. event_wait waits until what came before the newest event_record has run, and tells
     * what finish tells. */
    MUST_CHECK status_t (*event_new)(const struct kernels *k, void **ret, struct err *e);
    void (*event_free)(const struct kernels *k, void *event); /* NULL is fine */
    MUST_CHECK status_t (*event_record)(const struct kernels *k, void *event, struct err *e);
    MUST_CHECK status_t (*event_wait)(const struct kernels *k, void *event, struct err *e);
    /* What is uploaded ahead goes to the device beside the calls: it waits for those that were made before the newest
     * ahead_release, and only what is called after an ahead_await waits for it. So one room is filled while calls run
     * that do not read it:
     *     upload_ahead, ahead_await, the calls that read the room, ahead_release, and again
     * `finish` waits for both. All three NULL where the table is not deferred. */
    MUST_CHECK status_t (*upload_ahead)(const struct kernels *k, void *to, const void *from_host, size_t bytes,
                                        struct err *e);
    MUST_CHECK status_t (*ahead_await)(const struct kernels *k, struct err *e);
    MUST_CHECK status_t (*ahead_release)(const struct kernels *k, struct err *e);

    /* --- what a profile asks for ----------------------------------------------------------------------------------*/
    /* The same place, with a clock: the device notes its own when it comes to the newest timer_record. timer_between:
     * nanoseconds between two timers; the device must have reached both. "cuda": cudaEventElapsedTime, half a
     * microsecond exact; "cpu": clock_mono_ns as the call was made. */
    MUST_CHECK status_t (*timer_new)(const struct kernels *k, void **ret, struct err *e);
    void (*timer_free)(const struct kernels *k, void *timer); /* NULL is fine */
    MUST_CHECK status_t (*timer_record)(const struct kernels *k, void *timer, struct err *e);
    MUST_CHECK status_t (*timer_between)(const struct kernels *k, void *from, void *to, int64_t *ret_ns, struct err *e);
    /* Names what a thread calls between the two, for a tool that watches the process (NVTX's ranges in Nsight Systems);
     * they nest. It is the calls that are named: those of a step that is captured once, where it is captured, and not
     * where it is launched again. Both NULL where no tool watches, and on "cpu". */
    void (*range_begin)(const struct kernels *k, const char *name);
    void (*range_end)(const struct kernels *k);

    /* --- capture --------------------------------------------------------------------------------------------------*/
    /* NULL where the table is not deferred. Between begin and end the calls of the table and its fp32 are noted and do
     * not run; `launch` runs them all, each time anew, on what their pointers point at then. Each must have been called
     * with its shape before, outside. Not to be captured: memory_*, host_memory_*, event_*, timer_*, upload_ahead,
     * ahead_*, finish, launch. A failure of a call in between is told by capture_end, too. */
    MUST_CHECK status_t (*capture_begin)(const struct kernels *k, struct err *e);
    MUST_CHECK status_t (*capture_end)(const struct kernels *k, void **ret, struct err *e);
    MUST_CHECK status_t (*launch)(const struct kernels *k, void *capture, struct err *e);
    void (*capture_free)(const struct kernels *k, void *capture); /* NULL is fine; none of its launches may be queued */

    /* --- linear ---------------------------------------------------------------------------------------------------*/
    /* pre NULL: y = x W + bias. pre (rows, out): pre = x W + bias, y = gelu(pre). bias NULL: none. */
    MUST_CHECK status_t (*linear_forward)(const struct kernels *k, element_t *y, element_t *pre, const element_t *x,
                                          const element_t *w, const element_t *bias, const struct linear_dims *d,
                                          struct err *e);
    /* The first step of backward. pre not NULL: dy becomes, in place, the gradient of pre. dbias (out) not NULL: gets
     * the column sums of that. Both in one pass over dy. */
    MUST_CHECK status_t (*linear_backward_bias)(const struct kernels *k, float *dbias, element_t *dy,
                                                const element_t *pre, const struct linear_dims *d, bool accumulate,
                                                void *workspace, struct err *e);
    size_t (*linear_backward_bias_workspace)(const struct kernels *k, const struct linear_dims *d);
    /* dx (rows, in) = dy W^T; dy as linear_backward_bias left it. */
    MUST_CHECK status_t (*linear_backward_input)(const struct kernels *k, element_t *dx, const element_t *dy,
                                                 const element_t *w, const struct linear_dims *d, bool accumulate,
                                                 struct err *e);
    /* dw, shaped as W. May run long after linear_backward_input. The workspace may be 0 bytes. */
    MUST_CHECK status_t (*linear_backward_weight)(const struct kernels *k, float *dw, const element_t *x,
                                                  const element_t *dy, const struct linear_dims *d, bool accumulate,
                                                  void *workspace, struct err *e);
    size_t (*linear_backward_weight_workspace)(const struct kernels *k, const struct linear_dims *d);

    /* --- embedding ------------------------------------------------------------------------------------------------*/
    /* y (B,T,C) = wte[token] + wpe[t]; tokens (B,T), wte (V,C), wpe (at least T rows, C), NULL: no positions. A token
     * outside 0 .. V-1 is INVALID_ARGUMENT. */
    MUST_CHECK status_t (*embedding_forward)(const struct kernels *k, element_t *y, const int32_t *tokens,
                                             const element_t *wte, const element_t *wpe, int64_t batch, int64_t time,
                                             int64_t width, int64_t vocabulary, struct err *e);
    /* dwte (V,C) and dwpe (positions, C); each row is summed in an order that the tokens fix: "cpu" in that of its
     * positions in the batch. Overwriting clears all V and all `positions` rows first. dwpe NULL: none. tokens were
     * checked by forward. */
    MUST_CHECK status_t (*embedding_backward)(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                              const element_t *dy, int64_t batch, int64_t time, int64_t width,
                                              int64_t vocabulary, int64_t positions, bool accumulate, void *workspace,
                                              struct err *e);
    size_t (*embedding_backward_workspace)(const struct kernels *k, int64_t batch, int64_t time, int64_t width);

    /* --- layer norm -----------------------------------------------------------------------------------------------*/
    /* y = (x - mean) * rstd * gamma + beta over each row of width; mean, rstd (rows) are kept for backward. branch not
     * NULL: r = x + branch is written (r may be x or branch, in place) and normed instead of x; r is unused, may be
     * NULL, without a branch. beta NULL: none. */
    MUST_CHECK status_t (*layernorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *mean,
                                             float *rstd, const element_t *x, const element_t *branch,
                                             const element_t *gamma, const element_t *beta, int64_t rows, int64_t width,
                                             float epsilon, struct err *e);
    /* dx = addend + the gradient through the norm of x (which is r where there was a branch: the gradient of both
     * terms). addend NULL: nothing is added; addend may be dx (in place: accumulate), dx may be dy. accumulate concerns
     * dgamma and dbeta (width); dbeta NULL: none. */
    MUST_CHECK status_t (*layernorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                              const element_t *dy, const element_t *addend, const element_t *x,
                                              const float *mean, const float *rstd, const element_t *gamma,
                                              int64_t rows, int64_t width, bool accumulate, void *workspace,
                                              struct err *e);
    size_t (*layernorm_backward_workspace)(const struct kernels *k, int64_t rows, int64_t width);

    /* --- RMS norm -------------------------------------------------------------------------------------------------*/
    /* y = x * rstd * gamma over each row of width, rstd = 1 / sqrt(avg(x^2) + epsilon) (Zhang and Sennrich, arXiv
     * 1910.07467); branch, r, addend, dx and accumulate as with layer norm. */
    MUST_CHECK status_t (*rmsnorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *rstd,
                                           const element_t *x, const element_t *branch, const element_t *gamma,
                                           int64_t rows, int64_t width, float epsilon, struct err *e);
    MUST_CHECK status_t (*rmsnorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                                            const element_t *addend, const element_t *x, const float *rstd,
                                            const element_t *gamma, int64_t rows, int64_t width, bool accumulate,
                                            void *workspace, struct err *e);
    size_t (*rmsnorm_backward_workspace)(const struct kernels *k, int64_t rows, int64_t width);

    /* --- attention ------------------------------------------------------------------------------------------------*/
    /* Turns the queries and keys of a packed tensor by their positions 0 .. T-1; the values are copied. head is even.
     * inverse: turns back, which is the gradient of turning. In place is fine. */
    MUST_CHECK status_t (*rope)(const struct kernels *k, element_t *to, const element_t *from,
                                const struct attention_dims *d, const struct rope *r, bool inverse, struct err *e);
    /* Scaled by 1/sqrt(head). out (B, T, heads head). lse (B, heads, T): log of the sum of exp of the scaled scores,
     * for backward. Dropout acts on the probabilities; the element of (h, t, s) in its sample is (h*T + t)*T + s. After
     * FlashAttention-2 (Dao, arXiv 2307.08691). */
    MUST_CHECK status_t (*attention_forward)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                             const struct attention_dims *d, const struct dropout *dropout,
                                             void *workspace, struct err *e);
    MUST_CHECK status_t (*attention_backward)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                              const element_t *qkv, const element_t *out, const float *lse,
                                              const struct attention_dims *d, const struct dropout *dropout,
                                              void *workspace, struct err *e);
    /* Enough for either. */
    size_t (*attention_workspace)(const struct kernels *k, const struct attention_dims *d);

    /* --- images, channels last ------------------------------------------------------------------------------------*/
    /* y = x * W + bias; bias (out) may be NULL. Its gradient is linear_backward_bias's over the rows of dy. */
    MUST_CHECK status_t (*convolution_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                               const element_t *w, const element_t *bias,
                                               const struct convolution_dims *d, void *workspace, struct err *e);
    MUST_CHECK status_t (*convolution_backward_input)(const struct kernels *k, element_t *dx, const element_t *dy,
                                                      const element_t *w, const struct convolution_dims *d,
                                                      bool accumulate, void *workspace, struct err *e);
    /* A library may round what is added to dw to elements. */
    MUST_CHECK status_t (*convolution_backward_weight)(const struct kernels *k, float *dw, const element_t *x,
                                                       const element_t *dy, const struct convolution_dims *d,
                                                       bool accumulate, void *workspace, struct err *e);
    /* Enough for any of the three. */
    size_t (*convolution_workspace)(const struct kernels *k, const struct convolution_dims *d);
    /* Batch normalisation (Ioffe and Szegedy, arXiv 1502.03167): y = (x - mean) / sqrt(variance + epsilon) gamma + beta
     * (+ residual), mean and variance (width) of this batch's columns, kept for backward. residual NULL: none. */
    MUST_CHECK status_t (*batchnorm_forward)(const struct kernels *k, element_t *y, float *mean, float *variance,
                                             const element_t *x, const element_t *residual, const element_t *gamma,
                                             const element_t *beta, const struct batchnorm_dims *d, void *workspace,
                                             struct err *e);
    /* The same with given moments: outside training. */
    MUST_CHECK status_t (*batchnorm_apply)(const struct kernels *k, element_t *y, const element_t *x,
                                           const element_t *residual, const element_t *gamma, const element_t *beta,
                                           const element_t *mean, const element_t *variance,
                                           const struct batchnorm_dims *d, struct err *e);
    /* y: the result of forward; where d->relu, gradients are 0 where it is 0. d_residual NULL: none. dx or d_residual
     * may be dy (in place), not both. measured_mean and measured_variance (width; NULL: not wanted) get the batch's
     * mean and unbiased variance: what running moments are made of. accumulate concerns all of width. */
    MUST_CHECK status_t (*batchnorm_backward)(const struct kernels *k, element_t *dx, element_t *d_residual,
                                              float *dgamma, float *dbeta, float *measured_mean,
                                              float *measured_variance, const element_t *dy, const element_t *x,
                                              const element_t *y, const float *mean, const float *variance,
                                              const element_t *gamma, const struct batchnorm_dims *d, bool accumulate,
                                              void *workspace, struct err *e);
    size_t (*batchnorm_workspace)(const struct kernels *k, const struct batchnorm_dims *d); /* for either */
    /* y = the largest of each window, in = out = channels; windows hold at least one pixel that is no padding. */
    MUST_CHECK status_t (*max_pool_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                            const struct convolution_dims *d, struct err *e);
    /* The gradient goes to the first of a window's largest. */
    MUST_CHECK status_t (*max_pool_backward)(const struct kernels *k, element_t *dx, const element_t *dy,
                                             const element_t *x, const struct convolution_dims *d, struct err *e);
    /* y (batch, width) = the mean over the pixels of x (batch, pixels, width). */
    MUST_CHECK status_t (*average_pool_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                                int64_t batch, int64_t pixels, int64_t width, struct err *e);
    MUST_CHECK status_t (*average_pool_backward)(const struct kernels *k, element_t *dx, const element_t *dy,
                                                 int64_t batch, int64_t pixels, int64_t width, struct err *e);
    /* y (batch, pixels, channels) of x (batch, channels, pixels). */
    MUST_CHECK status_t (*channels_last)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                         int64_t channels, int64_t pixels, struct err *e);

    /* --- vision transformer ---------------------------------------------------------------------------------------*/
    /* y (batch, height/patch * width/patch, channels * patch * patch): each patch of x (batch, channels, height, width)
     * as one row, channel by channel. patch divides height and width. */
    MUST_CHECK status_t (*patches)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                   int64_t channels, int64_t height, int64_t width, int64_t patch, struct err *e);
    /* y (batch, time, width) = the token (width), then x (batch, time - 1, width), plus positions (time, width). */
    MUST_CHECK status_t (*prepend_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                           const element_t *token, const element_t *positions, int64_t batch,
                                           int64_t time, int64_t width, struct err *e);
    MUST_CHECK status_t (*prepend_backward)(const struct kernels *k, element_t *dx, float *dtoken, float *dpositions,
                                            const element_t *dy, int64_t batch, int64_t time, int64_t width,
                                            bool accumulate, struct err *e);
    /* y (batch, width) = the first of x (batch, time, width); backward is 0 at all others. */
    MUST_CHECK status_t (*first_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                         int64_t time, int64_t width, struct err *e);
    MUST_CHECK status_t (*first_backward)(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch,
                                          int64_t time, int64_t width, struct err *e);

    /* --- reconstruction -------------------------------------------------------------------------------------------*/
    /* F is the orthonormal two-dimensional Fourier transform of images (batch, height, width), sides powers of two;
     * mask (batch, height, width) of zeros and ones is M; measured (batch, 2, height, width) is y = M F x, real parts
     * before imaginary ones, zero frequency first. All of these are fp32.
     * x = Re F* M y. */
    MUST_CHECK status_t (*fourier_adjoint)(const struct kernels *k, element_t *x, const float *measured,
                                           const float *mask, const struct fourier_dims *d, void *workspace,
                                           struct err *e);
    /* y = x - eta Re F* M (F x - measured) + update; eta is one element; y may be update. */
    MUST_CHECK status_t (*fourier_step_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                                const element_t *update, const element_t *eta, const float *measured,
                                                const float *mask, const struct fourier_dims *d, void *workspace,
                                                struct err *e);
    /* dx (NULL: not wanted) = dy - eta Re F* M F dy, deta = - the sum of dy Re F* M (F x - measured). The gradient of
     * update is dy. accumulate concerns deta. */
    MUST_CHECK status_t (*fourier_step_backward)(const struct kernels *k, element_t *dx, float *deta,
                                                 const element_t *dy, const element_t *x, const element_t *eta,
                                                 const float *measured, const float *mask, const struct fourier_dims *d,
                                                 bool accumulate, void *workspace, struct err *e);
    size_t (*fourier_workspace)(const struct kernels *k, const struct fourier_dims *d); /* for any of the three */

    /* --- loss -----------------------------------------------------------------------------------------------------*/
    /* losses (rows) = -log softmax(logits)[target]; a target of -1 is ignored (loss 0, gradient 0), any other target
     * outside 0 .. V-1 is INVALID_ARGUMENT. scale not NULL: logits (rows, V) become, in place, their gradient times
     * *scale, which is the device's; NULL: they are only read. */
    MUST_CHECK status_t (*cross_entropy)(const struct kernels *k, float *losses, element_t *logits,
                                         const int32_t *targets, int64_t rows, int64_t vocabulary, const float *scale,
                                         struct err *e);

    /* losses (batch) = the mean of (x - reference)^2 over a sample's n numbers. scale not NULL: x (batch, n) becomes,
     * in place, its gradient times *scale. */
    MUST_CHECK status_t (*squared_error)(const struct kernels *k, float *losses, element_t *x, const float *reference,
                                         int64_t batch, int64_t n, const float *scale, struct err *e);
    /* psnr (batch) = -10 log10 of the same mean: the peak signal-to-noise ratio, in dB, of images in [0, 1]; 200 for
     * equal ones. */
    MUST_CHECK status_t (*psnr)(const struct kernels *k, float *psnr, const element_t *x, const float *reference,
                                int64_t batch, int64_t n, struct err *e);
    /* correct (rows) = 1 where the largest of a row's logits (rows, V), the first of equal ones, is its target, else 0.
     */
    MUST_CHECK status_t (*correct)(const struct kernels *k, float *correct, const element_t *logits,
                                   const int32_t *targets, int64_t rows, int64_t vocabulary, struct err *e);

    /* *ret = the sum of n losses or reports, in double. */
    MUST_CHECK status_t (*sum)(const struct kernels *k, double *ret, const float *a, int64_t n, struct err *e);

    /* --- element by element ---------------------------------------------------------------------------------------*/
    /* GELU by tanh, as GPT-2 has it: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). y may be x, dx may be dy. */
    MUST_CHECK status_t (*gelu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n,
                                        struct err *e);
    MUST_CHECK status_t (*gelu_backward)(const struct kernels *k, element_t *dx, const element_t *dy,
                                         const element_t *x, int64_t n, struct err *e);
    /* y = silu(gate) up, silu(x) = x / (1 + exp(-x)) (Shazeer, arXiv 2002.05202); gate_up (rows, 2 width): a row's
     * gates, then its ups. y and dy (rows, width); d_gate_up may be gate_up. */
    MUST_CHECK status_t (*swiglu_forward)(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                                          int64_t width, struct err *e);
    MUST_CHECK status_t (*swiglu_backward)(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                                           const element_t *gate_up, int64_t rows, int64_t width, struct err *e);
    /* y = max(x, 0), a NaN stays; dx = dy where y > 0, else 0. y may be x, dx may be dy. */
    MUST_CHECK status_t (*relu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n,
                                        struct err *e);
    MUST_CHECK status_t (*relu_backward)(const struct kernels *k, element_t *dx, const element_t *dy,
                                         const element_t *y, int64_t n, struct err *e);
    /* y = x under the mask, for `samples` samples of n elements each; also its own backward: dx from dy. In place is
     * fine. */
    MUST_CHECK status_t (*dropout)(const struct kernels *k, element_t *y, const element_t *x, int64_t samples,
                                   int64_t n, const struct dropout *dropout, struct err *e);
    MUST_CHECK status_t (*add)(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                               struct err *e); /* y = a + b; y may be a or b */
    MUST_CHECK status_t (*accumulate)(const struct kernels *k, float *a, const float *b, int64_t n,
                                      struct err *e); /* a += b */
    MUST_CHECK status_t (*fill)(const struct kernels *k, float *a, float value, int64_t n, struct err *e);
    MUST_CHECK status_t (*copy)(const struct kernels *k, element_t *to, const element_t *from, int64_t n,
                                struct err *e);
    /* to = from, rounded: weights from their masters; and back, exactly. */
    MUST_CHECK status_t (*convert)(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e);
    MUST_CHECK status_t (*widen)(const struct kernels *k, float *to, const element_t *from, int64_t n, struct err *e);

    /* --- over all parameters --------------------------------------------------------------------------------------*/
    /* One pass each, over all of a list of spans: parameters p and the states are updated in place, unless the update
     * is skipped. x is the gradient g. The same bits for an element wherever an array is cut, and whatever stands
     * beside it in the list.
     *
     *   adamw      Loshchilov and Hutter, arXiv 1711.05101, in the form of torch.optim.AdamW
     *   sgd        g += weight_decay p; m = momentum m + g; p -= learning_rate (nesterov ? g + momentum m : m)
     *   lion       Chen et al., arXiv 2302.06675: p = (1 - rate decay) p - rate sign(beta1 m + (1 - beta1) g), a sign
     *              of 0 being 0; then m = beta2 m + (1 - beta2) g */
    MUST_CHECK status_t (*adamw)(const struct kernels *k, const struct span *spans, int n_spans, const struct adamw *o,
                                 struct err *e);
    MUST_CHECK status_t (*sgd)(const struct kernels *k, const struct span *spans, int n_spans, const struct sgd *o,
                               struct err *e);
    MUST_CHECK status_t (*lion)(const struct kernels *k, const struct span *spans, int n_spans, const struct lion *o,
                                struct err *e);
    /* Adafactor (Shazeer and Stern, arXiv 1804.04235, without first moment) for a whole matrix p (rows, columns): row
     * (rows) and column (columns) are running means of g^2 + epsilon1 over the other side; u = g / sqrt(row column /
     * mean(row)); p = (1 - learning_rate weight_decay) p - learning_rate max(epsilon2, rms(p)) u / max(1, rms(u) /
     * clip_threshold). column NULL: row (rows * columns) is the whole second moment. */
    MUST_CHECK status_t (*adafactor)(const struct kernels *k, float *p, element_t *weight, float *row, float *column,
                                     const float *g, int64_t rows, int64_t columns, const struct adafactor *o,
                                     void *workspace, struct err *e);
    size_t (*adafactor_workspace)(const struct kernels *k, int64_t rows, int64_t columns);
    /* m = momentum m + (1 - momentum) g; u = m, or with nesterov momentum m + (1 - momentum) g once more. */
    MUST_CHECK status_t (*momentum)(const struct kernels *k, float *u, float *m, const float *g, int64_t n,
                                    const struct momentum *o, struct err *e);
    /* p = (1 - learning_rate weight_decay) p - learning_rate factor x; weight gets p rounded, or is NULL. */
    MUST_CHECK status_t (*descend)(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n,
                                   const struct descent *o, struct err *e);
    /* p = keep p + by x over a list, unless `update` is skipped (NULL: it never is). x may be p. */
    MUST_CHECK status_t (*scale_add)(const struct kernels *k, const struct span *spans, int n_spans, double keep,
                                     double by, const struct update *update, struct err *e);
    /* Batch statistics' step: p += momentum (x / parts - p), in double, x being sums of `parts` measurements. */
    MUST_CHECK status_t (*running_mean)(const struct kernels *k, const struct span *spans, int n_spans, double momentum,
                                        int64_t parts, const struct update *update, struct err *e);
    /* x divided by its Euclidean norm, or by `least` where that is larger. workspace: ceil(n / KERNELS_CHUNK) + 1
     * doubles. */
    MUST_CHECK status_t (*normalise)(const struct kernels *k, float *x, int64_t n, double least, double *workspace,
                                     struct err *e);
    /* sums[i] = the sum of squares of chunk i, in double, for each of a list; the last chunk may be short. The caller
     * adds them in the order of chunks over all shards. */
    MUST_CHECK status_t (*sum_squares)(const struct kernels *k, const struct norm_span *spans, int n_spans,
                                       struct err *e);
    /* Whether this step is applied, and by what: from the losses of its micro-batches and the sums of squares of all
     * chunks of its gradients. After a step whose losses or norm are no numbers all later ones are skipped, too. */
    MUST_CHECK status_t (*decide)(const struct kernels *k, struct decision *decision, const double *losses,
                                  int64_t n_losses, const double *sums, int64_t n_sums, const struct decide *o,
                                  struct err *e);
    /* false when a NaN or an infinity is among the n values. */
    MUST_CHECK status_t (*all_finite)(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);
    MUST_CHECK status_t (*elements_finite)(const struct kernels *k, bool *ret, const element_t *a, int64_t n,
                                           struct err *e);
};

/* Bytes of an element_t: 4 or 2. */
static inline size_t kernels_element_bytes(const struct kernels *k) { return k->precision == KERNELS_FP32 ? 4 : 2; }

/* Errors: INVALID_ARGUMENT for an unknown device or thread count, FAILED_PRECONDITION for an ISA or a precision that
 * the processor or this build does not have, DATA_LOSS for a record that is none, RESOURCE_EXHAUSTED. */
MUST_CHECK status_t kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *kernels_close(struct kernels *k);
CLEANUP_DEFINE(struct kernels *, kernels_close)

/* A table that tells how much room ops take on a device which need not be there: only its *_workspace functions may be
 * called, and they answer as those of the device's own table do. Nobody closes it. NULL on "cpu", where that depends on
 * the team and the instruction set too: open a table there. */
const struct kernels *kernels_described(const struct kernels_config *config);

/* All that the bits of a result depend on beside values and shapes: device, ISA, library, compiler, version, and a
 * digest of this folder's sources, of which any change may be one of bits; one line such as "cpu avx512, fp32,
 * oneDNN 2.6.3 avx512_core_amx, gcc 12.2.0, glibc 2.36, trainyard 0.1.0 0d9a3b7c5e21". Cut to n bytes with its NUL;
 * KERNELS_NUMERICS_ID_BYTES is enough. */
void kernels_numerics_id(const struct kernels *k, char *buf, size_t n);

#endif
