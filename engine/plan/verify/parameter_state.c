/* Which elements of each parameter are new, as sorted ranges. A step adds the range of its shard; the end of a gather
 * adds what the other ranks have stepped. A read is refused while a transfer of the parameter is posted, and with
 * ZeRO 3 unless its bucket is gathered. At the end of the step, the ranges of each parameter that the stage reads must
 * be one range, the whole parameter. */
#include "engine/plan/verify/parameter_state.h"

#include "base/array.h"
#include "engine/plan/verify/err_plan.h"

#include <stdlib.h>
#include <string.h>

/* --- spans ---*/

void range_set_done(struct range_set *s) {
    free(s->at);
    *s = (struct range_set){ 0 };
}

/* The number of the first span that ends behind `at`. */
static int range_after(const struct range_set *s, int64_t at) {
    int low = 0, high = s->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->at[middle][1] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool range_set_contains(const struct range_set *s, int64_t begin, int64_t end) {
    if (begin >= end)
        return true;
    int i = range_after(s, begin);
    return i < s->n && s->at[i][0] <= begin && s->at[i][1] >= end;
}

bool range_set_overlaps(const struct range_set *s, int64_t begin, int64_t end) {
    int i = range_after(s, begin);
    return begin < end && i < s->n && s->at[i][0] < end;
}

status_t range_set_add(struct range_set *s, int64_t begin, int64_t end, struct err *e) {
    if (begin >= end || range_set_overlaps(s, begin, end))
        return ST_OK;
    int i = range_after(s, begin);
    bool left = i > 0 && s->at[i - 1][1] == begin, right = i < s->n && s->at[i][0] == end;
    if (left && right) {
        s->at[i - 1][1] = s->at[i][1];
        memmove(&s->at[i], &s->at[i + 1], (size_t)(s->n - i - 1) * sizeof *s->at);
        s->n--;
    } else if (left) {
        s->at[i - 1][1] = end;
    } else if (right) {
        s->at[i][0] = begin;
    } else {
        TRY(array_grow(&s->at, s->n, e));
        memmove(&s->at[i + 1], &s->at[i], (size_t)(s->n - i) * sizeof *s->at);
        s->at[i][0] = begin;
        s->at[i][1] = end;
        s->n++;
    }
    return ST_OK;
}

/* --- state of parameters ---*/

static const char *name_of(const struct plan *p, int parameter) { return p->graph->parameters[parameter].name; }

static int64_t elements_of(const struct plan *p, int parameter) {
    return shape_elements(&p->graph->parameters[parameter].shape);
}

status_t parameter_state_init(struct parameter_state *b, const struct plan *p, struct live_set *communication,
                              struct err *e) {
    const struct graph *g = p->graph;
    *b = (struct parameter_state){ .plan = p, .communication = communication };
    TRY(array_new(&b->updated, g->n_parameters, e));
    TRY(array_new(&b->transfers, g->n_parameters, e));
    TRY(array_new(&b->gathered, p->n_buckets, e));
    TRY(array_new(&b->gathering, p->n_buckets, e));
    TRY(array_new(&b->bucket_of, g->n_parameters, e));
    TRY(array_new(&b->read, g->n_parameters, e));
    for (int i = 0; i < g->n_parameters; i++) {
        int64_t at = p->use_begin[g->parameters[i].first_use];
        b->bucket_of[i] = at >= 0 && at < p->gradient_elements ? plan_bucket_at(p, at) : -1;
    }
    for (int o = 0; o < g->n_ops; o++)
        for (int k = 0; k < OP_PARAMETERS; k++)
            if (p->block_virtual_stage[g->ops[o].block] >= 0 && g->ops[o].use[k] >= 0)
                b->read[g->uses[g->ops[o].use[k]].parameter] = true;
    return ST_OK;
}

void parameter_state_done(struct parameter_state *b) {
    for (int i = 0; b->updated && i < b->plan->graph->n_parameters; i++)
        range_set_done(&b->updated[i]);
    free(b->updated);
    free(b->transfers);
    free(b->gathered);
    free(b->gathering);
    free(b->bucket_of);
    free(b->read);
}

/* Without ZeRO 3 a parameter may span several buckets, because it lies whole in parameter space. */
status_t parameter_state_read(const struct parameter_state *b, const struct op *op, struct err *e) {
    const struct plan *p = b->plan;
    for (int k = 0; k < OP_PARAMETERS; k++) {
        if (op->use[k] < 0)
            continue;
        int parameter = p->graph->uses[op->use[k]].parameter;
        if (b->updated[parameter].n)
            return err_plan(e, "%s is read after it was stepped", name_of(p, parameter));
        if (b->transfers[parameter])
            return err_plan(e, "%s is read during a transfer", name_of(p, parameter));
        if (p->layout.zero < 3) {
            if (plan_parameter_place(p, parameter).offset == SIZE_MAX)
                return err_plan(e, "%s is read but has no place", name_of(p, parameter));
            continue;
        }
        int bucket = b->bucket_of[parameter];
        if (bucket < 0 || b->gathered[bucket] != GATHER_DONE)
            return err_plan(e, "%s is read while it is not gathered", name_of(p, parameter));
    }
    return ST_OK;
}

/* gradient_state_step checks that each shard is stepped once. */
status_t parameter_state_step(struct parameter_state *b, int shard, struct err *e) {
    const struct plan *p = b->plan;
    const struct plan_shard *q = &p->shards[shard];
    int bucket = plan_bucket_at(p, q->begin);
    if (b->transfers[q->parameter] || b->gathering[bucket] || b->gathered[bucket] != GATHER_NONE)
        return err_plan(e, "%s is stepped while a copy of it is in use", name_of(p, q->parameter));
    return range_set_add(&b->updated[q->parameter], q->first, q->first + q->count, e);
}

status_t parameter_state_switch(struct parameter_state *b, int shard, struct err *e) {
    const struct plan_shard *q = &b->plan->shards[shard];
    if (range_set_overlaps(&b->updated[q->parameter], q->first, q->first + q->count))
        return err_plan(e, "%s and its average change places twice", name_of(b->plan, q->parameter));
    return parameter_state_step(b, shard, e);
}

static status_t gather_weights(struct parameter_state *b, int bucket, struct err *e) {
    const struct plan *p = b->plan;
    struct plan_place to, own;
    plan_gather_places(p, bucket, &to, &own);
    if (b->gathered[bucket] != GATHER_NONE)
        return err_plan(e, "bucket %d is gathered again before it was dropped", bucket);
    size_t n = (size_t)(p->buckets[bucket].end - p->buckets[bucket].begin) * dtype_bytes(p->graph->element);
    if (to.offset == SIZE_MAX || to.family != FAMILY_COMMUNICATION ||
        to.offset + n > p->family_bytes[FAMILY_COMMUNICATION])
        return err_plan(e, "bucket %d has no place", bucket);
    if (live_set_find(b->communication, to.offset, to.offset + n))
        return err_plan(e, "bucket %d is gathered to bytes that are still in use", bucket);
    TRY(live_set_insert(b->communication, to.offset, to.offset + n, bucket, e));
    b->gathered[bucket] = GATHER_POSTED;
    return ST_OK;
}

/* Elements [*from, *to) of its parameter: data rank d's part of what a bucket holds of a use. Empty where the use
 * is not this bucket's. */
static void part_of(const struct plan *p, int bucket, int use, int d, int64_t *from, int64_t *to) {
    int64_t n = elements_of(p, p->graph->uses[use].parameter), begin, end;
    plan_own_range(p, bucket, d, &begin, &end);
    begin = begin > p->use_begin[use] ? begin : p->use_begin[use];
    end = end < p->use_end[use] ? end : p->use_end[use];
    *from = begin - p->use_begin[use];
    *to = end - p->use_begin[use] < n ? end - p->use_begin[use] : n;
}

/* The uses of a bucket whose parameter it gathers, one after the other: a parameter has one such use a stage. */
static int next_gathered(const struct plan *p, int bucket, int k) {
    const struct plan_bucket *at = &p->buckets[bucket];
    for (; k < p->n_own_uses && at->parameter >= 0; k++) {
        int s = p->use_order[k];
        if (p->use_begin[s] < at->end && p->use_end[s] > at->begin)
            return k;
    }
    return -1;
}

/* Under ZeRO 1-2 what every data rank stepped of a bucket (or received, of a parameter that another stage steps) is
 * spread; a rank's own part must be new by then. */
status_t parameter_state_gather(struct parameter_state *b, int bucket, struct err *e) {
    const struct plan *p = b->plan;
    if (bucket < 0 || bucket >= p->n_buckets)
        return err_plan(e, "bucket %d does not exist", bucket);
    if (p->layout.zero == 0)
        return err_plan(e, "nothing is gathered without ZeRO");
    if (p->layout.zero == 3)
        return gather_weights(b, bucket, e);
    for (int k = next_gathered(p, bucket, 0); k >= 0; k = next_gathered(p, bucket, k + 1)) {
        int s = p->use_order[k], parameter = p->graph->uses[s].parameter;
        int64_t from, to;
        part_of(p, bucket, s, plan_data_rank(&p->layout), &from, &to);
        if (b->transfers[parameter] || !range_set_contains(&b->updated[parameter], from, to))
            return err_plan(e, "bucket %d is gathered before this rank's part of %s is new", bucket,
                            name_of(p, parameter));
    }
    if (b->gathering[bucket])
        return err_plan(e, "bucket %d is gathered twice", bucket);
    b->gathering[bucket] = true;
    return ST_OK;
}

/* What the others stepped is new here now. */
static status_t add_updated(struct parameter_state *b, int bucket, struct err *e) {
    const struct plan *p = b->plan;
    for (int k = next_gathered(p, bucket, 0); k >= 0; k = next_gathered(p, bucket, k + 1))
        for (int d = 0; d < p->layout.data; d++) {
            int s = p->use_order[k];
            int64_t from, to;
            part_of(p, bucket, s, d, &from, &to);
            if (d != plan_data_rank(&p->layout)) /* this rank's part is updated already */
                TRY(range_set_add(&b->updated[p->graph->uses[s].parameter], from, to, e));
        }
    return ST_OK;
}

status_t parameter_state_gathered(struct parameter_state *b, int bucket, struct err *e) {
    if (b->plan->layout.zero == 3) {
        b->gathered[bucket] = GATHER_DONE;
        return ST_OK;
    }
    b->gathering[bucket] = false;
    return add_updated(b, bucket, e);
}

status_t parameter_state_drop(struct parameter_state *b, int bucket, struct err *e) {
    if (bucket < 0 || bucket >= b->plan->n_buckets || b->plan->layout.zero != 3 || b->gathered[bucket] != GATHER_DONE)
        return err_plan(e, "bucket %d is dropped but was not gathered", bucket);
    struct plan_place to, own;
    plan_gather_places(b->plan, bucket, &to, &own);
    live_set_remove(b->communication, to.offset, to.offset + 1);
    b->gathered[bucket] = GATHER_NONE;
    return ST_OK;
}

status_t parameter_state_post(struct parameter_state *b, const struct instruction *i, struct err *e) {
    const struct plan *p = b->plan;
    if (i->begin >= i->end)
        return ST_OK;
    if (i->op < 0 || i->op >= p->graph->n_parameters || i->end > elements_of(p, i->op) || i->begin < 0)
        return err_plan(e, "no parameter has these elements");
    bool own = p->parameter_stage[i->op] == plan_stage(&p->layout);
    if (i->kind == INSTRUCTION_SEND && !range_set_contains(&b->updated[i->op], i->begin, i->end))
        return err_plan(e, "%s is sent before all of that is stepped", name_of(p, i->op));
    if (i->kind == INSTRUCTION_RECV && (own || plan_parameter_place(p, i->op).offset == SIZE_MAX))
        return err_plan(e, "%s is received by a rank that %s", name_of(p, i->op),
                        own ? "steps it" : "has no place for it");
    b->transfers[i->op]++;
    return ST_OK;
}

status_t parameter_state_transferred(struct parameter_state *b, const struct instruction *i, struct err *e) {
    if (i->begin >= i->end)
        return ST_OK;
    b->transfers[i->op]--;
    return i->kind == INSTRUCTION_RECV ? range_set_add(&b->updated[i->op], i->begin, i->end, e) : ST_OK;
}

status_t parameter_state_end(const struct parameter_state *b, struct err *e) {
    const struct plan *p = b->plan;
    for (int i = 0; i < p->n_buckets; i++)
        if (b->gathered[i] != GATHER_NONE)
            return err_plan(e, "bucket %d is never dropped", i);
    for (int i = 0; i < p->n_shards && p->layout.kind == PLAN_AVERAGE; i++)
        if (!range_set_contains(&b->updated[p->shards[i].parameter], p->shards[i].first,
                                p->shards[i].first + p->shards[i].count))
            return err_plan(e, "a shard of %s and its average do not change places",
                            name_of(p, p->shards[i].parameter));
    if ((p->layout.kind != PLAN_TRAIN && p->layout.kind != PLAN_AVERAGE) || !p->layout.optimizer)
        return ST_OK;
    for (int i = 0; i < p->graph->n_parameters; i++)
        if (p->layout.zero < 3 && b->read[i] && !range_set_contains(&b->updated[i], 0, elements_of(p, i)))
            return err_plan(e, "the updated %s does not reach the rank that reads it", name_of(p, i));
    return ST_OK;
}
