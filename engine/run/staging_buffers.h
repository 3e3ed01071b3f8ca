/* Host memory for many arrays that a device writes at full speed, so it is pinned. Pinning takes about a second for a
 * few GB; it is done buffer by buffer, and progress is reported after each.
 *
 *     TRY(staging_buffers_new(kernels, bytes, n, STAGING_BUFFER_BYTES, progress, ctx, data, &buffers, e));
 *     ... data[i]: bytes[i] zeros, aligned to 64 bytes ...
 *     buffers = staging_buffers_free(buffers);
 *
 * If the system refuses to pin more, the rest is pageable memory, which a device writes more slowly. */
#ifndef ENGINE_RUN_STAGING_BUFFERS_H
#define ENGINE_RUN_STAGING_BUFFERS_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>

struct kernels;
struct staging_buffers;

/* A buffer holds as many arrays as fit in this size, and at least one. */
static const size_t STAGING_BUFFER_BYTES = (size_t)1 << 30;

/* kernels: borrowed until staging_buffers_free. All bytes are set to zero, so that no page fault comes later.
 * RESOURCE_EXHAUSTED if there is no pageable memory either. */
MUST_CHECK status_t staging_buffers_new(const struct kernels *kernels, const size_t *bytes, int n, size_t buffer_bytes,
                                        void (*progress)(void *ctx), void *ctx, void **data,
                                        struct staging_buffers **ret, struct err *e);
/* No write to them may be queued. */
struct staging_buffers *staging_buffers_free(struct staging_buffers *s);
CLEANUP_DEFINE(struct staging_buffers *, staging_buffers_free)

/* The bytes of all buffers, and how many of them are not pinned. */
size_t staging_buffers_bytes(const struct staging_buffers *s);
size_t staging_buffers_unpinned_bytes(const struct staging_buffers *s);

#endif
