/* The agent's own directory: who it is, whom it has obeyed, and which processes it started. One agent at a time.
 *
 *   lock                flock'd while an agent lives
 *   id                  the executor's id, made once: 16 hex digits
 *   incarnation         how often an agent has started here
 *   epoch               the highest of any controller it has obeyed
 *   attempts/<job>-<n>  AttemptStatus messages: ranks with pid and start time, and how they ended
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

/* Makes what is missing, takes the lock and raises the incarnation. FAILED_PRECONDITION when another agent holds it. */
MUST_CHECK status_t directory_open(const char *path, struct directory **ret, struct err *e);
struct directory *directory_close(struct directory *d);
CLEANUP_DEFINE(struct directory *, directory_close)

const char *directory_path(const struct directory *d);
const char *directory_id(const struct directory *d);
int64_t directory_incarnation(const struct directory *d);

int64_t directory_epoch(const struct directory *d);
/* Durable before it returns. Never lowers it. */
MUST_CHECK status_t directory_epoch_raise(struct directory *d, int64_t epoch, struct err *e);

MUST_CHECK status_t directory_attempt_write(struct directory *d, const Trainyard__V1__AttemptStatus *status,
                                            struct err *e);
void directory_attempt_remove(struct directory *d, int64_t job, int32_t attempt);

/* Every attempt on record; one that cannot be read (a host's crash) is removed. Free each with
 * trainyard__v1__attempt_status__free_unpacked(x, NULL), and the array with free. */
MUST_CHECK status_t directory_attempts_read(struct directory *d, Trainyard__V1__AttemptStatus ***ret, size_t *ret_n,
                                            struct err *e);

#endif
