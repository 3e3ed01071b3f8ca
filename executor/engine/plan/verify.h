/* Proves a step's plans before anything runs, by simulating all ranks at once, without buffering:
 *
 *   - the n-th SEND between two ranks meets the n-th RECV, with the same tensor of the same micro-batch; the ranks of a
 *     group take part in the same collectives in the same order, over the same cuts; nothing deadlocks; every entry of
 *     a queue is waited for
 *   - a tensor is live, and of the right micro-batch, whenever it is read, in the copy and the life that are meant
 *     (what recompute restores is what the backward pass reads); no write falls on bytes that a transfer still holds,
 *     nor on what the same op reads
 *   - under ZeRO-3 an op reads a parameter only while its unit is gathered; units, staging and what lands never overlap
 *   - no gradient is touched between the start of its reduction, or sending, and the wait for it; within a lane a
 *     slot's gradients arrive in ascending micro-batch order, each once; lanes are added as one binary tree; a bucket
 *     is reduced when every lane of the rank is in it
 *   - norms and optimizer steps see gradients of the whole step, with every use of a shared parameter in them; over all
 *     ranks each chunk is normed once and each element stepped once; the new weights are back at every rank that reads
 *     them when the step ends
 *   - every micro-batch is computed once, by its owner; every op runs forward once for each
 *   - what lasts for the whole step lies inside its family and does not overlap: weights, masters, states, averages,
 *     gradient buffers; parts tile their bucket, pieces are what a rank owns of them
 *
 * Why one column can stand for all. A column is the ranks of all stages with one data rank. plan.h promises that the
 * plans of a stage's data ranks are translations of each other: instruction by instruction the same, but for
 * micro_batch (+ d n), peer (+ d) and the ranges that d owns. Nothing in the simulation depends on which lanes those
 * are, except through their distance from the rank's first one; peers move along; and collectives over a data group
 * happen when each of its members gets there, which each does at the same instruction. So what holds of a column's
 * order, of its tensors and of its transfers holds of every column. What differs, ownership, is proven of the columns
 * that are given, and of the others only as far as it follows from cuts that tile every bucket. engine_open gives all
 * columns; `trainyard plan --ranks 1024` gives one.
 *
 * O(instructions x log of what is live), some 1.5 million instructions a second. */
#ifndef EXECUTOR_ENGINE_PLAN_VERIFY_H
#define EXECUTOR_ENGINE_PLAN_VERIFY_H

#include "executor/engine/plan/plan.h"

/* plans[n], in ascending rank: every stage's, for each of some data ranks (all of them: n = data x stages; one: n =
 * stages). Sampling plans: one. FAILED_PRECONDITION names rank, instruction and reason. */
MUST_CHECK status_t plan_verify(const struct plan *const *plans, int n, struct err *e);

/* Whether b, of the same stage, is a's translation in the sense of above. FAILED_PRECONDITION names the instruction. */
MUST_CHECK status_t plan_verify_translation(const struct plan *a, const struct plan *b, struct err *e);

#endif
