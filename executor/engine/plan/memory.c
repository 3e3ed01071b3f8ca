/* Where things live. Within one phase: greedy by size, each storage in the lowest gap that is free for as long as it
 * lives (Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net Inference"). What outlives a phase
 * while phases of other micro-batches run has a place of its own, with as many copies as are alive at once. With one
 * stage a micro-batch goes back as soon as it has come forward, so that both passes count as one phase. */
#include "executor/engine/plan/build.h"

#include <stdlib.h>
#include <string.h>

size_t plan_aligned(size_t n) { return (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN; }
int64_t plan_padded(int64_t n) { return (n + PLAN_CHUNK - 1) / PLAN_CHUNK * PLAN_CHUNK; }

/* --- greedy placement ---*/

struct lifetime {
    int storage;
    enum plan_life life;
    int group;       /* phases that share it: kind and chunk */
    int first, last; /* instructions of the group, inclusive; last < 0: never used */
    bool lasting;    /* outlives its phase */
    uint64_t groups; /* that touch it */
    size_t bytes, offset;
};

static int by_size(const void *a, const void *b) {
    const struct lifetime *x = *(const struct lifetime *const *)a, *y = *(const struct lifetime *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->storage != y->storage ? x->storage - y->storage : (int)x->life - (int)y->life;
}

/* The placed lifetimes stay sorted by offset, so that one walk finds the lowest gap. */
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
    struct lifetime *all;  /* [n_tensors][LIVES]: by storage; a storage of one life uses LIFE_FORWARD */
    bool *two;             /* [n_tensors] storage that is computed again */
    bool *received, *sent; /* [n_tensors] by storage */
    int *phase;            /* [PHASE_KINDS][virtual_stages][micro_batches] index in the list of phases */
    struct answer answers[ANSWERS];
    int n_answers;
};

static bool one_phase(const struct plan *p) { return p->layout.stages == 1; }

static struct lifetime *lifetime_of(const struct tenants *t, int tensor, enum plan_life life) {
    int s = t->p->storage[tensor];
    return &t->all[s * LIVES + (t->two[s] ? (int)life : 0)];
}

static void touch(struct tenants *t, int tensor, enum plan_life life, int group, int at) {
    struct lifetime *l = lifetime_of(t, tensor, life);
    if (l->last < 0) {
        l->first = at;
        l->group = group;
    }
    l->last = at;
    l->lasting |= l->group != group;
    l->groups |= UINT64_C(1) << group;
}

static void touch_all(struct tenants *t, const struct instruction *i, int group, int at) {
    enum plan_life life = instruction_life(t->p, i);
    struct tensor_access a;
    plan_access(t->p, i, &a);
    for (int k = 0; k < a.n_writes; k++)
        touch(t, a.writes[k], life, group, at);
    for (int k = 0; k < a.n_views; k++)
        touch(t, a.views[k], life, group, at);
    for (int k = 0; k < a.n_reads; k++)
        touch(t, a.reads[k], life, group, at);
}

/* A storage has two lives when an op that writes it is run again, and nothing in it is kept from the forward pass. */
static void find_two_lives(struct tenants *t) {
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
        if (g->tensors[x].role == TENSOR_ACTIVATION && t->b->kept[x])
            t->two[p->storage[x]] = false;
}

/* What crosses ranks is touched in the phase that sends or receives it, even where no op does. */
static void touch_boundaries(struct tenants *t, int c) {
    const struct plan_chunk *chunk = &t->p->chunks[c];
    const int forward[] = { chunk->input, chunk->output }, backward[] = { chunk->d_output, chunk->d_input };
    const int chunks = t->p->layout.virtual_stages;
    for (int k = 0; k < 2; k++) {
        if (forward[k] >= 0)
            touch(t, forward[k], LIFE_FORWARD, PHASE_FORWARD * chunks + c, 0);
        if (backward[k] >= 0 && t->p->layout.kind == PLAN_TRAIN)
            touch(t, backward[k], LIFE_BACKWARD, PHASE_BACKWARD * chunks + c, 0);
    }
}

static void find_lifetimes(struct tenants *t) {
    struct plan *p = t->p;
    for (int x = 0; x < p->n_tensors; x++)
        for (int life = 0; life < LIVES; life++)
            t->all[x * LIVES + life] = (struct lifetime){
                .storage = x, .life = (enum plan_life)life, .last = -1, .bytes = plan_aligned(plan_tensor_bytes(p, x))
            };
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
        t->phase[((int)f->kind * l->virtual_stages + f->chunk) * n + f->q] = i;
    }
    return ST_OK;
}

