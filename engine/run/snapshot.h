/* The training state as checkpoint tensors: copied to the host at a step boundary for the checkpoint writer, and read
 * back when a run resumes.
 *
 * state_tensors.h lists the tensors. This rank's share (state_segments) is copied to host memory that snapshot_open
 * allocates (host_rooms.h); training continues while the writer's thread writes it. */
#ifndef ENGINE_RUN_SNAPSHOT_H
#define ENGINE_RUN_SNAPSHOT_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct snapshot;

/* *ret = NULL if checkpoint.directory is NULL. Reports progress, and a notice "snapshot_slow" if the system cannot pin
 * the memory. */
MUST_CHECK status_t snapshot_open(struct engine *engine, struct snapshot **ret, struct err *e);
/* Waits for the checkpoint that is being written, and ends the writer's thread. After this only snapshot_close is
 * allowed. NULL is fine. */
void snapshot_stop(struct snapshot *s);
/* Stops and frees. The device must have finished all calls of snapshot_take, also of one that failed. */
struct snapshot *snapshot_close(struct snapshot *s);
CLEANUP_DEFINE(struct snapshot *, snapshot_close)

/* Whether the last checkpoint is still being written, or two are uncommitted: then all ranks must skip the next one. */
bool snapshot_busy(struct snapshot *s);
/* Copies the state and hands it to the writer. *ret_stall_ns: how long the step loop was held up. */
MUST_CHECK status_t snapshot_take(struct snapshot *s, bool final, int64_t *ret_stall_ns, struct err *e);
/* Waits until nothing is being written; returns the newest checkpoint's status. Reports progress meanwhile. */
MUST_CHECK status_t snapshot_wait(struct snapshot *s, struct err *e);
/* Waits until no rank writes anything. Every rank calls it, and reports progress meanwhile: a rank may take minutes
 * longer than the others. */
MUST_CHECK status_t snapshot_wait_all(struct snapshot *s, struct err *e);
/* The checkpoint of this step, and all older ones, no longer count as uncommitted. Any thread. */
void snapshot_committed(struct snapshot *s, int64_t step);
/* True once after a checkpoint that this rank could not write: the other ranks wait for its commit and must be
 * informed. */
bool snapshot_take_failure(struct snapshot *s);

/* Translates the status of reading a resume checkpoint, so that engine_outcome_of distinguishes it from a failure to
 * read the data: NOT_FOUND and PERMISSION_DENIED become ABORTED, because another host, or this one later, may succeed.
 */
status_t snapshot_read_status(status_t st);

/* The tuning caches of the ranks that wrote config.checkpoint.resume_directory, for kernels_config.tuning_cache; see
 * checkpoint_tuning_caches. DATA_LOSS and ABORTED as below. */
MUST_CHECK status_t snapshot_tuning_cache(const struct engine *engine, char **ret, struct err *e);

/* Loads config.checkpoint.resume_directory: verifies all digests, then reads parameters, states, averages and counters.
 * DATA_LOSS: a file's bytes are not those that were written. ABORTED: a file cannot be read here. INVALID_ARGUMENT: a
 * tensor is missing or has another shape, the data is different, or the numerics id is under `strict`. If the
 * checkpoint was written with another optimizer, the states start from zero (notice "optimizer_started"). If it has no
 * averages, they start from the weights (notice "average_started"). */
MUST_CHECK status_t snapshot_restore(struct engine *engine, struct err *e);

#endif
