/* Each copy of a tensor has the serial number of the live range that its last write created. A read looks for a live
 * range with exactly these bytes, this serial number and this micro-batch: a later write over the bytes has ended that
 * range. The reads of an instruction are checked before its writes. A write may take the bytes of a read only if the
 * graph gives both the same storage. A posted transfer marks its ranges, and nothing may write over them until the
 * wait. */
#include "engine/plan/verify/tensor_state.h"

#include "base/array.h"
#include "engine/plan/verify/err_plan.h"

#include <stdlib.h>

/* What a read or write means in bytes. */
struct touched {
    int tensor;
    size_t begin, end;
    struct live_set *set;
    struct tensor_value *value;
};

static const char *name_of(const struct plan *p, int t) {
    const struct graph *g = p->graph;
    if (t < g->n_tensors)
        return g->tensors[t].name;
    return g->tensors[g->reverse[p->gradient_copy_of[t - g->n_tensors]].d_out[0]].name;
}

status_t tensor_state_init(struct tensor_state *b, const struct plan *p, struct err *e) {
    *b = (struct tensor_state){ .plan = p };
    int n = 0;
    for (int l = 0; l < LIFETIMES; l++) {
        TRY(array_new(&b->first[l], p->n_tensors, e));
        for (int t = 0; t < p->n_tensors; t++) {
            const struct tensor_place *place = &p->tensors[l][t];
            if (l == LIFETIME_BACKWARD && place->offset == p->tensors[LIFETIME_FORWARD][t].offset) {
                b->first[l][t] = b->first[LIFETIME_FORWARD][t];
                continue;
            }
            b->first[l][t] = n;
            n += place->offset == SIZE_MAX ? 0 : place->copies;
        }
    }
    return array_new(&b->values, n, e);
}

void tensor_state_done(struct tensor_state *b) {
    live_set_done(&b->activations);
    live_set_done(&b->batch);
    free(b->values);
    for (int l = 0; l < LIFETIMES; l++)
        free(b->first[l]);
}

static status_t locate(struct tensor_state *b, const struct instruction *i, enum plan_lifetime lifetime, int t,
                       struct touched *ret, struct err *e) {
    const struct plan *p = b->plan;
    struct plan_place place = plan_tensor_place(p, t, i->in_flight, lifetime);
    if (place.offset == SIZE_MAX || i->in_flight < 0)
        return err_plan(e, "tensor %s is used but has no place", name_of(p, t));
    const struct tensor_place *all = &p->tensors[lifetime][t];
    *ret = (struct touched){ .tensor = t,
                             .begin = place.offset,
                             .end = place.offset + plan_tensor_bytes(p, t),
                             .set = place.family == FAMILY_BATCH ? &b->batch : &b->activations,
                             .value = &b->values[b->first[lifetime][t] + i->in_flight % all->copies] };
    return ST_OK;
}

static struct live_range *find_live(const struct touched *x, int micro_batch) {
    struct live_range *r = live_set_around(x->set, x->begin, x->end);
    return r && r->serial == x->value->serial && x->value->micro_batch == micro_batch ? r : NULL;
}

static status_t check_read(const struct tensor_state *b, const struct touched *x, int micro_batch, struct err *e) {
    if (find_live(x, micro_batch))
        return ST_OK;
    return err_plan(e, "tensor %s of micro-batch %d is not live when it is read", name_of(b->plan, x->tensor),
                    micro_batch);
}

static bool share_bytes(const struct touched *a, const struct touched *b) {
    return a->set == b->set && a->begin < b->end && b->begin < a->end;
}

/* An op may write over what it reads only where the graph says so. */
static status_t check_overlaps(const struct tensor_state *b, const struct touched *reads, int n_reads,
                               const struct touched *writes, int n_writes, struct err *e) {
    const struct plan *p = b->plan;
    for (int w = 0; w < n_writes; w++) {
        for (int r = 0; r < n_reads; r++)
            if (share_bytes(&writes[w], &reads[r]) && p->storage[writes[w].tensor] != p->storage[reads[r].tensor])
                return err_plan(e, "tensor %s is written over %s, which it is made from", name_of(p, writes[w].tensor),
                                name_of(p, reads[r].tensor));
        for (int o = 0; o < w; o++)
            if (share_bytes(&writes[w], &writes[o]) && p->storage[writes[w].tensor] != p->storage[writes[o].tensor])
                return err_plan(e, "tensors %s and %s are written to the same bytes", name_of(p, writes[w].tensor),
                                name_of(p, writes[o].tensor));
    }
    return ST_OK;
}

