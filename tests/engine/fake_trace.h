/* The trace (kernels/trace.h) of the fake device (fake_device.h). Each call that is made while a trace is active is
 * reported as a kernel, in queue 7. Its name is that of the function, followed by a quote, a backslash and a tab. A
 * process has at most one trace. A mark inside a mark, or a second trace, ends the process. */
#ifndef TESTS_ENGINE_FAKE_TRACE_H
#define TESTS_ENGINE_FAKE_TRACE_H

#include "tests/engine/fake_device.h"

#include <stdbool.h>
#include <stdint.h>

/* The state of the trace at the time of a call. */
struct fake_traced {
    bool begun;
    int64_t mark;
};

struct fake_traced fake_trace_now(void);
/* Records that a call has run until end_ns, for FAKE_DEVICE_CALL_NS. The pointer `name` is kept. Every other kernel
 * without a mark is reported with a mark that no caller set. */
void fake_trace_note(struct fake_traced traced, const char *name, int64_t end_ns);

struct kernels_trace;
const struct kernels_trace *fake_trace(enum fake_device_capture how); /* of these, HAS_NO_TRACE and TRACES_ONCE count */

#endif
