#include "executor/engine/plan/stage.h"

#include "executor/engine/graph/op.h"
#include "executor/engine/plan/build.h"
#include "executor/engine/plan/cost.h"

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
    int n, chunks;
    double *cost, *weights, *saved; /* [n + 1] sums over the blocks before */
    bool *tied;                     /* [n] block shares a slot with the one before (or with something around it) */
    int *from;                      /* [chunks + 1][n + 1] */
};

double stage_block_cost(const struct graph *g, int block) {
    struct op_cost c = cost_block(g, block);
    return c.flops + FLOPS_PER_BYTE * c.bytes;
}

/* Bytes of activations that the backward pass reads, and of the parameters that the block is the first to use. */
static void block_memory(const struct cutter *c, int block, bool *counted, double *ret_saved, double *ret_weights) {
    const struct graph *g = c->g;
    const struct block *b = &g->blocks[block];
    *ret_saved = *ret_weights = 0;
    for (int i = b->first_op; i < b->first_op + b->n_ops; i++) {
        const struct op *op = &g->ops[i];
        for (int k = 0; k < OP_PARAMETERS; k++) {
            int p = op->slot[k] >= 0 ? g->slots[op->slot[k]].parameter : -1;
            if (p < 0 || counted[p])
                continue;
            counted[p] = true;
            *ret_weights += STATE_BYTES * (double)shape_elements(&g->parameters[p].shape);
        }
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (op->out[k] >= 0 && g->tensors[op->out[k]].alias_of < 0 && c->layout->recompute != RECOMPUTE_BLOCK)
                *ret_saved += (double)graph_tensor_bytes(g, op->out[k]);
    }
    if (b->input >= 0)
        *ret_saved += (double)graph_tensor_bytes(g, b->input);
}

/* Blocks from the first to the last use of a slot are one piece. */
static void tie_blocks(struct cutter *c) {
    const struct graph *g = c->g;
    for (int s = 0; s < g->n_slots; s++) {
        int first = -1, last = -1;
        for (int i = 0; i < g->n_ops; i++)
            for (int k = 0; k < OP_PARAMETERS; k++)
                if (g->ops[i].slot[k] == s) {
                    first = first < 0 ? g->ops[i].block : first;
                    last = g->ops[i].block;
                }
        for (int b = first + 1; b <= last; b++)
            c->tied[b] = true;
    }
}

/* Micro-batches that a chunk keeps, when there are plenty. */
static double flights(const struct plan_layout *l, int chunk) {
    int stage = chunk % l->stages;
    if (l->kind != PLAN_TRAIN && l->stages == 1)
        return 1;
    return l->schedule == SCHEDULE_GPIPE || l->schedule == SCHEDULE_ZERO_BUBBLE ? l->stages : l->stages - stage;
}

static double chunk_cost(const struct cutter *c, int begin, int end) { return c->cost[end] - c->cost[begin]; }
static double chunk_bytes(const struct cutter *c, int chunk, int begin, int end) {
    return c->weights[end] - c->weights[begin] + flights(c->layout, chunk) * (c->saved[end] - c->saved[begin]);
}

/* The least possible maximum of a measure over chunks whose time is at most `limit`; c->from tells the cut. */
static status_t solve(struct cutter *c, bool memory, double limit, double *ret, struct err *e) {
    int n = c->n;
    CLEANUP(freep) double *best = NULL;
    TRY(array_new(&best, (c->chunks + 1) * (n + 1), e));
    for (int i = 0; i < (c->chunks + 1) * (n + 1); i++)
        best[i] = DBL_MAX;
    best[0] = 0;
    for (int k = 1; k <= c->chunks; k++)
        for (int end = k; end <= n; end++) {
            if (end < n && c->tied[end])
                continue;
            for (int begin = end - 1; begin >= k - 1; begin--) {
                double before = best[(k - 1) * (n + 1) + begin], cost = chunk_cost(c, begin, end);
                if (cost > limit)
                    break;
                if (before == DBL_MAX)
                    continue;
                double most = fmax(before, memory ? chunk_bytes(c, k - 1, begin, end) : cost);
                if (most < best[k * (n + 1) + end]) {
                    best[k * (n + 1) + end] = most;
                    c->from[k * (n + 1) + end] = begin;
                }
            }
        }
    *ret = best[c->chunks * (n + 1) + n];
    return ST_OK;
}

/* --- several chunks a stage ---*/

/* How uneven a cut is: the dearest stage, then the sum of squares over stages, so that no move is worth nothing. */
struct evenness {
    double most, squares;
};

