/* Gradient space, buckets, cuts, pieces, parameter space: where each gradient, weight and state lies, in the order in
 * which the backward pass finishes the gradients, so that a bucket can leave as early as possible. */
#include "executor/engine/plan/build.h"

#include "executor/engine/graph/op.h"
#include "executor/engine/optimizer/optimizer.h"

#include <float.h>
#include <stdlib.h>

/* Who writes a slot in the backward pass. */
struct writers {
    int *last;   /* [n_slots] reverse op; -1: none */
    int *weight; /* [n_slots] last BACKWARD_WEIGHT that does */
};

static int64_t elements_of(const struct graph *g, int parameter) {
    return shape_elements(&g->parameters[parameter].shape);
}
static int64_t slot_elements(const struct graph *g, int s) {
    return plan_padded(elements_of(g, g->slots[s].parameter));
}
static int owner_slot(const struct graph *g, int s) { return g->parameters[g->slots[s].parameter].first_slot; }
static bool has_siblings(const struct graph *g, int s) { return g->slots[owner_slot(g, s)].next_slot >= 0; }

/* --- slots ---*/

static status_t find_writers(struct plan *p, struct writers *w, struct err *e) {
    const struct graph *g = p->graph;
    for (int s = 0; s < g->n_slots; s++)
        w->last[s] = w->weight[s] = p->slot_stage[s] = -1;
    for (int r = 0; r < g->n_reverse; r++) {
        const struct op *op = &g->ops[g->reverse[r].op];
        for (int i = 0; i < OP_PARAMETERS; i++) {
            int s = op->slot[i], stage = p->block_stage[op->block];
            if (s < 0)
                continue;
            if (p->slot_stage[s] >= 0 && p->slot_stage[s] != stage)
                return err_set(e, ST_INTERNAL, "parameter %s: one group of uses spans two stages",
                               g->parameters[g->slots[s].parameter].name);
            p->slot_stage[s] = stage;
            p->slot_writers[s] += stage == plan_stage(&p->layout);
            if (w->last[s] < 0)
                p->slot_first[s] = r;
            w->last[s] = r;
            if (op_weight_slot(op->kind, i))
                w->weight[s] = r;
        }
    }
    for (int s = 0; s < g->n_slots; s++)
        if (w->last[s] < 0)
            return err_set(e, ST_INTERNAL, "parameter %s has no gradient: the loss does not depend on it",
                           g->parameters[g->slots[s].parameter].name);
    return ST_OK;
}

/* The model's order: by the reverse op that finishes a slot. Norms are added in it. */
static void order_slots(struct plan *p, const struct writers *w) {
    const struct graph *g = p->graph;
    for (int s = 0; s < g->n_slots; s++)
        p->slot_begin[s] = p->slot_end[s] = -1;
    for (int i = 0; i < g->n_parameters; i++)
        p->parameter_norm[i] = -1;
    for (int r = 0; r < g->n_reverse; r++) {
        const struct op *op = &g->ops[g->reverse[r].op];
        for (int i = 0; i < OP_PARAMETERS; i++) {
            int s = op->slot[i];
            if (s < 0 || w->last[s] != r)
                continue;
            int parameter = g->slots[s].parameter;
            int64_t n = slot_elements(g, s);
            if (owner_slot(g, s) == s) {
                p->parameter_stage[parameter] = p->slot_stage[s];
                if (g->parameters[parameter].kind == PARAMETER_WEIGHT) {
                    p->parameter_norm[parameter] = p->norm_chunks;
                    p->norm_chunks += n / PLAN_CHUNK;
                }
            }
            if (p->slot_stage[s] != plan_stage(&p->layout))
                continue;
            p->slot_order[p->n_own_slots++] = s;
            p->slot_begin[s] = p->gradient_elements;
            p->slot_end[s] = p->gradient_elements += n;
        }
    }
}

/* Siblings that other stages compute of a parameter that this stage owns: coordinates behind gradient space. */
static void add_landings(struct plan *p) {
    const struct graph *g = p->graph;
    int64_t at = p->gradient_elements;
    for (int s = 0; s < g->n_slots; s++) {
        if (p->slot_stage[s] == plan_stage(&p->layout) ||
            p->parameter_stage[g->slots[s].parameter] != plan_stage(&p->layout))
            continue;
        p->slot_begin[s] = at;
        p->slot_end[s] = at += slot_elements(g, s);
    }
}

/* --- buckets ---*/

