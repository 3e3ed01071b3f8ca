/* The training state as checkpoint tensors: copied out at a step boundary for the writer, and read back in.
 *
 * Which tensors there are: tensors.h. This rank's share (state_pieces) is copied to host memory that snapshot_open
 * allocates (host_rooms.h); the step goes on while the writer's thread writes it. */
#ifndef EXECUTOR_ENGINE_RUN_SNAPSHOT_H
#define EXECUTOR_ENGINE_RUN_SNAPSHOT_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct snapshot;

/* NULL checkpoint.directory: *ret = NULL. Tells progress; a notice "snapshot_slow" where the system pins no memory. */
MUST_CHECK status_t snapshot_open(struct engine *engine, struct snapshot **ret, struct err *e);
/* Waits for the checkpoint in work, and ends the writer's thread: nothing is taken from then on. NULL is fine. */
void snapshot_stop(struct snapshot *s);
/* Stops, and gives the memory back: the device has run all that a snapshot_take had queued, also one that failed. */
struct snapshot *snapshot_close(struct snapshot *s);
CLEANUP_DEFINE(struct snapshot *, snapshot_close)

/* The last checkpoint is still being written, or two are not committed: a new one must be skipped, by all ranks. */
bool snapshot_busy(struct snapshot *s);
/* Copies and hands over; returns the nanoseconds that this held up the step. */
MUST_CHECK status_t snapshot_take(struct snapshot *s, bool final, int64_t *ret_stall_ns, struct err *e);
/* Until nothing is being written, with the newest one's status; ticks progress meanwhile. */
MUST_CHECK status_t snapshot_wait(struct snapshot *s, struct err *e);
/* Any thread. */
void snapshot_committed(struct snapshot *s, int64_t step);
/* Once after a checkpoint that this rank could not write: to be told to the others, who wait for its commit. */
bool snapshot_take_failure(struct snapshot *s);

/* What the kernels of the ranks that wrote config.checkpoint.resume_directory had chosen, for kernels_config.record;
 * see checkpoint_records. DATA_LOSS as below. */
MUST_CHECK status_t snapshot_record(const struct engine *engine, char **ret, struct err *e);

/* Loads config.checkpoint.resume_directory: all digests, then parameters, states, averages and counters. DATA_LOSS for
 * a bad file or none; INVALID_ARGUMENT for a missing tensor or another shape, other data, or other numerics under
 * `strict`. States of another kind of optimizer are left out: this one's start from zero, told by a notice
 * "optimizer_started". An average that the checkpoint has none of starts from its weights: "average_started". */
MUST_CHECK status_t snapshot_restore(struct engine *engine, struct err *e);

#endif
