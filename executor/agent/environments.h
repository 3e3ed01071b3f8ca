/* The Python environments of attempts on this host. trainyard-environment (executor/environment) finds or builds one in
 * the cache, which several executors may share, reports to the ranks meanwhile, and keeps the environment in use until
 * the attempt ends.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_ENVIRONMENTS_H
#define EXECUTOR_AGENT_ENVIRONMENTS_H

#include "base/status.h"
#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

struct environments;

struct environments_owner {
    void *ctx;
    void (*report)(void *ctx, int64_t job, int32_t attempt, Trainyard__V1__EnvironmentReport *report);
};

struct environments *environments_new(const struct host *host, const struct environments_owner *owner);
struct environments *environments_free(struct environments *es); /* NULL is fine; returns NULL */

/* Whether the program has an environment: Python packages, or an image that a host must fetch or unpack. */
bool environments_needed(const Trainyard__V1__ProgramSpec *program);
/* Whether this host can have environments. FAILED_PRECONDITION with the option or the right that is missing. field: of
 * the spec, for the sentence. */
MUST_CHECK status_t environments_check(const struct agent_options *options, const char *field, struct err *e);

/* The attempt needs an environment. */
MUST_CHECK status_t environments_add(struct environments *es, int64_t job, int32_t attempt,
                                     const Trainyard__V1__ProgramSpec *program, struct err *e);
/* No attempt has an environment. */
bool environments_is_empty(const struct environments *es);
/* If the attempt needs an environment: its code is at this path; "": it has none. A failure is reported. */
void environments_start(struct environments *es, int64_t job, int32_t attempt, const char *code);
/* The attempt has ended: a build is stopped, and the environment is no longer in use. */
void environments_remove(struct environments *es, int64_t job, int32_t attempt);

#endif
