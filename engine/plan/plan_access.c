/* The tensors and parameter uses that an instruction reads and writes. */
#include "engine/graph/op.h"
#include "engine/plan/plan.h"

static void read_tensor(struct tensor_access *a, int t) {
    if (t >= 0)
        a->reads[a->n_reads++] = t;
}

static void write_tensor(struct tensor_access *a, int t) {
    if (t >= 0)
        a->writes[a->n_writes++] = t;
}

static void access_forward(const struct plan *p, int index, struct tensor_access *a) {
    const struct graph *g = p->graph;
    const struct op *op = &g->ops[index];
    for (int i = 0; i < OP_INPUTS; i++)
        read_tensor(a, op->in[i]);
    for (int i = 0; i < OP_OUTPUTS; i++)
        write_tensor(a, op->out[i]);
    if (p->layout.kind != PLAN_TRAIN || !op->kind->gradient_in_forward)
        return;
    const struct block *b = &g->blocks[op->block];
    for (int r = b->first_reverse; r < b->first_reverse + b->n_reverse; r++)
        if (g->reverse[r].op == index)
            for (int i = 0; i < OP_INPUTS; i++)
                write_tensor(a, g->reverse[r].d_in[i]);
}

static void access_backward_input(const struct graph *g, int index, struct tensor_access *a) {
    const struct reverse_op *r = &g->reverse[index];
    const struct op *op = &g->ops[r->op];
    const struct op_kind *kind = op->kind;
    for (int i = 0; i < OP_INPUTS; i++) {
        if (kind->saved_in & IN(i) && op->in[i] >= 0)
            read_tensor(a, op->in[i]);
        if (r->d_in[i] < 0)
            continue;
        if (r->accumulate[i])
            read_tensor(a, r->d_in[i]);
        if (kind->reverse_is_view && !r->accumulate[i])
            a->views[a->n_views++] = r->d_in[i];
        else
            write_tensor(a, r->d_in[i]);
    }
    for (int i = 0; i < OP_OUTPUTS; i++) {
        if (kind->saved_out & OUT(i) && op->out[i] >= 0)
            read_tensor(a, op->out[i]);
        read_tensor(a, r->d_out[i]);
    }
    if (kind->d_out_scratch)
        write_tensor(a, r->d_out[0]);
}

static void access_load(const struct plan *p, struct tensor_access *a) {
    for (int i = 0; i < p->graph->n_batch; i++)
        if (p->loaded[p->graph->batch[i]])
            write_tensor(a, p->graph->batch[i]);
}

void plan_access(const struct plan *p, const struct instruction *i, struct tensor_access *ret) {
    const struct graph *g = p->graph;
    *ret = (struct tensor_access){ 0 };
    switch (i->kind) {
    case INSTRUCTION_LOAD: access_load(p, ret); break;
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: access_forward(p, i->op, ret); break;
    case INSTRUCTION_BACKWARD_INPUT: access_backward_input(g, i->op, ret); break;
    case INSTRUCTION_BACKWARD_WEIGHT:
        read_tensor(ret, g->ops[g->reverse[i->op].op].in[0]);
        read_tensor(ret, p->gradient_copy[i->op] >= 0 ? p->gradient_copy[i->op] : g->reverse[i->op].d_out[0]);
        break;
    case INSTRUCTION_COPY_GRADIENT:
        read_tensor(ret, g->reverse[i->op].d_out[0]);
        write_tensor(ret, p->gradient_copy[i->op]);
        break;
    case INSTRUCTION_SEND:
        if (i->payload == PAYLOAD_TENSOR)
            read_tensor(ret, i->op);
        break;
    case INSTRUCTION_RECV:
        if (i->payload == PAYLOAD_TENSOR)
            write_tensor(ret, i->op);
        break;
    default: break;
    }
}

int plan_written_uses(const struct plan *p, const struct instruction *i, int ret_use[OP_PARAMETERS],
                      bool ret_first_writer[OP_PARAMETERS]) {
    const struct op *op = &p->graph->ops[p->graph->reverse[i->op].op];
    int n = 0;
    for (int k = 0; k < OP_PARAMETERS; k++) {
        bool by_weight = op_weight_use(op->kind, k);
        if (op->use[k] >= 0 && by_weight == (i->kind == INSTRUCTION_BACKWARD_WEIGHT)) {
            ret_first_writer[n] = p->use_first[op->use[k]] == i->op;
            ret_use[n++] = op->use[k];
        }
    }
    return n;
}

const char *instruction_name(enum instruction_kind kind) {
    static const char *const names[INSTRUCTION_KINDS] = {
        [INSTRUCTION_LOAD] = "LOAD",
        [INSTRUCTION_FORWARD] = "FORWARD",
        [INSTRUCTION_RECOMPUTE] = "RECOMPUTE",
        [INSTRUCTION_BACKWARD_INPUT] = "BACKWARD_INPUT",
        [INSTRUCTION_BACKWARD_WEIGHT] = "BACKWARD_WEIGHT",
        [INSTRUCTION_COPY_GRADIENT] = "COPY_GRADIENT",
        [INSTRUCTION_ADD] = "ADD",
        [INSTRUCTION_ADD_USE] = "ADD_USE",
        [INSTRUCTION_NORM] = "NORM",
        [INSTRUCTION_DECIDE] = "DECIDE",
        [INSTRUCTION_STEP] = "STEP",
        [INSTRUCTION_STATISTICS] = "STATISTICS",
        [INSTRUCTION_SWITCH_AVERAGES] = "SWITCH_AVERAGES",
        [INSTRUCTION_WAIT] = "WAIT",
        [INSTRUCTION_DROP] = "DROP",
        [INSTRUCTION_SEND] = "SEND",
        [INSTRUCTION_RECV] = "RECV",
        [INSTRUCTION_REDUCE] = "REDUCE",
        [INSTRUCTION_GATHER] = "GATHER",
        [INSTRUCTION_EXCHANGE] = "EXCHANGE",
        [INSTRUCTION_EXCHANGE_NORMS] = "EXCHANGE_NORMS",
        [INSTRUCTION_EXCHANGE_STATISTICS] = "EXCHANGE_STATISTICS",
    };
    return names[kind];
}
