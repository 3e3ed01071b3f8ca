/* Numeric operations behind one table of functions, so that the engine never knows which device it runs on.
 *
 *     struct kernels *k;
 *     TRY(kernels_open(&(struct kernels_config){ .device = "cpu", .threads = 2 }, &k, e));
 *     TRY(k->linear_forward(k, y, NULL, x, w, bias, &(struct linear_dims){ .rows = 768, .in = 384, .out = 1536 }, e));
 *     k = kernels_close(k);
 *
 * Conventions, for every function of the table:
 *   - the table first, then outputs, inputs, dims, workspace, and `struct err *e` last; fp32, row-major, no padding;
 *     shapes stand beside the parameters: (B,T,C) = batch, time, width; rows = B*T
 *   - pointers need 4-byte alignment; 64-byte alignment is faster. Outputs do not overlap inputs, except where a
 *     comment says "in place"
 *   - the result depends on values, shapes and the instruction set, never on the number of threads: reductions are cut
 *     in pieces by shape alone (kernels_numerics_id names what else the bits depend on)
 *   - `accumulate` true adds to the gradient, false overwrites it (uninitialised memory is fine then)
 *   - nothing is allocated after the first call with a shape (the first linear_* of a shape builds a oneDNN primitive;
 *     at most KERNELS_PRODUCTS_MOST are kept, the least recently used goes). What a call needs beyond its arguments is
 *     its `workspace`; the function of the same name + _workspace tells how many bytes
 *   - errors: INVALID_ARGUMENT for a token or target outside its vocabulary, INTERNAL or RESOURCE_EXHAUSTED when the
 *     library or the device fails. After an error the outputs are undefined. A wrong dimension is an assert
 *
 * Threads: a table belongs to one calling thread at a time; its team is the OpenMP team of that thread. Open a second
 * table for a second thread. */
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
#define KERNELS_NUMERICS_ID_BYTES 160

/* PLAIN is portable C, the reference that the vector code is tested against, its matrix product included. */
enum kernels_isa { KERNELS_ISA_BEST, KERNELS_ISA_PLAIN, KERNELS_ISA_AVX2, KERNELS_ISA_AVX512 };

struct kernels_config {
    const char *device;   /* "cpu" */
    int threads;          /* 1 .. 1024 */
    enum kernels_isa isa; /* BEST: the highest that the processor has; another one: that, or FAILED_PRECONDITION */
};

/* y (rows, out) = x (rows, in) W + bias (out). W is (in, out), or (out, in) when `transposed` (a tied embedding). */
struct linear_dims {
    int64_t rows, in, out;
    bool transposed;
};

struct attention_dims {
    int64_t batch, time, width, heads; /* heads divides width */
};

/* Random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed so that
 * a micro-batch's mask does not depend on who computes it. op is the op's global id in its graph. */
struct rng_key {
    uint64_t seed;
    int64_t step; /* 0 .. 2^32-1 */
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

struct adamw {
    double learning_rate, beta1, beta2, epsilon, weight_decay; /* double: 1 - beta2 would lose its digits in float */
    float gradient_scale; /* clipping and averaging: g * gradient_scale is what the moments see */
    int64_t updates;      /* 1 for the first update: bias correction */
};

struct kernels {
    const char *device;
    int threads;

