/* The buffers of the fake device (fake_device.h). Only running calls may touch device buffers. Host buffers
 * (host_memory_new) must stay allocated until the last call that uses them has run. All tables of a process share them,
 * on any thread. The process ends if no space is left. */
#ifndef TESTS_ENGINE_FAKE_BUFFERS_H
#define TESTS_ENGINE_FAKE_BUFFERS_H

#include "base/status.h"
#include "tests/engine/fake_queue.h"

void *device_buffer_new(size_t bytes);
void device_buffer_free(void *at); /* NULL is allowed */
void device_buffers_allow(bool may);

/* host_memory_new of an open table. Refuses more than `most` bytes at once. */
MUST_CHECK status_t host_buffer_new(const struct kernels *open, size_t bytes, size_t most, void **ret, struct err *e);
void host_buffer_free(const struct kernels *open, void *at); /* NULL is allowed */
bool host_buffer_has(const void *p);                         /* p is a byte of a host buffer that is not freed */
bool host_buffer_begins_before(const void *p);               /* p is in a host buffer, and is not its first byte */

/* Returns whether `host` is in a host buffer. If it is, the buffer must still exist when the next call runs; the
 * process ends if it does not, and also inside a capture. */
bool host_buffer_hold(struct fake_queue *l, const struct kernels *open, const void *host);

#endif
