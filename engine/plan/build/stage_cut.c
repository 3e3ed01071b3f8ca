/* The division of a model into virtual stages: see stage_cut.h. The dynamic program is
 * best[k][end] = min over begin of max(best[k - 1][begin], cost of blocks [begin, end)). */
#include "engine/plan/build/stage_cut.h"

#include "engine/graph/op.h"
#include "engine/plan/build/building.h"
#include "engine/plan/op_cost.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double FLOPS_PER_BYTE = 16;
static const double STATE_BYTES = 16; /* a parameter with gradient and two moments, in fp32 */
static const double SLACK = 1.05;

struct cutter {
    const struct graph *g;
    const struct plan_layout *layout;
    int n, virtual_stages;
    double *cost, *weights, *saved; /* [n + 1] sums over the blocks before */
    bool *tied;                     /* [n] block shares a use with the one before (or with something around it) */
    int *last;                      /* [n_tensors] stage_last_blocks */
    int *from;                      /* [virtual_stages + 1][n + 1] */
};

double stage_block_cost(const struct graph *g, int block) {
    struct op_cost c = cost_block(g, block);
    return c.flops + FLOPS_PER_BYTE * c.bytes;
}

void stage_last_blocks(const struct graph *g, int *ret) {
    for (int t = 0; t < g->n_tensors; t++)
        ret[t] = -1;
    for (int i = 0; i < g->n_ops; i++)
        for (int k = 0; k < OP_INPUTS; k++)
            if (g->ops[i].in[k] >= 0)
                ret[g->ops[i].in[k]] = g->ops[i].block;
    for (int r = g->n_reverse - 1; r >= 0; r--) /* the first writer has the last block */
        for (int k = 0; k < OP_INPUTS; k++)
            if (g->reverse[r].d_in[k] >= 0)
                ret[g->reverse[r].d_in[k]] = g->ops[g->reverse[r].op].block;
}

bool stage_crosses(const struct graph *g, const int *last, int t, int block) {
    return g->tensors[t].role != TENSOR_BATCH && g->tensors[t].block < block && block <= last[t];
}

/* Bytes of activations that the backward pass reads, and of the parameters that the block is the first to use. */
static void block_memory(const struct cutter *c, int block, bool *counted, double *ret_saved, double *ret_weights) {
    const struct graph *g = c->g;
    const struct block *b = &g->blocks[block];
    *ret_saved = *ret_weights = 0;
    for (int i = b->first_op; i < b->first_op + b->n_ops; i++) {
        const struct op *op = &g->ops[i];
        for (int k = 0; k < OP_PARAMETERS; k++) {
            int p = op->use[k] >= 0 ? g->uses[op->use[k]].parameter : -1;
            if (p < 0 || counted[p])
                continue;
            counted[p] = true;
            *ret_weights += STATE_BYTES * (double)shape_elements(&g->parameters[p].shape);
        }
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (op->out[k] >= 0 && g->tensors[op->out[k]].alias_of < 0 && c->layout->recompute != RECOMPUTE_BLOCK)
                *ret_saved += (double)graph_tensor_bytes(g, op->out[k]);
    }
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == TENSOR_ACTIVATION && stage_crosses(g, c->last, t, block))
            *ret_saved += (double)graph_tensor_bytes(g, t);
}

/* Blocks from the first to the last op of one use stay together. */
static void tie_blocks(struct cutter *c) {
    const struct graph *g = c->g;
    for (int s = 0; s < g->n_uses; s++) {
        int first = -1, last = -1;
        for (int i = 0; i < g->n_ops; i++)
            for (int k = 0; k < OP_PARAMETERS; k++)
                if (g->ops[i].use[k] == s) {
                    first = first < 0 ? g->ops[i].block : first;
                    last = g->ops[i].block;
                }
        for (int b = first + 1; b <= last; b++)
            c->tied[b] = true;
    }
}

/* Micro-batches that a virtual stage keeps, when there are plenty. */
static double stored_micro_batches(const struct plan_layout *l, int virtual_stage) {
    int stage = virtual_stage % l->stages;
    if (l->kind != PLAN_TRAIN && l->stages == 1)
        return 1;
    return schedule_of(l->schedule)->stages_keep_same ? l->stages : l->stages - stage;
}

static double stage_cost(const struct cutter *c, int begin, int end) { return c->cost[end] - c->cost[begin]; }
static double stage_bytes(const struct cutter *c, int virtual_stage, int begin, int end) {
    return c->weights[end] - c->weights[begin] +
           stored_micro_batches(c->layout, virtual_stage) * (c->saved[end] - c->saved[begin]);
}

