/* Where activations live: each storage's lifetime over one micro-batch's instructions, then largest first into the
 * lowest gap that is free for that long (greedy by size; Pisarchyk and Lee 2020, "Efficient Memory Management for Deep
 * Neural Net Inference"). Every micro-batch uses the same offsets. */
#include "executor/engine/plan/plan.h"

#include <stdlib.h>

struct lifetime {
    int tensor;      /* the storage's root */
    int first, last; /* instruction numbers, inclusive; last < 0: never used */
    size_t bytes, offset;
};

static size_t aligned(size_t n) { return (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN; }

static void touch(struct lifetime *l, int at) {
    if (l->last < 0)
        l->first = at;
    l->last = at;
}

static void find_lifetimes(const struct plan *p, struct lifetime *l) {
    const struct graph *g = p->graph;
    for (int t = 0; t < g->n_tensors; t++)
        l[t] = (struct lifetime){ .tensor = t,
                                  .last = -1,
                                  .bytes = aligned((size_t)shape_elements(&g->tensors[t].shape) * 4) };
    int micro_batch = p->compute.n ? p->compute.items[0].micro_batch : 0;
    for (int i = 0; i < p->compute.n; i++) {
        if (p->compute.items[i].micro_batch != micro_batch)
            continue;
        struct tensor_access a;
        plan_access(p, &p->compute.items[i], &a);
        for (int k = 0; k < a.n_writes; k++)
            touch(&l[graph_storage(g, a.writes[k])], i);
        for (int k = 0; k < a.n_views; k++)
            touch(&l[graph_storage(g, a.views[k])], i);
        for (int k = 0; k < a.n_reads; k++)
            touch(&l[graph_storage(g, a.reads[k])], i);
    }
}

static int by_size(const void *a, const void *b) {
    const struct lifetime *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->tensor - y->tensor;
}

/* The placed lifetimes stay sorted by offset, so that one walk finds the lowest gap. */
static size_t lowest_gap(const struct lifetime *const *placed, int n, const struct lifetime *l) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const struct lifetime *q = placed[i];
        if (q->last < l->first || l->last < q->first)
            continue;
        if (at + l->bytes <= q->offset)
            break;
        if (at < q->offset + q->bytes)
            at = q->offset + q->bytes;
    }
    return at;
}

static size_t place(struct lifetime *l, int n) {
    CLEANUP(freep) const struct lifetime **placed = calloc((size_t)n + 1, sizeof *placed);
    if (!placed)
        abort();
    size_t total = 0;
    int done = 0;
    for (int i = 0; i < n; i++) {
        if (l[i].last < 0)
            continue;
        l[i].offset = lowest_gap(placed, done, &l[i]);
        if (total < l[i].offset + l[i].bytes)
            total = l[i].offset + l[i].bytes;
        int at = done++;
        for (; at > 0 && placed[at - 1]->offset > l[i].offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = &l[i];
    }
    return total;
}

static void place_batch(struct plan *p, int t) {
    p->tensor_offset[t] = p->family_bytes[FAMILY_BATCH];
    p->family_bytes[FAMILY_BATCH] += aligned((size_t)shape_elements(&p->graph->tensors[t].shape) * 4);
}

size_t plan_chunk_sum_bytes(const struct plan *p) {
    return aligned((size_t)(p->gradient_elements / PLAN_CHUNK) * sizeof(double));
}

static void size_families(struct plan *p) {
    bool train = p->layout.kind == PLAN_TRAIN;
    size_t parameters = (size_t)p->parameter_elements * sizeof(float);
    p->family_bytes[FAMILY_PARAMETERS] = parameters;
    p->family_bytes[FAMILY_OPTIMIZER] = train ? 2 * parameters : 0;
    p->family_bytes[FAMILY_GRADIENTS] = train
                                            ? (size_t)p->gradient_buffers * (size_t)p->gradient_elements * sizeof(float)
                                            : 0;
    p->family_bytes[FAMILY_WORKSPACE] = plan_chunk_sum_bytes(p) + aligned(p->layout.workspace_bytes);
}

status_t plan_place_tensors(struct plan *p, struct err *e) {
    (void)e;
    const struct graph *g = p->graph;
    CLEANUP(freep) struct lifetime *l = calloc((size_t)g->n_tensors, sizeof *l);
    p->tensor_offset = malloc((size_t)g->n_tensors * sizeof *p->tensor_offset);
    if (!l || !p->tensor_offset)
        abort();
    find_lifetimes(p, l);
    for (int t = 0; t < g->n_tensors; t++) {
        p->tensor_offset[t] = SIZE_MAX;
        if (g->tensors[t].role == TENSOR_BATCH) {
            l[t].last = -1;
            place_batch(p, t);
        }
    }
    qsort(l, (size_t)g->n_tensors, sizeof *l, by_size);
    p->family_bytes[FAMILY_ACTIVATIONS] = place(l, g->n_tensors);
    for (int i = 0; i < g->n_tensors; i++)
        if (l[i].last >= 0)
            p->tensor_offset[l[i].tensor] = l[i].offset;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].alias_of >= 0)
            p->tensor_offset[t] = p->tensor_offset[graph_storage(g, t)];
    size_families(p);
    return ST_OK;
}
