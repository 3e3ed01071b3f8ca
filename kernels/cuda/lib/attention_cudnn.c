/* Attention as two graphs of cuDNN's backend API, which cuDNN recognises as flash attention.
 *
 * The graph of forward: scores = scale q k^T, the causal mask, the softmax by row maximum and row sum, out = p v,
 * and lse. The graph of backward: p again from lse, dv, dp, ds, dk and dq. The packed qkv tensor is described by
 * strides, so that nothing is copied. Virtual tensors, such as the scores, have no memory of the caller.
 *
 * A graph is built and compiled once for each shape (cudnn_plan_find). In a fixed order of sums cuDNN writes dq
 * directly. Under `fast` it adds dq atomically in fp32 and converts it. A run passes the pointers of the graph's
 * tensors. */
#include "kernels/cuda/lib/attention_cudnn.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lib/cudnn_graph.h"
#include "kernels/cuda/workspace.h"

#include <math.h>

/* The number of cuDNN's engines that `numerics: fast` times. cuDNN has two or three, and compiles each for a second
 * or two. */
enum { CANDIDATES = 3 };
/* The first version of cuDNN that clears the sums of dQ itself before atomic additions. */
enum { CLEARS_SUMS_SINCE = 90600 };

enum id { Q = 1, K, V, OUT, LSE, DOUT, DQ, DK, DV, TOTAL, DQ_SUM, SCALE, LOWEST, ONE };

/* The shapes of the tensors as (batch, heads, rows, columns), with strides into the packed tensor. kt is K
 * transposed by its strides. */
struct shapes {
    int64_t q[4], kv[4], kt[4], scores[4], rows[4], one[4];                           /* dimensions */
    int64_t packed[4], packed_t[4], out[4], whole[4], square[4], square_t[4], row[4]; /* strides */
};

static struct shapes shapes_of(const struct attention_dims *d) {
    const int64_t b = d->batch, h = d->heads, g = d->kv_heads, t = d->time, w = d->head, stride = (h + 2 * g) * w;
    return (struct shapes){ .q = { b, h, t, w },
                            .kv = { b, g, t, w },
                            .kt = { b, g, w, t },
                            .scores = { b, h, t, t },
                            .rows = { b, h, t, 1 },
                            .one = { 1, 1, 1, 1 },
                            .packed = { t * stride, w, stride, 1 },
                            .packed_t = { t * stride, w, 1, stride },
                            .out = { t * h * w, w, h * w, 1 },
                            .whole = { h * t * w, t * w, w, 1 },
                            .square = { h * t * t, t * t, t, 1 },
                            .square_t = { h * t * t, t * t, 1, t },
                            .row = { h * t, t, 1, 1 } };
}

struct building {
    struct cudnn_graph g;
    struct shapes s;
    cudnnDataType_t type;
    bool causal;
};

static struct attention_dims dims_of(const struct cudnn_key *key) {
    return (struct attention_dims){ .batch = key->dims[0],
                                    .time = key->dims[1],
                                    .heads = key->dims[2],
                                    .kv_heads = key->dims[3],
                                    .head = key->dims[4],
                                    .causal = key->dims[5] != 0 };
}

static struct building begin(struct cudnn *c, const struct cudnn_key *key) {
    const struct attention_dims d = dims_of(key);
    return (struct building){
        .g = cudnn_graph_begin(c), .s = shapes_of(&d), .type = cudnn_type(key->precision), .causal = d.causal
    };
}

static cudnn_descriptor scores(struct building *b) {
    return cudnn_virtual(&b->g, CUDNN_DATA_FLOAT, b->s.scores, b->s.square);
}
static cudnn_descriptor rows(struct building *b) { return cudnn_virtual(&b->g, CUDNN_DATA_FLOAT, b->s.rows, b->s.row); }

/* Computes in fp32, element by element: of two tensors of scores, or of a tensor and rows or a number. */
static cudnn_descriptor map(struct building *b, cudnnPointwiseMode_t mode, cudnn_descriptor x, cudnn_descriptor with) {
    cudnn_descriptor y = scores(b);
    cudnn_pointwise(&b->g, mode, CUDNN_DATA_FLOAT, x, with, NULL, y);
    return y;
}

