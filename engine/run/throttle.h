/* Limits how far the host runs ahead of a device whose calls are deferred.
 *
 * An agent takes a rank for hung when it reports no progress for about half a minute. Progress must therefore follow
 * the device, not the calls that the host queues. When a step is not known to be short, the host stays at most
 * THROTTLE_AHEAD marks ahead: before it records the next mark, it waits for the mark THROTTLE_AHEAD places earlier and
 * reports progress for it. The device stays as busy as with a whole step queued. Other ranks wait for nothing that
 * is queued after a mark, as they wait for nothing that is queued after a WAIT.
 *
 * One thread, the compute thread. Nothing is allocated after throttle_open. */
#ifndef ENGINE_RUN_THROTTLE_H
#define ENGINE_RUN_THROTTLE_H

#include "base/status.h"

#include <stdint.h>

struct kernels;

/* LOADs and WAITs that the host may be ahead of the device. */
enum { THROTTLE_AHEAD = 8 };

struct throttle {
    const struct kernels *kernels; /* borrowed until throttle_close */
    void *events[THROTTLE_AHEAD];  /* NULL if calls are not deferred */
    int64_t marked, passed;        /* marks recorded so far, and those that the device has reached */
};

typedef void throttle_progress_fn(void *ctx);

MUST_CHECK status_t throttle_open(struct throttle *t, const struct kernels *kernels, struct err *e);
void throttle_close(struct throttle *t);

/* Records a mark behind the calls so far; waits first if THROTTLE_AHEAD marks are outstanding. `progress` (may be NULL)
 * is called once for each mark that the device has reached. */
MUST_CHECK status_t throttle_mark(struct throttle *t, throttle_progress_fn *progress, void *ctx, struct err *e);

/* Waits until the device has reached all marks. */
MUST_CHECK status_t throttle_drain(struct throttle *t, throttle_progress_fn *progress, void *ctx, struct err *e);

#endif
