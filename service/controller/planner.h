/* Makes the plan of a spec with the program trainyard-train, which is in the directory of the controller's program. The
 * controller itself does not contain the engine.
 *
 * One plan is made at a time, with at most PLANNER_MAX_MS and PLANNER_MAX_BYTES of memory. A second request is refused
 * at once. Thread-safe. The process must ignore SIGPIPE. */
#ifndef SERVICE_CONTROLLER_PLANNER_H
#define SERVICE_CONTROLLER_PLANNER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <trainyard/v1/plan.pb-c.h>
#include <trainyard/v1/spec.pb-c.h>

#define PLANNER_MAX_MS    10000
#define PLANNER_MAX_BYTES (4LL << 30)

struct planner;

enum { PLANNER_MAX_PATHS = 48 };

/* The files that a plan may read, for sizes that only the data contains: files below `roots` (no roots: no files),
 * without the files and folders in `except`. At most PLANNER_MAX_PATHS of each count. */
struct planner_data {
    const char *const *roots, *const *except;
    size_t n_roots, n_except;
};

/* program: NULL = trainyard-train in the directory of this program. data is copied; NULL: no data. Returns NULL without
 * memory. The program gets only a few variables of the environment (paths, language, sanitizer options), because others
 * may contain the database's password. */
struct planner *planner_new(const char *program, const struct planner_data *data);
/* Adds a path to `except`. Call it before the first plan. */
void planner_except(struct planner *p, const char *path);
struct planner *planner_free(struct planner *p);
CLEANUP_DEFINE(struct planner *, planner_free)

/* Kills the running program and refuses all later plans, so that no program outlives the controller. */
void planner_stop(struct planner *p);

/* Plans a resolved spec within time_ms. The caller frees the plan with trainyard__v1__plan__free_unpacked.
 * INVALID_ARGUMENT: a bad spec; the message is the program's and names the field. UNAVAILABLE: another plan is being
 * made, or the program is missing. DEADLINE_EXCEEDED: the plan took too long. RESOURCE_EXHAUSTED: the program exceeded
 * a limit. INTERNAL: the program failed, or its answer cannot be parsed. */
MUST_CHECK status_t planner_run(struct planner *p, const Trainyard__V1__JobSpec *spec, int64_t time_ms,
                                Trainyard__V1__Plan **ret, struct err *e);

#endif
