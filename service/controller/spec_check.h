/* Checks on a host whether a job could run there, before the job is stored. One attached executor starts a worker
 * outside its slots; the worker opens the spec's files and plans its ranks.
 *
 * Bounded: SPEC_CHECK_MAX checks at once, SPEC_CHECK_MAX_PER_HOST on one executor; further callers wait. At most
 * SPEC_CHECK_MAX_CALLERS calls of clients may be checking, including those that wait, and those that check the trials
 * of a sweep without a host (rpc/sweep_judge.c). Thread-safe. */
#ifndef SERVICE_CONTROLLER_SPEC_CHECK_H
#define SERVICE_CONTROLLER_SPEC_CHECK_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/status.h"
#include "service/controller/dispatch.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPEC_CHECK_MAX = 8, SPEC_CHECK_MAX_PER_HOST = 2, SPEC_CHECK_MAX_PROBLEMS = 64, SPEC_CHECK_PROBLEM_BYTES = 480 };

/* Half of the threads that serve clients: the other half always answers at once. */
enum { SPEC_CHECK_MAX_CALLERS = 8 };

struct spec_checks;
struct spec_checks *spec_checks_new(struct dispatch *d);
struct spec_checks *spec_checks_free(struct spec_checks *c);
CLEANUP_DEFINE(struct spec_checks *, spec_checks_free)

/* False: SPEC_CHECK_MAX_CALLERS calls are checking already. After true, the caller calls spec_checks_leave. */
MUST_CHECK bool spec_checks_enter(struct spec_checks *c);
void spec_checks_leave(struct spec_checks *c);

/* What the check found. After a failure: what it had found until then. */
struct spec_check_result {
    struct spec_check_problem {
        char text[SPEC_CHECK_PROBLEM_BYTES]; /* "data.text.files[0]: ..." */
        bool of_host;                        /* another host may not have it */
    } * problems;
    size_t n;
    Trainyard__V1__Plan *plan; /* if requested and made; else NULL */
    char part[80];             /* what was checked last */
    char unchecked[400];       /* what a complete check has left out; "" = nothing */
};
void spec_check_result_done(struct spec_check_result *a);

/* Sends a copy of the request to the executor and waits for the result. ST_OK: the check is complete. Otherwise
 * ret->part was not checked, and e holds the reason: DEADLINE_EXCEEDED, UNAVAILABLE (the executor has disconnected),
 * RESOURCE_EXHAUSTED, INTERNAL. The caller always calls spec_check_result_done. */
MUST_CHECK status_t spec_check_run(struct spec_checks *c, const char *executor,
                                   const Trainyard__V1__WorkerCheck *request, deadline_ms_t deadline,
                                   struct spec_check_result *ret, struct err *e);

/* Handles a message from an executor. */
void spec_check_handle_output(struct spec_checks *c, const char *executor, const Trainyard__V1__CheckOutput *output);
/* The executor's stream has ended: its checks end with UNAVAILABLE. */
void spec_checks_executor_detached(struct spec_checks *c, const char *executor);
/* The controller stops: ends every check, and every later one. */
void spec_checks_stop(struct spec_checks *c);

#endif
