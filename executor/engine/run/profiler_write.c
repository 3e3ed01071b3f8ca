/* A profile's table and trace. */
#include "base/file.h"
#include "executor/engine/graph/op.h"
#include "executor/engine/plan/cost.h"
#include "executor/engine/run/label.h"
#include "executor/engine/run/profiler_lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_NAME = 96 };

static const char *const LANE_NAME[LANES] = {
    [PROFILER_COMPUTE] = "compute",          [PROFILER_DATA] = "data parallel",
    [PROFILER_ACTIVATIONS] = "activations",  [PROFILER_GRADIENTS] = "gradients",
    [PROFILER_DATA_WAIT] = "data wait",      [PROFILER_CHECKPOINT] = "checkpoint",
    [CALLS_LANE] = "compute thread's calls", [STEPS_LANE] = "steps",
};

/* Instructions of one row of the table: the same pass of the same kind of op. */
static void row_name(const struct plan *plan, const struct instruction *i, char ret[ROW_NAME]) {
    const struct graph *g = plan->graph;
    int op = i->kind == INSTRUCTION_FORWARD || i->kind == INSTRUCTION_RECOMPUTE                ? i->op
             : i->kind == INSTRUCTION_BACKWARD_INPUT || i->kind == INSTRUCTION_BACKWARD_WEIGHT ? g->reverse[i->op].op
                                                                                               : -1;
    if (op < 0) {
        snprintf(ret, ROW_NAME, "%s", instruction_name(i->kind));
        return;
    }
    int n = snprintf(ret, ROW_NAME, "%s %s", instruction_name(i->kind), g->ops[op].kind->name);
    const struct shape *s = &g->tensors[g->ops[op].out[0]].shape;
    for (int d = 0; d < s->n && n < ROW_NAME; d++)
        n += snprintf(ret + n, (size_t)(ROW_NAME - n), "%s%lld", d ? "x" : " ", (long long)s->dim[d]);
}

static struct op_cost cost_of(const struct plan *plan, const struct instruction *i) {
    switch (i->kind) {
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: return cost_forward(plan->graph, i->op);
    case INSTRUCTION_BACKWARD_INPUT: return cost_backward_input(plan->graph, i->op);
    case INSTRUCTION_BACKWARD_WEIGHT: return cost_backward_weight(plan->graph, i->op);
    case INSTRUCTION_ADD: return (struct op_cost){ .bytes = 12.0 * (double)(i->end - i->begin) };
    default: return (struct op_cost){ 0, 0 };
    }
}

/* --- the table ---*/

struct row {
    char name[ROW_NAME];
    int64_t ns, calls_ns, calls;
    struct op_cost cost;
};

static int by_time(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? 1 : -1) : strcmp(x->name, y->name);
}

static struct row *find_row(struct row *rows, int *n, const char *name) {
    for (int i = 0; i < *n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    snprintf(rows[*n].name, ROW_NAME, "%s", name);
    return &rows[(*n)++];
}

static int fill_rows(const struct profiler *p, struct row *rows) {
    const struct lane *l = &p->lanes[PROFILER_COMPUTE];
    const struct event *calls = p->lanes[CALLS_LANE].events;
    int n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        const struct instruction *in = &p->plan->queue[QUEUE_COMPUTE].items[l->events[i].number];
        char name[ROW_NAME];
        row_name(p->plan, in, name);
        struct row *row = find_row(rows, &n, name);
        struct op_cost cost = cost_of(p->plan, in);
        row->ns += l->events[i].end - l->events[i].start;
        row->calls_ns += calls[i].end - calls[i].start;
        row->calls++;
        row->cost.flops += cost.flops;
        row->cost.bytes += cost.bytes;
    }
    qsort(rows, (size_t)n, sizeof *rows, by_time);
    return n;
}

static int64_t lane_ns(const struct lane *l) {
    int64_t ns = 0;
    for (int64_t i = 0; i < l->n; i++)
        ns += l->events[i].end - l->events[i].start;
    return ns;
}

static status_t print_rows(const struct row *rows, int n, int64_t total, struct bytes *ret, struct err *e) {
    TRY(bytes_printf(ret, e, "%8s %10s %10s %8s %10s %10s  %s\n", "share", "device ms", "calls ms", "calls", "GFLOP/s",
                     "GB/s", "operation"));
    for (int i = 0; i < n; i++) {
        double ns = rows[i].ns > 0 ? (double)rows[i].ns : 1;
        TRY(bytes_printf(ret, e, "%7.2f%% %10.3f %10.3f %8lld %10.2f %10.2f  %s\n",
                         100 * (double)rows[i].ns / (total ? (double)total : 1), (double)rows[i].ns / 1e6,
                         (double)rows[i].calls_ns / 1e6, (long long)rows[i].calls, rows[i].cost.flops / ns,
                         rows[i].cost.bytes / ns, rows[i].name));
    }
    return ST_OK;
}

