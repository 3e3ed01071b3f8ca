/* Checks of one plan that need no simulation. Tensors lie inside their family and their copies do not overlap. Gradient
 * space is tiled by uses, by buckets and by parts of buckets. Shards are what the rank owns of them. The sums of
 * squares of the whole model fill their array. Everything that lasts for the whole step (weights, states, gradient
 * buffers, upload buffers) has bytes of its own. */
#include "engine/optimizer/optimizer.h"
#include "engine/plan/verify/err_plan.h"
#include "engine/plan/verify/live_set.h"
#include "engine/plan/verify/verify_state.h"

#include <stdlib.h>

static const char *name_of(const struct plan *p, int parameter) { return p->graph->parameters[parameter].name; }

static int64_t elements_of(const struct plan *p, int parameter) {
    return shape_elements(&p->graph->parameters[parameter].shape);
}

static int64_t padded(int64_t n) { return (n + PLAN_CHUNK - 1) / PLAN_CHUNK * PLAN_CHUNK; }

static bool is_owner(const struct graph *g, int use) { return g->parameters[g->uses[use].parameter].first_use == use; }

/* --- tensors ---*/

static status_t check_tensors(const struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    for (int l = 0; l < LIFETIMES; l++)
        for (int t = 0; t < p->n_tensors; t++) {
            const struct tensor_place *place = &p->tensors[l][t];
            if (place->offset == SIZE_MAX)
                continue;
            bool batch = t < g->n_tensors && g->tensors[t].role == TENSOR_BATCH;
            size_t bytes = plan_tensor_bytes(p, t);
            const char *name = t < g->n_tensors ? g->tensors[t].name : "a copied gradient";
            if (place->copies < 1 || (place->copies > 1 && place->stride < bytes))
                return err_plan(e, "copies of tensor %s overlap", name);
            if (place->offset + (size_t)(place->copies - 1) * place->stride + bytes >
                p->family_bytes[batch ? FAMILY_BATCH : FAMILY_ACTIVATIONS])
                return err_plan(e, "tensor %s ends outside its family", name);
        }
    return ST_OK;
}

/* The array of running moments lies behind all tensors, and has all moments that this stage steps. */
static status_t check_statistics(const struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    size_t at = p->statistics_begin;
    if (p->statistics_bytes == 0)
        return ST_OK;
    for (int t = 0; t < p->n_tensors; t++) {
        const struct tensor_place *place = &p->tensors[LIFETIME_FORWARD][t];
        if ((t >= g->n_tensors || g->tensors[t].role != TENSOR_BATCH) && place->offset != SIZE_MAX &&
            place->offset + (size_t)(place->copies - 1) * place->stride + plan_tensor_bytes(p, t) > at)
            return err_plan(e, "a tensor overlaps the running moments");
    }
    for (int i = 0; i < g->n_parameters; i++) {
        const size_t place = plan_statistic_place(p, i).offset;
        if (g->parameters[i].kind != PARAMETER_STATISTIC || p->parameter_stage[i] != plan_stage(&p->layout))
            continue;
        if (place < at || place == SIZE_MAX)
            return err_plan(e, "the running moment %s is misplaced", name_of(p, i));
        at = place + (size_t)elements_of(p, i) * sizeof(float);
    }
    return at <= p->statistics_begin + p->statistics_bytes &&
                   p->statistics_begin + p->statistics_bytes <= p->family_bytes[FAMILY_ACTIVATIONS]
               ? ST_OK
               : err_plan(e, "the running moments end outside their array");
}

/* --- gradient space ---*/

static status_t check_uses(const struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    int64_t at = 0;
    for (int k = 0; k < p->n_own_uses; k++) {
        int s = p->use_order[k];
        int64_t n = elements_of(p, g->uses[s].parameter);
        if (p->use_begin[s] != at || p->use_end[s] != at + padded(n))
            return err_plan(e, "the gradient of %s is misplaced", name_of(p, g->uses[s].parameter));
        at = p->use_end[s];
    }
    for (int s = 0; s < g->n_uses; s++) {
        bool mine = p->use_stage[s] == plan_stage(&p->layout);
        bool lands = !mine && p->parameter_stage[g->uses[s].parameter] == plan_stage(&p->layout);
        bool placed = p->use_begin[s] >= 0 && p->use_begin[s] < p->gradient_elements;
        if (mine != placed || (lands && p->use_begin[s] < p->gradient_elements))
            return err_plan(e, "the gradient of %s is misplaced", name_of(p, g->uses[s].parameter));
    }
    if (at != p->gradient_elements)
        return err_plan(e, "uses do not fill gradient space");
    return ST_OK;
}