static struct evenness evenness_of(const struct cutter *c, const int *first) {
    struct evenness e = { 0 };
    for (int s = 0; s < c->layout->stages; s++) {
        double sum = 0;
        for (int k = s; k < c->chunks; k += c->layout->stages)
            sum += chunk_cost(c, first[k], first[k + 1]);
        e.most = sum > e.most ? sum : e.most;
        e.squares += sum * sum;
    }
    return e;
}

static bool evener(struct evenness a, struct evenness b) {
    const double least = 1 - 1e-9; /* better by more than rounding, so that the search ends */
    return a.most < b.most * least || (a.most <= b.most && a.squares < b.squares * least);
}

/* Shifts the edges between chunks a and b by one block, if every chunk keeps one. */
static bool shift(const struct cutter *c, int *first, int a, int b, int by) {
    for (int k = a + 1; k <= b; k++)
        first[k] += by;
    bool valid = true;
    for (int k = a; k <= b && valid; k++)
        valid = first[k] < first[k + 1] && (k == 0 || !c->tied[first[k]]);
    return valid;
}

/* A stage's chunks add up, so that the best dearest chunk may leave stages uneven: blocks wander from chunk to chunk
 * as long as that evens the stages out. */
static void even_out(const struct cutter *c, int *first) {
    struct evenness best = evenness_of(c, first);
    for (bool moved = true; moved;) {
        moved = false;
        for (int a = 0; a < c->chunks; a++)
            for (int b = a + 1; b < c->chunks; b++)
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
    int pieces = c->n;
    for (int b = 0; b < c->n; b++)
        pieces -= c->tied[b];
    if (c->chunks > pieces)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "parallel.pipeline: %d stages of %d chunks cannot be cut from a model of %d blocks%s",
                       c->layout->stages, c->layout->virtual_stages, pieces,
                       pieces < c->n ? " (those that share weights count as one)" : "");
    double least, bytes;
    TRY(solve(c, false, DBL_MAX, &least, e));
    TRY(solve(c, true, least * SLACK, &bytes, e));
    ret_first[c->chunks] = c->n;
    for (int k = c->chunks; k > 0; k--)
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
    free(c->from);
}

status_t stage_cut(const struct graph *g, const struct plan_layout *layout, int *ret_first, struct err *e) {
    int n = g->n_blocks, chunks = layout->stages * layout->virtual_stages;
    if (chunks == 1) {
        ret_first[0] = 0;
        ret_first[1] = n;
        return ST_OK;
    }
    CLEANUP(cutter_done) struct cutter c = { .g = g, .layout = layout, .n = n, .chunks = chunks };
    TRY(array_new(&c.cost, n + 1, e));
    TRY(array_new(&c.weights, n + 1, e));
    TRY(array_new(&c.saved, n + 1, e));
    TRY(array_new(&c.tied, n, e));
    TRY(array_new(&c.from, (chunks + 1) * (n + 1), e));
    return cut(&c, ret_first, e);
}

status_t plan_cut_stages(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    const struct graph *g = p->graph;
    const struct plan_layout *l = &p->layout;
    int n = l->stages * l->virtual_stages;
    CLEANUP(freep) int *first = NULL;
    TRY(array_new(&first, n + 1, e));
    TRY(stage_cut(g, l, first, e));
    TRY(array_new(&p->chunks, l->virtual_stages, e));
    TRY(array_new(&p->block_stage, g->n_blocks, e));
    TRY(array_new(&p->block_chunk, g->n_blocks, e));
    for (int c = 0; c < n; c++)
        for (int k = first[c]; k < first[c + 1]; k++) {
            p->block_stage[k] = c % l->stages;
            p->block_chunk[k] = c % l->stages == plan_stage(l) ? c / l->stages : -1;
        }
    for (int v = 0; v < l->virtual_stages; v++) {
        int c = v * l->stages + plan_stage(l), last = first[c + 1] - 1;
        p->chunks[v] = (struct plan_chunk){ .number = c,
                                            .first_block = first[c],
                                            .n_blocks = first[c + 1] - first[c],
                                            .input = c > 0 ? g->blocks[first[c]].input : -1,
                                            .output = c + 1 < n ? g->blocks[last].output : -1,
                                            .d_input = c > 0 ? g->blocks[first[c]].d_input : -1,
                                            .d_output = c + 1 < n ? g->blocks[last].d_output : -1 };
    }
    return ST_OK;
}
