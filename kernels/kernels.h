/* Numeric operations behind one table of functions, so that the engine never knows which device it runs on.
 *
 *     struct kernels *k;
 *     TRY(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = 2 }, &k, e));
 *     TRY(k->linear_forward(k, y, NULL, x, w, bias, &(struct linear_dims){ .rows = 768, .in = 384, .out = 1536 }, e));
 *     k = kernels_close(k);
 *
 * Conventions, for every function of the table:
 *   - parameters: the table first, then outputs, inputs, dims, workspace, and `struct err *e` last. Arrays are
 * row-major without padding. Comments give shapes beside the names: (B,T,C) = batch, time, width; rows = B*T
 *   - `element_t *` points to numbers of the table's precision, `float *` always to fp32
 *   - pointers need the alignment of their numbers; 64-byte alignment is faster. Outputs do not overlap inputs unless a
 *     comment says "in place"
 *   - determinism: a result depends on values, shapes and the instruction set, never on the number of threads.
 * Reductions are divided by shape alone. kernels_numerics_id names everything else that bits depend on
 *   - `accumulate` true adds to the gradient; false overwrites it, also if its memory is uninitialised
 *   - memory: no call allocates after the first call with its shape. (The first linear_* of a shape builds a oneDNN
 *     primitive; at most KERNELS_MAX_PRODUCTS are kept, the least recently used is dropped.) Scratch memory is the
 *     caller's `workspace`; the function of the same name + _workspace returns its size in bytes. On "cuda" that
 * function also prepares libraries for the shape: call it before the first step, so that nothing compiles during a step
 *   - errors: INVALID_ARGUMENT for a token or target outside its vocabulary, INTERNAL or RESOURCE_EXHAUSTED if the
 * library or the device fails. After an error the outputs are undefined. A wrong dimension is an assert
 *
 * Threads: a table belongs to one calling thread at a time, and uses the OpenMP team of that thread. Open a second
 * table for a second thread. kernels_set_threads changes the size of the team between two calls.
 *
 * Devices: "cpu", and "cuda" if its plugin and a driver are installed (kernels/plugin.h). On "cuda" calls only queue
 * work on one CUDA stream. They do not wait, allocate or query the device, except those whose comment says so; so a
 * step can be captured as a CUDA graph. Sums are added in another order than on the CPU; dropout masks have the same
 * bits. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A GPT uses 13 different products with their gradients; a large model with pipeline stages some dozens. */
#define KERNELS_MAX_PRODUCTS 128
/* sum_squares returns one sum for each chunk of this many elements. */
#define KERNELS_CHUNK 1024
/* Holds the sentence of kernels_numerics_id and its NUL. */
#define KERNELS_NUMERICS_ID_BYTES 192
/* Holds the text of kernels->tuning_cache and its NUL. */
#define KERNELS_TUNING_CACHE_BYTES ((size_t)2 << 20)

/* PLAIN: portable C, including the matrix product. The vector code is tested against it. */
enum kernels_isa { KERNELS_ISA_BEST, KERNELS_ISA_PLAIN, KERNELS_ISA_AVX2, KERNELS_ISA_AVX512 };

/* The type of an element_t: of activations, their gradients and all weights, those of norms and biases included. Always
 * fp32: gradients of parameters, statistics (mean, rstd, lse), losses, optimizer states, and
 * sums inside a kernel. Results are rounded to the nearest element, ties to even. */
enum kernels_precision { KERNELS_FP32, KERNELS_BF16, KERNELS_FP16 };
typedef void element_t;

struct kernels_config {
    const char *device; /* "cpu" or "cuda" */
    int ordinal;        /* cuda: index among the devices that the process sees; cpu: unused */
    int threads;        /* cpu: 1 .. 1024; cuda: unused */
    int max_threads;    /* cpu: the upper limit of kernels_set_threads, threads .. 1024; 0 = threads; cuda: unused */
    enum kernels_isa
        isa; /* BEST: the best one of this processor; any other: exactly that one, or FAILED_PRECONDITION */
    enum kernels_precision precision;
    /* cuda: algorithms of products and convolutions may be selected by timing, so that two runs may differ in bits;
     * cpu: unused */
    bool fast;
    /* Tuning cache of an earlier part of the run, whose algorithms are used again. Texts of several ranks may be
     * concatenated; the first entry for a shape wins. Entries of another device, library or `fast` are skipped. NULL:
     * none. */
    const char *tuning_cache;
};

/* y (rows, out) = x (rows, in) W + bias (out). W is (in, out), or (out, in) when `transposed` (a tied embedding).
 * Several layers with one input can write side by side, each to a slice of `out` columns in rows of y_stride numbers
 * (queries, keys and values of one packed tensor); y and dy then point to the first number of the slice. `pre` always
 * has whole rows. */
struct linear_dims {
    int64_t rows, in, out;
    bool transposed;
    int64_t y_stride; /* numbers from one row of y and dy to the next; 0: out */
};
static inline int64_t linear_stride(const struct linear_dims *d) { return d->y_stride ? d->y_stride : d->out; }