/* The phases [*first, *last] during which micro-batch q's copy must stand: from the phase before its receive is waited
 * for, to the phase after its send was posted. */
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
    int n = plan_own_micro_batches(&t->p->layout), most = 1;
    for (int q = 0, next = 1; q < n; q++) {
        int first, last, later, unused;
        standing(t, l, q, &first, &last);
        for (next = next > q + 1 ? next : q + 1; next < n; next++) {
            standing(t, l, next, &later, &unused);
            if (later > last)
                break;
        }
        most = next - q > most ? next - q : most;
    }
    return most;
}

/* Storages that the same phases touch have as many copies. */
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
    t->p->tensors[l->life][l->storage] = place;
    if (!t->two[l->storage])
        t->p->tensors[LIFE_BACKWARD][l->storage] = place;
}

static size_t *family_of(struct plan *p, int storage) {
    bool batch = storage < p->graph->n_tensors && p->graph->tensors[storage].role == TENSOR_BATCH;
    return &p->family_bytes[batch ? FAMILY_BATCH : FAMILY_ACTIVATIONS];
}

static status_t place_arrivals(struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    TRY(array_new(&p->arrival_offset, g->n_tensors, e));
    for (int t = 0; t < g->n_tensors; t++) {
        const bool arrives = p->layout.uploads_ahead && plan_loads(p, t);
        p->arrival_offset[t] = arrives ? p->family_bytes[FAMILY_BATCH] : SIZE_MAX;
        p->family_bytes[FAMILY_BATCH] += arrives ? plan_aligned(graph_batch_bytes(g, t)) : 0;
    }
    return ST_OK;
}

/* What lasts comes first, one behind the other; what each phase needs for itself shares the bytes behind it. */
static status_t place_all(struct tenants *t, struct err *e) {
    struct plan *p = t->p;
    int n = p->n_tensors * LIVES, groups = PHASE_KINDS * p->layout.virtual_stages;
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
    size_t base = p->family_bytes[FAMILY_ACTIVATIONS], most = 0;
    for (int group = 0; group < groups; group++) {
        int m = 0;
        for (int i = 0; i < n; i++)
            if (t->all[i].last >= 0 && !t->all[i].lasting && t->all[i].group == group)
                own[m++] = &t->all[i];
        size_t bytes;
        TRY(place(own, m, &bytes, e));
        most = bytes > most ? bytes : most;
        for (int i = 0; i < m; i++)
            give_place(t, own[i], base + own[i]->offset, 1);
    }
    p->family_bytes[FAMILY_ACTIVATIONS] = base + most;
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
    TRY(array_new(&t.all, p->n_tensors * LIVES, e));
    TRY(array_new(&t.two, p->n_tensors, e));
    TRY(array_new(&t.received, p->n_tensors, e));
    TRY(array_new(&t.sent, p->n_tensors, e));
    for (int life = 0; life < LIVES; life++) {
        TRY(array_new(&p->tensors[life], p->n_tensors, e));
        for (int x = 0; x < p->n_tensors; x++)
            p->tensors[life][x] = (struct tensor_place){ .offset = SIZE_MAX, .copies = 1 };
    }
    TRY(index_phases(&t, e));
    find_two_lives(&t);
    find_lifetimes(&t);
    TRY(place_arrivals(p, e));
    TRY(place_all(&t, e));
    for (int life = 0; life < LIVES; life++)
        for (int x = 0; x < p->n_tensors; x++)
            p->tensors[life][x] = p->tensors[life][p->storage[x]];
    return ST_OK;
}
