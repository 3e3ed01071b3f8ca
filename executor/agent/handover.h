/* The state that an agent hands over when its process executes the program anew (SIGUSR2): what the new program needs
 * so that the ranks continue. They stay children of the process, which keeps its pid.
 *
 *     handover_exec(program, argv, &state, e);     // returns only if it has failed; then nothing has changed
 *     ... in the new program, before it opens any descriptor:
 *     TRY(handover_take(&state, e));               // NULL: this process was not handed over
 *
 * The state is a message (handover.proto) in a memory file, whose descriptor $TRAINYARD_EXECUTOR_STATE names. The new
 * program inherits that file and the descriptors in the state, and no others. For the main thread. */
#ifndef EXECUTOR_AGENT_HANDOVER_H
#define EXECUTOR_AGENT_HANDOVER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <handover.pb-c.h>

enum { HANDOVER_VERSION = 1 };

/* Executes the program with the descriptors of the state. Every other thread of this process ends. An error: the
 * program cannot be executed, or fails when it is asked for its version. */
MUST_CHECK status_t handover_exec(const char *program, char **argv, const Trainyard__Handover__Handover *state,
                                  struct err *e);

/* FAILED_PRECONDITION: the state has another version, DATA_LOSS: it is damaged. Then all inherited descriptors from 3
 * up are closed, so the workers end. Free the state with handover_free. */
MUST_CHECK status_t handover_take(Trainyard__Handover__Handover **ret, struct err *e);
Trainyard__Handover__Handover *handover_free(Trainyard__Handover__Handover *h); /* NULL is fine; returns NULL */
CLEANUP_DEFINE(Trainyard__Handover__Handover *, handover_free)

/* NULL: there is none, or h is NULL. */
const Trainyard__Handover__HandedAttempt *handover_attempt(const Trainyard__Handover__Handover *h, int64_t job,
                                                           int32_t attempt);

#endif