/* Host memory that a table allocates and keeps for its calls, beside workspaces, in bytes. */
struct kernels_memory {
    size_t shared; /* buffers that all calls use: of several calls the largest counts */
    size_t own;    /* code and scratch memory of these calls alone: of several calls the sum counts */
};

/* `heads` query heads of `head` numbers each share kv_heads key and value heads: heads / kv_heads query heads per key
 * head (grouped-query attention: Ainslie et al., arXiv 2305.13245). kv_heads = heads is plain multi-head attention. The
 * packed tensor qkv is (B, T, (heads + 2 kv_heads) head): the queries, then the keys, then the values, each head by
 * head. */
struct attention_dims {
    int64_t batch, time, heads, kv_heads, head; /* kv_heads divides heads */
    bool causal;                                /* false: each position attends to all positions of its sample */
    bool masked; /* calls may use dropout; implementations without dropout are not used and get no workspace */
};

/* Rotary positions (Su et al., arXiv 2104.09864): pair i of a head, numbers i and i + head/2 (the halves' convention of
 * Hugging Face's Llama), turns at position t by the angle t theta^(-2i/head). If scaling.factor is not 0, frequencies
 * are scaled as in Llama 3.1: those with a wavelength above context / low_frequency are divided by factor, those with
 * one below context / high_frequency stay, and those between are interpolated. */
struct rope {
    double theta;
    struct rope_scaling {
        double factor, low_frequency, high_frequency; /* Llama 3.1: 8, 1, 4 */
        int64_t context;                              /* the context length of the earlier training: 8,192 */
    } scaling;
};

/* Convolutions of channels-last images: x (batch, height, width, in), y (batch, height', width', out) with
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

/* Normalisation of each column of x (rows, width) over its rows, which are the pixels of a batch. */
struct batchnorm_dims {
    int64_t rows, width;
    float epsilon;
    bool relu; /* y = max(., 0) */
};

/* Random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed so that
 * the mask of a micro-batch does not depend on the rank that computes it. */
struct rng_key {
    uint64_t seed;
    const int64_t *step; /* in device memory: 0 .. 2^32-1 */
    uint32_t op;         /* the global id of the op in its graph */
};

/* A mask: element e of sample s is kept when the number drawn for (key, s, e) is at least probability * 2^32; kept
 * values are divided by 1 - probability. probability 0: no dropout, and the other members are not read. The pointer
 * to the struct is never NULL. */
struct dropout {
    float probability; /* [0, 1) */
    struct rng_key key;
    int64_t first_sample; /* number of the call's first sample in the global batch; 0 .. 2^32-1 */
};

/* Values that change from step to step are in device memory (the learning rate, the step number, struct update, struct
 * decision). So a step does not wait for the host, and its calls can be captured once and launched again. */

/* Read by the optimizer updates of a step when they run. */
struct update {
    int64_t number;       /* number of this applied update, from 1: bias correction */
    float gradient_scale; /* the factor of unscaling and of clipping by norm */
    uint32_t skip;        /* enum step_skip; any value but STEP_APPLIED: the updates change nothing */
};

/* Why a step was not applied. STEP_FAILED: it is not finite, as were too many before it, and later steps change
 * nothing: the job ends. */
enum step_skip { STEP_APPLIED, STEP_OVERFLOW, STEP_SPIKE, STEP_NOT_FINITE, STEP_FAILED };

/* The largest window of norms for detecting spikes, and the number of norms below which none is detected. */
enum { DECISION_MAX_NORMS = 1024, DECISION_MIN_NORMS = 8 };

/* The result of one step and the input of the next one; step_decision.h has the arithmetic. Initially all zeros except
 * `scale` and `loss_gradient`. */
struct decision {
    struct update update;
    double grad_norm;     /* of the unscaled gradients */
    double scale;         /* loss scale: of fp16, else 1 */
    int64_t growth_count; /* steps without overflow since the last change of scale */
    int64_t not_finite;   /* the newest steps in a row that were STEP_NOT_FINITE */
    float loss_gradient;  /* factor of a loss's gradient: scale / targets */
    uint32_t n_norms;
    double norms[DECISION_MAX_NORMS]; /* [n_norms] of the newest applied steps, oldest first; only with z_score */
};

struct decision_rules {
    double clip_norm;        /* 0: no clipping */
    double z_score;          /* a norm more than this many deviations above the mean is a spike; 0: none is */
    int64_t window;          /* 2 .. DECISION_MAX_NORMS */
    bool dynamic_scale;      /* fp16: a norm that is not finite is an overflow, which halves the scale */
    int64_t growth_interval; /* steps without overflow after which the scale doubles */
    int64_t targets;         /* number of targets by which a step's loss is divided */
    int64_t max_not_finite;  /* steps in a row that are skipped because they are not finite; one more fails */
};

/* An array of n numbers for an update. A call takes a list of spans, which is in host memory; the spans do not overlap.
 * So a model of many parameters needs few launches (kernels/cuda/spans.cuh). */
struct span {
    int64_t n;
    float *p;          /* updated in place: parameters, a statistic, an average */
    element_t *weight; /* receives p, rounded; NULL: p is the weight */
    float *m, *v;      /* optimizer states, if the function has them */
    const float *x;    /* the gradient or the other operand of the update */
    bool decay;        /* apply weight_decay */
};