/* Of slots of which s is the last. Siblings are cut alike on every stage. */
static status_t add_bucket(struct plan *p, int64_t begin, int64_t end, int s, int block, struct err *e) {
    TRY(array_grow(&p->buckets, p->n_buckets, e));
    p->buckets[p->n_buckets++] = (struct plan_bucket){
        .begin = begin, .end = end, .parameter = -1, .own_weight = -1, .block = block, .chunk = p->block_chunk[block]
    };
    p->buckets[p->n_buckets - 1].rotation = has_siblings(p->graph, s) ? 0 : p->n_buckets % p->layout.data;
    return ST_OK;
}

static bool whole_tensors(const struct plan *p) { return p->layout.optimizer && p->layout.optimizer->whole_tensor; }

static int block_of(const struct plan *p, const struct writers *w, int s) {
    return p->graph->ops[p->graph->reverse[w->last[s]].op].block;
}

/* Whether slot s can follow the slot before it into the same bucket. */
static bool joins(const struct plan *p, const struct writers *w, int before, int s) {
    if (has_siblings(p->graph, before) || has_siblings(p->graph, s))
        return false;
    int a = block_of(p, w, before), b = block_of(p, w, s);
    return p->layout.zero == 3 ? a == b : p->block_chunk[a] == p->block_chunk[b];
}

/* [first, end) of slot_order: one run of slots that may share buckets. */
static status_t cut_run(struct plan *p, const struct writers *w, int first, int end, int64_t most, struct err *e) {
    bool at_slots = p->layout.zero >= 2 || (p->layout.zero >= 1 && whole_tensors(p));
    int64_t begin = p->slot_begin[p->slot_order[first]], last = p->slot_end[p->slot_order[end - 1]];
    int slot = first;
    while (begin < last) {
        int64_t to = begin + most < last ? begin + most : last;
        while (slot + 1 < end && p->slot_end[p->slot_order[slot]] < to)
            slot++;
        if (at_slots)
            to = p->slot_end[p->slot_order[slot]];
        int s = p->slot_order[slot];
        TRY(add_bucket(p, begin, to, s, block_of(p, w, s), e));
        begin = to;
        if (slot + 1 < end && p->slot_end[s] == to)
            slot++;
    }
    return ST_OK;
}

static void finish_bucket(struct plan *p, const struct writers *w, struct plan_bucket *b) {
    b->ready = b->ready_weight = -1;
    for (int k = 0; k < p->n_own_slots; k++) {
        int s = p->slot_order[k];
        if (p->slot_end[s] <= b->begin || p->slot_begin[s] >= b->end)
            continue;
        b->ready = w->last[s] > b->ready ? w->last[s] : b->ready;
        b->ready_weight = w->weight[s] > b->ready_weight ? w->weight[s] : b->ready_weight;
    }
}

static status_t cut_buckets(struct plan *p, const struct writers *w, struct err *e) {
    int64_t most = plan_padded(p->layout.bucket_bytes / (int64_t)sizeof(float));
    if (most < PLAN_CHUNK)
        most = PLAN_CHUNK;
    for (int first = 0, k = 1; k <= p->n_own_slots; k++) {
        if (k < p->n_own_slots && joins(p, w, p->slot_order[k - 1], p->slot_order[k]))
            continue;
        TRY(cut_run(p, w, first, k, most, e));
        first = k;
    }
    for (int b = 0; b < p->n_buckets; b++)
        finish_bucket(p, w, &p->buckets[b]);
    return ST_OK;
}

/* --- cuts for optimizers that step whole tensors ---*/

/* Part j of a bucket gets consecutive slots: the cut with the least sum of squares over the parts' loads, given what
 * they have from the buckets before. m slots of size[], in chunks. */
static status_t balance(int64_t *load, int parts, const int64_t *size, int m, int *cut, struct err *e) {
    CLEANUP(freep) double *best = NULL;
    TRY(array_new(&best, (parts + 1) * (m + 1), e));
    CLEANUP(freep) int *from = NULL;
    TRY(array_new(&from, (parts + 1) * (m + 1), e));
    for (int i = 1; i <= m; i++)
        best[i] = DBL_MAX;
    for (int j = 1; j <= parts; j++)
        for (int i = 0; i <= m; i++) {
            double sum = (double)load[j - 1];
            best[j * (m + 1) + i] = DBL_MAX;
            for (int k = i; k >= 0; k--) {
                double before = best[(j - 1) * (m + 1) + k], squares = before + sum * sum;
                if (before < DBL_MAX && squares < best[j * (m + 1) + i]) {
                    best[j * (m + 1) + i] = squares;
                    from[j * (m + 1) + i] = k;
                }
                sum += k > 0 ? (double)size[k - 1] : 0;
            }
        }
    CLEANUP(freep) int *slot = NULL;
    TRY(array_new(&slot, parts + 1, e));
    slot[parts] = m;
    for (int j = parts; j > 0; j--)
        slot[j - 1] = from[j * (m + 1) + slot[j]];
    for (int j = 0, k = 0, at = 0; j <= parts; j++) {
        for (; k < slot[j]; k++) {
            at += (int)size[k];
            load[j - 1] += size[k];
        }
        cut[j] = at;
    }
    return ST_OK;
}

