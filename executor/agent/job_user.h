/* The users of ranks: with --job-users FIRST-LAST a user for each job, the same on all hosts and in all attempts. A job
 * therefore reads its own checkpoints, and no other job can. A user has two numbers: its own, and the agent's group,
 * through which the controller removes checkpoints (executor/worker/user.h says which process has the group).
 *
 *   job n             FIRST + n mod (LAST - FIRST)
 *   samples, checks   LAST
 *
 * Two jobs whose numbers differ by a multiple of LAST - FIRST have the same user. One host never runs both at a time;
 * the later one can read what the earlier one left. */
#ifndef EXECUTOR_AGENT_JOB_USER_H
#define EXECUTOR_AGENT_JOB_USER_H

#include "base/status.h"
#include "executor/agent/host.h"

#include <sys/types.h>

enum { JOB_USER_REQUEST = 0, JOB_USER_TEXT_BYTES = 96 };

/* Whether the options give each job a user of its own. */
bool job_user_is_own(const struct agent_options *o);

/* The user of a job, or of JOB_USER_REQUEST. Only if job_user_is_own. */
uid_t job_user_of(const struct agent_options *o, int64_t job);

/* The user that the processes of a job, or of JOB_USER_REQUEST, run as: its own, --worker-user, or the agent's. */
uid_t job_user_uid(const struct agent_options *o, int64_t job);

/* The value of a worker's option --job-user. has_device: also with the groups of the host's GPUs, video and render. */
void job_user_text(const struct agent_options *o, int64_t job, bool has_device, char ret[JOB_USER_TEXT_BYTES]);

/* "FIRST-LAST": from 1 up, at least two users, at most a million. */
MUST_CHECK status_t job_user_parse(const char *text, uid_t *ret_first, uid_t *ret_last, struct err *e);

/* A sentence if jobs have a user other than the agent's, but all the same one; NULL otherwise. job_sandboxes.h reports
 * jobs that run as the agent's user. */
const char *job_user_missing(const struct agent_options *o);

#endif