/* n numbers and the sums of squares of their chunks. */
struct norm_span {
    double *sums; /* [ceil(n / KERNELS_CHUNK)] */
    const float *a;
    int64_t n;
};

/* Settings of the optimizers. Each uses the gradient g * update->gradient_scale, limited to -clip_value .. clip_value
 * unless clip_value is 0. Settings are double because 1 - beta2 would lose its digits in float. learning_rate and
 * update point to device memory. */
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

struct sgd_step {
    const double *learning_rate;
    const struct update *update;
    double factor, weight_decay;
};

struct kernels {
    const char *device;
    int threads;     /* current size of the team; kernels_set_threads changes it */
    int max_threads; /* the largest team that workspaces suffice for */
    enum kernels_precision precision;
    bool deferred;              /* "cuda": calls may run after they return, and can be captured */
    bool fast;                  /* as in kernels_config */
    double peak_flops;          /* per second, of products in this precision; 0: unknown, as on the CPU */
    const struct kernels *fp32; /* a table of the same device and team in fp32; this table if it is fp32 */

    /* The algorithms selected so far that bits depend on, as text for kernels_config.tuning_cache: lines of ASCII, ""
     * on the CPU. The caller frees it. */
    char *(*tuning_cache)(const struct kernels *k);

    /* --- memory ---------------------------------------------------------------------------------------------------*/
    /* All pointers to numbers below point to device memory, outputs of one number included. Dims and settings are in
     * host memory and are read before the call returns. Calls of a table and of its fp32 table run in the order in
     * which they are made. On "cpu" a call has run when it returns, and device memory is host memory. On "cuda" a call
     * may run later: do not touch host memory that it reads or writes until `finish`. */
    /* Uninitialised, on a 256-byte boundary. RESOURCE_EXHAUSTED. On CUDA it waits for all work: not for the step loop.
     */
    MUST_CHECK status_t (*memory_new)(const struct kernels *k, size_t bytes, void **ret, struct err *e);
    void (*memory_free)(const struct kernels *k, void *p); /* may be NULL */
    MUST_CHECK status_t (*upload)(const struct kernels *k, void *to, const void *from_host, size_t bytes,
                                  struct err *e);
    MUST_CHECK status_t (*download)(const struct kernels *k, void *to_host, const void *from, size_t bytes,
                                    struct err *e);
    /* Converts floats in host memory to elements, rounded. */
    MUST_CHECK status_t (*upload_elements)(const struct kernels *k, element_t *to, const float *from_host, int64_t n,
                                           struct err *e);
    /* Copies within device memory. Any thread. */
    MUST_CHECK status_t (*move)(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e);
    /* The same for `rows` rows of `bytes` bytes, which begin to_stride and from_stride bytes apart: a slice of the
     * columns of a matrix. */
    MUST_CHECK status_t (*move_rows)(const struct kernels *k, void *to, size_t to_stride, const void *from,
                                     size_t from_stride, size_t bytes, int64_t rows, struct err *e);
    /* Waits until all calls have run. Reports, once, errors that only the device can detect: a failed launch, and a
     * token or target outside its vocabulary, which the device uses as token 0 or ignores as a target. */
    MUST_CHECK status_t (*finish)(const struct kernels *k, struct err *e);
    /* Host memory that the device reads and writes at full speed while the host continues (pinned memory). An upload
     * from other memory may block. RESOURCE_EXHAUSTED. */
    MUST_CHECK status_t (*host_memory_new)(const struct kernels *k, size_t bytes, void **ret, struct err *e);
    void (*host_memory_free)(const struct kernels *k, void *p); /* may be NULL */
    /* An event marks a place in the order of calls. event_wait waits until the calls before the newest event_record
     * have run, and reports the same errors as finish. */
    MUST_CHECK status_t (*event_new)(const struct kernels *k, void **ret, struct err *e);
    void (*event_free)(const struct kernels *k, void *event); /* may be NULL */
    MUST_CHECK status_t (*event_record)(const struct kernels *k, void *event, struct err *e);
    MUST_CHECK status_t (*event_wait)(const struct kernels *k, void *event, struct err *e);
    /* Uploads that overlap with calls. An upload_ahead waits for the calls before the newest ahead_release; only calls
     * after an ahead_await wait for the upload. So a buffer is filled while calls run that do not read it:
     *     upload_ahead, ahead_await, the calls that read the buffer, ahead_release, and again
     * `finish` waits for both. All three are NULL if the table is not deferred. */
    MUST_CHECK status_t (*upload_ahead)(const struct kernels *k, void *to, const void *from_host, size_t bytes,
                                        struct err *e);
    MUST_CHECK status_t (*ahead_await)(const struct kernels *k, struct err *e);
    MUST_CHECK status_t (*ahead_release)(const struct kernels *k, struct err *e);

