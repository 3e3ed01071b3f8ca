/* Divides a model into P V virtual stages of consecutive blocks, by the cost of blocks and not by their number.
 *
 *   1. Dynamic programming finds the smallest possible time of the slowest virtual stage.
 *   2. Among the divisions within 5 % of that time, it takes the one whose fullest stage needs least memory.
 *   3. With several virtual stages on a rank, single blocks then move between virtual stages as long as that makes the
 *      slowest rank faster.
 *
 * Time of a block: FLOPs of forward and backward, and bytes moved, at 16 FLOPs a byte. Memory of a stage: weights with
 * their gradients and optimizer states, and the stored activations of its micro-batches in flight. Blocks that share a
 * use stay together. The result depends on graph and layout, not on the rank: every rank computes the same. */
#ifndef ENGINE_PLAN_BUILD_STAGE_CUT_H
#define ENGINE_PLAN_BUILD_STAGE_CUT_H

#include "engine/plan/plan.h"

/* ret_first[c] = first block of virtual stage c (of the model); ret_first[P V] = n_blocks. INVALID_ARGUMENT names
 * parallel.pipeline when there are more virtual stages than blocks. */
MUST_CHECK status_t stage_cut(const struct graph *graph, const struct plan_layout *layout, int *ret_first,
                              struct err *e);
/* ret[n_tensors]: the last block that reads an activation or whose backward pass writes a gradient; -1: none. */
void stage_last_blocks(const struct graph *graph, int *ret);
/* Whether a tensor is a boundary tensor between blocks block - 1 and block: an activation that goes forward, or a
 * gradient that goes back. last: of stage_last_blocks. */
bool stage_crosses(const struct graph *graph, const int *last, int tensor, int block);
/* Cost of a block in FLOP-equivalents. */
double stage_block_cost(const struct graph *graph, int block);

#endif