static status_t cut_whole_tensors(struct plan *p, struct err *e) {
    const int parts = p->layout.data;
    CLEANUP(freep) int64_t *load = NULL, *size = NULL;
    TRY(array_new(&load, parts, e));
    TRY(array_new(&size, p->n_own_slots, e));
    for (int b = 0, k = 0; b < p->n_buckets; b++) {
        struct plan_bucket *bucket = &p->buckets[b];
        int m = 0, first = p->slot_order[k];
        for (; k < p->n_own_slots && p->slot_begin[p->slot_order[k]] < bucket->end; k++)
            size[m++] = (p->slot_end[p->slot_order[k]] - p->slot_begin[p->slot_order[k]]) / PLAN_CHUNK;
        TRY(array_new(&bucket->cut, parts + 1, e));
        if (!has_siblings(p->graph, first)) {
            TRY(balance(load, parts, size, m, bucket->cut, e));
            continue;
        }
        /* Siblings may lie on other stages: their part follows from the parameter alone. */
        int part = p->graph->slots[first].parameter % parts;
        for (int j = part + 1; j <= parts; j++)
            bucket->cut[j] = (int)size[0];
        load[part] += size[0];
    }
    return ST_OK;
}

/* --- parameter space ---*/

static bool has_unit(const struct plan *p, int slot) {
    const struct graph *g = p->graph;
    int parameter = g->slots[slot].parameter;
    for (int s = g->parameters[parameter].first_slot; s >= 0; s = g->slots[s].next_slot)
        if (p->slot_stage[s] == plan_stage(&p->layout))
            return s == slot; /* the first of this stage has it */
    return false;
}

static void place_parameters(struct plan *p) {
    const struct graph *g = p->graph;
    for (int i = 0; i < g->n_parameters; i++)
        p->parameter_begin[i] = -1;
    for (int pass = 0; pass < 2; pass++) /* owned ones first */
        for (int k = 0; k < p->n_own_slots; k++) {
            int s = p->slot_order[k], parameter = g->slots[s].parameter;
            bool owned = p->parameter_stage[parameter] == plan_stage(&p->layout);
            if (!has_unit(p, s) || owned != (pass == 0))
                continue;
            p->parameter_begin[parameter] = p->parameter_elements;
            p->parameter_elements += slot_elements(g, s);
        }
    int k = 0;
    for (int b = 0; b < p->n_buckets; b++) {
        struct plan_bucket *bucket = &p->buckets[b];
        while (p->slot_end[p->slot_order[k]] <= bucket->begin)
            k++;
        int s = p->slot_order[k];
        if (has_unit(p, s))
            bucket->parameter = p->parameter_begin[g->slots[s].parameter] + bucket->begin - p->slot_begin[s];
    }
}

/* Under ZeRO-3 a rank holds its parts only. */
static void shard_parameters(struct plan *p) {
    p->parameter_elements = 0;
    for (int b = 0; b < p->n_buckets; b++) {
        if (p->buckets[b].parameter < 0)
            continue;
        int64_t begin, end;
        plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
        p->buckets[b].parameter = -1;
        p->buckets[b].own_weight = p->parameter_elements;
        p->parameter_elements += end - begin;
    }
    for (int i = 0; i < p->graph->n_parameters; i++)
        p->parameter_begin[i] = -1;
}

/* --- pieces ---*/

static void add_piece(struct plan *p, int bucket, int slot, int64_t begin, int64_t end) {
    const struct graph *g = p->graph;
    int parameter = g->slots[slot].parameter;
    int64_t first = begin - p->slot_begin[slot], left = elements_of(g, parameter) - first;
    const struct plan_bucket *b = &p->buckets[bucket];
    struct plan_piece *piece = &p->pieces[p->n_pieces++];
    *piece = (struct plan_piece){ .slot = slot,
                                  .parameter = parameter,
                                  .begin = begin,
                                  .first = first,
                                  .count = end - begin < left ? end - begin : left,
                                  .norm = -1,
                                  .master = SIZE_MAX,
                                  .ema = SIZE_MAX };
    if (p->parameter_norm[parameter] >= 0)
        piece->norm = p->parameter_norm[parameter] + first / PLAN_CHUNK;
    if (p->layout.zero < 3) {
        piece->weight = p->parameter_begin[parameter] + first;
    } else {
        int64_t own, unused;
        plan_own_range(p, bucket, plan_data_rank(&p->layout), &own, &unused);
        piece->weight = b->own_weight + begin - own;
    }
    for (int i = 0; i < PLAN_STATES; i++)
        piece->state[i] = SIZE_MAX;
}