    /* --- profiling ------------------------------------------------------------------------------------------------*/
    /* A timer is an event with a time: the device stores its clock when it reaches the newest timer_record.
     * timer_between: nanoseconds between two timers that the device has reached. "cuda": cudaEventElapsedTime, with a
     * resolution of half a microsecond; "cpu": clock_mono_ns at the time of the call. */
    MUST_CHECK status_t (*timer_new)(const struct kernels *k, void **ret, struct err *e);
    void (*timer_free)(const struct kernels *k, void *timer); /* may be NULL */
    MUST_CHECK status_t (*timer_record)(const struct kernels *k, void *timer, struct err *e);
    MUST_CHECK status_t (*timer_between)(const struct kernels *k, void *from, void *to, int64_t *ret_ns, struct err *e);
    /* Name the calls of a thread between the two for a tool that watches the process (NVTX ranges in Nsight Systems).
     * Ranges nest. Calls of a captured step are named when it is captured, not when it is launched. Both are NULL if no
     * tool watches, and on "cpu". */
    void (*range_begin)(const struct kernels *k, const char *name);
    void (*range_end)(const struct kernels *k);

    /* --- capture --------------------------------------------------------------------------------------------------*/
    /* NULL if the table is not deferred. Calls of the table and its fp32 table between begin and end are recorded and
     * do not run; `launch` runs all of them, with the data that their pointers point to at that time. Each call must
     * have been made with its shape before, outside a capture. These cannot be captured: memory_*, host_memory_*,
     * event_*, timer_*, upload_ahead, ahead_*, finish, launch. capture_end also reports a failure of a call in between.
     */
    MUST_CHECK status_t (*capture_begin)(const struct kernels *k, struct err *e);
    MUST_CHECK status_t (*capture_end)(const struct kernels *k, void **ret, struct err *e);
    MUST_CHECK status_t (*launch)(const struct kernels *k, void *capture, struct err *e);
    void (*capture_free)(const struct kernels *k, void *capture); /* may be NULL; none of its launches may be queued */

    /* --- linear ---------------------------------------------------------------------------------------------------*/
    /* pre NULL: y = x W + bias. pre (rows, out): pre = x W + bias, y = gelu(pre). bias NULL: none. */
    MUST_CHECK status_t (*linear_forward)(const struct kernels *k, element_t *y, element_t *pre, const element_t *x,
                                          const element_t *w, const element_t *bias, const struct linear_dims *d,
                                          struct err *e);
    /* The first step of backward. pre not NULL: dy becomes, in place, the gradient of pre. dbias (out) not NULL:
     * receives the column sums of dy after that. Both in one pass over dy. */
    MUST_CHECK status_t (*linear_backward_bias)(const struct kernels *k, float *dbias, element_t *dy,
                                                const element_t *pre, const struct linear_dims *d, bool accumulate,
                                                void *workspace, struct err *e);
    size_t (*linear_backward_bias_workspace)(const struct kernels *k, const struct linear_dims *d);
    /* dx (rows, in) = dy W^T; dy as linear_backward_bias left it. */
    MUST_CHECK status_t (*linear_backward_input)(const struct kernels *k, element_t *dx, const element_t *dy,
                                                 const element_t *w, const struct linear_dims *d, bool accumulate,
                                                 struct err *e);
    /* dw has the shape of W. May run long after linear_backward_input. The workspace may be 0 bytes. */
    MUST_CHECK status_t (*linear_backward_weight)(const struct kernels *k, float *dw, const element_t *x,
                                                  const element_t *dy, const struct linear_dims *d, bool accumulate,
                                                  void *workspace, struct err *e);
    size_t (*linear_backward_weight_workspace)(const struct kernels *k, const struct linear_dims *d);
    /* Of the three passes of a layer. NULL: none. */
    struct kernels_memory (*linear_memory)(const struct kernels *k, const struct linear_dims *d);

    /* --- embedding ------------------------------------------------------------------------------------------------*/
    /* y (B,T,C) = wte[token] + wpe[t]; tokens (B,T), wte (V,C), wpe (at least T rows, C), NULL: no positions. A token
     * outside 0 .. V-1 is INVALID_ARGUMENT. */
    MUST_CHECK status_t (*embedding_forward)(const struct kernels *k, element_t *y, const int32_t *tokens,
                                             const element_t *wte, const element_t *wpe, int64_t batch, int64_t time,
                                             int64_t width, int64_t vocabulary, struct err *e);
    /* dwte (V,C) and dwpe (positions, C). The tokens fix the order in which a row is summed: on "cpu" the order of its
     * positions in the batch. Overwriting clears all V and all `positions` rows first. dwpe NULL: none. forward has
     * checked the tokens. */
    MUST_CHECK status_t (*embedding_backward)(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                              const element_t *dy, int64_t batch, int64_t time, int64_t width,
                                              int64_t vocabulary, int64_t positions, bool accumulate, void *workspace,
                                              struct err *e);
    size_t (*embedding_backward_workspace)(const struct kernels *k, int64_t batch, int64_t time, int64_t width);