    /* --- linear ---------------------------------------------------------------------------------------------------*/
    /* pre NULL: y = x W + bias. pre (rows, out): pre = x W + bias, y = gelu(pre). bias NULL: none. */
    MUST_CHECK status_t (*linear_forward)(const struct kernels *k, float *y, float *pre, const float *x, const float *w,
                                          const float *bias, const struct linear_dims *d, struct err *e);
    /* The first step of backward. pre not NULL: dy becomes, in place, the gradient of pre. dbias (out) not NULL: gets
     * the column sums of that. Both in one pass over dy. */
    MUST_CHECK status_t (*linear_backward_bias)(const struct kernels *k, float *dbias, float *dy, const float *pre,
                                                const struct linear_dims *d, bool accumulate, void *workspace,
                                                struct err *e);
    size_t (*linear_backward_bias_workspace)(const struct kernels *k, const struct linear_dims *d);
    /* dx (rows, in) = dy W^T; dy as linear_backward_bias left it. */
    MUST_CHECK status_t (*linear_backward_input)(const struct kernels *k, float *dx, const float *dy, const float *w,
                                                 const struct linear_dims *d, bool accumulate, struct err *e);
    /* dw, shaped as W. May run long after linear_backward_input. The workspace may be 0 bytes. */
    MUST_CHECK status_t (*linear_backward_weight)(const struct kernels *k, float *dw, const float *x, const float *dy,
                                                  const struct linear_dims *d, bool accumulate, void *workspace,
                                                  struct err *e);
    size_t (*linear_backward_weight_workspace)(const struct kernels *k, const struct linear_dims *d);

    /* --- embedding ------------------------------------------------------------------------------------------------*/
    /* y (B,T,C) = wte[token] + wpe[t]; tokens (B,T), wte (V,C), wpe (at least T rows, C). A token outside 0 .. V-1 is
     * INVALID_ARGUMENT. */
    MUST_CHECK status_t (*embedding_forward)(const struct kernels *k, float *y, const int32_t *tokens, const float *wte,
                                             const float *wpe, int64_t batch, int64_t time, int64_t width,
                                             int64_t vocabulary, struct err *e);
    /* dwte (V,C) and dwpe (positions, C); each row is summed in the order of its positions in the batch. Overwriting
     * clears all V and all `positions` rows first. tokens were checked by forward. */
    MUST_CHECK status_t (*embedding_backward)(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                              const float *dy, int64_t batch, int64_t time, int64_t width,
                                              int64_t vocabulary, int64_t positions, bool accumulate, struct err *e);

    /* --- layer norm -----------------------------------------------------------------------------------------------*/
    /* y = (x - mean) * rstd * gamma + beta over each row of width; mean, rstd (rows) are kept for backward. branch not
     * NULL: r = x + branch is written (r may be x or branch, in place) and normed instead of x; r is unused, may be
     * NULL, without a branch. beta NULL: none. */
    MUST_CHECK status_t (*layernorm_forward)(const struct kernels *k, float *y, float *r, float *mean, float *rstd,
                                             const float *x, const float *branch, const float *gamma, const float *beta,
                                             int64_t rows, int64_t width, float epsilon, struct err *e);
    /* dx = addend + the gradient through the norm of x (which is r where there was a branch: the gradient of both
     * terms). addend NULL: nothing is added; addend may be dx (in place: accumulate), dx may be dy. accumulate concerns
     * dgamma and dbeta (width); dbeta NULL: none. */
    MUST_CHECK status_t (*layernorm_backward)(const struct kernels *k, float *dx, float *dgamma, float *dbeta,
                                              const float *dy, const float *addend, const float *x, const float *mean,
                                              const float *rstd, const float *gamma, int64_t rows, int64_t width,
                                              bool accumulate, void *workspace, struct err *e);
    size_t (*layernorm_backward_workspace)(const struct kernels *k, int64_t rows, int64_t width);

    /* --- attention ------------------------------------------------------------------------------------------------*/
    /* Causal, scaled by 1/sqrt(width/heads). qkv (B,T,3C): q, k, v each (heads, width/heads) in a row. out (B,T,C).
     * lse (B,H,T): log of the sum of exp of the scaled scores, for backward. Dropout acts on the probabilities; the
     * element of (h, t, s) in its sample is (h*T + t)*T + s. After FlashAttention-2 (Dao, arXiv 2307.08691). */
    MUST_CHECK status_t (*attention_forward)(const struct kernels *k, float *out, float *lse, const float *qkv,
                                             const struct attention_dims *d, const struct dropout *dropout,
                                             void *workspace, struct err *e);
    MUST_CHECK status_t (*attention_backward)(const struct kernels *k, float *dqkv, const float *dout, const float *qkv,
                                              const float *out, const float *lse, const struct attention_dims *d,
                                              const struct dropout *dropout, void *workspace, struct err *e);
    /* Enough for either. */
    size_t (*attention_workspace)(const struct kernels *k, const struct attention_dims *d);

