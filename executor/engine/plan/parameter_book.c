#include "executor/engine/plan/parameter_book.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

/* --- spans ---*/

void spans_done(struct spans *s) {
    free(s->at);
    *s = (struct spans){ 0 };
}

/* The number of the first span that ends behind `at`. */
static int span_behind(const struct spans *s, int64_t at) {
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

bool spans_hold(const struct spans *s, int64_t begin, int64_t end) {
    if (begin >= end)
        return true;
    int i = span_behind(s, begin);
    return i < s->n && s->at[i][0] <= begin && s->at[i][1] >= end;
}

bool spans_meet(const struct spans *s, int64_t begin, int64_t end) {
    int i = span_behind(s, begin);
    return begin < end && i < s->n && s->at[i][0] < end;
}

status_t spans_add(struct spans *s, int64_t begin, int64_t end, struct err *e) {
    if (begin >= end || spans_meet(s, begin, end))
        return ST_OK;
    int i = span_behind(s, begin);
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

/* --- the book ---*/

static const char *name_of(const struct plan *p, int parameter) { return p->graph->parameters[parameter].name; }

static int64_t elements_of(const struct plan *p, int parameter) {
    return shape_elements(&p->graph->parameters[parameter].shape);
}

status_t parameter_book_init(struct parameter_book *b, const struct plan *p, struct live_set *communication,
                             struct err *e) {
    const struct graph *g = p->graph;
    *b = (struct parameter_book){ .plan = p, .communication = communication };
    TRY(array_new(&b->fresh, g->n_parameters, e));
    TRY(array_new(&b->held, g->n_parameters, e));
    TRY(array_new(&b->unit, p->n_buckets, e));
    TRY(array_new(&b->gathering, p->n_buckets, e));
    TRY(array_new(&b->bucket_of, g->n_parameters, e));
    TRY(array_new(&b->read, g->n_parameters, e));
    for (int i = 0; i < g->n_parameters; i++) {
        int64_t at = p->slot_begin[g->parameters[i].first_slot];
        b->bucket_of[i] = at >= 0 && at < p->gradient_elements ? plan_bucket_at(p, at) : -1;
    }
    for (int o = 0; o < g->n_ops; o++)
        for (int k = 0; k < OP_PARAMETERS; k++)
            if (p->block_chunk[g->ops[o].block] >= 0 && g->ops[o].slot[k] >= 0)
                b->read[g->slots[g->ops[o].slot[k]].parameter] = true;
    return ST_OK;
}

void parameter_book_done(struct parameter_book *b) {
    for (int i = 0; b->fresh && i < b->plan->graph->n_parameters; i++)
        spans_done(&b->fresh[i]);
    free(b->fresh);
    free(b->held);
    free(b->unit);
    free(b->gathering);
    free(b->bucket_of);
    free(b->read);
}

/* A parameter may span several buckets only where it lies whole in parameter space. */
status_t parameter_book_read(const struct parameter_book *b, const struct op *op, struct err *e) {
    const struct plan *p = b->plan;
    for (int k = 0; k < OP_PARAMETERS; k++) {
        if (op->slot[k] < 0)
            continue;
        int parameter = p->graph->slots[op->slot[k]].parameter;
        if (b->fresh[parameter].n)
            return err_set(e, ST_FAILED_PRECONDITION, "%s is read after it was stepped", name_of(p, parameter));
        if (b->held[parameter])
            return err_set(e, ST_FAILED_PRECONDITION, "%s is read while it is on its way", name_of(p, parameter));
        if (p->layout.zero < 3) {
            if (plan_parameter_place(p, parameter).offset == SIZE_MAX)
                return err_set(e, ST_FAILED_PRECONDITION, "%s is read but has no place", name_of(p, parameter));
            continue;
        }
        int bucket = b->bucket_of[parameter];
        if (bucket < 0 || b->unit[bucket] != UNIT_THERE)
            return err_set(e, ST_FAILED_PRECONDITION, "%s is read while its unit is not gathered",
                           name_of(p, parameter));
    }
    return ST_OK;
}

/* That each piece is stepped once is gradient_ledger_step's to see. */
status_t parameter_book_step(struct parameter_book *b, int piece, struct err *e) {
    const struct plan *p = b->plan;
    const struct plan_piece *q = &p->pieces[piece];
    int bucket = plan_bucket_at(p, q->begin);
    if (b->held[q->parameter] || b->gathering[bucket] || b->unit[bucket] != UNIT_DROPPED)
        return err_set(e, ST_FAILED_PRECONDITION, "%s is stepped while a copy of it is in use",
                       name_of(p, q->parameter));
    return spans_add(&b->fresh[q->parameter], q->first, q->first + q->count, e);
}

static status_t gather_unit(struct parameter_book *b, int bucket, struct err *e) {
    const struct plan *p = b->plan;
    struct plan_place to, own;
    plan_gather_places(p, bucket, &to, &own);
    if (b->unit[bucket] != UNIT_DROPPED)
        return err_set(e, ST_FAILED_PRECONDITION, "unit %d is gathered again before it was dropped", bucket);
    size_t n = (size_t)(p->buckets[bucket].end - p->buckets[bucket].begin) * dtype_bytes(p->graph->element);
    if (to.offset == SIZE_MAX || to.family != FAMILY_COMMUNICATION ||
        to.offset + n > p->family_bytes[FAMILY_COMMUNICATION])
        return err_set(e, ST_FAILED_PRECONDITION, "unit %d has no place", bucket);
    if (live_set_find(b->communication, to.offset, to.offset + n))
        return err_set(e, ST_FAILED_PRECONDITION, "unit %d is gathered to bytes that are still in use", bucket);
    TRY(live_set_insert(b->communication, to.offset, to.offset + n, bucket, e));
    b->unit[bucket] = UNIT_COMING;
    return ST_OK;
}

/* Elements [*from, *to) of its parameter: data rank d's part of what a bucket holds of a slot. Empty where the slot
 * is not this bucket's. */
static void part_of(const struct plan *p, int bucket, int slot, int d, int64_t *from, int64_t *to) {
    int64_t n = elements_of(p, p->graph->slots[slot].parameter), begin, end;
    plan_own_range(p, bucket, d, &begin, &end);
    begin = begin > p->slot_begin[slot] ? begin : p->slot_begin[slot];
    end = end < p->slot_end[slot] ? end : p->slot_end[slot];
    *from = begin - p->slot_begin[slot];
    *to = end - p->slot_begin[slot] < n ? end - p->slot_begin[slot] : n;
}

/* The slots of a bucket whose parameter it gathers, one after the other: a parameter has one such slot a stage. */
static int next_gathered(const struct plan *p, int bucket, int k) {
    const struct plan_bucket *at = &p->buckets[bucket];
    for (; k < p->n_own_slots && at->parameter >= 0; k++) {
        int s = p->slot_order[k];
        if (p->slot_begin[s] < at->end && p->slot_end[s] > at->begin)
            return k;
    }
    return -1;
}

/* Under ZeRO 1-2 what every data rank stepped of a bucket (or received, of a parameter that another stage steps) is
 * spread; a rank's own part must be new by then. */
status_t parameter_book_gather(struct parameter_book *b, int bucket, struct err *e) {
    const struct plan *p = b->plan;
    if (bucket < 0 || bucket >= p->n_buckets)
        return err_set(e, ST_FAILED_PRECONDITION, "bucket %d does not exist", bucket);
    if (p->layout.zero == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "nothing is gathered without ZeRO");
    if (p->layout.zero == 3)
        return gather_unit(b, bucket, e);
    for (int k = next_gathered(p, bucket, 0); k >= 0; k = next_gathered(p, bucket, k + 1)) {
        int s = p->slot_order[k], parameter = p->graph->slots[s].parameter;
        int64_t from, to;
        part_of(p, bucket, s, plan_data_rank(&p->layout), &from, &to);
        if (b->held[parameter] || !spans_hold(&b->fresh[parameter], from, to))
            return err_set(e, ST_FAILED_PRECONDITION, "bucket %d is gathered before this rank's part of %s is new",
                           bucket, name_of(p, parameter));
    }
    if (b->gathering[bucket])
        return err_set(e, ST_FAILED_PRECONDITION, "bucket %d is gathered twice", bucket);
    b->gathering[bucket] = true;
    return ST_OK;
}

/* What the others stepped is new here now. */
static status_t note_fresh(struct parameter_book *b, int bucket, struct err *e) {
    const struct plan *p = b->plan;
    for (int k = next_gathered(p, bucket, 0); k >= 0; k = next_gathered(p, bucket, k + 1))
        for (int d = 0; d < p->layout.data; d++) {
            int s = p->slot_order[k];
            int64_t from, to;
            part_of(p, bucket, s, d, &from, &to);
            if (d != plan_data_rank(&p->layout)) /* this rank's part is new already */
                TRY(spans_add(&b->fresh[p->graph->slots[s].parameter], from, to, e));
        }
    return ST_OK;
}

status_t parameter_book_gathered(struct parameter_book *b, int bucket, struct err *e) {
    if (b->plan->layout.zero == 3) {
        b->unit[bucket] = UNIT_THERE;
        return ST_OK;
    }
    b->gathering[bucket] = false;
    return note_fresh(b, bucket, e);
}

status_t parameter_book_drop(struct parameter_book *b, int bucket, struct err *e) {
    if (bucket < 0 || bucket >= b->plan->n_buckets || b->plan->layout.zero != 3 || b->unit[bucket] != UNIT_THERE)
        return err_set(e, ST_FAILED_PRECONDITION, "unit %d is dropped but was not gathered", bucket);
    struct plan_place to, own;
    plan_gather_places(b->plan, bucket, &to, &own);
    live_set_remove(b->communication, to.offset, to.offset + 1);
    b->unit[bucket] = UNIT_DROPPED;
    return ST_OK;
}

status_t parameter_book_post(struct parameter_book *b, const struct instruction *i, struct err *e) {
    const struct plan *p = b->plan;
    if (i->begin >= i->end)
        return ST_OK;
    if (i->op < 0 || i->op >= p->graph->n_parameters || i->end > elements_of(p, i->op) || i->begin < 0)
        return err_set(e, ST_FAILED_PRECONDITION, "no parameter has these elements");
    bool own = p->parameter_stage[i->op] == plan_stage(&p->layout);
    if (i->kind == INSTRUCTION_SEND && !spans_hold(&b->fresh[i->op], i->begin, i->end))
        return err_set(e, ST_FAILED_PRECONDITION, "%s is sent before all of that is stepped", name_of(p, i->op));
    if (i->kind == INSTRUCTION_RECV && (own || plan_parameter_place(p, i->op).offset == SIZE_MAX))
        return err_set(e, ST_FAILED_PRECONDITION, "%s is received by a rank that %s", name_of(p, i->op),
                       own ? "steps it" : "has no place for it");
    b->held[i->op]++;
    return ST_OK;
}

status_t parameter_book_arrived(struct parameter_book *b, const struct instruction *i, struct err *e) {
    if (i->begin >= i->end)
        return ST_OK;
    b->held[i->op]--;
    return i->kind == INSTRUCTION_RECV ? spans_add(&b->fresh[i->op], i->begin, i->end, e) : ST_OK;
}

status_t parameter_book_end(const struct parameter_book *b, struct err *e) {
    const struct plan *p = b->plan;
    for (int i = 0; i < p->n_buckets; i++)
        if (b->unit[i] != UNIT_DROPPED)
            return err_set(e, ST_FAILED_PRECONDITION, "unit %d is never dropped", i);
    if (p->layout.kind != PLAN_TRAIN || !p->layout.optimizer)
        return ST_OK;
    for (int i = 0; i < p->graph->n_parameters; i++)
        if (p->layout.zero < 3 && b->read[i] && !spans_hold(&b->fresh[i], 0, elements_of(p, i)))
            return err_set(e, ST_FAILED_PRECONDITION, "the new %s does not come back to where it is read",
                           name_of(p, i));
    return ST_OK;
}