    /* --- layer norm -----------------------------------------------------------------------------------------------*/
    /* y = (x - mean) * rstd * gamma + beta over each row of width; backward needs mean, rstd (rows). branch not NULL:
     * r = x + branch is written (r may be x or branch, in place) and normalised instead of x. Without a branch r is
     * unused and may be NULL. beta NULL: none. */
    MUST_CHECK status_t (*layernorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *mean,
                                             float *rstd, const element_t *x, const element_t *branch,
                                             const element_t *gamma, const element_t *beta, int64_t rows, int64_t width,
                                             float epsilon, struct err *e);
    /* dx = addend + the gradient through the norm of x. With a branch, x is r, and dx is the gradient of both terms.
     * addend NULL: nothing is added. addend may be dx (in place: accumulates), dx may be dy. accumulate applies to
     * dgamma and dbeta (width); dbeta NULL: none. */
    MUST_CHECK status_t (*layernorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, float *dbeta,
                                              const element_t *dy, const element_t *addend, const element_t *x,
                                              const float *mean, const float *rstd, const element_t *gamma,
                                              int64_t rows, int64_t width, bool accumulate, void *workspace,
                                              struct err *e);
    size_t (*layernorm_backward_workspace)(const struct kernels *k, int64_t rows, int64_t width);

    /* --- RMS norm -------------------------------------------------------------------------------------------------*/
    /* y = x * rstd * gamma over each row of width, rstd = 1 / sqrt(avg(x^2) + epsilon) (Zhang and Sennrich, arXiv
     * 1910.07467); branch, r, addend, dx and accumulate as for layer norm. */
    MUST_CHECK status_t (*rmsnorm_forward)(const struct kernels *k, element_t *y, element_t *r, float *rstd,
                                           const element_t *x, const element_t *branch, const element_t *gamma,
                                           int64_t rows, int64_t width, float epsilon, struct err *e);
    MUST_CHECK status_t (*rmsnorm_backward)(const struct kernels *k, element_t *dx, float *dgamma, const element_t *dy,
                                            const element_t *addend, const element_t *x, const float *rstd,
                                            const element_t *gamma, int64_t rows, int64_t width, bool accumulate,
                                            void *workspace, struct err *e);
    size_t (*rmsnorm_backward_workspace)(const struct kernels *k, int64_t rows, int64_t width);

    /* --- attention ------------------------------------------------------------------------------------------------*/
    /* Rotates the queries and keys of a packed tensor by their positions 0 .. T-1; the values are copied. head is even.
     * inverse: rotates back, which is the gradient. May be in place. */
    MUST_CHECK status_t (*rope)(const struct kernels *k, element_t *to, const element_t *from,
                                const struct attention_dims *d, const struct rope *r, bool inverse, struct err *e);
    /* Scaled by 1/sqrt(head). out (B, T, heads head). lse (B, heads, T): log of the sum of exp of the scaled scores;
     * backward needs it. Dropout acts on the probabilities; the element of (h, t, s) in its sample is (h*T + t)*T + s.
     * After FlashAttention-2 (Dao, arXiv 2307.08691). */
    MUST_CHECK status_t (*attention_forward)(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                             const struct attention_dims *d, const struct dropout *dropout,
                                             void *workspace, struct err *e);
    MUST_CHECK status_t (*attention_backward)(const struct kernels *k, element_t *dqkv, const element_t *dout,
                                              const element_t *qkv, const element_t *out, const float *lse,
                                              const struct attention_dims *d, const struct dropout *dropout,
                                              void *workspace, struct err *e);
    /* For forward and backward. */
    size_t (*attention_workspace)(const struct kernels *k, const struct attention_dims *d);

    /* --- images, channels last ------------------------------------------------------------------------------------*/
    /* y = x * W + bias; bias (out) may be NULL. Its gradient is linear_backward_bias over the rows of dy. */
    MUST_CHECK status_t (*convolution_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                               const element_t *w, const element_t *bias,
                                               const struct convolution_dims *d, void *workspace, struct err *e);
    MUST_CHECK status_t (*convolution_backward_input)(const struct kernels *k, element_t *dx, const element_t *dy,
                                                      const element_t *w, const struct convolution_dims *d,
                                                      bool accumulate, void *workspace, struct err *e);
    /* A library may round the summand of dw to elements. */
    MUST_CHECK status_t (*convolution_backward_weight)(const struct kernels *k, float *dw, const element_t *x,
                                                       const element_t *dy, const struct convolution_dims *d,
                                                       bool accumulate, void *workspace, struct err *e);
    /* For each of the three. */
    size_t (*convolution_workspace)(const struct kernels *k, const struct convolution_dims *d);
    /* Batch normalisation (Ioffe and Szegedy, arXiv 1502.03167): y = (x - mean) / sqrt(variance + epsilon) gamma + beta
     * (+ residual), mean and variance (width) of the columns of this batch; backward needs them. residual NULL: none.
     */
    MUST_CHECK status_t (*batchnorm_forward)(const struct kernels *k, element_t *y, float *mean, float *variance,
                                             const element_t *x, const element_t *residual, const element_t *gamma,
                                             const element_t *beta, const struct batchnorm_dims *d, void *workspace,
                                             struct err *e);
    /* The same with given mean and variance: outside training. */
    MUST_CHECK status_t (*batchnorm_apply)(const struct kernels *k, element_t *y, const element_t *x,
                                           const element_t *residual, const element_t *gamma, const element_t *beta,
                                           const float *mean, const float *variance, const struct batchnorm_dims *d,
                                           struct err *e);
    /* y: the result of forward. With d->relu, gradients are 0 at elements where y is 0. d_residual NULL: none. dx or
     * d_residual may be dy (in place), but not both. measured_mean and measured_variance (width; NULL: not computed)
     * receive the batch's mean and unbiased variance, from which running statistics are computed. accumulate applies to
     * all outputs of shape (width). */
    MUST_CHECK status_t (*batchnorm_backward)(const struct kernels *k, element_t *dx, element_t *d_residual,
                                              float *dgamma, float *dbeta, float *measured_mean,
                                              float *measured_variance, const element_t *dy, const element_t *x,
                                              const element_t *y, const float *mean, const float *variance,
                                              const element_t *gamma, const struct batchnorm_dims *d, bool accumulate,
                                              void *workspace, struct err *e);
    size_t (*batchnorm_workspace)(const struct kernels *k,
                                  const struct batchnorm_dims *d); /* for forward and backward */
    /* y = the maximum of each window; in = out = channels. Each window contains at least one pixel that is not padding.
     */
    MUST_CHECK status_t (*max_pool_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                            const struct convolution_dims *d, struct err *e);
    /* The gradient goes to the first maximum of a window. */
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
    MUST_CHECK status_t (*class_token_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                               const element_t *token, const element_t *positions, int64_t batch,
                                               int64_t time, int64_t width, struct err *e);
    MUST_CHECK status_t (*class_token_backward)(const struct kernels *k, element_t *dx, float *dtoken,
                                                float *dpositions, const element_t *dy, int64_t batch, int64_t time,
                                                int64_t width, bool accumulate, struct err *e);
    /* y (batch, width) = the first position of x (batch, time, width). backward writes 0 at all other positions. */
    MUST_CHECK status_t (*first_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch,
                                         int64_t time, int64_t width, struct err *e);
    MUST_CHECK status_t (*first_backward)(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch,
                                          int64_t time, int64_t width, struct err *e);

