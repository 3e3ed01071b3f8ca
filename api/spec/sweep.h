/* Resolves sweeps (sweep_spec.proto): fills in defaults, checks ranges and combinations, and makes the job spec of a
 * trial.
 *
 *     Trainyard__V1__SweepSpec *sweep = NULL;
 *     TRY(sweep_resolve(given, &sweep, &problems, e));
 *     TRY(sweep_check_trials(sweep, 1, sweep_trials(sweep), e));
 *     TRY(sweep_trial_spec(sweep, 7, &job, e));              // the job spec of trial 7, not resolved
 *
 * Trials are numbered from 1. The spec of a trial is a pure function of the resolved sweep and the number. `spec`, the
 * job of all trials, keeps the form in which it was given: a default may depend on the value of a parameter. No I/O.
 * Thread-safe. */
#ifndef API_SPEC_SWEEP_H
#define API_SPEC_SWEEP_H

#include "api/spec/spec.h"
#include "base/sha256.h"

#include <trainyard/v1/sweep_spec.pb-c.h>

enum {
    SWEEP_MAX_TRIALS = 10000,
    SWEEP_NAME_CHARS = 57,     /* the name of a job has 63: NAME-10000 */
    SWEEP_CHOICE_BYTES = 1024, /* of one choice */
};

/* A new sweep with every default, and its parameters sorted by path. As spec_resolve. */
MUST_CHECK status_t sweep_resolve(const Trainyard__V1__SweepSpec *given, Trainyard__V1__SweepSpec **ret,
                                  struct spec_problems *problems, struct err *e);
Trainyard__V1__SweepSpec *sweep_free(Trainyard__V1__SweepSpec *sweep); /* NULL is fine; returns NULL */
CLEANUP_DEFINE(Trainyard__V1__SweepSpec *, sweep_free)

/* Of a resolved sweep. */
int sweep_trials(const Trainyard__V1__SweepSpec *sweep);
bool sweep_maximizes(const Trainyard__V1__SweepSpec *sweep);
/* Differs if the sweeps do; the order of maps does not matter. */
void sweep_digest(const Trainyard__V1__SweepSpec *sweep, uint8_t ret[SHA256_BYTES]);

/* The base with the values, the name and the labels of the trial. INVALID_ARGUMENT: a parameter is not a field of the
 * base, or the field does not take the value. Free it with spec_free. */
MUST_CHECK status_t sweep_trial_spec(const Trainyard__V1__SweepSpec *sweep, int trial, Trainyard__V1__JobSpec **ret,
                                     struct err *e);
/* Resolves the specs of the trials `from` to `to`. INVALID_ARGUMENT with the first wrong trial, its values and its
 * first problem. */
MUST_CHECK status_t sweep_check_trials(const Trainyard__V1__SweepSpec *sweep, int from, int to, struct err *e);

#endif
