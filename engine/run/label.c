#include "engine/run/label.h"

#include <stdio.h>

static const char *object_of(const struct plan *plan, const struct instruction *i) {
    const struct graph *g = plan->graph;
    switch (i->kind) {
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: return g->ops[i->op].name;
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT:
    case INSTRUCTION_COPY_GRADIENT: return g->ops[g->reverse[i->op].op].name;
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECV:
        if (i->payload == PAYLOAD_TENSOR && i->op < g->n_tensors)
            return g->tensors[i->op].name;
        return i->payload == PAYLOAD_WEIGHT
                   ? g->parameters[i->op].name
                   : g->parameters[g->uses[i->payload == PAYLOAD_GRADIENT ? i->op : 0].parameter].name;
    default: return "";
    }
}

void label_instruction(const struct plan *plan, const struct instruction *i, char ret[LABEL_BYTES]) {
    const char *object = object_of(plan, i);
    snprintf(ret, LABEL_BYTES, "%s%s%s", instruction_name(i->kind), *object ? " " : "", object);
}
