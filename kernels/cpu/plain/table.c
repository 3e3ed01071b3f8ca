#include "kernels/cpu/cpu.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/plain/ops.h"

#define ENTER_ELEMENTS(op) t->op = PLAIN(op)
#define ENTER_FLOATS(op)   t->op = plain_##op

void PLAIN(table)(struct cpu *c) {
    struct kernels *t = &c->table;
    PLAIN_OPS(ENTER_ELEMENTS);
    PLAIN_FLOAT_OPS(ENTER_FLOATS);
    plain_optimizer_table(c);
    c->convert_row = PLAIN(convert_row);
    c->convert_row_to_fp32 = PLAIN(convert_row_to_fp32);
}
