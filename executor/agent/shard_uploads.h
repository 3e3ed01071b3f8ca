/* Checkpoints on their way to a store. When a rank has written its shard, trainyard-data uploads the files, and the
 * rank gets an answer: only then does it report the shard. There is one upload at a time for each rank.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_SHARD_UPLOADS_H
#define EXECUTOR_AGENT_SHARD_UPLOADS_H

#include "base/status.h"
#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

struct shard_uploads;

struct shard_uploads_owner {
    void *ctx;
    void (*uploaded)(void *ctx, int64_t job, int32_t attempt, int32_t rank, Trainyard__V1__ShardUploaded *answer);
};

struct shard_uploads *shard_uploads_new(const struct host *host, const struct shard_uploads_owner *owner);
struct shard_uploads *shard_uploads_free(struct shard_uploads *us); /* NULL is fine; returns NULL */

/* Keeps what uploads of the attempt need, if its checkpoints are in a store. The keys of the order are copied. */
void shard_uploads_add(struct shard_uploads *us, const Trainyard__V1__AttemptStart *order);
/* No attempt has checkpoints in a store. */
bool shard_uploads_is_empty(const struct shard_uploads *us);
/* A rank has written the shard of a step. Ignored if an upload of the rank runs. */
void shard_uploads_start(struct shard_uploads *us, int64_t job, int32_t attempt, int32_t rank, int64_t step);
/* The attempt has ended: its uploads stop, and its keys are overwritten. */
void shard_uploads_remove(struct shard_uploads *us, int64_t job, int32_t attempt);

#endif
