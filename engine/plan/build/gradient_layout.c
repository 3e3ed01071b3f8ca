/* Where each gradient, weight and optimizer state lies.
 *
 *   1. Gradient space: this stage's uses, in the order in which the backward pass finishes their gradients, so that a
 *      bucket can be reduced as early as possible.
 *   2. Buckets: runs of uses that may share one, divided at bucket_bytes (or where uses end, see plan.h).
 *   3. Parts of a bucket: equal numbers of chunks per data rank. Optimizers that step whole tensors get parts that end
 *      where uses end, chosen by dynamic programming so that the loads of the data ranks are as equal as possible.
 *   4. Parameter space: owned parameters first, in the order of gradient space, then those of other stages.
 *   5. Shards: what this rank steps, and the places of its masters, states and EMA. */
#include "engine/plan/build/building.h"

#include "engine/graph/op.h"
#include "engine/optimizer/optimizer.h"

#include <float.h>
#include <stdlib.h>

/* The reverse ops that write the gradient of a use. */
struct writers {
    int *last;   /* [n_uses] the last one; -1: none */
    int *weight; /* [n_uses] the last one whose BACKWARD_WEIGHT writes it */
};

static int64_t elements_of(const struct graph *g, int parameter) {
    return shape_elements(&g->parameters[parameter].shape);
}
static int64_t use_elements(const struct graph *g, int s) { return plan_padded(elements_of(g, g->uses[s].parameter)); }
static int owner_use(const struct graph *g, int s) { return g->parameters[g->uses[s].parameter].first_use; }
static bool has_siblings(const struct graph *g, int s) { return g->uses[owner_use(g, s)].next_use >= 0; }

/* --- uses ---*/

static status_t find_writers(struct plan *p, struct writers *w, struct err *e) {
    const struct graph *g = p->graph;
    for (int s = 0; s < g->n_uses; s++)
        w->last[s] = w->weight[s] = p->use_stage[s] = -1;
    for (int r = 0; r < g->n_reverse; r++) {
        const struct op *op = &g->ops[g->reverse[r].op];
        for (int i = 0; i < OP_PARAMETERS; i++) {
            int s = op->use[i], stage = p->block_stage[op->block];
            if (s < 0)
                continue;
            if (p->use_stage[s] >= 0 && p->use_stage[s] != stage)
                return err_set(e, ST_INTERNAL, "parameter %s: one group of uses spans two stages",
                               g->parameters[g->uses[s].parameter].name);
            p->use_stage[s] = stage;
            p->use_writers[s] += stage == plan_stage(&p->layout);
            if (w->last[s] < 0)
                p->use_first[s] = r;
            w->last[s] = r;
            if (op_weight_use(op->kind, i))
                w->weight[s] = r;
        }
    }
    for (int s = 0; s < g->n_uses; s++)
        if (w->last[s] < 0)
            return err_set(e, ST_INTERNAL, "parameter %s has no gradient: the loss does not depend on it",
                           g->parameters[g->uses[s].parameter].name);
    return ST_OK;
}

/* The model's order is that of the reverse ops that finish each use. Norms are added in this order. */
static void order_uses(struct plan *p, const struct writers *w) {
    const struct graph *g = p->graph;
    for (int s = 0; s < g->n_uses; s++)
        p->use_begin[s] = p->use_end[s] = -1;
    for (int i = 0; i < g->n_parameters; i++)
        p->parameter_norm[i] = -1;
    for (int r = 0; r < g->n_reverse; r++) {
        const struct op *op = &g->ops[g->reverse[r].op];
        for (int i = 0; i < OP_PARAMETERS; i++) {
            int s = op->use[i];
            if (s < 0 || w->last[s] != r)
                continue;
            int parameter = g->uses[s].parameter;
            int64_t n = use_elements(g, s);
            if (owner_use(g, s) == s) {
                p->parameter_stage[parameter] = p->use_stage[s];
                if (g->parameters[parameter].kind == PARAMETER_WEIGHT) {
                    p->parameter_norm[parameter] = p->norm_chunks;
                    p->norm_chunks += n / PLAN_CHUNK;
                }
            }
            if (p->use_stage[s] != plan_stage(&p->layout))
                continue;
            p->use_order[p->n_own_uses++] = s;
            p->use_begin[s] = p->gradient_elements;
            p->use_end[s] = p->gradient_elements += n;
        }
    }
}

