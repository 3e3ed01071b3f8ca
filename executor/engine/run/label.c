#include "executor/engine/run/label.h"

#include <stdio.h>

static const char *thing_of(const struct plan *plan, const struct instruction *i) {
    const struct graph *g = plan->graph;
    switch (i->kind) {
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: return g->ops[i->op].name;
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT:
    case INSTRUCTION_KEEP: return g->ops[g->reverse[i->op].op].name;
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECV:
        if (i->what == WHAT_TENSOR && i->op < g->n_tensors)
            return g->tensors[i->op].name;
        return i->what == WHAT_WEIGHT ? g->parameters[i->op].name
                                      : g->parameters[g->slots[i->what == WHAT_GRADIENT ? i->op : 0].parameter].name;
    default: return "";
    }
}

void label_instruction(const struct plan *plan, const struct instruction *i, char ret[LABEL_BYTES]) {
    const char *thing = thing_of(plan, i);
    snprintf(ret, LABEL_BYTES, "%s%s%s", instruction_name(i->kind), *thing ? " " : "", thing);
}
