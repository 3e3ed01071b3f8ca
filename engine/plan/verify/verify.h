/* Proves the plans of a step before anything runs. It simulates all ranks at once, without data and without buffering,
 * and checks:
 *
 *   transfers     The n-th SEND between two ranks matches the n-th RECV, with the same tensor of the same micro-batch.
 *   collectives   The ranks of a group run the same collectives in the same order, over the same parts of buckets.
 *   progress      Nothing deadlocks, and every entry of a queue is waited for.
 *   tensors       A tensor that is read is live, belongs to the right micro-batch, and is in the right copy and
 *                 lifetime (recompute restores what the backward pass reads). No write touches bytes that a transfer
 *                 still uses, or bytes that the same op reads.
 *   gathers       With ZeRO 3 an op reads a parameter only while it is gathered. Gathered weights, staged gradients
 *                 and received siblings never overlap.
 *   gradients     No gradient is touched between the start of its reduction, or transfer, and the wait for it. Within
 *                 a lane a use's gradients are added in ascending order of micro-batches, each once. Lanes are added as
 *                 one binary tree. A bucket is reduced when it holds every lane of the rank.
 *   step          Norms and optimizer steps read gradients of the whole step, with every use of a shared parameter.
 *                 Over all ranks each chunk is normed once and each element stepped once. When the step ends, the new
 *                 weights are on every rank that reads them.
 *   work          Every micro-batch is computed once, by its owner. Every op runs forward once for each.
 *   memory        Weights, masters, states, averages and gradient buffers lie inside their family and do not overlap.
 *                 Parts tile their bucket, and shards are what a rank owns of them.
 *
 * Why one column can represent all: plan.h promises that the plans of a stage's data ranks are translations of each
 * other, the same except for micro_batch (+ d n), peer (+ d) and the ranges that d owns. The simulation does not depend
 * on which lanes a rank has, only on their distance from its first lane. Peers move along. A collective of data ranks
 * happens when each of them reaches it, at the same instruction. So the order, tensors and transfers of one column hold
 * for every column. Ownership is different on each rank: it is proved for the given columns, and for the others only as
 * far as it follows from parts that tile every bucket. engine_open gives all columns of a small gang. In a larger one
 * each rank gives its own, and the ranks compare digests of what columns must have in common (run/gang_plan.h), so that
 * every column is given by some rank. `trainyard plan --ranks 1024` gives one.
 *
 * O(instructions x log of live ranges): about 1.5 million instructions a second. */
#ifndef ENGINE_PLAN_VERIFY_VERIFY_H
#define ENGINE_PLAN_VERIFY_VERIFY_H

#include "engine/plan/plan.h"

/* plans[n] in ascending order of ranks: all stages, for some data ranks (all: n = data x stages; one: n = stages). For
 * sampling: one plan. FAILED_PRECONDITION names rank, instruction and reason. */
MUST_CHECK status_t plan_verify(const struct plan *const *plans, int n, struct err *e);

/* Checks that b, of the same stage, is a translation of a. FAILED_PRECONDITION names the instruction that is not. */
MUST_CHECK status_t plan_verify_translation(const struct plan *a, const struct plan *b, struct err *e);

#endif
