/* Builds everything that an engine needs before its state is loaded. */
#ifndef ENGINE_RUN_PREPARE_H
#define ENGINE_RUN_PREPARE_H

#include "engine/run/engine_state.h"

/* Checks the configuration, reads the data, opens the kernels, builds and verifies the plans of all ranks, allocates
 * the arena. Errors: as engine_open. */
MUST_CHECK status_t engine_prepare(struct engine *engine, struct err *e);

/* Opens the loader, which reads ahead from the next step on. The state must be loaded. */
MUST_CHECK status_t engine_open_loader(struct engine *engine, struct err *e);

#endif
