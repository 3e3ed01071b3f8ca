/* Between two ranks, in one direction, on one queue, the n-th SEND matches the n-th RECV. */
#include "engine/plan/transfer_match.h"

#include "base/array.h"

#include <stdlib.h>

status_t transfer_match_init(struct transfer_match *m, const struct plan *p, int columns, int number, struct err *e) {
    *m = (struct transfer_match){
        .plan = p, .rank = p->layout.rank, .stage = number / columns, .column = number % columns
    };
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q < QUEUES; q++) {
        TRY(array_new(&m->peer[q], p->queue[q].n, e));
        for (int i = 0; i < p->queue[q].n; i++)
            m->peer[q][i].plan = -1;
    }
    return ST_OK;
}

void transfer_match_done(struct transfer_match *m) {
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q < QUEUES; q++)
        free(m->peer[q]);
}

/* Ranks are numbered stage by stage. */
void transfer_match_group(const struct transfer_match *m, int n, enum plan_group group, int *first, int *step,
                          int *count) {
    int columns = n / m->plan->layout.stages;
    *step = group == GROUP_STAGES ? columns : 1;
    *count = group == GROUP_WORLD ? n : group == GROUP_DATA ? columns : n / columns;
    *first = group == GROUP_WORLD ? 0 : group == GROUP_DATA ? m->stage * columns : m->column;
}

static struct transfer_match *match_of(struct transfer_match *all, int n, int rank) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (all[middle].rank >= rank)
            high = middle;
        else
            low = middle + 1;
    }
    return low < n && all[low].rank == rank ? &all[low] : NULL;
}

static bool same_cargo(const struct instruction *a, const struct instruction *b) {
    return a->payload == b->payload && a->op == b->op && a->micro_batch == b->micro_batch && a->begin == b->begin &&
           a->end == b->end;
}

static const char *name_of(const struct graph *g, const struct instruction *i) {
    switch (i->payload) {
    case PAYLOAD_TENSOR: return i->op >= 0 && i->op < g->n_tensors ? g->tensors[i->op].name : "?";
    case PAYLOAD_GRADIENT: return i->op >= 0 && i->op < g->n_uses ? g->parameters[g->uses[i->op].parameter].name : "?";
    default: return i->op >= 0 && i->op < g->n_parameters ? g->parameters[i->op].name : "?";
    }
}

static status_t check_entry(const struct transfer_match *m, enum plan_queue queue, int entry, struct err *e) {
    const struct instruction_list *list = &m->plan->queue[queue];
    const struct instruction *i = &list->items[entry];
    if (i->kind != INSTRUCTION_SEND && i->kind != INSTRUCTION_RECV)
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d, entry %d of %s: %s is not allowed in that queue",
                       m->rank, entry, plan_queue_name(queue), instruction_name(i->kind));
    bool exists = i->op >= 0 && (i->payload == PAYLOAD_TENSOR     ? i->op < m->plan->graph->n_tensors
                                 : i->payload == PAYLOAD_GRADIENT ? i->op < m->plan->graph->n_uses
                                                                  : i->op < m->plan->graph->n_parameters);
    if (!exists)
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d, entry %d of %s: its payload does not exist",
                       m->rank, entry, plan_queue_name(queue));
    return ST_OK;
}

/* The SENDs of `a` to `b` with the RECVs of `b` from `a`. */
static status_t pair(struct transfer_match *a, int a_number, struct transfer_match *b, int b_number,
                     enum plan_queue queue, struct err *e) {
    const struct instruction_list *sends = &a->plan->queue[queue], *recvs = &b->plan->queue[queue];
    int r = 0;
    for (int s = 0; s < sends->n; s++) {
        const struct instruction *out = &sends->items[s];
        if (out->kind != INSTRUCTION_SEND || out->peer != b->rank)
            continue;
        while (r < recvs->n && (recvs->items[r].kind != INSTRUCTION_RECV || recvs->items[r].peer != a->rank))
            r++;
        if (r == recvs->n)
            return ST_OK; /* it has no other half: unmatched() reports it */
        const struct instruction *in = &recvs->items[r];
        if (!same_cargo(out, in))
            return err_set(e, ST_FAILED_PRECONDITION,
                           "plan of rank %d, entry %d of %s: SEND of %s, micro-batch %d, matches entry %d of rank %d: "
                           "RECV of %s, micro-batch %d",
                           a->rank, s, plan_queue_name(queue), name_of(a->plan->graph, out), out->micro_batch, r,
                           b->rank, name_of(b->plan->graph, in), in->micro_batch);
        a->peer[queue][s] = (struct transfer_peer){ .plan = b_number, .entry = r };
        b->peer[queue][r] = (struct transfer_peer){ .plan = a_number, .entry = s };
        r++;
    }
    return ST_OK;
}

static status_t unmatched(const struct transfer_match *m, enum plan_queue queue, struct err *e) {
    for (int i = 0; i < m->plan->queue[queue].n; i++)
        if (m->peer[queue][i].plan < 0) {
            const struct instruction *x = &m->plan->queue[queue].items[i];
            return err_set(e, ST_FAILED_PRECONDITION,
                           "plan of rank %d, entry %d of %s: %s of %s has no other half on rank %d", m->rank, i,
                           plan_queue_name(queue), instruction_name(x->kind), name_of(m->plan->graph, x), x->peer);
        }
    return ST_OK;
}

static status_t pair_plan(struct transfer_match *all, int n, struct transfer_match *m, enum plan_queue queue,
                          struct err *e) {
    const struct instruction_list *list = &m->plan->queue[queue];
    CLEANUP(freep) bool *done = NULL; /* peers that were paired */
    TRY(array_new(&done, n, e));
    for (int i = 0; i < list->n; i++) {
        TRY(check_entry(m, queue, i, e));
        struct transfer_match *peer = match_of(all, n, list->items[i].peer);
        if (!peer || peer == m)
            return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d, entry %d of %s: there is no peer %d", m->rank,
                           i, plan_queue_name(queue), list->items[i].peer);
        if (list->items[i].kind != INSTRUCTION_SEND || done[peer - all])
            continue;
        done[peer - all] = true;
        TRY(pair(m, (int)(m - all), peer, (int)(peer - all), queue, e));
    }
    return ST_OK;
}

status_t transfer_match_all(struct transfer_match *all, int n, struct err *e) {
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q <= QUEUE_GRADIENTS; q++) {
        for (int m = 0; m < n; m++)
            TRY(pair_plan(all, n, &all[m], q, e));
        for (int m = 0; m < n; m++)
            TRY(unmatched(&all[m], q, e));
    }
    return ST_OK;
}
