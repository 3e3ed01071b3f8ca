/* The plan of one rank of a gang, proved together with the plans of the others. */
#ifndef ENGINE_RUN_GANG_PLAN_H
#define ENGINE_RUN_GANG_PLAN_H

#include "engine/plan/plan_digest.h"

/* Gangs of up to this many ranks are planned whole on every rank. */
enum { GANG_PLAN_WHOLE = 16 };

struct gang_plan_progress {
    void (*report)(void *ctx); /* NULL: none */
    void *ctx;
};

/* Builds the plan of layout->rank. A small gang is built and verified whole. Of a larger one each rank builds its own
 * column, the stages of its data rank, and verifies that: the ranks of the gang verify all columns between them. Every
 * rank must then compare ret_digest with those of all others. If they are equal, the columns are translations of each
 * other and divide gradient space alike, so that what is proved of each holds for all together (plan/verify/verify.h).
 * Errors of plan_build pass through; INTERNAL: a plan that is not proved. */
MUST_CHECK status_t gang_plan_make(const struct graph *graph, const struct plan_layout *layout,
                                   const struct gang_plan_progress *progress, struct plan **ret,
                                   uint8_t ret_digest[SHA256_BYTES], struct err *e);

#endif