/* Siblings that other stages compute of a parameter that this stage owns lie behind gradient space. */
static void place_remote_siblings(struct plan *p) {
    const struct graph *g = p->graph;
    int64_t at = p->gradient_elements;
    for (int s = 0; s < g->n_uses; s++) {
        if (p->use_stage[s] == plan_stage(&p->layout) ||
            p->parameter_stage[g->uses[s].parameter] != plan_stage(&p->layout))
            continue;
        p->use_begin[s] = at;
        p->use_end[s] = at += use_elements(g, s);
    }
}

/* --- buckets ---*/

/* A bucket of uses, of which s is the last. Siblings are divided alike on every stage. */
static status_t add_bucket(struct plan *p, int64_t begin, int64_t end, int s, int block, struct err *e) {
    TRY(array_grow(&p->buckets, p->n_buckets, e));
    p->buckets[p->n_buckets++] = (struct plan_bucket){ .begin = begin,
                                                       .end = end,
                                                       .parameter = -1,
                                                       .own_weight = -1,
                                                       .block = block,
                                                       .virtual_stage = p->block_virtual_stage[block] };
    p->buckets[p->n_buckets - 1].rotation = has_siblings(p->graph, s) ? 0 : p->n_buckets % p->layout.data;
    return ST_OK;
}

static bool whole_tensors(const struct plan *p) { return p->layout.optimizer && p->layout.optimizer->whole_tensor; }

static int block_of(const struct plan *p, const struct writers *w, int s) {
    return p->graph->ops[p->graph->reverse[w->last[s]].op].block;
}

/* Whether use s can follow the use before it into the same bucket. */
static bool joins(const struct plan *p, const struct writers *w, int before, int s) {
    if (has_siblings(p->graph, before) || has_siblings(p->graph, s))
        return false;
    int a = block_of(p, w, before), b = block_of(p, w, s);
    return p->layout.zero == 3 ? a == b : p->block_virtual_stage[a] == p->block_virtual_stage[b];
}

/* [first, end) of use_order: one run of uses that may share buckets. */
static status_t cut_run(struct plan *p, const struct writers *w, int first, int end, int64_t max, struct err *e) {
    bool at_uses = p->layout.zero >= 2 || (p->layout.zero >= 1 && whole_tensors(p));
    int64_t begin = p->use_begin[p->use_order[first]], last = p->use_end[p->use_order[end - 1]];
    int use = first;
    while (begin < last) {
        int64_t to = begin + max < last ? begin + max : last;
        while (use + 1 < end && p->use_end[p->use_order[use]] < to)
            use++;
        if (at_uses)
            to = p->use_end[p->use_order[use]];
        int s = p->use_order[use];
        TRY(add_bucket(p, begin, to, s, block_of(p, w, s), e));
        begin = to;
        if (use + 1 < end && p->use_end[s] == to)
            use++;
    }
    return ST_OK;
}

static void finish_bucket(struct plan *p, const struct writers *w, struct plan_bucket *b) {
    b->ready = b->ready_weight = -1;
    for (int k = 0; k < p->n_own_uses; k++) {
        int s = p->use_order[k];
        if (p->use_end[s] <= b->begin || p->use_begin[s] >= b->end)
            continue;
        b->ready = w->last[s] > b->ready ? w->last[s] : b->ready;
        b->ready_weight = w->weight[s] > b->ready_weight ? w->weight[s] : b->ready_weight;
    }
}

