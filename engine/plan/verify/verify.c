/* The simulation of a step, and the checks over all ranks.
 *
 * Each rank runs its compute queue until a WAIT blocks. After every instruction it posts the entries of other queues
 * that compute has reached. A transfer is done when both halves are posted; a collective when every member of its group
 * has posted it. This repeats until nothing moves. A rank that has not reached the end of its compute queue by then
 * would wait forever. Instructions, posted entries and finished entries update the rank's tensor, parameter and
 * gradient state, which refuse what is not allowed. */
#include "engine/plan/verify/verify.h"

#include "base/array.h"
#include "engine/graph/op.h"
#include "engine/plan/plan_digest.h"
#include "engine/plan/verify/err_plan.h"
#include "engine/plan/verify/verify_state.h"

#include <stdlib.h>
#include <string.h>

/* --- what instructions do to a rank ---*/

static bool is_last_stage(const struct plan *p) {
    return p->layout.stages == 1 || p->block_stage[p->graph->n_blocks - 1] == plan_stage(&p->layout);
}

static status_t note_loss(struct rank_state *m, const struct instruction *i, struct err *e) {
    const struct plan_layout *l = &m->plan->layout;
    int own = plan_own_micro_batches(l);
    if (i->in_flight < 0 || i->in_flight >= own || m->loss_known[i->in_flight] ||
        i->micro_batch != plan_micro_batch(l, plan_data_rank(l), i->in_flight) ||
        (l->kind != PLAN_SAMPLE && plan_owner(l, i->micro_batch) != m->rank))
        return err_plan(e, "micro-batch %d is not computed once, by its owner", i->micro_batch);
    m->loss_known[i->in_flight] = true;
    m->n_losses++;
    return ST_OK;
}

/* In an evaluation in 16 bits, running moments are read from their array. */
static status_t read_statistics(const struct rank_state *m, const struct op *op, struct err *e) {
    const struct plan *p = m->plan;
    for (int k = 0; k < OP_PARAMETERS && !m->statistics_known; k++)
        if (op->use[k] >= 0 && plan_statistic_place(p, p->graph->uses[op->use[k]].parameter).offset != SIZE_MAX)
            return err_plan(e, "%s reads running moments before all of them are known", op->name);
    return ST_OK;
}

static status_t run_forward(struct rank_state *m, const struct instruction *i, struct err *e) {
    const struct graph *g = m->plan->graph;
    if (m->plan->block_virtual_stage[g->ops[i->op].block] < 0)
        return err_plan(e, "%s is another stage's", g->ops[i->op].name);
    TRY(read_statistics(m, &g->ops[i->op], e));
    TRY(parameter_state_read(&m->parameters, &g->ops[i->op], e));
    TRY(tensor_state_touch(&m->tensors, i, e));
    if (i->kind == INSTRUCTION_RECOMPUTE)
        return ST_OK;
    m->forwards[i->op]++;
    return g->ops[i->op].out[0] == g->losses ? note_loss(m, i, e) : ST_OK;
}

static status_t run_backward(struct rank_state *m, const struct instruction *i, struct err *e) {
    const struct graph *g = m->plan->graph;
    const struct op *op = &g->ops[g->reverse[i->op].op];
    if (m->plan->block_virtual_stage[op->block] < 0)
        return err_plan(e, "%s is another stage's", op->name);
    /* BACKWARD_WEIGHT and ops without an input gradient (embeddings) read no weight. */
    if (i->kind == INSTRUCTION_BACKWARD_INPUT && op->kind->differentiable)
        TRY(parameter_state_read(&m->parameters, op, e));
    TRY(tensor_state_touch(&m->tensors, i, e));
    return gradient_state_backward(&m->gradients, i, e);
}

static status_t run_step(struct rank_state *m, const struct instruction *i, struct err *e) {
    TRY(gradient_state_step(&m->gradients, i, e));
    for (int64_t shard = i->begin; shard < i->end; shard++)
        TRY(parameter_state_step(&m->parameters, (int)shard, e));
    return ST_OK;
}

/* All shards of the rank, once: a second copy would clear what the other ranks have sent. */
static status_t run_statistics(struct rank_state *m, const struct instruction *i, struct err *e) {
    if (m->plan->statistics_bytes == 0 || m->statistics_copied || i->begin != 0 || i->end != m->plan->n_shards)
        return err_plan(e, "the running moments of all shards are not copied once");
    m->statistics_copied = true;
    m->statistics_known = m->plan->layout.zero == 0;
    return ST_OK;
}

