/* Whether a job may do in its store what its checkpoints need. */
#ifndef EXECUTOR_DATA_PROBE_H
#define EXECUTOR_DATA_PROBE_H

#include "executor/data/store.h"

/* Writes a small object of this name (s3://), lists it, asks for it and removes it. A process that is killed may leave
 * it; the next one of the same name removes it. The sentence says what the store refuses. */
MUST_CHECK status_t probe_store(const struct stores *stores, char *name, struct err *e);

#endif
