/* Plans of specs, made by the program trainyard-train, which stands beside the controller's: the controller knows no
 * engine.
 *
 * One at a time, for at most PLANNER_MOST_MS and PLANNER_MOST_BYTES of memory; a plan that is asked for meanwhile is
 * refused at once. Thread-safe. The process must ignore SIGPIPE. */
#ifndef SERVICE_CONTROLLER_PLANNER_H
#define SERVICE_CONTROLLER_PLANNER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <trainyard/v1/plan.pb-c.h>
#include <trainyard/v1/spec.pb-c.h>

#define PLANNER_MOST_MS    10000
#define PLANNER_MOST_BYTES (4LL << 30)

struct planner;
/* program: NULL = trainyard-train beside this one. roots: the folders whose data a plan may look at, for sizes that
 * only the data tells; none: no data. Copied. NULL without memory. */
struct planner *planner_new(const char *program, const char *const *roots, size_t n);
struct planner *planner_free(struct planner *p);
CLEANUP_DEFINE(struct planner *, planner_free)

/* Ends the plan that is being made, and every later one: nothing outlives the controller. */
void planner_stop(struct planner *p);

/* spec is resolved. Free the plan with trainyard__v1__plan__free_unpacked. INVALID_ARGUMENT: the program's own
 * sentence, which names the field. UNAVAILABLE: another plan is being made, or there is no such program;
 * DEADLINE_EXCEEDED; INTERNAL for an answer that is none. */
MUST_CHECK status_t planner_run(struct planner *p, const Trainyard__V1__JobSpec *spec, int64_t time_ms,
                                Trainyard__V1__Plan **ret, struct err *e);

#endif