static status_t run_switch(struct rank_state *m, const struct instruction *i, struct err *e) {
    if (i->begin < 0 || i->begin > i->end || i->end > m->plan->n_shards)
        return err_plan(e, "shards [%lld, %lld) do not exist", (long long)i->begin, (long long)i->end);
    for (int64_t shard = i->begin; shard < i->end; shard++)
        TRY(parameter_state_switch(&m->parameters, (int)shard, e));
    return ST_OK;
}

static status_t take_data(struct rank_state *m, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_REDUCE: return gradient_state_reduced(&m->gradients, i, e);
    case INSTRUCTION_GATHER: return parameter_state_gathered(&m->parameters, i->entry, e);
    case INSTRUCTION_EXCHANGE_NORMS: m->gradients.norms_known = true; return ST_OK;
    case INSTRUCTION_EXCHANGE_STATISTICS: m->statistics_known = true; return ST_OK;
    default: m->exchanged = true; return ST_OK;
    }
}

static status_t run_wait(struct rank_state *m, const struct instruction *i, struct err *e) {
    const struct instruction_list *list = &m->plan->queue[i->queue];
    if (i->queue == QUEUE_DATA) {
        for (; m->data_waited <= i->entry; m->data_waited++)
            TRY(take_data(m, &list->items[m->data_waited], e));
        return ST_OK;
    }
    const struct instruction *x = &list->items[i->entry];
    if (m->waited[i->queue][i->entry])
        return ST_OK;
    m->waited[i->queue][i->entry] = true;
    switch (x->payload) {
    case PAYLOAD_TENSOR: tensor_state_transferred(&m->tensors, x); break;
    case PAYLOAD_GRADIENT: gradient_state_transferred(&m->gradients, x); break;
    case PAYLOAD_WEIGHT: return parameter_state_transferred(&m->parameters, x, e);
    }
    return ST_OK;
}

static status_t check_numbers(const struct plan *p, const struct instruction *i, struct err *e) {
    const struct graph *g = p->graph;
    bool forward = i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE;
    bool backward = i->kind == INSTRUCTION_BACKWARD_INPUT || i->kind == INSTRUCTION_BACKWARD_WEIGHT ||
                    i->kind == INSTRUCTION_COPY_GRADIENT;
    if ((forward && (i->op < 0 || i->op >= g->n_ops)) || (backward && (i->op < 0 || i->op >= g->n_reverse)))
        return err_plan(e, "op %d does not exist", i->op);
    if (forward || backward || i->kind == INSTRUCTION_LOAD) {
        int own = plan_own_micro_batches(&p->layout);
        if (i->in_flight < 0 || i->in_flight >= own ||
            i->micro_batch != plan_micro_batch(&p->layout, plan_data_rank(&p->layout), i->in_flight))
            return err_plan(e, "micro-batch %d is not number %d of this rank", i->micro_batch, i->in_flight);
    }
    return ST_OK;
}

static status_t run_instruction(struct rank_state *m, const struct instruction *i, struct err *e) {
    TRY(check_numbers(m->plan, i, e));
    switch (i->kind) {
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: return run_forward(m, i, e);
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT: return run_backward(m, i, e);
    case INSTRUCTION_LOAD:
    case INSTRUCTION_COPY_GRADIENT: return tensor_state_touch(&m->tensors, i, e);
    case INSTRUCTION_ADD: return gradient_state_add(&m->gradients, i, e);
    case INSTRUCTION_ADD_USE: return gradient_state_add_use(&m->gradients, i, e);
    case INSTRUCTION_NORM: return gradient_state_norm(&m->gradients, i, e);
    case INSTRUCTION_DECIDE: return gradient_state_decide(&m->gradients, e);
    case INSTRUCTION_STEP: return run_step(m, i, e);
    case INSTRUCTION_STATISTICS: return run_statistics(m, i, e);
    case INSTRUCTION_SWITCH_AVERAGES: return run_switch(m, i, e);
    case INSTRUCTION_WAIT: return run_wait(m, i, e);
    case INSTRUCTION_DROP: return parameter_state_drop(&m->parameters, i->entry, e);
    default: return err_plan(e, "%s is not allowed in the compute queue", instruction_name(i->kind));
    }
}

