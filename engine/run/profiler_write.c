/* A profile as files. */
#include "base/roots.h"
#include "engine/checkpoint/durable.h"
#include "engine/run/profiler_state.h"

#include <stdio.h>

const char *const PROFILER_TRACK_NAME[TRACKS] = {
    [PROFILER_COMPUTE] = "compute",           [PROFILER_DATA] = "data parallel",
    [PROFILER_ACTIVATIONS] = "activations",   [PROFILER_GRADIENTS] = "gradients",
    [PROFILER_DATA_WAIT] = "data wait",       [PROFILER_CHECKPOINT] = "checkpoint",
    [CALLS_TRACK] = "compute thread's calls", [STEPS_TRACK] = "steps",
};

static const size_t MAX_TABLE_BYTES = 1 << 20, MAX_TRACE_BYTES = (size_t)1 << 30;

static status_t write_one(const struct profiler *p, int folder, const char *directory, int rank, bool table,
                          struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    CLEANUP(durable_closep) struct durable *file = NULL;
    char name[32];
    bytes_init(&text, table ? MAX_TABLE_BYTES : MAX_TRACE_BYTES);
    TRY(table ? profiler_table(p, rank, &text, e) : profiler_trace(p, rank, &text, e));
    snprintf(name, sizeof name, "rank-%d.%s", rank, table ? "txt" : "json");
    TRY(durable_open(folder, directory, name, &file, e));
    TRY(durable_write(file, text.data, text.len, e));
    return durable_commit(file, e);
}

status_t profiler_write(const struct profiler *p, const struct roots *roots, const char *directory, int rank,
                        struct err *e) {
    if (p->status != ST_OK)
        return err_set(e, p->status, "%s", p->failure.msg);
    CLEANUP(closep) int folder = -1;
    TRY(roots_make(roots, directory, 0777, &folder, e));
    TRY(write_one(p, folder, directory, rank, true, e));
    return write_one(p, folder, directory, rank, false, e);
}
