/* The agent's own directory: its identity, the controllers that it has obeyed, and the processes that it started. One
 * agent at a time.
 *
 *   lock                flock'd while an agent lives
 *   id                  the executor's id, made once: 16 hex digits
 *   incarnation         how often an agent has started here
 *   cluster             the id of the cluster whose controllers it obeys, a UUID; from the first Welcome on
 *   epoch               the highest of any controller it has obeyed, and the nonce of that epoch's election
 *   attempts/<job>-<n>  AttemptStatus messages: ranks with pid and start time, and how they ended
 *   peaks               the fastest products seen (executor/agent/peaks.h)
 *   control_groups      the control groups of its ranks, one path a line (executor/agent/cgroups.h)
 *   spool/              executor/agent/spool.h
 *
 * Identity and epoch are fsynced. Attempts are not: they must survive a kill -9 of the agent, and a host's crash ends
 * the processes that they name. Owned by one thread. */
#ifndef EXECUTOR_AGENT_DIRECTORY_H
#define EXECUTOR_AGENT_DIRECTORY_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <trainyard/v1/dispatch.pb-c.h>

struct directory;

/* Creates missing files and folders, takes the lock and increments the incarnation. FAILED_PRECONDITION: another agent
 * has the lock. */
MUST_CHECK status_t directory_open(const char *path, struct directory **ret, struct err *e);
struct directory *directory_close(struct directory *d);
CLEANUP_DEFINE(struct directory *, directory_close)

const char *directory_path(const struct directory *d);
const char *directory_id(const struct directory *d);
int64_t directory_incarnation(const struct directory *d);

/* cluster and nonce: "" before the first. */
const char *directory_cluster(const struct directory *d);
const char *directory_nonce(const struct directory *d);
int64_t directory_epoch(const struct directory *d);
/* Durable before it returns. FAILED_PRECONDITION for an epoch that is lower than the known one, or the same with
 * another nonce. nonce "": the controller sends none. */
MUST_CHECK status_t directory_epoch_raise(struct directory *d, int64_t epoch, const char *nonce, struct err *e);
/* Durable before it returns. FAILED_PRECONDITION if the directory belongs to another cluster; the message states what
 * to do. cluster "": the controller sends none, and nothing changes. */
MUST_CHECK status_t directory_cluster_join(struct directory *d, const char *cluster, struct err *e);

MUST_CHECK status_t directory_attempt_write(struct directory *d, const Trainyard__V1__AttemptStatus *status,
                                            struct err *e);
void directory_attempt_remove(struct directory *d, int64_t job, int32_t attempt);

/* Returns every recorded attempt. Removes a record that cannot be read (after a host's crash). Free each with
 * trainyard__v1__attempt_status__free_unpacked(x, NULL), and the array with free. */
MUST_CHECK status_t directory_attempts_read(struct directory *d, Trainyard__V1__AttemptStatus ***ret, size_t *ret_n,
                                            struct err *e);

#endif
