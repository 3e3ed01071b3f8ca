#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/lib/attention_cudnn.h"
#include "kernels/cuda/ops.h"

/* Chooses the implementation for a shape. Dropout always uses the kernels of this folder, because cuDNN draws its
 * own masks (cuda_attention_engine_bytes). */
enum by { BY_CUDNN, BY_MMA, BY_PLAIN };

/* All addresses of a call, combined by OR: a low bit is zero only if every address is aligned on it. */
struct addresses {
    uintptr_t elements, others; /* others: lse and the workspace, for which only cuDNN needs alignment */
};
static bool on_16_bytes(uintptr_t bits) { return (bits & 15) == 0; }

static struct attention_cudnn cudnn_of(const struct kernels *k, const struct attention_dims *d) {
    return (struct attention_cudnn){ .dims = *d, .precision = k->precision, .fast = k->fast };
}

static status_t cudnn_does(const struct kernels *k, const struct attention_dims *d, bool *ret, struct err *e) {
    const struct attention_cudnn a = cudnn_of(k, d);
    *ret = false;
    if (!cuda_of(k)->cudnn || cuda_attention_engine_bytes(d, k->precision, k->fast) == 0)
        return ST_OK;
    const status_t st = attention_cudnn_find(cuda_of(k)->cudnn, &a, e);
    *ret = st == ST_OK;
    return st == ST_UNIMPLEMENTED ? ST_OK : st;
}

static status_t choose(const struct kernels *k, const struct attention_dims *d, const struct dropout *dropout,
                       struct addresses at, enum by *ret, struct err *e) {
    const bool wide = on_16_bytes(at.elements);
    bool cudnn = false;
    if (d->head > ATTENTION_PLAIN_MAX_HEAD)
        return err_set(e, ST_UNIMPLEMENTED, "attention on CUDA has heads of at most %d numbers, not %lld",
                       ATTENTION_PLAIN_MAX_HEAD, (long long)d->head);
    if (wide && on_16_bytes(at.others) && dropout->probability == 0)
        TRY(cudnn_does(k, d, &cudnn, e));
    if (cudnn)
        *ret = BY_CUDNN;
    else if (wide && k->precision != KERNELS_FP32 && d->head % 8 == 0 && d->head <= ATTENTION_MMA_MAX_HEAD)
        *ret = BY_MMA;
    else
        *ret = BY_PLAIN;
    return ST_OK;
}

/* An error is reported by the first call that computes. */
size_t cuda_attention_prepare(const struct kernels *k, const struct attention_dims *d) {
    bool found;
    status_ignore(cudnn_does(k, d, &found, NULL));
    return cuda_attention_workspace(k, d);
}

status_t cuda_attention_forward(const struct kernels *k, element_t *out, float *lse, const element_t *qkv,
                                const struct attention_dims *d, const struct dropout *dropout, void *workspace,
                                struct err *e) {
    const struct attention_cudnn a = cudnn_of(k, d);
    const struct addresses at = { (uintptr_t)out | (uintptr_t)qkv, (uintptr_t)lse | (uintptr_t)workspace };
    enum by by;
    TRY(choose(k, d, dropout, at, &by, e));
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
    const struct addresses at = { (uintptr_t)dqkv | (uintptr_t)dout | (uintptr_t)qkv | (uintptr_t)out,
                                  (uintptr_t)lse | (uintptr_t)workspace };
    enum by by;
    TRY(choose(k, d, dropout, at, &by, e));
    if (by == BY_CUDNN)
        return attention_cudnn_backward(cuda_of(k)->cudnn, &a, dqkv, dout, qkv, out, lse, workspace, e);
    return (by == BY_MMA ? attention_mma_backward : attention_plain_backward)(k, &g, d, dropout, e);
}
