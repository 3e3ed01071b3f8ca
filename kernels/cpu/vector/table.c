#include "kernels/cpu/cpu.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/cpu/vector/floats.h"
#include "kernels/cpu/vector/images.h"
#include "kernels/cpu/vector/rows.h"

#define ENTER(op) t->op = VECTOR(op)

/* Ops that are not here stay plain: the compiler vectorises their loops, and memory bandwidth limits them. */
void VECTOR(table)(struct cpu *c) {
    struct kernels *t = &c->table;
    VECTOR_ROW_OPS(ENTER);
    VECTOR_ELEMENTWISE_OPS(ENTER);
    VECTOR_IMAGE_OPS(ENTER);
    VECTOR_ATTENTION_OPS(ENTER);
    t->dropout = VECTOR(dropout);
    t->accumulate = VECTOR_ISA(accumulate);
    t->fill = VECTOR_ISA(fill);
    VECTOR_ISA(optimizer_table)(c);
    t->sum_squares = VECTOR_ISA(sum_squares);
    t->all_finite = VECTOR_ISA(all_finite);
    c->convert_row = VECTOR(convert_row);
    c->convert_row_to_fp32 = VECTOR(convert_row_to_fp32);
}