/* --- the other queues start what compute has reached ---*/

static status_t post_data(struct rank_state *m, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_REDUCE: return gradient_state_reduce(&m->gradients, i, e);
    case INSTRUCTION_GATHER: return parameter_state_gather(&m->parameters, i->entry, e);
    case INSTRUCTION_EXCHANGE:
        if (is_last_stage(m->plan) && m->n_losses != plan_own_micro_batches(&m->plan->layout))
            return err_plan(e, "the step results are sent before all losses are in them");
        return ST_OK;
    case INSTRUCTION_EXCHANGE_STATISTICS:
        return m->statistics_copied && !m->statistics_known && i->group == GROUP_DATA
                   ? ST_OK
                   : err_plan(e, "running moments are exchanged before they are copied, or for nothing");
    case INSTRUCTION_EXCHANGE_NORMS: return gradient_state_check_norms(&m->gradients, e);
    default: return err_plan(e, "%s is not allowed in that queue", instruction_name(i->kind));
    }
}

static status_t post_transfer(struct rank_state *m, const struct instruction *i, struct err *e) {
    switch (i->payload) {
    case PAYLOAD_TENSOR: return tensor_state_post(&m->tensors, i, e);
    case PAYLOAD_GRADIENT: return gradient_state_post(&m->gradients, i, e);
    default: return parameter_state_post(&m->parameters, i, e);
    }
}

static status_t post_entries(struct rank_state *m, struct err *e) {
    for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++) {
        const struct instruction_list *list = &m->plan->queue[q];
        for (; m->posted[q] < list->n && list->items[m->posted[q]].after <= m->at; m->posted[q]++) {
            const struct instruction *i = &list->items[m->posted[q]];
            struct err why;
            status_t st = q == QUEUE_DATA ? post_data(m, i, &why) : post_transfer(m, i, &why);
            if (st != ST_OK)
                return err_set(e, st, "plan of rank %d, entry %d of %s (%s): %s", m->rank, m->posted[q],
                               plan_queue_name(q), instruction_name(i->kind), why.msg);
        }
    }
    return ST_OK;
}

/* --- progress ---*/

static bool is_blocked(const struct rank_state *m, const struct instruction *i) {
    if (i->kind != INSTRUCTION_WAIT)
        return false;
    if (i->queue == QUEUE_DATA)
        return i->entry < 0 || m->data_done <= i->entry;
    if (i->queue <= QUEUE_DATA || i->queue >= QUEUES || i->entry < 0 || i->entry >= m->plan->queue[i->queue].n)
        return true;
    return !m->done[i->queue][i->entry];
}

/* Runs a rank's compute queue until it blocks; counts what it did. */
static status_t run_rank(struct rank_state *m, int *moved, struct err *e) {
    const struct instruction_list *list = &m->plan->queue[QUEUE_COMPUTE];
    for (; m->at < list->n && !is_blocked(m, &list->items[m->at]); ++*moved) {
        const struct instruction *i = &list->items[m->at];
        struct err why;
        status_t st = run_instruction(m, i, &why);
        if (st != ST_OK)
            return err_set(e, st, "plan of rank %d, instruction %d (%s): %s", m->rank, m->at, instruction_name(i->kind),
                           why.msg);
        m->at++;
        TRY(post_entries(m, e));
    }
    return ST_OK;
}

/* A transfer is done when both halves are posted. */
static void run_transfers(struct rank_state *all, struct rank_state *m, int *moved) {
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q <= QUEUE_GRADIENTS; q++)
        for (int i = m->first_open[q]; i < m->posted[q]; i++) {
            struct transfer_peer to = m->match->peer[q][i];
            if (!m->done[q][i] && all[to.plan].posted[q] > to.entry) {
                m->done[q][i] = all[to.plan].done[q][to.entry] = true;
                ++*moved;
            }
            if (i == m->first_open[q] && m->done[q][i])
                m->first_open[q]++;
        }
}

static bool same_cuts(const struct plan *a, const struct plan *b, int bucket) {
    for (int j = 0; j <= a->layout.data; j++)
        if (plan_part_begin(a, bucket, j) != plan_part_begin(b, bucket, j))
            return false;
    return true;
}