/* The smallest possible maximum of a measure over virtual stages, each of at most `limit` time; c->from has the
 * division. */
static status_t solve(struct cutter *c, bool memory, double limit, double *ret, struct err *e) {
    int n = c->n;
    CLEANUP(freep) double *best = NULL;
    TRY(array_new(&best, (c->virtual_stages + 1) * (n + 1), e));
    for (int i = 0; i < (c->virtual_stages + 1) * (n + 1); i++)
        best[i] = DBL_MAX;
    best[0] = 0;
    for (int k = 1; k <= c->virtual_stages; k++)
        for (int end = k; end <= n; end++) {
            if (end < n && c->tied[end])
                continue;
            for (int begin = end - 1; begin >= k - 1; begin--) {
                double before = best[(k - 1) * (n + 1) + begin], cost = stage_cost(c, begin, end);
                if (cost > limit)
                    break;
                if (before == DBL_MAX)
                    continue;
                double max = fmax(before, memory ? stage_bytes(c, k - 1, begin, end) : cost);
                if (max < best[k * (n + 1) + end]) {
                    best[k * (n + 1) + end] = max;
                    c->from[k * (n + 1) + end] = begin;
                }
            }
        }
    *ret = best[c->virtual_stages * (n + 1) + n];
    return ST_OK;
}

/* --- several virtual stages a stage ---*/

/* How uneven a division is: the slowest rank's time, then the sum of squares over ranks, so that every move counts. */
struct evenness {
    double max, squares;
};

static struct evenness evenness_of(const struct cutter *c, const int *first) {
    struct evenness e = { 0 };
    for (int s = 0; s < c->layout->stages; s++) {
        double sum = 0;
        for (int k = s; k < c->virtual_stages; k += c->layout->stages)
            sum += stage_cost(c, first[k], first[k + 1]);
        e.max = sum > e.max ? sum : e.max;
        e.squares += sum * sum;
    }
    return e;
}

static bool evener(struct evenness a, struct evenness b) {
    const double min = 1 - 1e-9; /* better by more than rounding, so that the search ends */
    return a.max < b.max * min || (a.max <= b.max && a.squares < b.squares * min);
}

/* Moves the boundaries between virtual stages a and b by one block; false if a virtual stage would be empty. */
static bool shift(const struct cutter *c, int *first, int a, int b, int by) {
    for (int k = a + 1; k <= b; k++)
        first[k] += by;
    bool valid = true;
    for (int k = a; k <= b && valid; k++)
        valid = first[k] < first[k + 1] && (k == 0 || !c->tied[first[k]]);
    return valid;
}

/* The best division into virtual stages may leave ranks uneven, because the virtual stages of a rank add up. Moves one
 * block at a time between virtual stages, as long as that evens the ranks out. */
static void even_out(const struct cutter *c, int *first) {
    struct evenness best = evenness_of(c, first);
    for (bool moved = true; moved;) {
        moved = false;
        for (int a = 0; a < c->virtual_stages; a++)
            for (int b = a + 1; b < c->virtual_stages; b++)
                for (int by = -1; by <= 1; by += 2) {
                    struct evenness now;
                    if (shift(c, first, a, b, by) && evener(now = evenness_of(c, first), best)) {
                        best = now;
                        moved = true;
                    } else {
                        (void)shift(c, first, a, b, -by);
                    }
                }
    }
}

static status_t cut(struct cutter *c, int *ret_first, struct err *e) {
    CLEANUP(freep) bool *counted = NULL;
    TRY(array_new(&counted, c->g->n_parameters, e));
    for (int b = 0; b < c->n; b++) {
        double saved, weights;
        block_memory(c, b, counted, &saved, &weights);
        c->cost[b + 1] = c->cost[b] + stage_block_cost(c->g, b);
        c->saved[b + 1] = c->saved[b] + saved;
        c->weights[b + 1] = c->weights[b] + weights;
    }
    tie_blocks(c);
    int separable = c->n;
    for (int b = 0; b < c->n; b++)
        separable -= c->tied[b];
    if (c->virtual_stages > separable)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "parallel.pipeline: %d stages of %d virtual stage%s cannot be cut from a model of %d block%s%s",
                       c->layout->stages, c->layout->virtual_stages, c->layout->virtual_stages == 1 ? "" : "s",
                       separable, separable == 1 ? "" : "s",
                       separable < c->n ? " (those that share weights count as one)" : "");
    double min, bytes;
    TRY(solve(c, false, DBL_MAX, &min, e));
    TRY(solve(c, true, min * SLACK, &bytes, e));
    ret_first[c->virtual_stages] = c->n;
    for (int k = c->virtual_stages; k > 0; k--)
        ret_first[k - 1] = c->from[k * (c->n + 1) + ret_first[k]];
    if (c->layout->virtual_stages > 1)
        even_out(c, ret_first);
    return ST_OK;
}

