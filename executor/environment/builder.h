/* Processes of the user who builds environments. What they execute comes from a job's files and from the packages that
 * these name, so such a process has no capability, and with a user of its own neither the executor's files nor those of
 * jobs.
 *
 * For a process with one thread that is a subreaper. */
#ifndef EXECUTOR_ENVIRONMENT_BUILDER_H
#define EXECUTOR_ENVIRONMENT_BUILDER_H

#include "base/clock.h"
#include "base/status.h"
#include "executor/sandbox/sandbox.h"

#include <stdbool.h>
#include <stddef.h>

struct builder {
    const char *user;              /* NULL: this process's */
    char *const *variables;        /* the environment of its processes, NULL-terminated */
    const struct sandbox *sandbox; /* that its processes cannot leave; NULL: none */
    int agent; /* a descriptor: at its end, the agent is gone or has no use for the result any more */
};

struct builder_order {
    const char *directory; /* the working directory */
    /* In the child, as the user, before argv is executed; what it writes to standard output is output. False: argv is
     * not executed. NULL: nothing. */
    bool (*before)(void *ctx);
    void *ctx;
    const char *const *argv; /* NULL-terminated; argv[0] is searched in PATH */
    deadline_ms_t until;
    /* A piece of standard output and standard error. */
    void (*output)(void *ctx, const char *data, size_t n);
    /* Called every second; NULL: not called. A failure ends the process. */
    status_t (*tick)(void *ctx, struct err *e);
    void *owner; /* ctx of output and tick */
};

enum { BUILDER_NOT_EXECUTED = 127 };

/* Runs one process to its end, and ends all that it has started. *ret_status: as of waitpid. CANCELLED: the agent is
 * gone. DEADLINE_EXCEEDED: the time is over; or the failure of the tick. */
MUST_CHECK status_t builder_run(const struct builder *b, const struct builder_order *order, int *ret_status,
                                struct err *e);

/* Ends all children of this process. */
void builder_kill(void);

#endif
