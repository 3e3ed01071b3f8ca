#include "tests/engine/fake_trace.h"

#include "kernels/trace.h"

#include <stdlib.h>

static struct trace {
    bool opened, begun;
    int begins;
    int64_t mark, n, capacity;
    struct trace_run *runs;
} trace;

static enum fake_device_capture behaviour;

struct fake_traced fake_trace_now(void) {
    return (struct fake_traced){ .begun = trace.begun, .mark = trace.mark };
}

void fake_trace_note(struct fake_traced traced, const char *name, int64_t end_ns) {
    if (!traced.begun || trace.n == trace.capacity)
        return;
    static const char *const MANY[] = { "one", "two", "three", "four", "five", "six", "seven" };
    const bool foreign = traced.mark < 0 && trace.n % 2;
    trace.runs[trace.n++] = (struct trace_run){ .start_ns = end_ns - FAKE_DEVICE_CALL_NS,
                                                .end_ns = end_ns,
                                                .mark = foreign ? INT64_MAX : traced.mark,
                                                .name = behaviour == FAKE_DEVICE_NAMES_MANY ? MANY[trace.n % 7] : name,
                                                .stream = 7 };
}

static status_t trace_open(int64_t capacity, struct trace **ret, struct err *e) {
    if (behaviour == FAKE_DEVICE_HAS_NO_TRACE)
        return err_set(e, ST_FAILED_PRECONDITION, "this device traces nothing");
    if (trace.opened)
        abort();
    trace = (struct trace){
        .opened = true, .mark = -1, .capacity = capacity, .runs = calloc((size_t)capacity, sizeof *trace.runs)
    };
    if (!trace.runs)
        abort();
    *ret = &trace;
    return ST_OK;
}

static struct trace *trace_close(struct trace *t) {
    if (t)
        free(t->runs);
    trace = (struct trace){ 0 };
    return NULL;
}

static status_t trace_begin(struct trace *t, struct err *e) {
    if (behaviour == FAKE_DEVICE_TRACES_ONCE && t->begins++ > 0)
        return err_set(e, ST_FAILED_PRECONDITION, "another has the device");
    t->begun = true;
    return ST_OK;
}

static void trace_mark(struct trace *t, int64_t mark) {
    if (t->mark >= 0)
        abort();
    t->mark = mark;
}

static void trace_unmark(struct trace *t) { t->mark = -1; }

static status_t trace_end(struct trace *t, struct err *e) {
    (void)e;
    t->begun = false;
    return ST_OK;
}

static void trace_read(struct trace *t, const struct trace_run **ret, int64_t *ret_n, int64_t *ret_lost) {
    *ret = t->runs;
    *ret_n = t->n;
    *ret_lost = 3;
}

const struct kernels_trace *fake_trace(enum fake_device_capture how) {
    static const struct kernels_trace FAKE = { .open = trace_open,
                                               .close = trace_close,
                                               .begin = trace_begin,
                                               .mark = trace_mark,
                                               .unmark = trace_unmark,
                                               .end = trace_end,
                                               .read = trace_read };
    behaviour = how;
    return &FAKE;
}
