/* The agent of one host. It attaches to the controller, runs the ranks that the controller orders, and reports how they
 * start, join and end.
 *
 *     TRY(agent_open(&options, loop, on_attached, &agent, e));
 *     reactor_run(loop, e);      // until agent_leave has ended it
 *     agent = agent_close(agent);
 *
 * One thread owns an agent: the thread of its loop. */
#ifndef EXECUTOR_AGENT_AGENT_H
#define EXECUTOR_AGENT_AGENT_H

#include "executor/agent/handover.h"
#include "executor/agent/host.h"

struct agent;

/* Kills the processes that an earlier agent of this directory left, and waits until they are gone. Dials once the loop
 * runs. handed: the state of the program that this process executed before, whose ranks continue; NULL: there is none.
 * attached: called at each attach. options and handed are borrowed until agent_close. */
MUST_CHECK status_t agent_open(const struct agent_options *options, struct reactor *loop,
                               const Trainyard__Handover__Handover *handed, void (*attached)(const struct agent *a),
                               struct agent **ret, struct err *e);
/* Kills the workers that still run. */
struct agent *agent_close(struct agent *a);
CLEANUP_DEFINE(struct agent *, agent_close)

const struct host *agent_host(const struct agent *a);

/* This signal (SIGTERM) asked the agent to stop: the agent sends a goodbye to the controller, ends its workers, sends
 * their last records and quits the loop, within five seconds. Called once. */
void agent_leave(struct agent *a, const char *signal);

/* Reads the files of TLS and of the token again. Streams and ranks stay; the next dial uses what was read. On an error
 * both streams keep what they have. */
MUST_CHECK status_t agent_reload(struct agent *a, struct err *e);

/* This signal (SIGUSR1) asked the agent to drain: the controller makes the jobs write checkpoints and leave. Then the
 * agent quits the loop. Called once, before agent_leave, which may follow and ends the workers that still run. */
void agent_drain(struct agent *a, const char *signal);

/* Asks for a restart in which the ranks keep running (SIGUSR2): as soon as nothing else is under way, this process
 * executes the program, which gets the ranks (handover.h). Does nothing once the agent leaves or drains. If the program
 * cannot be executed, the log says why, and this one continues. program and argv are borrowed. */
void agent_restart(struct agent *a, const char *program, char **argv);

#endif
