#include "kernels/cpu/cpu.h"
#include "kernels/cpu/plain/ops.h"

void plain_table(struct kernels *t) {
    t->linear_backward_bias = plain_linear_backward_bias;
    t->embedding_forward = plain_embedding_forward;
    t->embedding_backward = plain_embedding_backward;
    t->layernorm_forward = plain_layernorm_forward;
    t->layernorm_backward = plain_layernorm_backward;
    t->attention_forward = plain_attention_forward;
    t->attention_backward = plain_attention_backward;
    t->cross_entropy = plain_cross_entropy;
    t->gelu_forward = plain_gelu_forward;
    t->gelu_backward = plain_gelu_backward;
    t->dropout = plain_dropout;
    t->add = plain_add;
    t->accumulate = plain_accumulate;
    t->scale = plain_scale;
    t->fill = plain_fill;
    t->tree_add = plain_tree_add;
    t->adamw = plain_adamw;
    t->sum_squares = plain_sum_squares;
    t->all_finite = plain_all_finite;
}