    /* --- reconstruction -------------------------------------------------------------------------------------------*/
    /* F is the orthonormal two-dimensional Fourier transform of images (batch, height, width), sides powers of two;
     * M is the mask (batch, height, width) of zeros and ones. measured (batch, 2, height, width) is y = M F x, real
     * parts before imaginary parts, zero frequency first. All of these are fp32.
     * x = Re F* M y. */
    MUST_CHECK status_t (*fourier_adjoint)(const struct kernels *k, element_t *x, const float *measured,
                                           const float *mask, const struct fourier_dims *d, void *workspace,
                                           struct err *e);
    /* y = x - eta Re F* M (F x - measured) + update; eta is one element; y may be update. */
    MUST_CHECK status_t (*fourier_step_forward)(const struct kernels *k, element_t *y, const element_t *x,
                                                const element_t *update, const element_t *eta, const float *measured,
                                                const float *mask, const struct fourier_dims *d, void *workspace,
                                                struct err *e);
    /* dx (NULL: not computed) = dy - eta Re F* M F dy, deta = - the sum of dy Re F* M (F x - measured). The gradient of
     * update is dy. accumulate applies to deta. */
    MUST_CHECK status_t (*fourier_step_backward)(const struct kernels *k, element_t *dx, float *deta,
                                                 const element_t *dy, const element_t *x, const element_t *eta,
                                                 const float *measured, const float *mask, const struct fourier_dims *d,
                                                 bool accumulate, void *workspace, struct err *e);
    size_t (*fourier_workspace)(const struct kernels *k, const struct fourier_dims *d); /* for each of the three */

    /* --- loss -----------------------------------------------------------------------------------------------------*/
    /* losses (rows) = -log softmax(logits)[target]; a target of -1 is ignored (loss 0, gradient 0), any other target
     * outside 0 .. V-1 is INVALID_ARGUMENT. scale not NULL: logits (rows, V) become, in place, their gradient times
     * *scale, which is in device memory. NULL: logits are only read.
     *
     * Mixed rows have partners and shares (rows), else both are NULL: a row's loss is then share times the loss of its
     * target + (1 - share) times that of its partner, a second target. A partner of -1, or equal to the target, changes
     * no bit. */
    MUST_CHECK status_t (*cross_entropy)(const struct kernels *k, float *losses, element_t *logits,
                                         const int32_t *targets, const int32_t *partners, const float *shares,
                                         int64_t rows, int64_t vocabulary, const float *scale, struct err *e);

    /* losses (batch) = the mean of (x - reference)^2 over a sample's n numbers. scale not NULL: x (batch, n) becomes,
     * in place, its gradient times *scale. */
    MUST_CHECK status_t (*squared_error)(const struct kernels *k, float *losses, element_t *x, const float *reference,
                                         int64_t batch, int64_t n, const float *scale, struct err *e);
    /* psnr (batch) = -10 log10 of the same mean: the peak signal-to-noise ratio, in dB, of images in [0, 1]; 200 for
     * equal images. */
    MUST_CHECK status_t (*psnr)(const struct kernels *k, float *psnr, const element_t *x, const float *reference,
                                int64_t batch, int64_t n, struct err *e);
    /* is_top1 (rows) = 1 if the largest of a row's logits (rows, V) is its target, else 0. Of equal logits the first
     * counts. */
    MUST_CHECK status_t (*top1)(const struct kernels *k, float *is_top1, const element_t *logits,
                                const int32_t *targets, int64_t rows, int64_t vocabulary, struct err *e);

