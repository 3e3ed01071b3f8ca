/* The evaluation of the weights, and of their averages, on validation samples. */
#ifndef ENGINE_RUN_EVALUATE_H
#define ENGINE_RUN_EVALUATE_H

#include "engine/run/engine_state.h"

/* Evaluates the validation set, or the first train.eval.batches global batches of it, after a step, when no step is in
 * flight. Of a mixture, it evaluates the set of each source, and the loss is their weighted mean. Sets the evaluations
 * of engine->training: the same bits in every layout, and for every global batch that evaluates the same samples.
 * Reports progress. Called by all ranks. If the averages are evaluated, too, they take the place of the weights
 * meanwhile (plan.h, AVERAGES); after a failure some may still be there. */
MUST_CHECK status_t evaluate(struct engine *engine, struct err *e);

#endif
