#include "executor/engine/plan/plan.h"

#include "executor/engine/graph/op.h"

#include <assert.h>
#include <stdlib.h>

static bool power_of_two(int n) { return n > 0 && !(n & (n - 1)); }

static status_t check_layout(const struct plan_layout *l, struct err *e) {
    if (l->micro_batches < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "train.global_batch: a step needs at least one micro-batch");
    if (!power_of_two(l->lanes) || l->micro_batches % l->lanes)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "train.lanes: %d is not a power of two that divides the step's %d micro-batches", l->lanes,
                       l->micro_batches);
    if (l->world_size < 1 || l->lanes % l->world_size)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel.data: %d does not divide train.lanes %d", l->world_size,
                       l->lanes);
    assert(l->rank >= 0 && l->rank < l->world_size && l->bucket_bytes > 0);
    return ST_OK;
}

status_t plan_build(const struct graph *graph, const struct plan_layout *layout, struct plan **ret, struct err *e) {
    TRY(check_layout(layout, e));
    CLEANUP(plan_freep) struct plan *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    p->graph = graph;
    p->layout = *layout;
    TRY(plan_lay_out_gradients(p, e));
    TRY(plan_schedule(p, e));
    TRY(plan_place_tensors(p, e));
    *ret = take_ptr(&p);
    return ST_OK;
}

struct plan *plan_free(struct plan *p) {
    if (!p)
        return NULL;
    free(p->compute.items);
    free(p->channel.items);
    free(p->slot_begin);
    free(p->slot_end);
    free(p->parameter_begin);
    free(p->slot_order);
    free(p->buckets);
    free(p->tensor_offset);
    free(p);
    return NULL;
}

int plan_owner(const struct plan_layout *l, int k) {
    if (l->kind != PLAN_TRAIN)
        return k % l->world_size;
    return k % l->lanes / (l->lanes / l->world_size);
}

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
    for (int r = 0; r < g->n_reverse; r++)
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

void plan_access(const struct plan *p, const struct instruction *i, struct tensor_access *ret) {
    const struct graph *g = p->graph;
    *ret = (struct tensor_access){ 0 };
    switch (i->kind) {
    case INSTRUCTION_LOAD:
        write_tensor(ret, g->tokens);
        write_tensor(ret, g->targets);
        break;
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: access_forward(p, i->op, ret); break;
    case INSTRUCTION_BACKWARD_INPUT: access_backward_input(g, i->op, ret); break;
    case INSTRUCTION_BACKWARD_WEIGHT:
        read_tensor(ret, g->ops[g->reverse[i->op].op].in[0]);
        read_tensor(ret, g->reverse[i->op].d_out[0]);
        break;
    case INSTRUCTION_SEND: read_tensor(ret, i->entry); break;
    case INSTRUCTION_RECV: write_tensor(ret, i->entry); break;
    default: break;
    }
}

const char *instruction_name(enum instruction_kind kind) {
    static const char *const names[INSTRUCTION_KINDS] = {
        [INSTRUCTION_LOAD] = "LOAD",
        [INSTRUCTION_FORWARD] = "FORWARD",
        [INSTRUCTION_BACKWARD_INPUT] = "BACKWARD_INPUT",
        [INSTRUCTION_BACKWARD_WEIGHT] = "BACKWARD_WEIGHT",
        [INSTRUCTION_RECOMPUTE] = "RECOMPUTE",
        [INSTRUCTION_SEND] = "SEND",
        [INSTRUCTION_RECV] = "RECV",
        [INSTRUCTION_ADD] = "ADD",
        [INSTRUCTION_ADD_SLOT] = "ADD_SLOT",
        [INSTRUCTION_REDUCE] = "REDUCE",
        [INSTRUCTION_EXCHANGE] = "EXCHANGE",
        [INSTRUCTION_WAIT] = "WAIT",
        [INSTRUCTION_NORM] = "NORM",
        [INSTRUCTION_DECIDE] = "DECIDE",
        [INSTRUCTION_STEP] = "STEP",
    };
    return names[kind];
}
