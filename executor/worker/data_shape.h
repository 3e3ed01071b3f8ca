/* The shape of data that cannot be opened: files that a host lacks, or objects of which it has no copies. */
#ifndef EXECUTOR_WORKER_DATA_SHAPE_H
#define EXECUTOR_WORKER_DATA_SHAPE_H

#include "engine/model/model.h"
#include "engine/run/engine.h"

#include <stdbool.h>

/* What the spec gives, otherwise a shape that the model accepts. */
struct model_data data_shape_assumed(const struct engine_config *c);
/* Whether the model's sizes do not follow from the data, so that its plan is the same for any data, but for the memory
 * of the data themselves. */
bool data_shape_is_known(const struct engine_config *c);

#endif
