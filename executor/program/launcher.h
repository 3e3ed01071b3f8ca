/* `launcher: host`: the command starts the ranks of its host itself, as torchrun does, so it runs once on each host.
 * Every rank keeps its trainyard-program. That of the host's lowest rank, its leader, starts the command; the others
 * follow the leader: they end when it ends.
 *
 * A follower waits for the leader's pidfd. It always ends as FINISHED or STOPPED: if the leader has failed, its own end
 * says so, and the executor stops the followers. */
#ifndef EXECUTOR_PROGRAM_LAUNCHER_H
#define EXECUTOR_PROGRAM_LAUNCHER_H

#include "base/status.h"
#include "executor/program/rendezvous.h"

#include <stdbool.h>
#include <trainyard/v1/worker.pb-c.h>

bool launcher_is_host(const Trainyard__V1__ProgramSpec *program);

/* Whether this rank follows the leader of its host instead of starting the command. */
bool launcher_follows(const Trainyard__V1__ProgramSpec *program, const struct place *place);

/* A descriptor that becomes readable when the leader has ended; -1: it has ended already. */
MUST_CHECK status_t launcher_leader_open(const struct place *place, int *ret, struct err *e);

#endif
