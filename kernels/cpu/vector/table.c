#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/cpu/vector/rows.h"

/* What is not here stays plain: loops that the compiler vectorises and that memory bounds. */
void VECTOR(table)(struct kernels *t) {
    t->linear_backward_bias = VECTOR(linear_backward_bias);
    t->layernorm_forward = VECTOR(layernorm_forward);
    t->layernorm_backward = VECTOR(layernorm_backward);
    t->attention_forward = VECTOR(attention_forward);
    t->attention_backward = VECTOR(attention_backward);
    t->cross_entropy = VECTOR(cross_entropy);
    t->gelu_forward = VECTOR(gelu_forward);
    t->gelu_backward = VECTOR(gelu_backward);
    t->dropout = VECTOR(dropout);
    t->add = VECTOR(add);
    t->accumulate = VECTOR(accumulate);
    t->fill = VECTOR(fill);
    t->adamw = VECTOR(adamw);
    t->sum_squares = VECTOR(sum_squares);
    t->all_finite = VECTOR(all_finite);
}
