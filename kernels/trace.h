/* What a device has run, by name: each kernel, copy and fill with its times and the call that it came of: for profiles.
 *
 *     const struct kernels_trace *t = kernels_trace(k);        // NULL: on "cpu" the calls are what has run
 *     TRY(t->open(1 << 16, &trace, e));                        // once in a process at a time
 *     TRY(t->begin(trace, e));                                 // what is called from here on is traced
 *     t->mark(trace, 7); ... k->linear_forward(...); t->unmark(trace);
 *     TRY(k->finish(k, e));
 *     TRY(t->end(trace, e));                                   // what has run is here
 *     t->read(trace, &runs, &n, &lost);
 *     trace = t->close(trace);
 *
 * On "cuda" it is CUPTI's activity records: libcupti.so of the toolkit's major version, loaded by open from where the
 * loader looks, $CUDA_HOME, $CUDA_PATH and /usr/local/cuda. Without it, or where another profiler has the device, open
 * or begin fails and says why; nothing else needs it. Tracing costs each call some microseconds of the host.
 *
 * Bounds: `max_runs` runs, TRACE_BUFFERS buffers of TRACE_BUFFER_BYTES, which stay until the process ends, for what is
 * on its way, and TRACE_NAMES names of TRACE_NAME_BYTES. Runs beyond these bounds are counted as lost; further
 * names are "other".
 *
 * One thread opens, begins, marks, ends and reads; mark is of the calling thread's calls. */
#ifndef KERNELS_TRACE_H
#define KERNELS_TRACE_H

#include "base/status.h"

#include <stdint.h>

enum { TRACE_NAMES = 1024, TRACE_NAME_BYTES = 128, TRACE_BUFFERS = 8, TRACE_BUFFER_BYTES = 4 << 20 };

struct kernels; /* kernels.h */
struct trace;

struct trace_run {
    int64_t start_ns, end_ns; /* clock_mono_ns: the device's clock as the tool ties it to the host's */
    int64_t mark;             /* -1: none is known */
    const char *name;         /* "attention_forward<bf16>", "copy to the device"; until close */
    uint32_t stream;          /* the tool's number of the queue that it ran in */
};

struct kernels_trace {
    /* FAILED_PRECONDITION: no tool, or one of another version; RESOURCE_EXHAUSTED. */
    MUST_CHECK status_t (*open)(int64_t max_runs, struct trace **ret, struct err *e);
    struct trace *(*close)(struct trace *t); /* NULL is fine */
    MUST_CHECK status_t (*begin)(struct trace *t, struct err *e);
    /* >= 0. They do not nest. */
    void (*mark)(struct trace *t, int64_t mark);
    void (*unmark)(struct trace *t);
    /* The device has finished. */
    MUST_CHECK status_t (*end)(struct trace *t, struct err *e);
    /* All since open, in no order; *ret until the next begin or close. *ret_lost: how many more there were at least. */
    void (*read)(struct trace *t, const struct trace_run **ret, int64_t *ret_n, int64_t *ret_lost);
};

const struct kernels_trace *kernels_trace(const struct kernels *k);

#endif
