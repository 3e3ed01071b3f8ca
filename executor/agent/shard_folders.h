/* The folder of an attempt whose checkpoints or initial weights are in a store, in the cache of data:
 *
 *   CACHE/checkpoints/EXECUTOR/JOB-ATTEMPT/
 *     written/   the ranks write their shards here, from where they are uploaded; it belongs to the job's user
 *     read/      the checkpoint that the attempt resumes from, made by trainyard-data
 *   CACHE/checkpoints/EXECUTOR/sample-N/
 *     read/      the checkpoint that a sample reads
 *     cache/     of a verification: copies of its own, so that each byte comes from the store
 *
 * It is removed with the attempt, or with the sample. Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_SHARD_FOLDERS_H
#define EXECUTOR_AGENT_SHARD_FOLDERS_H

#include "base/status.h"
#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

struct shard_folders {
    char local[PATH_MAX];
    char written[PATH_MAX]; /* "": the attempt writes its checkpoints to a folder */
    char resume[PATH_MAX];  /* where the checkpoint will be that the attempt resumes from; "": it is in no store */
    char weights[PATH_MAX]; /* where the weights will be that the attempt begins with; "": they are in no store */
};

/* Only the paths. False: the attempt has nothing in a store but data. */
bool shard_folders_of(const struct host *host, const Trainyard__V1__AttemptStart *order, struct shard_folders *ret);
/* The pattern of the files of train.init_from; free() it. NULL: they are in no store. init_directory: the checkpoint's
 * that it names, or "". */
char *shard_weights_pattern(const Trainyard__V1__JobSpec *spec, const char *init_directory);
/* Makes the folders, if the attempt needs any. FAILED_PRECONDITION: this host cannot have copies of data. */
MUST_CHECK status_t shard_folders_make(const struct host *host, const Trainyard__V1__AttemptStart *order,
                                       struct err *e);
void shard_folders_remove(const struct host *host, int64_t job, int32_t attempt);

struct sample_folders {
    char local[PATH_MAX], step[PATH_MAX], cache[PATH_MAX]; /* step: where the checkpoint will be */
};
/* Makes the folders for the checkpoint `uri`, s3://.../step-N. INVALID_ARGUMENT: it is no such URI. */
MUST_CHECK status_t sample_folders_make(const struct host *host, int64_t sample, const char *uri,
                                        struct sample_folders *ret, struct err *e);
void sample_folders_remove(const struct host *host, int64_t sample);

/* Removes what an earlier agent has left. */
void shard_folders_begin(const struct host *host);

#endif
