/* Gradient space, parameter space and buckets: where each gradient lies, in the order in which the backward pass
 * finishes them, so that a bucket can leave as early as possible. */
#include "executor/engine/plan/plan.h"

#include "executor/engine/graph/op.h"

#include <stdlib.h>

static int64_t padded(int64_t n) { return (n + PLAN_CHUNK - 1) / PLAN_CHUNK * PLAN_CHUNK; }

static void *array(int n, size_t size) {
    void *p = calloc((size_t)(n > 0 ? n : 1), size);
    if (!p)
        abort(); /* a few KiB */
    return p;
}

/* ret[slot] = the reverse op that writes it. */
static status_t find_writers(const struct graph *g, int *ret, struct err *e) {
    for (int s = 0; s < g->n_slots; s++)
        ret[s] = -1;
    for (int r = 0; r < g->n_reverse; r++) {
        const struct op *op = &g->ops[g->reverse[r].op];
        for (int i = 0; i < OP_PARAMETERS; i++) {
            int s = op->slot[i];
            if (s < 0)
                continue;
            if (ret[s] >= 0)
                return err_set(e, ST_INTERNAL, "op %s: parameter %s is used twice in one group", op->name,
                               g->parameters[g->slots[s].parameter].name);
            ret[s] = r;
        }
    }
    return ST_OK;
}

static void place_slots(struct plan *p, const int *writer) {
    const struct graph *g = p->graph;
    int placed = 0;
    for (int r = 0; r < g->n_reverse; r++) {
        const struct op *op = &g->ops[g->reverse[r].op];
        for (int i = 0; i < OP_PARAMETERS; i++) {
            int s = op->slot[i];
            if (s < 0 || writer[s] != r)
                continue;
            int parameter = g->slots[s].parameter;
            int64_t n = padded(shape_elements(&g->parameters[parameter].shape));
            p->slot_order[placed++] = s;
            p->slot_begin[s] = p->gradient_elements;
            p->slot_end[s] = p->gradient_elements += n;
            if (g->parameters[parameter].first_slot == s) {
                p->parameter_begin[parameter] = p->parameter_elements;
                p->parameter_elements += n;
            }
        }
    }
}

static void cut_buckets(struct plan *p, const int *writer) {
    int64_t most = padded(p->layout.bucket_bytes / (int64_t)sizeof(float));
    if (most < PLAN_CHUNK)
        most = PLAN_CHUNK;
    p->buckets = array((int)((p->gradient_elements + most - 1) / most), sizeof *p->buckets);
    int slot = 0;
    for (int64_t begin = 0; begin < p->gradient_elements; begin += most) {
        struct plan_bucket *b = &p->buckets[p->n_buckets++];
        b->begin = begin;
        b->end = begin + most < p->gradient_elements ? begin + most : p->gradient_elements;
        /* Slots lie in the order of their writers: the last one that begins before the end completes the bucket. */
        while (slot + 1 < p->graph->n_slots && p->slot_begin[p->slot_order[slot + 1]] < b->end)
            slot++;
        b->ready = writer[p->slot_order[slot]];
    }
}

status_t plan_lay_out_gradients(struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    p->slot_begin = array(g->n_slots, sizeof *p->slot_begin);
    p->slot_end = array(g->n_slots, sizeof *p->slot_end);
    p->slot_order = array(g->n_slots, sizeof *p->slot_order);
    p->parameter_begin = array(g->n_parameters, sizeof *p->parameter_begin);
    CLEANUP(freep) int *writer = array(g->n_slots, sizeof *writer);
    TRY(find_writers(g, writer, e));
    for (int s = 0; s < g->n_slots; s++)
        if (writer[s] < 0)
            return err_set(e, ST_INTERNAL, "parameter %s has no gradient: the loss does not depend on it",
                           g->parameters[g->slots[s].parameter].name);
    place_slots(p, writer);
    cut_buckets(p, writer);
    return ST_OK;
}