static status_t check_same(const struct rank_state *a, const struct instruction *x, const struct rank_state *b,
                           const struct instruction *y, struct err *e) {
    bool bucket = x->kind == INSTRUCTION_REDUCE || x->kind == INSTRUCTION_GATHER;
    if (x->kind != y->kind || x->group != y->group || x->entry != y->entry)
        return err_plan(
            e, "entry %d of the data queue is %s of bucket %d on rank %d, but entry %d is %s of bucket %d on rank %d",
            a->data_done, instruction_name(x->kind), x->entry, a->rank, b->data_done, instruction_name(y->kind),
            y->entry, b->rank);
    if (bucket && (x->group != GROUP_DATA || !same_cuts(a->plan, b->plan, x->entry)))
        return err_plan(e, "bucket %d is cut differently on ranks %d and %d", x->entry, a->rank, b->rank);
    return ST_OK;
}

/* The next collective of m happens when every member of its group has posted it. Only the group's first rank acts. */
static status_t run_collective(struct rank_state *all, int n, struct rank_state *m, int *moved, struct err *e) {
    const struct instruction_list *list = &m->plan->queue[QUEUE_DATA];
    while (m->posted[QUEUE_DATA] > m->data_done) {
        const struct instruction *i = &list->items[m->data_done];
        int first, step, count;
        transfer_match_group(m->match, n, i->group, &first, &step, &count);
        if (&all[first] != m)
            return ST_OK;
        for (int k = 1; k < count; k++) {
            struct rank_state *peer = &all[first + k * step];
            if (peer->posted[QUEUE_DATA] <= peer->data_done)
                return ST_OK;
            const struct instruction *its = &peer->plan->queue[QUEUE_DATA].items[peer->data_done];
            if (its->group != i->group)
                return ST_OK; /* the peer is in another group's collective; if that never ends, neither does this one */
            TRY(check_same(m, i, peer, its, e));
        }
        for (int k = 0; k < count; k++)
            all[first + k * step].data_done++;
        ++*moved;
    }
    return ST_OK;
}

static status_t simulate(struct rank_state *all, int n, struct err *e) {
    for (int r = 0; r < n; r++)
        TRY(post_entries(&all[r], e));
    int moved = 1;
    while (moved) {
        moved = 0;
        for (int r = 0; r < n; r++)
            TRY(run_rank(&all[r], &moved, e));
        for (int r = 0; r < n; r++)
            TRY(run_collective(all, n, &all[r], &moved, e));
        for (int r = 0; r < n; r++)
            run_transfers(all, &all[r], &moved);
    }
    return ST_OK;
}

/* --- the end of the step ---*/

static status_t check_waits(const struct rank_state *m, struct err *e) {
    const struct plan *p = m->plan;
    for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++)
        for (int i = 0; i < p->queue[q].n; i++) {
            bool done = q == QUEUE_DATA ? i < m->data_done : m->done[q][i];
            bool taken = q == QUEUE_DATA ? i < m->data_waited : m->waited[q][i];
            if (!done || !taken)
                return err_plan(e, "entry %d of %s %s", i, plan_queue_name(q),
                                done ? "is never waited for" : "never happens");
        }
    return ST_OK;
}

static status_t check_work(const struct rank_state *m, struct err *e) {
    const struct plan *p = m->plan;
    int own = plan_own_micro_batches(&p->layout);
    if (p->layout.kind == PLAN_SAMPLE || p->layout.kind == PLAN_AVERAGE)
        return ST_OK;
    for (int o = 0; o < p->graph->n_ops; o++)
        if (p->block_virtual_stage[p->graph->ops[o].block] >= 0 && m->forwards[o] != own)
            return err_plan(e, "%s runs forward for %d of %d micro-batches", p->graph->ops[o].name, m->forwards[o],
                            own);
    if (p->layout.world_size > 1 && !m->exchanged)
        return err_plan(e, "the ranks do not exchange their losses");
    return ST_OK;
}

static status_t check_end(const struct rank_state *m, struct err *e) {
    const struct plan *p = m->plan;
    struct err why;
    status_t st = check_waits(m, &why);
    if (st == ST_OK)
        st = check_work(m, &why);
    if (st == ST_OK && p->layout.kind == PLAN_TRAIN)
        st = gradient_state_end(&m->gradients, &why);
    if (st == ST_OK)
        st = parameter_state_end(&m->parameters, &why);
    return st == ST_OK ? ST_OK : err_set(e, st, "plan of rank %d: %s", m->rank, why.msg);
}

