#include "kernels/cpu/cpu.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/cpu/vector/floats.h"
#include "kernels/cpu/vector/images.h"
#include "kernels/cpu/vector/rows.h"

/* What is not here stays plain: loops that the compiler vectorises and that memory bounds. */
void VECTOR(table)(struct cpu *c) {
    struct kernels *t = &c->table;
    t->linear_backward_bias = VECTOR(linear_backward_bias);
    t->layernorm_forward = VECTOR(layernorm_forward);
    t->layernorm_backward = VECTOR(layernorm_backward);
    t->rmsnorm_forward = VECTOR(rmsnorm_forward);
    t->rmsnorm_backward = VECTOR(rmsnorm_backward);
    t->batchnorm_forward = VECTOR(batchnorm_forward);
    t->batchnorm_backward = VECTOR(batchnorm_backward);
    t->convolution_backward_weight = VECTOR(convolution_backward_weight);
    t->rope = VECTOR(rope);
    t->attention_forward = VECTOR(attention_forward);
    t->attention_backward = VECTOR(attention_backward);
    t->cross_entropy = VECTOR(cross_entropy);
    t->gelu_forward = VECTOR(gelu_forward);
    t->gelu_backward = VECTOR(gelu_backward);
    t->swiglu_forward = VECTOR(swiglu_forward);
    t->swiglu_backward = VECTOR(swiglu_backward);
    t->relu_forward = VECTOR(relu_forward);
    t->relu_backward = VECTOR(relu_backward);
    t->dropout = VECTOR(dropout);
    t->add = VECTOR(add);
    t->copy = VECTOR(copy);
    t->convert = VECTOR(convert);
    t->widen = VECTOR(widen);
    t->elements_finite = VECTOR(elements_finite);
    t->accumulate = VECTOR_ISA(accumulate);
    t->fill = VECTOR_ISA(fill);
    VECTOR_ISA(optimizer_table)(c);
    t->sum_squares = VECTOR_ISA(sum_squares);
    t->all_finite = VECTOR_ISA(all_finite);
    c->convert_row = VECTOR(convert_row);
    c->widen_row = VECTOR(widen_row);
}
