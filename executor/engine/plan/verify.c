#include "executor/engine/plan/verify.h"

#include "executor/engine/graph/op.h"
#include "executor/engine/plan/gradient_ledger.h"

#include <stdlib.h>
#include <string.h>

/* One rank in the simulation. */
struct machine {
    const struct plan *plan;
    int rank;
    int at;             /* next instruction of the compute queue */
    int posted, passed; /* channel: entries started, and done by all ranks */
    int waited;         /* channel: entries waited for */
    int losses;         /* micro-batches whose loss is known */
    int *holds;         /* [n_tensors] the micro-batch whose value is live; -1 = none */
    struct gradient_ledger ledger;
};

static size_t tensor_bytes(const struct graph *g, int t) { return (size_t)shape_elements(&g->tensors[t].shape) * 4; }

static bool share_bytes(const struct plan *p, int a, int b) {
    const struct graph *g = p->graph;
    if ((g->tensors[a].role == TENSOR_BATCH) != (g->tensors[b].role == TENSOR_BATCH))
        return false;
    if (p->tensor_offset[a] == SIZE_MAX || p->tensor_offset[b] == SIZE_MAX)
        return false;
    return p->tensor_offset[a] < p->tensor_offset[b] + tensor_bytes(g, b) &&
           p->tensor_offset[b] < p->tensor_offset[a] + tensor_bytes(g, a);
}

static bool contains(const int *list, int n, int t) {
    for (int i = 0; i < n; i++)
        if (list[i] == t)
            return true;
    return false;
}

static status_t touch_tensors(struct machine *m, const struct instruction *i, struct err *e) {
    const struct graph *g = m->plan->graph;
    struct tensor_access a;
    plan_access(m->plan, i, &a);
    for (int k = 0; k < a.n_reads; k++)
        if (m->holds[a.reads[k]] != i->micro_batch)
            return err_set(e, ST_FAILED_PRECONDITION, "tensor %s of micro-batch %d is not live when it is read",
                           g->tensors[a.reads[k]].name, i->micro_batch);
    for (int k = 0; k < a.n_writes; k++) {
        if (m->plan->tensor_offset[a.writes[k]] == SIZE_MAX)
            return err_set(e, ST_FAILED_PRECONDITION, "tensor %s is written but has no place",
                           g->tensors[a.writes[k]].name);
        for (int t = 0; t < g->n_tensors; t++)
            if (m->holds[t] >= 0 && !contains(a.writes, a.n_writes, t) && share_bytes(m->plan, t, a.writes[k]))
                m->holds[t] = -1;
    }
    for (int k = 0; k < a.n_writes; k++)
        for (int j = 0; j < k; j++)
            if (share_bytes(m->plan, a.writes[j], a.writes[k]) &&
                graph_storage(g, a.writes[j]) != graph_storage(g, a.writes[k]))
                return err_set(e, ST_FAILED_PRECONDITION, "tensors %s and %s are written to the same bytes",
                               g->tensors[a.writes[j]].name, g->tensors[a.writes[k]].name);
    for (int k = 0; k < a.n_writes; k++)
        m->holds[a.writes[k]] = i->micro_batch;
    for (int k = 0; k < a.n_views; k++)
        m->holds[a.views[k]] = i->micro_batch;
    return ST_OK;
}

static status_t run_instruction(struct machine *m, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_FORWARD:
        if (m->plan->graph->ops[i->op].out[0] == m->plan->graph->losses)
            m->losses++;
        return touch_tensors(m, i, e);
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT: TRY(touch_tensors(m, i, e)); return gradient_ledger_backward(&m->ledger, i, e);
    case INSTRUCTION_ADD: return gradient_ledger_add(&m->ledger, i, e);
    case INSTRUCTION_ADD_SLOT: return gradient_ledger_add_slot(&m->ledger, i, e);
    case INSTRUCTION_NORM: return gradient_ledger_norm(&m->ledger, i, e);
    case INSTRUCTION_DECIDE: return gradient_ledger_decide(&m->ledger, e);
    case INSTRUCTION_STEP: return gradient_ledger_step(&m->ledger, i, e);
    case INSTRUCTION_LOAD:
    case INSTRUCTION_RECOMPUTE:
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECV: return touch_tensors(m, i, e);
    case INSTRUCTION_WAIT:
        if (m->waited <= i->entry)
            m->waited = i->entry + 1;
        gradient_ledger_waited(&m->ledger, i->entry);
        return ST_OK;
    default:
        return err_set(e, ST_FAILED_PRECONDITION, "%s has no place in the compute queue", instruction_name(i->kind));
    }
}

