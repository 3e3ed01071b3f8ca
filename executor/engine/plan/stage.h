/* Cuts a model into P V chunks of consecutive blocks, by what blocks cost and not by how many there are: the dearest
 * chunk is as cheap as possible in time, and among the cuts that come within 5 % of that, the fullest stage is as small
 * as possible. With several chunks a stage, blocks then wander between chunks while that makes the dearest stage
 * cheaper. Time of a block: FLOPs of forward and backward, and bytes moved at 16 FLOPs a byte. Memory of a stage:
 * weights with their gradients and optimizer states, and what its micro-batches in flight keep. Blocks that share a
 * slot stay together. A function of graph and layout, not of the rank: every rank finds the same cut. */
#ifndef EXECUTOR_ENGINE_PLAN_STAGE_H
#define EXECUTOR_ENGINE_PLAN_STAGE_H

#include "executor/engine/plan/plan.h"

/* ret_first[c] = first block of chunk c (of the model); ret_first[P V] = n_blocks. INVALID_ARGUMENT names
 * parallel.pipeline when there are more chunks than blocks. */
MUST_CHECK status_t stage_cut(const struct graph *graph, const struct plan_layout *layout, int *ret_first,
                              struct err *e);
/* Cost of a block in FLOP-equivalents. */
double stage_block_cost(const struct graph *graph, int block);

#endif