/* Replaces a score by minus infinity if its key is after its query. */
static cudnn_descriptor mask(struct building *b, cudnn_descriptor x) {
    if (!b->causal)
        return x;
    cudnn_descriptor query = cudnn_virtual(&b->g, CUDNN_DATA_INT32, b->s.scores, b->s.square),
                     key = cudnn_virtual(&b->g, CUDNN_DATA_INT32, b->s.scores, b->s.square),
                     seen = cudnn_virtual(&b->g, CUDNN_DATA_BOOLEAN, b->s.scores, b->s.square), y = scores(b);
    cudnn_index(&b->g, 2, x, query);
    cudnn_index(&b->g, 3, x, key);
    cudnn_pointwise(&b->g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, query, key, NULL, seen);
    cudnn_pointwise(&b->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, cudnn_scalar(&b->g, LOWEST), seen, y);
    return y;
}

/* lse = max + log(sum(exp(s - max))), out = softmax(s) v */
static status_t build_forward(struct cudnn *c, const struct cudnn_key *key, struct cudnn_plan **ret, struct err *e) {
    const struct cudnn_choice choice = { .deterministic = true,
                                         .candidates = cudnn_is_timed(c) ? CANDIDATES : 1,
                                         .engine = cudnn_cached_engine(c, key),
                                         .max_workspace = (size_t)key->workspace_bytes };
    struct building b = begin(c, key);
    struct cudnn_graph *g = &b.g;
    const struct shapes *s = &b.s;
    cudnn_descriptor q = cudnn_tensor(g, Q, b.type, s->q, s->packed),
                     kt = cudnn_tensor(g, K, b.type, s->kt, s->packed_t),
                     v = cudnn_tensor(g, V, b.type, s->kv, s->packed), out = cudnn_tensor(g, OUT, b.type, s->q, s->out),
                     lse = cudnn_tensor(g, LSE, CUDNN_DATA_FLOAT, s->rows, s->row), product = scores(&b);
    cudnn_matmul(g, q, kt, product);
    cudnn_descriptor x = mask(&b, map(&b, CUDNN_POINTWISE_MUL, product, cudnn_scalar(g, SCALE)));
    cudnn_descriptor row_max = rows(&b), sum = rows(&b), log_sum = rows(&b),
                     p = cudnn_virtual(g, b.type, s->scores, s->square);
    cudnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, row_max);
    x = map(&b, CUDNN_POINTWISE_EXP, map(&b, CUDNN_POINTWISE_SUB, x, row_max), NULL);
    cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, x, sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, sum, NULL, NULL, log_sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, row_max, log_sum, NULL, lse);
    cudnn_pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, x, sum, NULL, p);
    cudnn_matmul(g, p, v, out);
    return cudnn_graph_plan(g, &choice, ret, e);
}

/* y (kv heads) = a^T b, where a (heads, time, time) is given transposed. Adds the query heads that share a key head. */
static void key_gradient(struct building *b, cudnn_descriptor a, cudnn_descriptor by, cudnn_descriptor y) {
    if (b->s.q[1] == b->s.kv[1]) {
        cudnn_matmul(&b->g, a, by, y);
        return;
    }
    cudnn_descriptor each = cudnn_virtual(&b->g, b->type, b->s.q, b->s.whole);
    cudnn_matmul(&b->g, a, by, each);
    cudnn_reduce(&b->g, CUDNN_REDUCE_TENSOR_ADD, each, y);
}

static cudnn_descriptor transposed(struct building *b, cudnn_descriptor x) {
    cudnn_descriptor y = cudnn_virtual(&b->g, b->type, b->s.scores, b->s.square_t);
    cudnn_reshape(&b->g, x, y);
    return y;
}