static int own_micro_batches(const struct plan *p) { return p->layout.micro_batches / p->layout.world_size; }

/* Starts the channel's entries that the compute queue has reached. */
static status_t post_entries(struct machine *m, struct err *e) {
    const struct instruction_list *channel = &m->plan->channel;
    for (; m->posted < channel->n && channel->items[m->posted].after <= m->at; m->posted++) {
        const struct instruction *i = &channel->items[m->posted];
        if (i->kind == INSTRUCTION_REDUCE)
            TRY(gradient_ledger_reduce(&m->ledger, i, m->posted, e));
        else if (i->kind != INSTRUCTION_EXCHANGE)
            return err_set(e, ST_FAILED_PRECONDITION, "%s has no place on the channel", instruction_name(i->kind));
        else if (m->losses != own_micro_batches(m->plan))
            return err_set(e, ST_FAILED_PRECONDITION, "the step record leaves before all losses are in it");
    }
    return ST_OK;
}

/* A send or receive meets its other half when that is what its peer stands at: nothing is buffered. */
static struct machine *meeting_peer(struct machine *all, int n, const struct machine *m) {
    const struct instruction *i = &m->plan->compute.items[m->at];
    if (i->peer < 0 || i->peer >= n || i->peer == m->rank)
        return NULL;
    struct machine *peer = &all[i->peer];
    if (peer->at >= peer->plan->compute.n)
        return NULL;
    const struct instruction *other = &peer->plan->compute.items[peer->at];
    bool halves = (i->kind == INSTRUCTION_SEND && other->kind == INSTRUCTION_RECV) ||
                  (i->kind == INSTRUCTION_RECV && other->kind == INSTRUCTION_SEND);
    bool same = other->peer == m->rank && other->entry == i->entry && other->micro_batch == i->micro_batch;
    return halves && same ? peer : NULL;
}

static status_t advance(struct machine *m, struct err *e) {
    const struct instruction *i = &m->plan->compute.items[m->at];
    struct err why;
    status_t st = run_instruction(m, i, &why);
    if (st == ST_OK) {
        m->at++;
        st = post_entries(m, &why);
    }
    if (st == ST_OK)
        return ST_OK;
    return err_set(e, st, "plan of rank %d, instruction %d (%s): %s", m->rank, (int)(i - m->plan->compute.items),
                   instruction_name(i->kind), why.msg);
}

/* Runs a rank's compute queue until it blocks; counts what it did. */
static status_t run_rank(struct machine *all, int n, struct machine *m, int *moved, struct err *e) {
    while (m->at < m->plan->compute.n) {
        const struct instruction *i = &m->plan->compute.items[m->at];
        if (i->kind == INSTRUCTION_WAIT && (i->entry < 0 || m->passed <= i->entry))
            return ST_OK;
        if (i->kind == INSTRUCTION_SEND || i->kind == INSTRUCTION_RECV) {
            struct machine *peer = meeting_peer(all, n, m);
            if (!peer)
                return ST_OK;
            TRY(advance(peer, e));
        }
        TRY(advance(m, e));
        ++*moved;
    }
    return ST_OK;
}

/* The channels' next entry happens when every rank has started it; it must be the same one. */
static status_t run_channels(struct machine *all, int n, int *moved, struct err *e) {
    for (;;) {
        int entry = all[0].passed;
        for (int r = 0; r < n; r++)
            if (all[r].posted <= entry)
                return ST_OK;
        const struct instruction *first = &all[0].plan->channel.items[entry];
        for (int r = 1; r < n; r++) {
            const struct instruction *i = &all[r].plan->channel.items[entry];
            if (i->kind != first->kind || i->begin != first->begin || i->end != first->end)
                return err_set(
                    e, ST_FAILED_PRECONDITION,
                    "entry %d of the channel is %s of [%lld, %lld) on rank 0 and %s of [%lld, %lld) on rank %d", entry,
                    instruction_name(first->kind), (long long)first->begin, (long long)first->end,
                    instruction_name(i->kind), (long long)i->begin, (long long)i->end, r);
        }
        for (int r = 0; r < n; r++)
            all[r].passed++;
        ++*moved;
    }
}

