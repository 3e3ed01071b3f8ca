/* What work costs, before anything runs: FLOPs and bytes of an op's three passes. Products and attention count as the
 * literature counts them (2 rows in out; backward twice the forward, half of it for the weight); bytes are each tensor,
 * weight and gradient that the pass reads or writes, once: what memory must move when nothing stays in a cache.
 *
 * Used to balance stages (build/stage_cut.h) and to simulate a step (cost/timeline.h). */
#ifndef ENGINE_PLAN_OP_COST_H
#define ENGINE_PLAN_OP_COST_H

#include "engine/graph/graph.h"

struct op_cost {
    double flops, bytes;
};

struct op_cost cost_forward(const struct graph *g, int op);
/* reverse: an index of graph.reverse. An op without backward_weight does all its backward in backward_input. */
struct op_cost cost_backward_input(const struct graph *g, int reverse);
struct op_cost cost_backward_weight(const struct graph *g, int reverse);
/* A block's three passes together: one micro-batch without recompute. */
struct op_cost cost_block(const struct graph *g, int block);

#endif
