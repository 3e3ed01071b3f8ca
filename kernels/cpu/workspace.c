#include "kernels/cpu/workspace.h"

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/piece.h"

size_t workspace_linear_backward_bias(const struct kernels *k, const struct linear_dims *d) {
    (void)k;
    return sizeof(float) * (size_t)(piece_count(d->rows) * d->out);
}

/* No workspace: the pieces of a long product are accumulated in dw. */
size_t workspace_linear_backward_weight(const struct kernels *k, const struct linear_dims *d) {
    (void)k, (void)d;
    return 0;
}

/* No workspace: each thread owns columns of the gradient. */
size_t workspace_embedding_backward(const struct kernels *k, int64_t batch, int64_t time, int64_t width) {
    (void)k, (void)batch, (void)time, (void)width;
    return 0;
}

size_t workspace_norm_backward(const struct kernels *k, int64_t rows, int64_t width) {
    (void)k;
    return sizeof(float) * (size_t)(piece_count(rows) * 2 * width);
}

/* Each thread computes one (batch, key head) at a time. If there are more threads than such pairs, the other threads
 * need no workspace. */
size_t workspace_attention(const struct kernels *k, const struct attention_dims *d) {
    const int64_t tasks = d->batch * d->kv_heads;
    return (size_t)(k->max_threads < tasks ? k->max_threads : tasks) * attention_tile_bytes(d, k->precision);
}
