/* A machine whose memory runs out at a chosen allocation, for programs that are linked with REFUSED_MEMORY
 * (tests/CMakeLists.txt). Shared libraries have the real allocator: what they allocate is neither refused nor
 * counted. tsearch's is: its nodes are refused like any other, though not counted. */
#ifndef TESTS_REFUSED_MEMORY_H
#define TESTS_REFUSED_MEMORY_H

#include "base/status.h"

#include <stdbool.h>

/* Calls `act` with its first allocation refused, then its second, and so on until none is. Each time but the last it
 * must return RESOURCE_EXHAUSTED with a sentence and hold no memory; the last time it must succeed and hold none. Fails
 * the test otherwise, naming `what`. Returns how many allocations there were. */
int refuse_each_allocation(const char *what, status_t (*act)(void *ctx, struct err *e), void *ctx);

/* The same by hand: the allocation after n more is refused, and none after it. allow_allocations: whether one was. */
void refuse_allocation(int n);
bool allow_allocations(void);

#endif
