/* What shut_memory's device (shut_memory.h) has given away: rooms of its own memory, which only what runs may touch,
 * and rooms of the host's (host_memory_new), which must be there until the last call that reads or writes them has run.
 * For all tables of a process, on any thread; where there is no room left, the process ends. */
#ifndef TESTS_ENGINE_SHUT_ROOMS_H
#define TESTS_ENGINE_SHUT_ROOMS_H

#include "base/status.h"
#include "tests/engine/shut_line.h"

void *room_new(size_t bytes);
void room_free(void *at); /* NULL is fine */
void rooms_touch(bool may);

/* Of an open table's host_memory_new; more than `most` bytes at once are not pinned. */
MUST_CHECK status_t host_room_new(const struct kernels *open, size_t bytes, size_t most, void **ret, struct err *e);
void host_room_free(const struct kernels *open, void *at); /* NULL is fine */
bool host_room_has(const void *p);                         /* a byte of one that has not been freed */
bool host_room_begins_before(const void *p);               /* another byte than its first */

/* Whether it lies in a room of the host's, which must still be there when the call runs that follows: otherwise, and
 * inside a capture, the process ends. */
bool host_room_hold(struct line *l, const struct kernels *open, const void *host);

#endif