static status_t check_ends(const struct rank_state *all, int n, struct err *e) {
    for (int r = 0; r < n; r++) {
        const struct instruction_list *list = &all[r].plan->queue[QUEUE_COMPUTE];
        if (all[r].at < list->n)
            return err_plan(e, "plan of rank %d, instruction %d (%s): waits forever", all[r].rank, all[r].at,
                            instruction_name(list->items[all[r].at].kind));
    }
    for (int r = 0; r < n; r++)
        TRY(check_end(&all[r], e));
    return ST_OK;
}

/* --- all ranks together ---*/

/* No two of the given ranks step the same element, and none is left out if all columns are given. With ZeRO 0 this
 * holds for each column. */
static status_t check_ownership(const struct rank_state *all, int n, int column, struct range_set *owned,
                                struct err *e) {
    const struct graph *g = all[0].plan->graph;
    const struct plan_layout *l = &all[0].plan->layout;
    bool complete = l->zero == 0 || n == l->data * l->stages;
    for (int r = 0; r < n; r++) {
        const struct plan *p = all[r].plan;
        for (int i = 0; i < p->n_shards && (l->zero || all[r].match->column == column); i++) {
            const struct plan_shard *q = &p->shards[i];
            if (range_set_overlaps(&owned[q->parameter], q->first, q->first + q->count))
                return err_plan(e, "plan of rank %d: another rank steps the same elements of %s", all[r].rank,
                                g->parameters[q->parameter].name);
            TRY(range_set_add(&owned[q->parameter], q->first, q->first + q->count, e));
        }
    }
    for (int i = 0; i < g->n_parameters && complete; i++)
        if (!range_set_contains(&owned[i], 0, shape_elements(&g->parameters[i].shape)))
            return err_plan(e, "no rank steps all of %s", g->parameters[i].name);
    return ST_OK;
}

static status_t check_column(struct rank_state *all, int n, int column, struct err *e) {
    const struct graph *g = all[0].plan->graph;
    CLEANUP(freep) struct range_set *owned = NULL;
    TRY(array_new(&owned, g->n_parameters, e));
    status_t st = check_ownership(all, n, column, owned, e);
    for (int i = 0; i < g->n_parameters; i++)
        range_set_done(&owned[i]);
    return st;
}

static status_t check_agreement(const struct plan *a, const struct plan *b, struct err *e) {
    const struct graph *g = a->graph;
    const struct plan_layout *x = &a->layout, *y = &b->layout;
    bool same = b->graph == g && x->kind == y->kind && x->data == y->data && x->stages == y->stages &&
                x->virtual_stages == y->virtual_stages && x->zero == y->zero && x->lanes == y->lanes &&
                x->micro_batches == y->micro_batches && x->reduce == y->reduce && x->optimizer == y->optimizer &&
                a->norm_chunks == b->norm_chunks &&
                memcmp(a->block_stage, b->block_stage, (size_t)g->n_blocks * sizeof *a->block_stage) == 0 &&
                memcmp(a->use_stage, b->use_stage, (size_t)g->n_uses * sizeof *a->use_stage) == 0 &&
                memcmp(a->parameter_stage, b->parameter_stage, (size_t)g->n_parameters * sizeof *a->parameter_stage) ==
                    0 &&
                memcmp(a->parameter_norm, b->parameter_norm, (size_t)g->n_parameters * sizeof *a->parameter_norm) == 0;
    return same ? ST_OK : err_plan(e, "ranks %d and %d do not plan the same step", a->layout.rank, b->layout.rank);
}

static status_t check_world(const struct plan *const *plans, int n, struct err *e) {
    if (n < 1)
        return err_plan(e, "there are no plans");
    const struct plan_layout *l = &plans[0]->layout;
    if (n % l->stages || n > l->data * l->stages)
        return err_plan(e, "%d plans are not whole columns of %d stages", n, l->stages);
    int columns = n / l->stages;
    for (int r = 0; r < n; r++) {
        const struct plan_layout *x = &plans[r]->layout;
        TRY(check_agreement(plans[0], plans[r], e));
        if (plan_stage(x) != r / columns || plan_data_rank(x) != plan_data_rank(&plans[r % columns]->layout) ||
            (r % columns && x->rank <= plans[r - 1]->layout.rank))
            return err_plan(e, "the plan of rank %d is out of order", x->rank);
        struct err why;
        status_t st = verify_places(plans[r], &why);
        if (st != ST_OK)
            return err_set(e, st, "plan of rank %d: %s", x->rank, why.msg);
    }
    return ST_OK;
}