static status_t check_cuts(const struct plan *p, int bucket, struct err *e) {
    const struct plan_bucket *b = &p->buckets[bucket];
    int64_t before = b->begin;
    for (int j = 0; j <= p->layout.data; j++) {
        int64_t at = plan_part_begin(p, bucket, j);
        if (at < before || at > b->end || (at - b->begin) % PLAN_CHUNK || (j == 0 && at != b->begin) ||
            (j == p->layout.data && at != b->end))
            return err_plan(e, "bucket %d is not cut in parts that tile it", bucket);
        before = at;
    }
    return ST_OK;
}

static bool steps_whole_tensors(const struct plan *p) {
    return p->layout.optimizer && p->layout.optimizer->whole_tensor && p->layout.zero > 0;
}

/* Buckets of siblings hold nothing else; with ZeRO 2 and 3, buckets hold whole parameters. */
static status_t check_bucket_edges(const struct plan *p, struct err *e) {
    const struct graph *g = p->graph;
    for (int k = 0; k < p->n_own_uses; k++) {
        int s = p->use_order[k], parameter = g->uses[s].parameter;
        const struct plan_bucket *first = &p->buckets[plan_bucket_at(p, p->use_begin[s])],
                                 *last = &p->buckets[plan_bucket_at(p, p->use_end[s] - 1)];
        bool shared = g->uses[g->parameters[parameter].first_use].next_use >= 0;
        if (shared && (first->begin != p->use_begin[s] || last->end != p->use_end[s]))
            return err_plan(e, "a use of %s shares a bucket", name_of(p, parameter));
        if ((p->layout.zero >= 2 || steps_whole_tensors(p)) && first != last)
            return err_plan(e, "%s is cut by the edge of a bucket", name_of(p, parameter));
        for (int j = 1; j < p->layout.data && steps_whole_tensors(p); j++) {
            int64_t cut = plan_part_begin(p, (int)(first - p->buckets), j);
            if (cut > p->use_begin[s] && cut < p->use_end[s])
                return err_plan(e, "%s is cut, but its optimizer steps whole tensors", name_of(p, parameter));
        }
    }
    return ST_OK;
}

static status_t check_buckets(const struct plan *p, struct err *e) {
    int64_t at = 0;
    for (int b = 0; b < p->n_buckets; b++) {
        if (p->buckets[b].begin != at || p->buckets[b].end <= at)
            return err_plan(e, "bucket %d is misplaced", b);
        at = p->buckets[b].end;
        TRY(check_cuts(p, b, e));
    }
    if (at != p->gradient_elements)
        return err_plan(e, "buckets do not fill gradient space");
    return check_bucket_edges(p, e);
}

/* --- shards ---*/

/* Checks shard *next against the expected one, and increments *next. */
static status_t expect_shard(const struct plan *p, int use, int64_t begin, int64_t end, int *next, struct err *e) {
    int parameter = p->graph->uses[use].parameter;
    int64_t first = begin - p->use_begin[use], left = elements_of(p, parameter) - first;
    int64_t count = end - begin < left ? end - begin : left;
    const struct plan_shard *q = *next < p->n_shards ? &p->shards[*next] : NULL;
    int64_t norm = p->parameter_norm[parameter] < 0 ? -1 : p->parameter_norm[parameter] + first / PLAN_CHUNK;
    if (!q || q->use != use || q->parameter != parameter || q->begin != begin || q->first != first ||
        q->count != count || q->norm != norm)
        return err_plan(e, "shard %d is not what this rank owns of %s", *next, name_of(p, parameter));
    ++*next;
    return ST_OK;
}

