#include "kernels/cuda/ops.h"

void cuda_library_table(struct kernels *t) {
    t->tuning_cache = cuda_tuning_cache;
    t->linear_forward = cuda_linear_forward;
    t->linear_backward_input = cuda_linear_backward_input;
    t->linear_backward_weight = cuda_linear_backward_weight;
    t->linear_backward_weight_workspace = cuda_linear_backward_weight_workspace;
    t->attention_forward = cuda_attention_forward;
    t->attention_backward = cuda_attention_backward;
    t->attention_workspace = cuda_attention_prepare;
    t->convolution_forward = cuda_convolution_forward;
    t->convolution_backward_input = cuda_convolution_backward_input;
    t->convolution_backward_weight = cuda_convolution_backward_weight;
    t->convolution_workspace = cuda_convolution_prepare;
}