static status_t rank_state_init(struct rank_state *m, const struct plan *p, struct transfer_match *match,
                                struct err *e) {
    *m = (struct rank_state){ .plan = p, .match = match, .rank = p->layout.rank };
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q < QUEUES; q++) {
        TRY(array_new(&m->done[q], p->queue[q].n, e));
        TRY(array_new(&m->waited[q], p->queue[q].n, e));
    }
    TRY(array_new(&m->loss_known, plan_own_micro_batches(&p->layout), e));
    TRY(array_new(&m->forwards, p->graph->n_ops, e));
    TRY(tensor_state_init(&m->tensors, p, e));
    TRY(parameter_state_init(&m->parameters, p, &m->communication, e));
    return gradient_state_init(&m->gradients, p, &m->communication, e);
}

static void rank_state_done(struct rank_state *m) {
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q < QUEUES; q++) {
        free(m->done[q]);
        free(m->waited[q]);
    }
    free(m->loss_known);
    free(m->forwards);
    tensor_state_done(&m->tensors);
    parameter_state_done(&m->parameters);
    gradient_state_done(&m->gradients);
    live_set_done(&m->communication);
}

static status_t verify_step(struct rank_state *all, int n, struct err *e) {
    TRY(transfer_match_all(all[0].match, n, e));
    TRY(simulate(all, n, e));
    TRY(check_ends(all, n, e));
    const struct plan_layout *l = &all[0].plan->layout;
    if (l->kind == PLAN_TRAIN || l->kind == PLAN_AVERAGE)
        for (int c = 0; c < (l->zero ? 1 : n / l->stages); c++)
            TRY(check_column(all, n, c, e));
    return ST_OK;
}

status_t plan_verify(const struct plan *const *plans, int n, struct err *e) {
    TRY(check_world(plans, n, e));
    CLEANUP(freep) struct rank_state *all = NULL;
    CLEANUP(freep) struct transfer_match *matches = NULL;
    TRY(array_new(&all, n, e));
    TRY(array_new(&matches, n, e));
    status_t st = ST_OK;
    for (int r = 0; r < n && st == ST_OK; r++) {
        st = transfer_match_init(&matches[r], plans[r], n / plans[0]->layout.stages, r, e);
        if (st == ST_OK)
            st = rank_state_init(&all[r], plans[r], &matches[r], e);
    }
    if (st == ST_OK)
        st = verify_step(all, n, e);
    for (int r = 0; r < n; r++) {
        rank_state_done(&all[r]);
        transfer_match_done(&matches[r]);
    }
    return st;
}

/* --- translations ---*/

static bool same_but_owner(const struct plan *a, const struct instruction *x, const struct plan *b,
                           const struct instruction *y) {
    int64_t here[PLAN_INSTRUCTION_WORDS], there[PLAN_INSTRUCTION_WORDS];
    plan_instruction_words(a, x, here);
    plan_instruction_words(b, y, there);
    return memcmp(here, there, sizeof here) == 0;
}

status_t plan_verify_translation(const struct plan *a, const struct plan *b, struct err *e) {
    TRY(check_agreement(a, b, e));
    for (enum plan_queue q = 0; q < QUEUES; q++) {
        if (a->queue[q].n != b->queue[q].n)
            return err_plan(e, "ranks %d and %d: %s has %d entries here and %d there", a->layout.rank, b->layout.rank,
                            plan_queue_name(q), a->queue[q].n, b->queue[q].n);
        for (int i = 0; i < a->queue[q].n; i++)
            if (!same_but_owner(a, &a->queue[q].items[i], b, &b->queue[q].items[i]))
                return err_plan(e, "entry %d of %s (%s) of rank %d is not that of rank %d, moved along", i,
                                plan_queue_name(q), instruction_name(b->queue[q].items[i].kind), b->layout.rank,
                                a->layout.rank);
    }
    return ST_OK;
}