static status_t cut_buckets(struct plan *p, const struct writers *w, struct err *e) {
    int64_t max = plan_padded(p->layout.bucket_bytes / (int64_t)sizeof(float));
    if (max < PLAN_CHUNK)
        max = PLAN_CHUNK;
    for (int first = 0, k = 1; k <= p->n_own_uses; k++) {
        if (k < p->n_own_uses && joins(p, w, p->use_order[k - 1], p->use_order[k]))
            continue;
        TRY(cut_run(p, w, first, k, max, e));
        first = k;
    }
    for (int b = 0; b < p->n_buckets; b++)
        finish_bucket(p, w, &p->buckets[b]);
    return ST_OK;
}

/* --- parts for optimizers that step whole tensors ---*/

/* Part j of a bucket gets consecutive uses. Of all divisions, takes the one with the smallest sum of squares of the
 * parts' loads, which include the buckets before. m uses of size[], in chunks. */
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
    CLEANUP(freep) int *use = NULL;
    TRY(array_new(&use, parts + 1, e));
    use[parts] = m;
    for (int j = parts; j > 0; j--)
        use[j - 1] = from[j * (m + 1) + use[j]];
    for (int j = 0, k = 0, at = 0; j <= parts; j++) {
        for (; k < use[j]; k++) {
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
    TRY(array_new(&size, p->n_own_uses, e));
    for (int b = 0, k = 0; b < p->n_buckets; b++) {
        struct plan_bucket *bucket = &p->buckets[b];
        int m = 0, first = p->use_order[k];
        for (; k < p->n_own_uses && p->use_begin[p->use_order[k]] < bucket->end; k++)
            size[m++] = (p->use_end[p->use_order[k]] - p->use_begin[p->use_order[k]]) / PLAN_CHUNK;
        TRY(array_new(&bucket->part_begin, parts + 1, e));
        if (!has_siblings(p->graph, first)) {
            TRY(balance(load, parts, size, m, bucket->part_begin, e));
            continue;
        }
        /* Siblings may be on other stages, so their part depends on the parameter only. */
        int part = p->graph->uses[first].parameter % parts;
        for (int j = part + 1; j <= parts; j++)
            bucket->part_begin[j] = (int)size[0];
        load[part] += size[0];
    }
    return ST_OK;
}

/* --- parameter space ---*/

static bool holds_parameter(const struct plan *p, int use) {
    const struct graph *g = p->graph;
    int parameter = g->uses[use].parameter;
    for (int s = g->parameters[parameter].first_use; s >= 0; s = g->uses[s].next_use)
        if (p->use_stage[s] == plan_stage(&p->layout))
            return s == use; /* the first use of this stage holds it */
    return false;
}

static void place_parameters(struct plan *p) {
    const struct graph *g = p->graph;
    for (int i = 0; i < g->n_parameters; i++)
        p->parameter_begin[i] = -1;
    for (int pass = 0; pass < 2; pass++) /* owned ones first */
        for (int k = 0; k < p->n_own_uses; k++) {
            int s = p->use_order[k], parameter = g->uses[s].parameter;
            bool owned = p->parameter_stage[parameter] == plan_stage(&p->layout);
            if (!holds_parameter(p, s) || owned != (pass == 0))
                continue;
            p->parameter_begin[parameter] = p->parameter_elements;
            p->parameter_elements += use_elements(g, s);
        }
    int k = 0;
    for (int b = 0; b < p->n_buckets; b++) {
        struct plan_bucket *bucket = &p->buckets[b];
        while (p->use_end[p->use_order[k]] <= bucket->begin)
            k++;
        int s = p->use_order[k];
        if (holds_parameter(p, s))
            bucket->parameter = p->parameter_begin[g->uses[s].parameter] + bucket->begin - p->use_begin[s];
    }
}

/* With ZeRO 3 a rank holds its own parts only. */
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

/* --- shards ---*/

static void add_shard(struct plan *p, int bucket, int use, int64_t begin, int64_t end) {
    const struct graph *g = p->graph;
    int parameter = g->uses[use].parameter;
    int64_t first = begin - p->use_begin[use], left = elements_of(g, parameter) - first;
    const struct plan_bucket *b = &p->buckets[bucket];
    struct plan_shard *shard = &p->shards[p->n_shards++];
    *shard = (struct plan_shard){ .use = use,
                                  .parameter = parameter,
                                  .begin = begin,
                                  .first = first,
                                  .count = end - begin < left ? end - begin : left,
                                  .norm = -1,
                                  .master = SIZE_MAX,
                                  .ema = SIZE_MAX };
    if (p->parameter_norm[parameter] >= 0)
        shard->norm = p->parameter_norm[parameter] + first / PLAN_CHUNK;
    if (p->layout.zero < 3) {
        shard->weight = p->parameter_begin[parameter] + first;
    } else {
        int64_t own, unused;
        plan_own_range(p, bucket, plan_data_rank(&p->layout), &own, &unused);
        shard->weight = b->own_weight + begin - own;
    }
    for (int i = 0; i < PLAN_STATES; i++)
        shard->state[i] = SIZE_MAX;
}

static status_t make_shards(struct plan *p, struct err *e) {
    TRY(array_new(&p->shards, p->n_own_uses + p->n_buckets, e));
    int k = 0;
    for (int b = 0; b < p->n_buckets; b++) {
        struct plan_bucket *bucket = &p->buckets[b];
        bucket->first_shard = p->n_shards;
        int64_t begin, end;
        plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
        while (k < p->n_own_uses && p->use_end[p->use_order[k]] <= bucket->begin)
            k++;
        for (int i = k; i < p->n_own_uses && p->use_begin[p->use_order[i]] < bucket->end; i++) {
            int s = p->use_order[i];
            int64_t a = p->use_begin[s], z = p->use_end[s];
            if (owner_use(p->graph, s) != s)
                continue;
            if (p->layout.zero == 0) {
                if (z <= bucket->end) /* whole uses, with the bucket that ends them */
                    add_shard(p, b, s, a, z);
                continue;
            }
            a = a > begin ? a : begin;
            z = z < end ? z : end;
            if (a < z)
                add_shard(p, b, s, a, z);
        }
        bucket->n_shards = p->n_shards - bucket->first_shard;
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
        for (int i = 0; i < p->n_shards; i++)
            take_state(p, &p->shards[i].master, p->shards[i].count);
    for (int s = 0; s < kind->n_states; s++)
        for (int i = 0; i < p->n_shards; i++) {
            struct plan_shard *shard = &p->shards[i];
            const struct parameter *parameter = &g->parameters[shard->parameter];
            if (parameter->kind == PARAMETER_WEIGHT)
                take_state(p, &shard->state[s],
                           kind->state_elements ? kind->state_elements(parameter, s) : shard->count);
        }
    if (p->layout.ema)
        for (int i = 0; i < p->n_shards; i++)
            if (g->parameters[p->shards[i].parameter].kind == PARAMETER_WEIGHT)
                take_state(p, &p->shards[i].ema, p->shards[i].count);
}

status_t plan_lay_out_gradients(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    TRY(array_new(&p->use_begin, g->n_uses, e));
    TRY(array_new(&p->use_end, g->n_uses, e));
    TRY(array_new(&p->use_order, g->n_uses, e));
    TRY(array_new(&p->use_writers, g->n_uses, e));
    TRY(array_new(&p->use_first, g->n_uses, e));
    TRY(array_new(&p->use_stage, g->n_uses, e));
    TRY(array_new(&p->parameter_begin, g->n_parameters, e));
    TRY(array_new(&p->parameter_stage, g->n_parameters, e));
    TRY(array_new(&p->parameter_norm, g->n_parameters, e));
    CLEANUP(freep) int *last = NULL, *weight = NULL;
    TRY(array_new(&last, g->n_uses, e));
    TRY(array_new(&weight, g->n_uses, e));
    struct writers w = { .last = last, .weight = weight };
    TRY(find_writers(p, &w, e));
    order_uses(p, &w);
    place_remote_siblings(p);
    TRY(cut_buckets(p, &w, e));
    if (p->layout.zero >= 1 && whole_tensors(p))
        TRY(cut_whole_tensors(p, e));
    place_parameters(p);
    if (p->layout.zero == 3)
        shard_parameters(p);
    TRY(make_shards(p, e));
    place_state(p);
    return ST_OK;
}
