/* The device that a spec is planned for, by `trainyard-train plan` and by a check. */
#ifndef EXECUTOR_WORKER_PLAN_DEVICE_H
#define EXECUTOR_WORKER_PLAN_DEVICE_H

#include "engine/plan/cost/profile.h"
#include "engine/run/engine.h"

/* name: "cpu", which measures this machine with the configuration's threads and divides its memory by the ranks; a
 * profile's name or path; NULL = by the configuration's device: for "cuda" h200 is assumed. Errors as
 * plan_profile_find has them. */
MUST_CHECK status_t plan_device_find(const char *name, const struct engine_config *c, struct plan_profile *ret,
                                     struct err *e);

/* Memory of one rank: the limit of the spec, otherwise that of the device; 0 = unknown. */
size_t plan_device_memory_bytes(const struct engine_config *c, const struct plan_profile *p);

#endif
