#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/ops.h"

/* Who computes a shape. cuDNN's masks are its own, so that dropout is ours. */
enum by { BY_CUDNN, BY_MMA, BY_PLAIN };

static struct attention_cudnn cudnn_of(const struct kernels *k, const struct attention_dims *d) {
    return (struct attention_cudnn){ .dims = *d, .precision = k->precision, .fast = cuda_of(k)->fast };
}

/* Bytes of cuDNN's workspace; false where it does not do the shape. */
static bool cudnn_has(const struct kernels *k, const struct attention_dims *d, size_t *ret) {
    const struct attention_cudnn a = cudnn_of(k, d);
    struct err ignored;
    return cuda_of(k)->cudnn && k->precision != KERNELS_FP32 &&
           attention_cudnn_workspace(cuda_of(k)->cudnn, &a, ret, &ignored) == ST_OK;
}

/* On 16-byte boundaries, as cuDNN and the matrix units' kernels read and write. */
static bool aligned(const void *a, const void *b, const void *c, const void *d) {
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) & 15) == 0;
}

static status_t choose(const struct kernels *k, const struct attention_dims *d, const struct dropout *dropout,
                       bool wide, enum by *ret, struct err *e) {
    size_t bytes;
    if (d->head > ATTENTION_PLAIN_HEAD_MOST)
        return err_set(e, ST_UNIMPLEMENTED, "attention on CUDA has heads of at most %d numbers, not %lld",
                       ATTENTION_PLAIN_HEAD_MOST, (long long)d->head);
    if (wide && dropout->probability == 0 && cudnn_has(k, d, &bytes))
        *ret = BY_CUDNN;
    else if (wide && k->precision != KERNELS_FP32 && d->head % 8 == 0 && d->head <= ATTENTION_MMA_HEAD_MOST)
        *ret = BY_MMA;
    else
        *ret = BY_PLAIN;
    return ST_OK;
}

static size_t totals(const struct attention_dims *d) { return (size_t)(d->batch * d->heads * d->time) * sizeof(float); }

size_t cuda_attention_workspace(const struct kernels *k, const struct attention_dims *d) {
    size_t bytes = 0;
    return cudnn_has(k, d, &bytes) && bytes > totals(d) ? bytes : totals(d);
}

status_t cuda_attention_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                struct err *e) {
    const struct attention_cudnn a = cudnn_of(k, d);
    enum by by;
    TRY(choose(k, d, dropout, aligned(out, qkv, NULL, NULL), &by, e));
    if (by == BY_CUDNN)
        return attention_cudnn_forward(cuda_of(k)->cudnn, &a, out, lse, qkv, workspace, e);
    return (by == BY_MMA ? attention_mma_forward : attention_plain_forward)(k, out, lse, qkv, d, dropout, e);
}

status_t cuda_attention_backward(const struct kernels *k, element_t *dqkv, const element_t *dout, const element_t *qkv,
                                 const element_t *out, const float *lse, const struct attention_dims *d,
                                 const struct dropout *dropout, void *workspace, struct err *e) {
    const struct attention_cudnn a = cudnn_of(k, d);
    const struct attention_gradient g = {
        .dqkv = dqkv, .dout = dout, .qkv = qkv, .out = out, .lse = lse, .total = workspace
    };
    enum by by;
    TRY(choose(k, d, dropout, aligned(dqkv, dout, qkv, out), &by, e));
    if (by == BY_CUDNN)
        return attention_cudnn_backward(cuda_of(k)->cudnn, &a, dqkv, dout, qkv, out, lse, workspace, e);
    return (by == BY_MMA ? attention_mma_backward : attention_plain_backward)(k, &g, d, dropout, e);
}