    /* --- loss -----------------------------------------------------------------------------------------------------*/
    /* losses (rows) = -log softmax(logits)[target]; a target of -1 is ignored (loss 0, gradient 0), any other target
     * outside 0 .. V-1 is INVALID_ARGUMENT. gradient true: logits (rows, V) become, in place, their gradient times
     * scale; false: they are only read. */
    MUST_CHECK status_t (*cross_entropy)(const struct kernels *k, float *losses, float *logits, const int32_t *targets,
                                         int64_t rows, int64_t vocabulary, float scale, bool gradient, struct err *e);

    /* --- element by element ---------------------------------------------------------------------------------------*/
    /* GELU by tanh, as GPT-2 has it: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). y may be x, dx may be dy. */
    MUST_CHECK status_t (*gelu_forward)(const struct kernels *k, float *y, const float *x, int64_t n, struct err *e);
    MUST_CHECK status_t (*gelu_backward)(const struct kernels *k, float *dx, const float *dy, const float *x, int64_t n,
                                         struct err *e);
    /* y = x under the mask, for `samples` samples of n elements each; also its own backward: dx from dy. In place is
     * fine. */
    MUST_CHECK status_t (*dropout)(const struct kernels *k, float *y, const float *x, int64_t samples, int64_t n,
                                   const struct dropout *dropout, struct err *e);
    MUST_CHECK status_t (*add)(const struct kernels *k, float *y, const float *a, const float *b, int64_t n,
                               struct err *e); /* y = a + b; y may be a or b */
    MUST_CHECK status_t (*accumulate)(const struct kernels *k, float *a, const float *b, int64_t n,
                                      struct err *e); /* a += b */
    MUST_CHECK status_t (*scale)(const struct kernels *k, float *a, float factor, int64_t n, struct err *e);
    MUST_CHECK status_t (*fill)(const struct kernels *k, float *a, float value, int64_t n, struct err *e);
    /* part[0] = the sum of part[0 .. count-1] as one binary tree over adjacent pairs: ((0+1)+(2+3))+... count is a
     * power of two. The other parts are left with partial sums. */
    MUST_CHECK status_t (*tree_add)(const struct kernels *k, float *const part[], int count, int64_t n, struct err *e);

    /* --- over all parameters --------------------------------------------------------------------------------------*/
    /* AdamW (Loshchilov and Hutter, arXiv 1711.05101), one pass: parameters p, moments m and v are updated in place. */
    MUST_CHECK status_t (*adamw)(const struct kernels *k, float *p, float *m, float *v, const float *g, int64_t n,
                                 const struct adamw *o, struct err *e);
    /* sums[i] = the sum of squares of chunk i, in double; ceil(n / KERNELS_CHUNK) chunks, the last may be short. The
     * caller adds them in the order of chunks over all shards. */
    MUST_CHECK status_t (*sum_squares)(const struct kernels *k, double *sums, const float *a, int64_t n, struct err *e);
    /* false when a NaN or an infinity is among the n values. */
    MUST_CHECK status_t (*all_finite)(const struct kernels *k, bool *ret, const float *a, int64_t n, struct err *e);
};

/* Errors: INVALID_ARGUMENT for an unknown device or thread count, FAILED_PRECONDITION for an ISA that the processor or
 * this build does not have, RESOURCE_EXHAUSTED. */
MUST_CHECK status_t kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *kernels_close(struct kernels *k);
CLEANUP_DEFINE(struct kernels *, kernels_close)

/* All that the bits of a result depend on beside values and shapes: device, ISA, library, compiler, build version; one
 * line such as "cpu avx512, oneDNN 2.6.3 avx512_core_amx, gcc 12.2.0, trainyard 0.1.0". Cut to n bytes with its NUL;
 * KERNELS_NUMERICS_ID_BYTES is enough. */
void kernels_numerics_id(const struct kernels *k, char *buf, size_t n);

#endif
