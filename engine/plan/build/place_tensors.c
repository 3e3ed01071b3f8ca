/* Addresses of activations, their gradients and batch inputs.
 *
 *   1. The instructions of every phase are walked once. A storage's lifetime within a phase is the range from its first
 *      to its last instruction. A storage that is recomputed and not stored has two lifetimes, one per pass.
 *   2. A storage that only one phase touches shares bytes with others of that phase: greedy by size, each in the lowest
 *      gap that is free during its lifetime (Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net
 *      Inference").
 *   3. A storage that several phases touch, or that a transfer reads or writes, must survive phases of other
 *      micro-batches. It has its own place with as many copies as micro-batches need it at the same time, counted over
 *      the order of phases: from the phase before its receive to the phase after its send.
 *
 * An evaluation in 16 bits also has the array of running moments here.
 *
 * With one stage, the backward pass of a micro-batch follows its forward pass at once, so both count as one phase. */
#include "engine/plan/build/building.h"

#include <stdlib.h>
#include <string.h>

/* --- greedy placement ---*/

struct lifetime {
    int storage;
    enum plan_lifetime pass;
    int group;       /* the first phase that touches it: kind and virtual stage */
    int first, last; /* instructions of the group, inclusive; last < 0: never used */
    bool lasting;    /* more than one phase touches it */
    uint64_t groups; /* bit set of the phases that touch it */
    size_t bytes, offset;
};