static status_t check_end(const struct machine *m, struct err *e) {
    const struct plan *p = m->plan;
    if (m->at < p->compute.n) {
        const struct instruction *i = &p->compute.items[m->at];
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d, instruction %d (%s): waits for ever", m->rank,
                       m->at, instruction_name(i->kind));
    }
    if (m->passed < p->channel.n)
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: entry %d of the channel never happens", m->rank,
                       m->passed);
    if (m->waited < p->channel.n)
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: entry %d of the channel is never waited for",
                       m->rank, m->waited);
    if (p->layout.kind != PLAN_SAMPLE && m->losses != own_micro_batches(p))
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: %d of its %d micro-batches are computed", m->rank,
                       m->losses, own_micro_batches(p));
    struct err why;
    if (p->layout.kind == PLAN_TRAIN && gradient_ledger_end(&m->ledger, &why) != ST_OK)
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: %s", m->rank, why.msg);
    return ST_OK;
}

/* What needs no simulation: everything lies inside its family, and gradient space is tiled by slots and by buckets. */
static status_t check_places(const struct plan *p, int rank, struct err *e) {
    const struct graph *g = p->graph;
    for (int t = 0; t < g->n_tensors; t++) {
        enum plan_family family = g->tensors[t].role == TENSOR_BATCH ? FAMILY_BATCH : FAMILY_ACTIVATIONS;
        if (p->tensor_offset[t] != SIZE_MAX && p->tensor_offset[t] + tensor_bytes(g, t) > p->family_bytes[family])
            return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: tensor %s ends outside its family", rank,
                           g->tensors[t].name);
    }
    int64_t slots = 0, buckets = 0;
    for (int k = 0; k < g->n_slots; k++) {
        int s = p->slot_order[k];
        int64_t n = shape_elements(&g->parameters[g->slots[s].parameter].shape);
        if (p->slot_begin[s] != slots || p->slot_end[s] - slots < n || p->slot_begin[s] % PLAN_CHUNK)
            return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: the gradient of %s is misplaced", rank,
                           g->parameters[g->slots[s].parameter].name);
        slots = p->slot_end[s];
    }
    for (int b = 0; b < p->n_buckets; b++) {
        if (p->buckets[b].begin != buckets || p->buckets[b].end <= buckets)
            return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: bucket %d is misplaced", rank, b);
        buckets = p->buckets[b].end;
    }
    if (slots != p->gradient_elements || buckets != slots)
        return err_set(e, ST_FAILED_PRECONDITION, "plan of rank %d: slots or buckets do not fill gradient space", rank);
    return ST_OK;
}

static status_t simulate(struct machine *all, int n, struct err *e) {
    for (int r = 0; r < n; r++)
        TRY(post_entries(&all[r], e));
    int moved = 1;
    while (moved) {
        moved = 0;
        for (int r = 0; r < n; r++)
            TRY(run_rank(all, n, &all[r], &moved, e));
        TRY(run_channels(all, n, &moved, e));
    }
    for (int r = 0; r < n; r++)
        TRY(check_end(&all[r], e));
    return ST_OK;
}

status_t plan_verify(const struct plan *const *plans, int world_size, struct err *e) {
    if (world_size < 1)
        return err_set(e, ST_FAILED_PRECONDITION, "a step of no rank is no plan");
    for (int r = 0; r < world_size; r++)
        TRY(check_places(plans[r], r, e));
    struct machine *all = calloc((size_t)world_size, sizeof *all);
    if (!all)
        abort();
    for (int r = 0; r < world_size; r++) {
        size_t n = (size_t)plans[r]->graph->n_tensors;
        all[r] = (struct machine){ .plan = plans[r], .rank = r, .holds = malloc(n * sizeof *all[r].holds) };
        if (!all[r].holds)
            abort();
        memset(all[r].holds, 0xff, n * sizeof *all[r].holds);
        gradient_ledger_init(&all[r].ledger, plans[r]);
    }
    status_t st = simulate(all, world_size, e);
    for (int r = 0; r < world_size; r++) {
        free(all[r].holds);
        gradient_ledger_done(&all[r].ledger);
    }
    free(all);
    return st;
}
