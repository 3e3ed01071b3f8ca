/* The folder of an attempt whose checkpoints are in a store (checkpoint.store), in the cache of data:
 *
 *   CACHE/checkpoints/EXECUTOR/JOB-ATTEMPT/
 *     written/   the ranks write their shards here, from where they are uploaded; it belongs to the job's user
 *     read/      the checkpoint that the attempt resumes from, made by trainyard-data
 *
 * It is removed with the attempt. Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_SHARD_FOLDERS_H
#define EXECUTOR_AGENT_SHARD_FOLDERS_H

#include "base/status.h"
#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

struct shard_folders {
    char local[PATH_MAX], written[PATH_MAX];
    char resume[PATH_MAX]; /* where the checkpoint will be that the attempt resumes from; "": it is in no store */
};

/* Only the paths. False: the attempt's checkpoints are in no store. */
bool shard_folders_of(const struct host *host, const Trainyard__V1__AttemptStart *order, struct shard_folders *ret);
/* Makes the folders, if the attempt needs any. FAILED_PRECONDITION: this host cannot have copies of data. */
MUST_CHECK status_t shard_folders_make(const struct host *host, const Trainyard__V1__AttemptStart *order,
                                       struct err *e);
void shard_folders_remove(const struct host *host, int64_t job, int32_t attempt);
/* Removes what an earlier agent has left. */
void shard_folders_begin(const struct host *host);

#endif