    /* *ret = the sum of n losses or statistics, in double. */
    MUST_CHECK status_t (*sum)(const struct kernels *k, double *ret, const float *a, int64_t n, struct err *e);
    /* ret (rows) = the sum of each row of a (rows, n), in double. A sum depends on its row alone. */
    MUST_CHECK status_t (*sum_rows)(const struct kernels *k, double *ret, const float *a, int64_t rows, int64_t n,
                                    struct err *e);

    /* --- element by element ---------------------------------------------------------------------------------------*/
    /* GELU by tanh, as in GPT-2: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). y may be x, dx may be dy. */
    MUST_CHECK status_t (*gelu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n,
                                        struct err *e);
    MUST_CHECK status_t (*gelu_backward)(const struct kernels *k, element_t *dx, const element_t *dy,
                                         const element_t *x, int64_t n, struct err *e);
    /* GELU as it is defined, x times the normal distribution function: x/2 (1 + erf(x / sqrt(2))) (Hendrycks and
     * Gimpel, arXiv 1606.08415). The same in place. */
    MUST_CHECK status_t (*gelu_erf_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n,
                                            struct err *e);
    MUST_CHECK status_t (*gelu_erf_backward)(const struct kernels *k, element_t *dx, const element_t *dy,
                                             const element_t *x, int64_t n, struct err *e);
    /* y = silu(gate) up, silu(x) = x / (1 + exp(-x)) (Shazeer, arXiv 2002.05202); gate_up (rows, 2 width): the
     * gates of a row, then its ups. y and dy (rows, width); d_gate_up may be gate_up. */
    MUST_CHECK status_t (*swiglu_forward)(const struct kernels *k, element_t *y, const element_t *gate_up, int64_t rows,
                                          int64_t width, struct err *e);
    MUST_CHECK status_t (*swiglu_backward)(const struct kernels *k, element_t *d_gate_up, const element_t *dy,
                                           const element_t *gate_up, int64_t rows, int64_t width, struct err *e);
    /* y = max(x, 0), a NaN stays a NaN; dx = dy where y > 0, else 0. y may be x, dx may be dy. */
    MUST_CHECK status_t (*relu_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t n,
                                        struct err *e);
    MUST_CHECK status_t (*relu_backward)(const struct kernels *k, element_t *dx, const element_t *dy,
                                         const element_t *y, int64_t n, struct err *e);
    /* y = x under the mask, for `samples` samples of n elements each. Backward is the same function: dx from dy. May be
     * in place. */
    MUST_CHECK status_t (*dropout)(const struct kernels *k, element_t *y, const element_t *x, int64_t samples,
                                   int64_t n, const struct dropout *dropout, struct err *e);
    MUST_CHECK status_t (*add)(const struct kernels *k, element_t *y, const element_t *a, const element_t *b, int64_t n,
                               struct err *e); /* y = a + b; y may be a or b */
    MUST_CHECK status_t (*accumulate)(const struct kernels *k, float *a, const float *b, int64_t n,
                                      struct err *e); /* a += b */
    MUST_CHECK status_t (*exchange)(const struct kernels *k, float *a, float *b, int64_t n,
                                    struct err *e); /* a = b and b = a, bit by bit */
    MUST_CHECK status_t (*fill)(const struct kernels *k, float *a, float value, int64_t n, struct err *e);
    MUST_CHECK status_t (*copy)(const struct kernels *k, element_t *to, const element_t *from, int64_t n,
                                struct err *e);
    /* to = from, rounded: weights from fp32 masters. The second one converts to fp32, exactly. */
    MUST_CHECK status_t (*convert)(const struct kernels *k, element_t *to, const float *from, int64_t n, struct err *e);
    MUST_CHECK status_t (*convert_to_fp32)(const struct kernels *k, float *to, const element_t *from, int64_t n,
                                           struct err *e);

