/* The step loop. */
#ifndef ENGINE_RUN_TRAIN_H
#define ENGINE_RUN_TRAIN_H

#include "engine/run/engine_state.h"

/* Sends to the device what the first step begins with. The state must be loaded. */
MUST_CHECK status_t train_start(struct engine *engine, struct err *e);

/* Trains to the last step, or until all ranks have agreed to stop (*ret_stopped), with evaluations, metrics and
 * checkpoints between the steps. The final checkpoint is left to the caller. */
MUST_CHECK status_t train_run(struct engine *engine, bool *ret_stopped, struct err *e);

#endif
