/* What the plans of a stage's data ranks have in common. plan.h promises that they are translations of each other: the
 * same except for micro_batch, peer and the ranges that a data rank owns. */
#ifndef ENGINE_PLAN_PLAN_DIGEST_H
#define ENGINE_PLAN_PLAN_DIGEST_H

#include "base/sha256.h"
#include "engine/plan/plan.h"

enum { PLAN_INSTRUCTION_WORDS = 14 };

/* An instruction as the plan of data rank 0 has it, without the ranges that a data rank owns. The micro-batches of an
 * evaluation are no translations, so they are left out. */
void plan_instruction_words(const struct plan *plan, const struct instruction *i, int64_t ret[PLAN_INSTRUCTION_WORDS]);

/* The digest of a column: plans[n] of all stages, of one data rank. It covers the layout, the queues, and where uses,
 * buckets, parts and norms lie. Columns have the same digest if and only if each plan is a translation of the other
 * column's, and divides gradient space alike. */
void plan_digest(const struct plan *const *plans, int n, uint8_t ret[SHA256_BYTES]);

#endif