/* total = the row sums of dout . out, stored in memory: cuDNN recognises the graph by this tensor. */
static cudnn_descriptor row_totals(struct building *b, cudnn_descriptor dout, cudnn_descriptor out) {
    struct cudnn_graph *g = &b->g;
    cudnn_descriptor product = cudnn_virtual(g, CUDNN_DATA_FLOAT, b->s.q, b->s.whole), sum = rows(b),
                     total = cudnn_tensor(g, TOTAL, CUDNN_DATA_FLOAT, b->s.rows, b->s.row);
    cudnn_pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, dout, out, NULL, product);
    cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, sum, cudnn_scalar(g, ONE), NULL, total);
    return total;
}

static void query_gradient(struct building *b, cudnn_descriptor ds, cudnn_descriptor k, bool fast) {
    struct cudnn_graph *g = &b->g;
    cudnn_descriptor dq = cudnn_tensor(g, DQ, b->type, b->s.q, b->s.packed);
    if (!fast) {
        cudnn_matmul(g, ds, k, dq);
        return;
    }
    cudnn_descriptor sum = cudnn_tensor(g, DQ_SUM, CUDNN_DATA_FLOAT, b->s.q, b->s.whole);
    cudnn_matmul(g, ds, k, sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, sum, NULL, NULL, dq);
}

/* p = exp(s - lse), dv = p^T dout, ds = scale p (dout v^T - total), dk = ds^T q, dq = ds k */
static status_t build_backward(struct cudnn *c, const struct cudnn_key *key, struct cudnn_plan **ret, struct err *e) {
    const bool fast = key->pass == CUDNN_ATTENTION_BACKWARD_FAST;
    const struct cudnn_choice choice = { .deterministic = !fast,
                                         .candidates = cudnn_is_timed(c) ? CANDIDATES : 1,
                                         .engine = cudnn_cached_engine(c, key),
                                         .max_workspace = (size_t)key->workspace_bytes };
    struct building b = begin(c, key);
    struct cudnn_graph *g = &b.g;
    const struct shapes *s = &b.s;
    cudnn_descriptor q = cudnn_tensor(g, Q, b.type, s->q, s->packed),
                     kt = cudnn_tensor(g, K, b.type, s->kt, s->packed_t),
                     vt = cudnn_tensor(g, V, b.type, s->kt, s->packed_t),
                     out = cudnn_tensor(g, OUT, b.type, s->q, s->out),
                     dout = cudnn_tensor(g, DOUT, b.type, s->q, s->out),
                     lse = cudnn_tensor(g, LSE, CUDNN_DATA_FLOAT, s->rows, s->row), scale = cudnn_scalar(g, SCALE),
                     total = row_totals(&b, dout, out), product = scores(&b), dp = scores(&b),
                     k = cudnn_virtual(g, CUDNN_DATA_FLOAT, s->kv, s->packed);
    cudnn_matmul(g, q, kt, product);
    cudnn_descriptor x = map(&b, CUDNN_POINTWISE_MUL, product, scale);
    cudnn_descriptor p = map(&b, CUDNN_POINTWISE_EXP, mask(&b, map(&b, CUDNN_POINTWISE_SUB, x, lse)), NULL);
    key_gradient(&b, transposed(&b, p), dout, cudnn_tensor(g, DV, b.type, s->kv, s->packed));
    cudnn_matmul(g, dout, vt, dp);
    cudnn_descriptor ds = map(&b, CUDNN_POINTWISE_MUL, map(&b, CUDNN_POINTWISE_SUB, dp, total), p);
    ds = map(&b, CUDNN_POINTWISE_MUL, ds, scale);
    key_gradient(&b, transposed(&b, ds), q, cudnn_tensor(g, DK, b.type, s->kv, s->packed));
    cudnn_reshape(g, kt, k);
    query_gradient(&b, ds, k, fast);
    return cudnn_graph_plan(g, &choice, ret, e);
}

static struct cudnn_key key_of(const struct attention_cudnn *a, enum cudnn_pass pass) {
    const struct attention_dims *d = &a->dims;
    const size_t bytes = pass == CUDNN_ATTENTION_FORWARD ? CUDA_ATTENTION_FORWARD_ENGINE_BYTES
                                                         : cuda_attention_engine_bytes(d, a->precision, a->fast);
    return (struct cudnn_key){ .pass = pass,
                               .precision = a->precision,
                               .dims = { d->batch, d->time, d->heads, d->kv_heads, d->head, d->causal },
                               .workspace_bytes = (int64_t)bytes };
}

