#include "kernels/cuda/ops.h"

/* What works on fp32, and the optimizers. */
static void enter_floats(struct kernels *t) {
    t->accumulate = cuda_accumulate;
    t->fill = cuda_fill;
    t->sum = cuda_sum;
    t->sum_squares = cuda_sum_squares;
    t->all_finite = cuda_all_finite;
    t->elements_finite = cuda_elements_finite;
    t->adamw = cuda_adamw;
    t->sgd = cuda_sgd;
    t->lion = cuda_lion;
    t->momentum = cuda_momentum;
    t->descend = cuda_descend;
    t->scale_add = cuda_scale_add;
    t->decide = cuda_decide;
    t->running_mean = cuda_running_mean;
    t->normalise = cuda_normalise;
    t->adafactor = cuda_adafactor;
    t->adafactor_workspace = cuda_adafactor_workspace;
}

void cuda_table(struct kernels *t) {
    t->memory_new = cuda_memory_new;
    t->memory_free = cuda_memory_free;
    t->upload = cuda_upload;
    t->download = cuda_download;
    t->move = cuda_move;
    t->upload_elements = cuda_upload_elements;
    t->upload_ahead = cuda_upload_ahead;
    t->ahead_await = cuda_ahead_await;
    t->ahead_release = cuda_ahead_release;
    t->finish = cuda_finish;
    t->copy = cuda_copy;
    t->linear_backward_bias = cuda_linear_backward_bias;
    t->linear_backward_bias_workspace = cuda_linear_backward_bias_workspace;
    t->embedding_forward = cuda_embedding_forward;
    t->embedding_backward = cuda_embedding_backward;
    t->embedding_backward_workspace = cuda_embedding_backward_workspace;
    t->layernorm_forward = cuda_layernorm_forward;
    t->layernorm_backward = cuda_layernorm_backward;
    t->rmsnorm_forward = cuda_rmsnorm_forward;
    t->rmsnorm_backward = cuda_rmsnorm_backward;
    t->layernorm_backward_workspace = cuda_norm_workspace;
    t->rmsnorm_backward_workspace = cuda_norm_workspace;
    t->rope = cuda_rope;
    t->batchnorm_forward = cuda_batchnorm_forward;
    t->batchnorm_apply = cuda_batchnorm_apply;
    t->batchnorm_backward = cuda_batchnorm_backward;
    t->batchnorm_workspace = cuda_batchnorm_workspace;
    t->max_pool_forward = cuda_max_pool_forward;
    t->max_pool_backward = cuda_max_pool_backward;
    t->average_pool_forward = cuda_average_pool_forward;
    t->average_pool_backward = cuda_average_pool_backward;
    t->channels_last = cuda_channels_last;
    t->patches = cuda_patches;
    t->prepend_forward = cuda_prepend_forward;
    t->prepend_backward = cuda_prepend_backward;
    t->first_forward = cuda_first_forward;
    t->first_backward = cuda_first_backward;
    t->fourier_adjoint = cuda_fourier_adjoint;
    t->fourier_step_forward = cuda_fourier_step_forward;
    t->fourier_step_backward = cuda_fourier_step_backward;
    t->fourier_workspace = cuda_fourier_workspace;
    t->cross_entropy = cuda_cross_entropy;
    t->correct = cuda_correct;
    t->squared_error = cuda_squared_error;
    t->psnr = cuda_psnr;
    t->gelu_forward = cuda_gelu_forward;
    t->gelu_backward = cuda_gelu_backward;
    t->swiglu_forward = cuda_swiglu_forward;
    t->swiglu_backward = cuda_swiglu_backward;
    t->relu_forward = cuda_relu_forward;
    t->relu_backward = cuda_relu_backward;
    t->dropout = cuda_dropout;
    t->add = cuda_add;
    t->convert = cuda_convert;
    t->widen = cuda_widen;
    enter_floats(t);
}
