/* What shut_memory's device (shut_memory.h) answers for a trace (kernels/trace.h): each of its calls that was made
 * while a trace was begun is a kernel, by the name that it was called by, in queue 7. One process, one trace; a mark
 * inside a mark, or a second trace, ends the process. */
#ifndef TESTS_ENGINE_SHUT_TRACE_H
#define TESTS_ENGINE_SHUT_TRACE_H

#include "tests/engine/shut_memory.h"

#include <stdbool.h>
#include <stdint.h>

/* What a call that is made now has of a trace. */
struct shut_traced {
    bool begun;
    int64_t mark;
};

struct shut_traced shut_trace_now(void);
/* The call has run until end_ns, SHUT_MEMORY_CALL_NS long; name: kept by address. Every other kernel of no mark comes
 * with one that nobody gave. */
void shut_trace_note(struct shut_traced traced, const char *name, int64_t end_ns);

struct kernels_trace;
const struct kernels_trace *shut_trace(enum shut_memory_capture how); /* of these, HAS_NO_TRACE and TRACES_ONCE count */

#endif