/* Shards are, bucket by bucket, the intersections of owning uses with what this rank owns. */
static status_t check_shards(const struct plan *p, struct err *e) {
    int next = 0, k = 0;
    for (int b = 0; b < p->n_buckets; b++) {
        int64_t begin, end;
        plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
        if (p->buckets[b].first_shard != next)
            return err_plan(e, "the shards of bucket %d are misnumbered", b);
        while (k < p->n_own_uses && p->use_end[p->use_order[k]] <= p->buckets[b].begin)
            k++;
        for (int i = k; i < p->n_own_uses && p->use_begin[p->use_order[i]] < p->buckets[b].end; i++) {
            int s = p->use_order[i];
            int64_t from = p->use_begin[s], to = p->use_end[s];
            if (!is_owner(p->graph, s))
                continue;
            if (p->layout.zero == 0) {
                if (to <= p->buckets[b].end)
                    TRY(expect_shard(p, s, from, to, &next, e));
                continue;
            }
            from = from > begin ? from : begin;
            to = to < end ? to : end;
            if (from < to)
                TRY(expect_shard(p, s, from, to, &next, e));
        }
        if (p->buckets[b].first_shard + p->buckets[b].n_shards != next)
            return err_plan(e, "the shards of bucket %d are misnumbered", b);
    }
    if (next != p->n_shards)
        return err_plan(e, "shard %d belongs to no bucket", next);
    return ST_OK;
}

/* Every weight has its own sums of squares, and together they fill the array. */
static status_t check_norm_array(const struct plan *p, struct err *e) {
    CLEANUP(live_set_done) struct live_set taken = { 0 };
    int64_t sum = 0;
    for (int i = 0; i < p->graph->n_parameters; i++) {
        int64_t n = padded(elements_of(p, i)) / PLAN_CHUNK, at = p->parameter_norm[i];
        if ((at < 0) != (p->graph->parameters[i].kind == PARAMETER_STATISTIC) ||
            (at >= 0 && (at + n > p->norm_chunks || live_set_find(&taken, (size_t)at, (size_t)(at + n)))))
            return err_plan(e, "the chunk sums of %s are misplaced", name_of(p, i));
        if (at >= 0)
            TRY(live_set_insert(&taken, (size_t)at, (size_t)(at + n), i, e));
        sum += at >= 0 ? n : 0;
    }
    if (sum != p->norm_chunks)
        return err_plan(e, "the chunk sums do not fill their array");
    return ST_OK;
}

/* --- bytes that last for the whole step ---*/

struct lasting {
    const struct plan *plan;
    struct live_set families[FAMILIES];
};

static status_t take(struct lasting *l, enum plan_family family, size_t offset, size_t bytes, const char *what,
                     const char *name, struct err *e) {
    if (bytes == 0)
        return ST_OK;
    if (offset == SIZE_MAX)
        return err_plan(e, "the %s of %s has no place", what, name);
    if (offset + bytes > l->plan->family_bytes[family])
        return err_plan(e, "the %s of %s ends outside its family", what, name);
    if (live_set_find(&l->families[family], offset, offset + bytes))
        return err_plan(e, "the %s of %s overlaps another one", what, name);
    return live_set_insert(&l->families[family], offset, offset + bytes, 0, e);
}

static status_t take_weights(struct lasting *l, struct err *e) {
    const struct plan *p = l->plan;
    const size_t element = dtype_bytes(p->graph->element);
    for (int i = 0; i < p->graph->n_parameters && p->layout.zero < 3; i++)
        if (p->parameter_begin[i] >= 0)
            TRY(take(l, FAMILY_PARAMETERS, plan_parameter_place(p, i).offset, (size_t)elements_of(p, i) * element,
                     "weight", name_of(p, i), e));
    for (int i = 0; i < p->n_shards; i++) {
        const struct plan_shard *q = &p->shards[i];
        struct plan_place place = plan_weight_place(p, q);
        if (p->layout.zero == 3)
            TRY(take(l, FAMILY_PARAMETERS, place.offset, (size_t)q->count * element, "weight", name_of(p, q->parameter),
                     e));
        else if (place.offset != plan_parameter_place(p, q->parameter).offset + (size_t)q->first * element)
            return err_plan(e, "a shard of %s is stepped at another place than it is read", name_of(p, q->parameter));
    }
    return ST_OK;
}

static int64_t state_elements(const struct plan *p, const struct plan_shard *q, int state) {
    const struct optimizer_kind *kind = p->layout.optimizer;
    return kind->state_elements ? kind->state_elements(&p->graph->parameters[q->parameter], state) : q->count;
}