static status_t print_lanes(const struct profiler *p, struct bytes *ret, struct err *e) {
    for (int l = PROFILER_DATA; l < PROFILER_LANES; l++)
        if (p->lanes[l].n)
            TRY(bytes_printf(ret, e, "%s%s: %.3f ms in %lld\n", l == PROFILER_DATA ? "\n" : "", LANE_NAME[l],
                             (double)lane_ns(&p->lanes[l]) / 1e6, (long long)p->lanes[l].n));
    for (int l = 0; l < LANES; l++)
        if (p->lanes[l].dropped)
            TRY(bytes_printf(ret, e, "%s: %lld more were not noted\n", LANE_NAME[l], (long long)p->lanes[l].dropped));
    return ST_OK;
}

status_t profiler_table(const struct profiler *p, int rank, struct bytes *ret, struct err *e) {
    CLEANUP(freep) struct row *rows = calloc((size_t)p->plan->queue[QUEUE_COMPUTE].n + 1, sizeof *rows);
    if (!rows)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the profile's table");
    int n = fill_rows(p, rows);
    const int64_t total = lane_ns(&p->lanes[PROFILER_COMPUTE]);
    TRY(bytes_printf(ret, e, "rank %d: %lld steps, %.3f ms of compute on the device, %.3f ms of calls\n", rank,
                     (long long)p->lanes[STEPS_LANE].n, (double)total / 1e6,
                     (double)lane_ns(&p->lanes[CALLS_LANE]) / 1e6));
    if (p->kernels->deferred)
        TRY(bytes_printf(ret, e, "the trace has the device's clock within %.3f ms of the host's\n",
                         (double)p->error_ns / 1e6));
    TRY(bytes_printf(ret, e, "\n"));
    TRY(print_rows(rows, n, total, ret, e));
    return print_lanes(p, ret, e);
}

/* --- the trace ---*/

static status_t trace_event(const struct profiler *p, int rank, int lane, const struct event *v, int64_t zero,
                            struct bytes *ret, struct err *e) {
    const double us = (double)(v->start - zero) / 1e3, long_us = (double)(v->end - v->start) / 1e3;
    if (lane == STEPS_LANE)
        return bytes_printf(ret, e,
                            ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"name\":\"step %lld\"}",
                            rank, us, (long long)v->number);
    if (lane == PROFILER_DATA_WAIT || lane == PROFILER_CHECKPOINT)
        return bytes_printf(ret, e, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\"}",
                            rank, lane, us, long_us, LANE_NAME[lane]);
    const struct instruction *i = &p->plan->queue[lane == CALLS_LANE ? QUEUE_COMPUTE : lane].items[v->number];
    char label[LABEL_BYTES];
    label_instruction(p->plan, i, label);
    TRY(bytes_printf(ret, e, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\"", rank,
                     lane, us, long_us, label));
    if (i->micro_batch >= 0)
        TRY(bytes_printf(ret, e, ",\"args\":{\"micro_batch\":%d}", i->micro_batch));
    return bytes_printf(ret, e, "}");
}

/* The calls of the CPU are its compute. */
static bool is_told(const struct profiler *p, int lane) { return lane != CALLS_LANE || p->kernels->deferred; }

static status_t trace(const struct profiler *p, int rank, struct bytes *ret, struct err *e) {
    int64_t zero = p->lanes[STEPS_LANE].n ? p->lanes[STEPS_LANE].events[0].start : 0;
    TRY(bytes_printf(
        ret, e,
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
        "\"args\":{\"name\":\"rank %d\"}}",
        rank, rank));
    for (int l = 0; l < STEPS_LANE; l++)
        if (is_told(p, l))
            TRY(bytes_printf(
                ret, e, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                rank, l, LANE_NAME[l]));
    for (int l = 0; l < LANES; l++)
        for (int64_t i = 0; i < p->lanes[l].n && is_told(p, l); i++)
            TRY(trace_event(p, rank, l, &p->lanes[l].events[i], zero, ret, e));
    return bytes_printf(ret, e, "\n]}\n");
}

static const size_t TABLE_BYTES_MOST = 1 << 20, TRACE_BYTES_MOST = (size_t)1 << 30;

static status_t write_one(const struct profiler *p, const char *directory, int rank, bool table, struct err *e) {
    struct bytes text;
    char path[1024];
    bytes_init(&text, table ? TABLE_BYTES_MOST : TRACE_BYTES_MOST);
    status_t st = table ? profiler_table(p, rank, &text, e) : trace(p, rank, &text, e);
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