static status_t make_pieces(struct plan *p, struct err *e) {
    TRY(array_new(&p->pieces, p->n_own_slots + p->n_buckets, e));
    int k = 0;
    for (int b = 0; b < p->n_buckets; b++) {
        struct plan_bucket *bucket = &p->buckets[b];
        bucket->first_piece = p->n_pieces;
        int64_t begin, end;
        plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
        while (k < p->n_own_slots && p->slot_end[p->slot_order[k]] <= bucket->begin)
            k++;
        for (int i = k; i < p->n_own_slots && p->slot_begin[p->slot_order[i]] < bucket->end; i++) {
            int s = p->slot_order[i];
            int64_t a = p->slot_begin[s], z = p->slot_end[s];
            if (owner_slot(p->graph, s) != s)
                continue;
            if (p->layout.zero == 0) {
                if (z <= bucket->end) /* whole slots, with the bucket that ends them */
                    add_piece(p, b, s, a, z);
                continue;
            }
            a = a > begin ? a : begin;
            z = z < end ? z : end;
            if (a < z)
                add_piece(p, b, s, a, z);
        }
        bucket->n_pieces = p->n_pieces - bucket->first_piece;
    }
    return ST_OK;
}

/* --- optimizer state ---*/

static void take_state(struct plan *p, size_t *ret, int64_t elements) {
    if (elements == 0)
        return;
    *ret = p->family_bytes[FAMILY_OPTIMIZER];
    p->family_bytes[FAMILY_OPTIMIZER] += plan_aligned((size_t)elements * sizeof(float));
}

static void place_state(struct plan *p) {
    const struct optimizer_kind *kind = p->layout.optimizer;
    if (!kind)
        return;
    const struct graph *g = p->graph;
    if (g->element != DTYPE_F32)
        for (int i = 0; i < p->n_pieces; i++)
            take_state(p, &p->pieces[i].master, p->pieces[i].count);
    for (int s = 0; s < kind->n_states; s++)
        for (int i = 0; i < p->n_pieces; i++) {
            struct plan_piece *piece = &p->pieces[i];
            const struct parameter *parameter = &g->parameters[piece->parameter];
            if (parameter->kind == PARAMETER_WEIGHT)
                take_state(p, &piece->state[s],
                           kind->state_elements ? kind->state_elements(parameter, s) : piece->count);
        }
    if (p->layout.ema)
        for (int i = 0; i < p->n_pieces; i++)
            if (g->parameters[p->pieces[i].parameter].kind == PARAMETER_WEIGHT)
                take_state(p, &p->pieces[i].ema, p->pieces[i].count);
}

status_t plan_lay_out(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    TRY(array_new(&p->slot_begin, g->n_slots, e));
    TRY(array_new(&p->slot_end, g->n_slots, e));
    TRY(array_new(&p->slot_order, g->n_slots, e));
    TRY(array_new(&p->slot_writers, g->n_slots, e));
    TRY(array_new(&p->slot_first, g->n_slots, e));
    TRY(array_new(&p->slot_stage, g->n_slots, e));
    TRY(array_new(&p->parameter_begin, g->n_parameters, e));
    TRY(array_new(&p->parameter_stage, g->n_parameters, e));
    TRY(array_new(&p->parameter_norm, g->n_parameters, e));
    CLEANUP(freep) int *last = NULL, *weight = NULL;
    TRY(array_new(&last, g->n_slots, e));
    TRY(array_new(&weight, g->n_slots, e));
    struct writers w = { .last = last, .weight = weight };
    TRY(find_writers(p, &w, e));
    order_slots(p, &w);
    add_landings(p);
    TRY(cut_buckets(p, &w, e));
    if (p->layout.zero >= 1 && whole_tensors(p))
        TRY(cut_whole_tensors(p, e));
    place_parameters(p);
    if (p->layout.zero == 3)
        shard_parameters(p);
    TRY(make_pieces(p, e));
    place_state(p);
    return ST_OK;
}
