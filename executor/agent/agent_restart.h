/* The restart of an agent whose ranks keep running: agent.c and main.c use it. See handover.h. */
#ifndef EXECUTOR_AGENT_AGENT_RESTART_H
#define EXECUTOR_AGENT_AGENT_RESTART_H

#include "executor/agent/agent_state.h"

/* The timer's function; ctx: the agent. Executes the program if everything can be handed over; otherwise tries again a
 * moment later. */
void agent_restart_tick(void *ctx);

/* Loads an attempt of an earlier agent into the core: with the ranks that were handed over, or without any. */
MUST_CHECK status_t agent_attempt_load(struct agent *a, const Trainyard__V1__AttemptStatus *record, struct err *e);

#endif