static struct cudnn_key backward_key(const struct attention_cudnn *a) {
    return key_of(a, a->fast ? CUDNN_ATTENTION_BACKWARD_FAST : CUDNN_ATTENTION_BACKWARD);
}

status_t attention_cudnn_find(struct cudnn *c, const struct attention_cudnn *a, struct err *e) {
    const struct cudnn_key forward = key_of(a, CUDNN_ATTENTION_FORWARD), backward = backward_key(a);
    const struct cudnn_plan *plan;
    TRY(cudnn_plan_find(c, &forward, build_forward, &plan, e));
    return cudnn_plan_find(c, &backward, build_backward, &plan, e);
}

/* --- runs ---*/

/* Addresses of queries, keys and values in a packed tensor. */
struct parts {
    void *q, *k, *v;
};
static struct parts parts_of(const element_t *packed, const struct attention_cudnn *a) {
    const size_t bytes = a->precision == KERNELS_FP32 ? 4 : 2;
    char *q = (char *)packed, *k = q + (size_t)(a->dims.heads * a->dims.head) * bytes;
    return (struct parts){ q, k, k + (size_t)(a->dims.kv_heads * a->dims.head) * bytes };
}

status_t attention_cudnn_forward(struct cudnn *c, const struct attention_cudnn *a, element_t *out, float *lse,
                                 const element_t *qkv, void *workspace, struct err *e) {
    const struct parts in = parts_of(qkv, a);
    const struct cudnn_plan *plan;
    float scale = 1.0f / sqrtf((float)a->dims.head), lowest = -INFINITY;
    int64_t ids[] = { Q, K, V, OUT, LSE, SCALE, LOWEST };
    void *const pointers[] = { in.q, in.k, in.v, out, lse, &scale, &lowest };
    const struct cudnn_key key = key_of(a, CUDNN_ATTENTION_FORWARD);
    const int n = a->dims.causal ? 7 : 6;
    TRY(cudnn_plan_find(c, &key, build_forward, &plan, e));
    TRY(cudnn_plan_decide(c, &key, n, ids, pointers, workspace, &plan, e));
    return cudnn_plan_run(c, plan, n, ids, pointers, workspace, e);
}

status_t attention_cudnn_backward(struct cudnn *c, const struct attention_cudnn *a, element_t *dqkv,
                                  const element_t *dout, const element_t *qkv, const element_t *out, const float *lse,
                                  void *workspace, struct err *e) {
    const struct parts in = parts_of(qkv, a), gradient = parts_of(dqkv, a);
    const struct cudnn_key key = backward_key(a);
    const struct cudnn_plan *plan;
    float scale = 1.0f / sqrtf((float)a->dims.head), lowest = -INFINITY, one = 1;
    const size_t sum_bytes = cuda_attention_sums_bytes(&a->dims, a->fast);
    char *total = workspace, *sum = total + cuda_attention_totals_bytes(&a->dims), *rest = sum + sum_bytes;
    int64_t ids[16] = { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, TOTAL, SCALE, ONE };
    void *pointers[16] = { in.q,       in.k,       in.v,       (void *)out, (void *)lse, (void *)dout,
                           gradient.q, gradient.k, gradient.v, total,       &scale,      &one };
    int n = 12;
    if (a->dims.causal) {
        ids[n] = LOWEST;
        pointers[n++] = &lowest;
    }
    if (a->fast) {
        ids[n] = DQ_SUM;
        pointers[n++] = sum;
    }
    TRY(cudnn_plan_find(c, &key, build_backward, &plan, e));
    TRY(cudnn_plan_decide(c, &key, n, ids, pointers, rest, &plan, e));
    if (a->fast && cudnn_version(c) < CLEARS_SUMS_SINCE)
        TRY(cuda_status(cudaMemsetAsync(sum, 0, sum_bytes, cudnn_stream(c)), "clearing a gradient's sums", e));
    return cudnn_plan_run(c, plan, n, ids, pointers, rest, e);
}