static int by_size(const void *a, const void *b) {
    const struct lifetime *x = *(const struct lifetime *const *)a, *y = *(const struct lifetime *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->storage != y->storage ? x->storage - y->storage : (int)x->pass - (int)y->pass;
}

/* The placed lifetimes stay sorted by offset, so one pass over them finds the lowest gap. */
static size_t lowest_gap(struct lifetime *const *placed, int n, const struct lifetime *l) {
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

static status_t place(struct lifetime **l, int n, size_t *ret_bytes, struct err *e) {
    CLEANUP(freep) struct lifetime **placed = NULL;
    TRY(array_new(&placed, n + 1, e));
    size_t total = 0;
    qsort(l, (size_t)n, sizeof(struct lifetime *), by_size);
    for (int i = 0; i < n; i++) {
        l[i]->offset = lowest_gap(placed, i, l[i]);
        if (total < l[i]->offset + l[i]->bytes)
            total = l[i]->offset + l[i]->bytes;
        int at = i;
        for (; at > 0 && placed[at - 1]->offset > l[i]->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = l[i];
    }
    *ret_bytes = total;
    return ST_OK;
}

/* --- lifetimes of tensors ---*/

enum { ANSWERS = 16 };

struct answer {
    uint64_t groups;
    bool received, sent;
    int copies;
};

struct tenants {
    struct building *b;
    struct plan *p;
    struct lifetime *all;  /* [n_tensors][LIFETIMES]: by storage; a storage of one lifetime uses LIFETIME_FORWARD */
    bool *two;             /* [n_tensors] storage that is computed again */
    bool *received, *sent; /* [n_tensors] by storage */
    int *phase;            /* [PHASE_KINDS][virtual_stages][micro_batches] index in the list of phases */
    struct answer answers[ANSWERS];
    int n_answers;
};

static bool one_phase(const struct plan *p) { return p->layout.stages == 1; }

static struct lifetime *lifetime_of(const struct tenants *t, int tensor, enum plan_lifetime lifetime) {
    int s = t->p->storage[tensor];
    return &t->all[s * LIFETIMES + (t->two[s] ? (int)lifetime : 0)];
}

static void touch(struct tenants *t, int tensor, enum plan_lifetime lifetime, int group, int at) {
    struct lifetime *l = lifetime_of(t, tensor, lifetime);
    if (l->last < 0) {
        l->first = at;
        l->group = group;
    }
    l->last = at;
    l->lasting |= l->group != group;
    l->groups |= UINT64_C(1) << group;
}

static void touch_all(struct tenants *t, const struct instruction *i, int group, int at) {
    enum plan_lifetime lifetime = instruction_lifetime(t->p, i);
    struct tensor_access a;
    plan_access(t->p, i, &a);
    for (int k = 0; k < a.n_writes; k++)
        touch(t, a.writes[k], lifetime, group, at);
    for (int k = 0; k < a.n_views; k++)
        touch(t, a.views[k], lifetime, group, at);
    for (int k = 0; k < a.n_reads; k++)
        touch(t, a.reads[k], lifetime, group, at);
}

/* A storage has two lifetimes if an op that writes it is recomputed and nothing in it is stored. */
static void find_two_lifetimes(struct tenants *t) {
    const struct plan *p = t->p;
    const struct graph *g = p->graph;
    for (int c = 0; c < p->layout.virtual_stages; c++) {
        const struct program *program = &t->b->programs[PHASE_BACKWARD][c];
        for (int i = 0; i < program->n; i++) {
            if (program->items[i].kind != INSTRUCTION_RECOMPUTE)
                continue;
            struct tensor_access a;
            plan_access(p, &program->items[i], &a);
            for (int k = 0; k < a.n_writes; k++)
                t->two[p->storage[a.writes[k]]] = true;
        }
    }
    for (int x = 0; x < g->n_tensors; x++)
        if (g->tensors[x].role == TENSOR_ACTIVATION && t->b->stored[x])
            t->two[p->storage[x]] = false;
}

/* The phase that sends or receives a boundary tensor touches it, even if none of its ops does. */
static void touch_boundaries(struct tenants *t, int v) {
    const struct plan_virtual_stage *stage = &t->p->virtual_stages[v];
    const int n = t->p->layout.virtual_stages;
    for (int way = 0; way < plan_ways(&t->p->layout); way++) {
        const struct plan_boundary *const ends[] = { &stage->receive[way], &stage->send[way] };
        const int group = (way == WAY_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD) * n + v;
        for (int end = 0; end < 2; end++)
            for (int k = 0; k < ends[end]->n; k++)
                touch(t, ends[end]->tensor[k], way == WAY_FORWARD ? LIFETIME_FORWARD : LIFETIME_BACKWARD, group, 0);
    }
}

static void find_lifetimes(struct tenants *t) {
    struct plan *p = t->p;
    for (int x = 0; x < p->n_tensors; x++)
        for (int lifetime = 0; lifetime < LIFETIMES; lifetime++)
            t->all[x * LIFETIMES + lifetime] = (struct lifetime){ .storage = x,
                                                                  .pass = (enum plan_lifetime)lifetime,
                                                                  .last = -1,
                                                                  .bytes = plan_aligned(plan_tensor_bytes(p, x)) };
    int at = 0;
    for (int kind = 0; kind < PHASE_KINDS; kind++)
        for (int c = 0; c < p->layout.virtual_stages; c++) {
            int group = one_phase(p) ? 0 : kind * p->layout.virtual_stages + c;
            const struct program *program = &t->b->programs[kind][c];
            for (int i = 0; i < program->n; i++)
                touch_all(t, &program->items[i], group, at++);
        }
    for (int c = 0; c < p->layout.virtual_stages; c++)
        touch_boundaries(t, c);
    for (int x = 0; x < p->graph->n_tensors; x++) {
        t->received[p->storage[x]] |= t->b->received[x];
        t->sent[p->storage[x]] |= t->b->sent[x];
    }
}

/* --- copies ---*/

static status_t index_phases(struct tenants *t, struct err *e) {
    const struct plan_layout *l = &t->p->layout;
    int n = plan_own_micro_batches(l);
    TRY(array_new(&t->phase, PHASE_KINDS * l->virtual_stages * n, e));
    for (int i = 0; i < t->b->phases.n; i++) {
        const struct phase *f = &t->b->phases.items[i];
        t->phase[((int)f->kind * l->virtual_stages + f->virtual_stage) * n + f->q] = i;
    }
    return ST_OK;
}

/* The phases [*first, *last] during which micro-batch q's copy must stay: from the phase before its receive is waited
 * for to the phase after its send is posted. */
static void standing(const struct tenants *t, const struct lifetime *l, int q, int *first, int *last) {
    int n = plan_own_micro_batches(&t->p->layout), groups = PHASE_KINDS * t->p->layout.virtual_stages;
    *first = t->b->phases.n;
    *last = -1;
    for (int group = 0; group < groups; group++) {
        if (!(l->groups >> group & 1))
            continue;
        int at = t->phase[group * n + q];
        *first = at < *first ? at : *first;
        *last = at > *last ? at : *last;
    }
    *first -= t->received[l->storage];
    *last += t->sent[l->storage];
}

static int copies_of(const struct tenants *t, const struct lifetime *l) {
    int n = plan_own_micro_batches(&t->p->layout), max = 1;
    for (int q = 0, next = 1; q < n; q++) {
        int first, last, later, unused;
        standing(t, l, q, &first, &last);
        for (next = next > q + 1 ? next : q + 1; next < n; next++) {
            standing(t, l, next, &later, &unused);
            if (later > last)
                break;
        }
        max = next - q > max ? next - q : max;
    }
    return max;
}

/* Storages that the same phases touch have the same number of copies, so the result is remembered. */
static int copies(struct tenants *t, const struct lifetime *l) {
    const bool received = t->received[l->storage], sent = t->sent[l->storage];
    for (int i = 0; i < t->n_answers; i++)
        if (t->answers[i].groups == l->groups && t->answers[i].received == received && t->answers[i].sent == sent)
            return t->answers[i].copies;
    int n = copies_of(t, l);
    if (t->n_answers < ANSWERS)
        t->answers[t->n_answers++] = (struct answer){
            .groups = l->groups, .received = received, .sent = sent, .copies = n
        };
    return n;
}

/* --- places ---*/

static void give_place(struct tenants *t, const struct lifetime *l, size_t offset, int n) {
    struct tensor_place place = { .offset = offset, .stride = l->bytes, .copies = n };
    t->p->tensors[l->pass][l->storage] = place;
    if (!t->two[l->storage])
        t->p->tensors[LIFETIME_BACKWARD][l->storage] = place;
}

static size_t *family_of(struct plan *p, int storage) {
    bool batch = storage < p->graph->n_tensors && p->graph->tensors[storage].role == TENSOR_BATCH;
    return &p->family_bytes[batch ? FAMILY_BATCH : FAMILY_ACTIVATIONS];
}

static status_t place_uploads(struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    TRY(array_new(&p->upload_offset, g->n_tensors, e));
    for (int t = 0; t < g->n_tensors; t++) {
        const bool arrives = p->layout.uploads_ahead && plan_loads(p, t);
        p->upload_offset[t] = arrives ? p->family_bytes[FAMILY_BATCH] : SIZE_MAX;
        p->family_bytes[FAMILY_BATCH] += arrives ? plan_aligned(graph_batch_bytes(g, t)) : 0;
    }
    return ST_OK;
}

/* Storages with a place of their own come first, one after another. The bytes after them are shared by all phases. */
static status_t place_all(struct tenants *t, struct err *e) {
    struct plan *p = t->p;
    int n = p->n_tensors * LIFETIMES, groups = PHASE_KINDS * p->layout.virtual_stages;
    for (int i = 0; i < n; i++) {
        struct lifetime *l = &t->all[i];
        bool batch = family_of(p, l->storage) == &p->family_bytes[FAMILY_BATCH];
        l->lasting |= batch || t->received[l->storage] || t->sent[l->storage];
        if (l->last < 0 || !l->lasting)
            continue;
        int many = copies(t, l);
        size_t *bytes = family_of(p, l->storage);
        give_place(t, l, *bytes, many);
        *bytes += (size_t)many * l->bytes;
    }
    CLEANUP(freep) struct lifetime **own = NULL;
    TRY(array_new(&own, n, e));
    size_t base = p->family_bytes[FAMILY_ACTIVATIONS], max = 0;
    for (int group = 0; group < groups; group++) {
        int m = 0;
        for (int i = 0; i < n; i++)
            if (t->all[i].last >= 0 && !t->all[i].lasting && t->all[i].group == group)
                own[m++] = &t->all[i];
        size_t bytes;
        TRY(place(own, m, &bytes, e));
        max = bytes > max ? bytes : max;
        for (int i = 0; i < m; i++)
            give_place(t, own[i], base + own[i]->offset, 1);
    }
    p->family_bytes[FAMILY_ACTIVATIONS] = base + max;
    return ST_OK;
}

/* The array of running moments lies behind the tensors, for the whole plan. */
static status_t place_statistics(struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    TRY(array_new(&p->statistic_offset, g->n_parameters, e));
    p->statistics_begin = p->family_bytes[FAMILY_ACTIVATIONS];
    for (int i = 0; i < g->n_parameters; i++) {
        const bool here = p->layout.kind == PLAN_EVALUATE && p->layout.optimizer && g->element != DTYPE_F32 &&
                          g->parameters[i].kind == PARAMETER_STATISTIC &&
                          p->parameter_stage[i] == plan_stage(&p->layout);
        p->statistic_offset[i] = here ? p->statistics_begin + p->statistics_bytes : SIZE_MAX;
        p->statistics_bytes += here ? plan_aligned((size_t)shape_elements(&g->parameters[i].shape) * sizeof(float)) : 0;
    }
    p->family_bytes[FAMILY_ACTIVATIONS] += p->statistics_bytes;
    return ST_OK;
}

static void tenants_done(struct tenants *t) {
    free(t->all);
    free(t->two);
    free(t->received);
    free(t->sent);
    free(t->phase);
}

status_t plan_place_tensors(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    CLEANUP(tenants_done) struct tenants t = { .b = b, .p = p };
    TRY(array_new(&t.all, p->n_tensors * LIFETIMES, e));
    TRY(array_new(&t.two, p->n_tensors, e));
    TRY(array_new(&t.received, p->n_tensors, e));
    TRY(array_new(&t.sent, p->n_tensors, e));
    for (int lifetime = 0; lifetime < LIFETIMES; lifetime++) {
        TRY(array_new(&p->tensors[lifetime], p->n_tensors, e));
        for (int x = 0; x < p->n_tensors; x++)
            p->tensors[lifetime][x] = (struct tensor_place){ .offset = SIZE_MAX, .copies = 1 };
    }
    TRY(index_phases(&t, e));
    find_two_lifetimes(&t);
    find_lifetimes(&t);
    TRY(place_uploads(p, e));
    TRY(place_all(&t, e));
    TRY(place_statistics(p, e));
    for (int lifetime = 0; lifetime < LIFETIMES; lifetime++)
        for (int x = 0; x < p->n_tensors; x++)
            p->tensors[lifetime][x] = p->tensors[lifetime][p->storage[x]];
    return ST_OK;
}
