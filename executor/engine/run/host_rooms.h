/* Memory of the host for many arrays that a device writes at full speed, reserved room by room: to pin memory takes a
 * second for a few GB, and who waits is told of progress between.
 *
 *     TRY(host_rooms_new(kernels, bytes, n, HOST_ROOM_BYTES, progress, ctx, data, &rooms, e));
 *     ... data[i]: bytes[i] zeros, on a boundary of 64 bytes ...
 *     rooms = host_rooms_free(rooms);
 *
 * Where the system pins no more, what is left is common memory: a device writes it too, slower. */
#ifndef EXECUTOR_ENGINE_RUN_HOST_ROOMS_H
#define EXECUTOR_ENGINE_RUN_HOST_ROOMS_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>

struct kernels;
struct host_rooms;

/* A room has as many arrays as it has bytes for, and at least one. */
static const size_t HOST_ROOM_BYTES = (size_t)1 << 30;

/* kernels: borrowed until host_rooms_free. All zeros, so that no page is missing later. RESOURCE_EXHAUSTED where there
 * is no common memory either. */
MUST_CHECK status_t host_rooms_new(const struct kernels *kernels, const size_t *bytes, int n, size_t room_bytes,
                                   void (*progress)(void *ctx), void *ctx, void **data, struct host_rooms **ret,
                                   struct err *e);
/* Nothing that writes into them may be queued. */
struct host_rooms *host_rooms_free(struct host_rooms *r);
CLEANUP_DEFINE(struct host_rooms *, host_rooms_free)

/* Of all arrays together; and how many of these are in common memory. */
size_t host_rooms_bytes(const struct host_rooms *r);
size_t host_rooms_unpinned(const struct host_rooms *r);

#endif