    /* --- over all parameters --------------------------------------------------------------------------------------*/
    /* One pass each over a list of spans: updates parameters p and states in place, unless the step is skipped. x is
     * the gradient g. The bits of an element do not depend on how arrays are divided into spans.
     *
     *   adamw      Loshchilov and Hutter, arXiv 1711.05101, in the form of torch.optim.AdamW
     *   sgd        g += weight_decay p; m = momentum m + g; p -= learning_rate (nesterov ? g + momentum m : m)
     *   lion       Chen et al., arXiv 2302.06675: p = (1 - rate decay) p - rate sign(beta1 m + (1 - beta1) g), with
     *              sign(0) = 0; then m = beta2 m + (1 - beta2) g */
    MUST_CHECK status_t (*adamw)(const struct kernels *k, const struct span *spans, int n_spans, const struct adamw *o,
                                 struct err *e);
    MUST_CHECK status_t (*sgd)(const struct kernels *k, const struct span *spans, int n_spans, const struct sgd *o,
                               struct err *e);
    MUST_CHECK status_t (*lion)(const struct kernels *k, const struct span *spans, int n_spans, const struct lion *o,
                                struct err *e);
    /* Adafactor (Shazeer and Stern, arXiv 1804.04235, without first moment) for a whole matrix p (rows, columns): row
     * (rows) and column (columns) are running means of g^2 + epsilon1 over the other dimension; u = g / sqrt(row column
     * / mean(row)); p = (1 - learning_rate weight_decay) p - learning_rate max(epsilon2, rms(p)) u / max(1, rms(u) /
     * clip_threshold). column NULL: row (rows * columns) is the whole second moment. */
    MUST_CHECK status_t (*adafactor)(const struct kernels *k, float *p, element_t *weight, float *row, float *column,
                                     const float *g, int64_t rows, int64_t columns, const struct adafactor *o,
                                     void *workspace, struct err *e);
    size_t (*adafactor_workspace)(const struct kernels *k, int64_t rows, int64_t columns);
    /* m = momentum m + (1 - momentum) g; u = m, or with nesterov u = momentum m + (1 - momentum) g. */
    MUST_CHECK status_t (*momentum)(const struct kernels *k, float *u, float *m, const float *g, int64_t n,
                                    const struct momentum *o, struct err *e);
    /* p = (1 - learning_rate weight_decay) p - learning_rate factor x; weight receives p, rounded, or is NULL. */
    MUST_CHECK status_t (*sgd_step)(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n,
                                    const struct sgd_step *o, struct err *e);
    /* p = alpha p + beta x over a list, unless the step is skipped (update NULL: never). x may be p. */
    MUST_CHECK status_t (*scale_add)(const struct kernels *k, const struct span *spans, int n_spans, double alpha,
                                     double beta, const struct update *update, struct err *e);
    /* Running batch statistics: p += momentum (x / parts - p), in double; x is the sum of `parts` measurements. */
    MUST_CHECK status_t (*running_mean)(const struct kernels *k, const struct span *spans, int n_spans, double momentum,
                                        int64_t parts, const struct update *update, struct err *e);
    /* x divided by its Euclidean norm, or by min_norm if that is larger. workspace: ceil(n / KERNELS_CHUNK) + 1
     * doubles. */
    MUST_CHECK status_t (*normalise)(const struct kernels *k, float *x, int64_t n, double min_norm, double *workspace,
                                     struct err *e);
    /* sums[i] = the sum of squares of chunk i, in double, for each of a list; the last chunk may be short. The caller
     * adds them in the order of chunks over all shards. */
    MUST_CHECK status_t (*sum_squares)(const struct kernels *k, const struct norm_span *spans, int n_spans,
                                       struct err *e);
    /* Decides whether the step is applied, and with which gradient scale, from the losses of its micro-batches and the
     * sums of squares of all chunks of its gradients. After a step with a loss or norm that is not finite all later
     * steps are skipped, too. */
    MUST_CHECK status_t (*decide)(const struct kernels *k, struct decision *decision, const double *losses,
                                  int64_t n_losses, const double *sums, int64_t n_sums, const struct decision_rules *o,
                                  struct err *e);
    /* *ret = false if a NaN or an infinity is among the n values. */
    MUST_CHECK status_t (*all_finite)(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);
    MUST_CHECK status_t (*elements_finite)(const struct kernels *k, bool *ret, const element_t *a, int64_t n,
                                           struct err *e);
};

/* Declares a function with the type of an entry of the table: KERNEL_OP(cuda_add, add); */
#define KERNEL_OP(function, entry) __typeof__(*((struct kernels *)0)->entry) function

/* Bytes of an element_t: 4 or 2. */
static inline size_t kernels_element_bytes(const struct kernels *k) { return k->precision == KERNELS_FP32 ? 4 : 2; }

/* Errors: INVALID_ARGUMENT for an unknown device or thread count, FAILED_PRECONDITION for an ISA or a precision that
 * the processor or this build does not support, DATA_LOSS for an invalid tuning cache, RESOURCE_EXHAUSTED. */
MUST_CHECK status_t kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *kernels_close(struct kernels *k);
/* Gives the table and its fp32 table a team of 1 .. max_threads threads. Results and workspaces do not change:
 * workspaces suffice for max_threads. The next call with each shape of a product or convolution builds its primitive
 * again, so call this rarely. Does nothing on "cuda". */
void kernels_set_threads(struct kernels *k, int threads);
CLEANUP_DEFINE(struct kernels *, kernels_close)

/* A table that returns workspace sizes for a device that may be absent: only its *_workspace functions may be called;
 * they return the same sizes as the table of the device. Static, do not close it. NULL on "cpu", where sizes also
 * depend on the team and the instruction set: open a table there. */
const struct kernels *kernels_shape_only(const struct kernels_config *config);

/* Everything that the bits of a result depend on besides values and shapes: device, ISA, library, compiler, version,
 * and a digest of this folder's sources, because any change may change bits. One line such as "cpu avx512, fp32,
 * oneDNN 2.6.3 avx512_core_amx, gcc 12.2.0, glibc 2.36, trainyard 0.1.0 0d9a3b7c5e21". Cut to n bytes with its NUL;
 * KERNELS_NUMERICS_ID_BYTES is enough. */
void kernels_numerics_id(const struct kernels *k, char *buf, size_t n);

#endif
