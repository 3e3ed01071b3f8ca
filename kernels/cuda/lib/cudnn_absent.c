/* For builds without cuDNN's headers: opening always fails, so that no other function is called. */
#include "kernels/cuda/lib/attention_cudnn.h"
#include "kernels/cuda/lib/convolution_cudnn.h"

static status_t absent(struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION, "this build was made without cuDNN");
}

status_t cudnn_open(void *stream, struct cudnn **ret, struct err *e) {
    (void)stream, (void)ret;
    return absent(e);
}

status_t cudnn_check(struct err *e) { return absent(e); }

struct cudnn *cudnn_close(struct cudnn *c) {
    return c;
}
void cudnn_use_tuning_cache(struct cudnn *c, struct tuning_cache *cache, bool timed) {
    (void)c, (void)cache, (void)timed;
}
size_t cudnn_version(const struct cudnn *c) { return c ? 1 : 0; }

status_t attention_cudnn_find(struct cudnn *c, const struct attention_cudnn *a, struct err *e) {
    (void)c, (void)a;
    return absent(e);
}

status_t attention_cudnn_forward(struct cudnn *c, const struct attention_cudnn *a, element_t *out, float *lse,
                                 const element_t *qkv, void *workspace, struct err *e) {
    (void)c, (void)a, (void)out, (void)lse, (void)qkv, (void)workspace;
    return absent(e);
}

status_t attention_cudnn_backward(struct cudnn *c, const struct attention_cudnn *a, element_t *dqkv,
                                  const element_t *dout, const element_t *qkv, const element_t *out, const float *lse,
                                  void *workspace, struct err *e) {
    (void)c, (void)a, (void)dqkv, (void)dout, (void)qkv, (void)out, (void)lse, (void)workspace;
    return absent(e);
}

status_t convolution_cudnn_find(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                                const struct convolution_dims *d, struct err *e) {
    (void)c, (void)pass, (void)precision, (void)d;
    return absent(e);
}

status_t convolution_cudnn_run(struct cudnn *c, enum convolution_pass pass, enum kernels_precision precision,
                               const struct convolution_dims *d, void *x, void *w, void *y, void *workspace,
                               struct err *e) {
    (void)c, (void)pass, (void)precision, (void)d, (void)x, (void)w, (void)y, (void)workspace;
    return absent(e);
}
