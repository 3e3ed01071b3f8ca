/* Proves a step's plans before anything runs, by simulating all ranks at once, without buffering:
 *
 *   - sends match receives, every rank takes part in the same collectives in the same order, and nothing deadlocks
 *   - a tensor is live, and of the right micro-batch, whenever it is read; no write falls on bytes that are still
 * needed
 *   - no gradient range is touched by the compute queue between the start of its reduction and the wait for it
 *   - within a lane a slot's gradients arrive in ascending micro-batch order, each once; lanes are added as one binary
 * tree; a bucket is reduced when every lane of the rank is in it
 *   - norms and optimizer steps see gradients of the whole step, each slot once
 *
 * O(instructions x tensors that share bytes). */
#ifndef EXECUTOR_ENGINE_PLAN_VERIFY_H
#define EXECUTOR_ENGINE_PLAN_VERIFY_H

#include "executor/engine/plan/plan.h"

/* plans[world_size], one a rank in order. FAILED_PRECONDITION names rank, instruction and reason. */
MUST_CHECK status_t plan_verify(const struct plan *const *plans, int world_size, struct err *e);

#endif