static void cutter_done(struct cutter *c) {
    free(c->cost);
    free(c->weights);
    free(c->saved);
    free(c->tied);
    free(c->last);
    free(c->from);
}

status_t stage_cut(const struct graph *g, const struct plan_layout *layout, int *ret_first, struct err *e) {
    int n = g->n_blocks, virtual_stages = layout->stages * layout->virtual_stages;
    if (virtual_stages == 1) {
        ret_first[0] = 0;
        ret_first[1] = n;
        return ST_OK;
    }
    CLEANUP(cutter_done) struct cutter c = { .g = g, .layout = layout, .n = n, .virtual_stages = virtual_stages };
    TRY(array_new(&c.cost, n + 1, e));
    TRY(array_new(&c.weights, n + 1, e));
    TRY(array_new(&c.saved, n + 1, e));
    TRY(array_new(&c.tied, n, e));
    TRY(array_new(&c.last, g->n_tensors, e));
    stage_last_blocks(g, c.last);
    TRY(array_new(&c.from, (virtual_stages + 1) * (n + 1), e));
    return cut(&c, ret_first, e);
}

/* The activations, or the gradients, that cross from virtual stage `to` - 1 to `to`, or back. An activation that the
 * rank of `to` holds since its previous virtual stage is not sent again. A gradient always goes back stage by stage,
 * because each stage adds to it. first: of stage_cut. */
static status_t find_boundary(const struct building *b, const int *first, int to, enum plan_way way,
                              struct plan_boundary *ret, struct err *e) {
    const struct graph *g = b->plan->graph;
    const enum tensor_role role = way == WAY_FORWARD ? TENSOR_ACTIVATION : TENSOR_GRADIENT;
    const int before = to - b->plan->layout.stages, from = way == WAY_FORWARD && before >= 0 ? first[before + 1] : 0;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == role && stage_crosses(g, b->last_block, t, first[to]) &&
            g->tensors[t].block >= from) {
            TRY(array_grow(&ret->tensor, ret->n, e));
            ret->tensor[ret->n++] = t;
        }
    return ST_OK;
}

/* What a virtual stage receives and sends at its two ends; nothing at the ends of the model. */
static status_t find_boundaries(const struct building *b, const int *first, struct plan_virtual_stage *v,
                                struct err *e) {
    const struct plan_layout *l = &b->plan->layout;
    if (v->number > 0) {
        TRY(find_boundary(b, first, v->number, WAY_FORWARD, &v->receive[WAY_FORWARD], e));
        TRY(find_boundary(b, first, v->number, WAY_BACKWARD, &v->send[WAY_BACKWARD], e));
    }
    if (v->number + 1 < l->stages * l->virtual_stages) {
        TRY(find_boundary(b, first, v->number + 1, WAY_FORWARD, &v->send[WAY_FORWARD], e));
        TRY(find_boundary(b, first, v->number + 1, WAY_BACKWARD, &v->receive[WAY_BACKWARD], e));
    }
    return ST_OK;
}

status_t plan_cut_stages(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    const struct plan_layout *l = &p->layout;
    int n = l->stages * l->virtual_stages;
    CLEANUP(freep) int *first = NULL;
    TRY(array_new(&first, n + 1, e));
    TRY(stage_cut(g, l, first, e));
    TRY(array_new(&p->virtual_stages, l->virtual_stages, e));
    TRY(array_new(&p->block_stage, g->n_blocks, e));
    TRY(array_new(&p->block_virtual_stage, g->n_blocks, e));
    for (int c = 0; c < n; c++)
        for (int k = first[c]; k < first[c + 1]; k++) {
            p->block_stage[k] = c % l->stages;
            p->block_virtual_stage[k] = c % l->stages == plan_stage(l) ? c / l->stages : -1;
        }
    stage_last_blocks(g, b->last_block);
    for (int v = 0; v < l->virtual_stages; v++) {
        int c = v * l->stages + plan_stage(l);
        p->virtual_stages[v] = (struct plan_virtual_stage){ .number = c,
                                                            .first_block = first[c],
                                                            .n_blocks = first[c + 1] - first[c] };
        TRY(find_boundaries(b, first, &p->virtual_stages[v], e));
    }
    return ST_OK;
}
