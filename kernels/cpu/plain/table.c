#include "kernels/cpu/cpu.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/plain/ops.h"

void PLAIN(table)(struct cpu *c) {
    struct kernels *t = &c->table;
    t->linear_backward_bias = PLAIN(linear_backward_bias);
    t->embedding_forward = PLAIN(embedding_forward);
    t->embedding_backward = PLAIN(embedding_backward);
    t->layernorm_forward = PLAIN(layernorm_forward);
    t->layernorm_backward = PLAIN(layernorm_backward);
    t->rmsnorm_forward = PLAIN(rmsnorm_forward);
    t->rmsnorm_backward = PLAIN(rmsnorm_backward);
    t->rope = PLAIN(rope);
    t->attention_forward = PLAIN(attention_forward);
    t->attention_backward = PLAIN(attention_backward);
    t->squared_error = PLAIN(squared_error);
    t->psnr = PLAIN(psnr);
    t->convolution_forward = PLAIN(convolution_forward);
    t->convolution_backward_input = PLAIN(convolution_backward_input);
    t->convolution_backward_weight = PLAIN(convolution_backward_weight);
    t->batchnorm_forward = PLAIN(batchnorm_forward);
    t->batchnorm_apply = PLAIN(batchnorm_apply);
    t->batchnorm_backward = PLAIN(batchnorm_backward);
    t->max_pool_forward = PLAIN(max_pool_forward);
    t->max_pool_backward = PLAIN(max_pool_backward);
    t->average_pool_forward = PLAIN(average_pool_forward);
    t->average_pool_backward = PLAIN(average_pool_backward);
    t->channels_last = PLAIN(channels_last);
    t->patches = PLAIN(patches);
    t->prepend_forward = PLAIN(prepend_forward);
    t->prepend_backward = PLAIN(prepend_backward);
    t->first_forward = PLAIN(first_forward);
    t->first_backward = PLAIN(first_backward);
    t->fourier_adjoint = PLAIN(fourier_adjoint);
    t->fourier_step_forward = PLAIN(fourier_step_forward);
    t->fourier_step_backward = PLAIN(fourier_step_backward);
    t->cross_entropy = PLAIN(cross_entropy);
    t->correct = PLAIN(correct);
    t->gelu_forward = PLAIN(gelu_forward);
    t->gelu_backward = PLAIN(gelu_backward);
    t->swiglu_forward = PLAIN(swiglu_forward);
    t->swiglu_backward = PLAIN(swiglu_backward);
    t->relu_forward = PLAIN(relu_forward);
    t->relu_backward = PLAIN(relu_backward);
    t->dropout = PLAIN(dropout);
    t->add = PLAIN(add);
    t->copy = PLAIN(copy);
    t->convert = PLAIN(convert);
    t->widen = PLAIN(widen);
    t->elements_finite = PLAIN(elements_finite);
    t->accumulate = plain_accumulate;
    t->fill = plain_fill;
    plain_optimizer_table(c);
    t->sum = plain_sum;
    t->sum_squares = plain_sum_squares;
    t->decide = plain_decide;
    t->all_finite = plain_all_finite;
    c->convert_row = PLAIN(convert_row);
    c->widen_row = PLAIN(widen_row);
}