/* Ends what lives in a write's bytes. */
static status_t clear(const struct tensor_state *b, const struct touched *x, struct err *e) {
    for (struct live_range *r = live_set_find(x->set, x->begin, x->end); r && r->begin < x->end; r++) {
        if (r->transfers)
            return err_plan(e, "tensor %s is written over %s, which a transfer still holds",
                            name_of(b->plan, x->tensor), name_of(b->plan, r->owner));
        if (r == &x->set->at[x->set->n - 1])
            break;
    }
    live_set_remove(x->set, x->begin, x->end);
    return ST_OK;
}

static status_t write_all(struct tensor_state *b, const struct touched *writes, int n, int micro_batch, struct err *e) {
    for (int w = 0; w < n; w++)
        TRY(clear(b, &writes[w], e));
    for (int w = 0; w < n; w++) {
        const struct touched *x = &writes[w];
        if (!live_set_around(x->set, x->begin, x->end)) { /* not the second tensor of this instruction in one storage */
            live_set_remove(x->set, x->begin, x->end);
            TRY(live_set_insert(x->set, x->begin, x->end, x->tensor, e));
        }
        *x->value = (struct tensor_value){ .micro_batch = micro_batch,
                                           .serial = live_set_around(x->set, x->begin, x->end)->serial };
    }
    return ST_OK;
}

status_t tensor_state_touch(struct tensor_state *b, const struct instruction *i, struct err *e) {
    struct tensor_access a;
    struct touched reads[sizeof a.reads / sizeof *a.reads], writes[sizeof a.writes / sizeof *a.writes];
    enum plan_lifetime lifetime = instruction_lifetime(b->plan, i);
    plan_access(b->plan, i, &a);
    for (int k = 0; k < a.n_reads; k++) {
        TRY(locate(b, i, lifetime, a.reads[k], &reads[k], e));
        TRY(check_read(b, &reads[k], i->micro_batch, e));
    }
    for (int k = 0; k < a.n_writes; k++)
        TRY(locate(b, i, lifetime, a.writes[k], &writes[k], e));
    TRY(check_overlaps(b, reads, a.n_reads, writes, a.n_writes, e));
    TRY(write_all(b, writes, a.n_writes, i->micro_batch, e));
    for (int k = 0; k < a.n_views; k++) {
        struct touched view;
        TRY(locate(b, i, lifetime, a.views[k], &view, e));
        struct live_range *r = live_set_around(view.set, view.begin, view.end);
        if (!r)
            return err_plan(e, "tensor %s is a view of bytes that hold nothing", name_of(b->plan, view.tensor));
        *view.value = (struct tensor_value){ .micro_batch = i->micro_batch, .serial = r->serial };
    }
    return ST_OK;
}

static struct touched of_transfer(struct tensor_state *b, const struct instruction *i, status_t *st, struct err *e) {
    struct touched x = { 0 };
    *st = locate(b, i, instruction_lifetime(b->plan, i), i->op, &x, e);
    return x;
}

status_t tensor_state_post(struct tensor_state *b, const struct instruction *i, struct err *e) {
    status_t st;
    struct touched x = of_transfer(b, i, &st, e);
    TRY(st);
    if (i->kind == INSTRUCTION_SEND) {
        TRY(check_read(b, &x, i->micro_batch, e));
    } else {
        TRY(clear(b, &x, e));
        TRY(live_set_insert(x.set, x.begin, x.end, i->op, e));
        x.value->serial = 0; /* not yet there */
    }
    live_set_around(x.set, x.begin, x.end)->transfers++;
    return ST_OK;
}

void tensor_state_transferred(struct tensor_state *b, const struct instruction *i) {
    struct err ignored;
    status_t st;
    struct touched x = of_transfer(b, i, &st, &ignored); /* posting it succeeded */
    struct live_range *r = live_set_around(x.set, x.begin, x.end);
    r->transfers--;
    if (i->kind == INSTRUCTION_RECV)
        *x.value = (struct tensor_value){ .micro_batch = i->micro_batch, .serial = r->serial };
}
