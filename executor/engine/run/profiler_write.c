/* A profile as files. */
#include "base/file.h"
#include "executor/engine/run/profiler_lanes.h"

#include <stdio.h>

const char *const PROFILER_LANE_NAME[LANES] = {
    [PROFILER_COMPUTE] = "compute",          [PROFILER_DATA] = "data parallel",
    [PROFILER_ACTIVATIONS] = "activations",  [PROFILER_GRADIENTS] = "gradients",
    [PROFILER_DATA_WAIT] = "data wait",      [PROFILER_CHECKPOINT] = "checkpoint",
    [CALLS_LANE] = "compute thread's calls", [STEPS_LANE] = "steps",
};

static const size_t TABLE_BYTES_MOST = 1 << 20, TRACE_BYTES_MOST = (size_t)1 << 30;

static status_t write_one(const struct profiler *p, const char *directory, int rank, bool table, struct err *e) {
    struct bytes text;
    char path[1024];
    bytes_init(&text, table ? TABLE_BYTES_MOST : TRACE_BYTES_MOST);
    status_t st = table ? profiler_table(p, rank, &text, e) : profiler_trace(p, rank, &text, e);
    snprintf(path, sizeof path, "%s/rank-%d.%s", directory, rank, table ? "txt" : "json");
    if (st == ST_OK)
        st = file_write_atomic(path, text.data, text.len, 0644, e);
    bytes_done(&text);
    return st;
}

status_t profiler_write(const struct profiler *p, const char *directory, int rank, struct err *e) {
    if (p->status != ST_OK)
        return err_set(e, p->status, "%s", p->failure.msg);
    TRY(dir_make(directory, 0755, e));
    TRY(write_one(p, directory, rank, true, e));
    return write_one(p, directory, rank, false, e);
}