static status_t take_states(struct lasting *l, struct err *e) {
    const struct plan *p = l->plan;
    const struct optimizer_kind *kind = p->layout.optimizer;
    for (int i = 0; i < p->n_shards && kind; i++) {
        const struct plan_shard *q = &p->shards[i];
        bool weight = p->graph->parameters[q->parameter].kind == PARAMETER_WEIGHT;
        const char *name = name_of(p, q->parameter);
        size_t bytes = (size_t)q->count * sizeof(float);
        if (p->graph->element != DTYPE_F32)
            TRY(take(l, FAMILY_OPTIMIZER, q->master, bytes, "master", name, e));
        if (p->layout.ema && weight)
            TRY(take(l, FAMILY_OPTIMIZER, q->ema, bytes, "average", name, e));
        for (int s = 0; s < kind->n_states && weight; s++)
            TRY(take(l, FAMILY_OPTIMIZER, q->state[s], (size_t)state_elements(p, q, s) * sizeof(float), "state", name,
                     e));
    }
    return ST_OK;
}

/* Lane buffers and the accumulator. gradient_state.c checks staging, which does not last. */
static status_t take_gradients(struct lasting *l, struct err *e) {
    const struct plan *p = l->plan;
    for (int b = 0; b < p->lane_buffers && p->gradient_elements; b++) {
        struct plan_place place = plan_gradient_place(p, b, 0);
        if (!(p->staged && b == 0))
            TRY(take(l, place.family, place.offset, (size_t)p->gradient_elements * sizeof(float), "buffer", "gradients",
                     e));
    }
    for (int b = 0; b < p->n_buckets && p->accumulator >= 0; b++) {
        int64_t begin, end;
        plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
        if (begin >= end)
            continue;
        struct plan_place place = plan_gradient_place(p, p->accumulator, begin);
        TRY(take(l, place.family, place.offset, (size_t)(end - begin) * sizeof(float), "accumulator", "gradients", e));
    }
    return ST_OK;
}

/* An upload may write its buffer at any time, so no tensor of any micro-batch has these bytes. */
static status_t take_uploads(struct lasting *l, struct err *e) {
    const struct plan *p = l->plan;
    const struct graph *g = p->graph;
    for (int t = 0; t < g->n_tensors && p->layout.uploads_ahead; t++) {
        const struct tensor_place *place = &p->tensors[LIFETIME_FORWARD][t];
        if (!plan_loads(p, t))
            continue;
        TRY(take(l, FAMILY_BATCH, plan_upload_place(p, t).offset, graph_batch_bytes(g, t), "upload buffer",
                 g->tensors[t].name, e));
        TRY(take(l, FAMILY_BATCH, place->offset, (size_t)(place->copies - 1) * place->stride + graph_tensor_bytes(g, t),
                 "place", g->tensors[t].name, e));
    }
    return ST_OK;
}

static status_t check_lasting(const struct plan *p, struct err *e) {
    struct lasting l = { .plan = p };
    status_t st = take_weights(&l, e);
    if (st == ST_OK)
        st = take_states(&l, e);
    if (st == ST_OK && p->layout.kind == PLAN_TRAIN)
        st = take_gradients(&l, e);
    if (st == ST_OK)
        st = take_uploads(&l, e);
    for (int f = 0; f < FAMILIES; f++)
        live_set_done(&l.families[f]);
    return st;
}

static status_t check_workspace(const struct plan *p, struct err *e) {
    size_t sums = plan_chunk_sum_bytes(p);
    if (p->family_bytes[FAMILY_WORKSPACE] < sums + p->layout.workspace_bytes)
        return err_plan(e, "the workspace is smaller than what kernels ask for");
    return ST_OK;
}

status_t verify_places(const struct plan *p, struct err *e) {
    TRY(check_tensors(p, e));
    TRY(check_statistics(p, e));
    if (p->layout.kind == PLAN_TRAIN || p->layout.kind == PLAN_AVERAGE) {
        TRY(check_uses(p, e));
        TRY(check_buckets(p, e));
        TRY(check_norm_array(p, e));
        TRY(check_shards(p, e));
    }
    TRY(check_lasting(p, e));
    return check_workspace(p, e);
}
