/* A profile as a table:
 *
 *   fill_rows      groups the compute instructions of all profiled steps by kind of instruction, kind of op and output
 *                  shape; each group is a row with its device time, call time, FLOPs and bytes
 *   fill_kernels   assigns each kernel run of the device's trace to the row of the instruction that called it, then
 *                  sorts the runs by name and row and merges equal ones
 *   print_*        rows by device time, the totals of the other tracks, and the MAX_KERNELS_PRINTED longest kernels */
#include "engine/graph/op.h"
#include "engine/plan/op_cost.h"
#include "engine/run/profiler_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_NAME = 96, MAX_KERNELS_PRINTED = 50 };

/* The name of an instruction's row: its kind, and for an op the kind of op and the shape of its output. */
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

struct row {
    char name[ROW_NAME];
    int64_t ns, calls_ns, kernels_ns, calls;
    struct op_cost cost;
};

/* A kernel called by the instructions of one row; row NULL: unknown. */
struct kernel {
    const char *name;
    const struct row *row;
    int64_t ns, runs;
};

struct table {
    struct row *rows; /* [n_rows] */
    int n_rows;
    const struct row **order; /* [n_rows]: in the order of printing */
    struct row **row_of;      /* [events of compute] */
    const struct trace_run *runs;
    int64_t n_runs, lost;
    struct kernel *kernels; /* [n_kernels] */
    int64_t n_kernels;
};

static void table_done(struct table *t) {
    free(t->rows);
    free(t->order);
    free(t->row_of);
    free(t->kernels);
}

static struct row *find_row(struct table *t, const char *name) {
    for (int i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].name, name) == 0)
            return &t->rows[i];
    snprintf(t->rows[t->n_rows].name, ROW_NAME, "%s", name);
    return &t->rows[t->n_rows++];
}

static void fill_rows(const struct profiler *p, struct table *t) {
    const struct track *l = &p->tracks[PROFILER_COMPUTE];
    const struct event *calls = p->tracks[CALLS_TRACK].events;
    for (int64_t i = 0; i < l->n; i++) {
        const struct instruction *in = &p->plan->queue[QUEUE_COMPUTE].items[l->events[i].number];
        char name[ROW_NAME];
        row_name(p->plan, in, name);
        struct row *row = find_row(t, name);
        struct op_cost cost = cost_of(p->plan, in);
        row->ns += l->events[i].end - l->events[i].start;
        row->calls_ns += calls[i].end - calls[i].start;
        row->calls++;
        row->cost.flops += cost.flops;
        row->cost.bytes += cost.bytes;
        t->row_of[i] = row;
    }
}

/* --- kernels --- */

static int by_name_and_row(const void *a, const void *b) {
    const struct kernel *x = a, *y = b;
    const int names = strcmp(x->name, y->name);
    if (names != 0)
        return names;
    return strcmp(x->row ? x->row->name : "", y->row ? y->row->name : "");
}

static int kernels_by_time(const void *a, const void *b) {
    const struct kernel *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? 1 : -1) : by_name_and_row(a, b);
}

/* Each run is an entry first; then entries with the same name and row are merged. */
static void fill_kernels(const struct profiler *p, struct table *t) {
    for (int64_t i = 0; i < t->n_runs; i++) {
        const struct trace_run *run = &t->runs[i];
        const bool known = run->mark >= 0 && run->mark < p->tracks[PROFILER_COMPUTE].n;
        struct row *row = known ? t->row_of[run->mark] : NULL;
        const int64_t ns = run->end_ns - run->start_ns;
        if (row)
            row->kernels_ns += ns;
        t->kernels[i] = (struct kernel){ .name = run->name, .row = row, .ns = ns, .runs = 1 };
    }
    qsort(t->kernels, (size_t)t->n_runs, sizeof *t->kernels, by_name_and_row);
    for (int64_t i = 0; i < t->n_runs; i++) {
        struct kernel *last = t->n_kernels > 0 ? &t->kernels[t->n_kernels - 1] : NULL;
        if (last && by_name_and_row(last, &t->kernels[i]) == 0) {
            last->ns += t->kernels[i].ns;
            last->runs++;
        } else {
            t->kernels[t->n_kernels++] = t->kernels[i];
        }
    }
    qsort(t->kernels, (size_t)t->n_kernels, sizeof *t->kernels, kernels_by_time);
}

static status_t table_fill(const struct profiler *p, struct table *t, struct err *e) {
    if (p->trace)
        p->tracer->read(p->trace, &t->runs, &t->n_runs, &t->lost);
    t->rows = calloc((size_t)p->plan->queue[QUEUE_COMPUTE].n + 1, sizeof *t->rows);
    t->order = calloc((size_t)p->plan->queue[QUEUE_COMPUTE].n + 1, sizeof(struct row *));
    t->row_of = calloc((size_t)p->tracks[PROFILER_COMPUTE].n + 1, sizeof(struct row *));
    t->kernels = calloc((size_t)t->n_runs + 1, sizeof *t->kernels);
    if (!t->rows || !t->order || !t->row_of || !t->kernels)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the profile's table");
    fill_rows(p, t);
    fill_kernels(p, t);
    return ST_OK;
}

/* --- as text --- */

static double percent(int64_t part, int64_t all) { return 100 * (double)part / (all > 0 ? (double)all : 1); }

static int rows_by_time(const void *a, const void *b) {
    const struct row *x = *(const struct row *const *)a, *y = *(const struct row *const *)b;
    return x->ns != y->ns ? (x->ns < y->ns ? 1 : -1) : strcmp(x->name, y->name);
}

static status_t print_rows(const struct profiler *p, struct table *t, int64_t total, struct bytes *ret, struct err *e) {
    TRY(bytes_printf(ret, e, "%8s %10s %10s %10s %8s %10s %10s  %s\n", "share", "device ms", "kernels ms", "calls ms",
                     "calls", "GFLOP/s", "GB/s", "operation"));
    for (int i = 0; i < t->n_rows; i++)
        t->order[i] = &t->rows[i];
    qsort(t->order, (size_t)t->n_rows, sizeof *t->order, rows_by_time);
    for (int i = 0; i < t->n_rows; i++) {
        const struct row *row = t->order[i];
        const double ns = row->ns > 0 ? (double)row->ns : 1;
        char kernels[24] = "-";
        if (p->trace)
            snprintf(kernels, sizeof kernels, "%.3f", (double)row->kernels_ns / 1e6);
        TRY(bytes_printf(ret, e, "%7.2f%% %10.3f %10s %10.3f %8lld %10.2f %10.2f  %s\n", percent(row->ns, total),
                         (double)row->ns / 1e6, kernels, (double)row->calls_ns / 1e6, (long long)row->calls,
                         row->cost.flops / ns, row->cost.bytes / ns, row->name));
    }
    return ST_OK;
}

static status_t print_kernels(const struct table *t, struct bytes *ret, struct err *e) {
    int64_t total = 0, rest = 0;
    for (int64_t i = 0; i < t->n_kernels; i++) {
        total += t->kernels[i].ns;
        rest += i < MAX_KERNELS_PRINTED ? 0 : t->kernels[i].ns;
    }
    TRY(bytes_printf(ret, e, "\n%lld kernels and copies ran for %.3f ms on the device\n\n%8s %10s %8s %10s  %s\n",
                     (long long)t->n_runs, (double)total / 1e6, "share", "ms", "runs", "us each", "kernel: operation"));
    for (int64_t i = 0; i < t->n_kernels && i < MAX_KERNELS_PRINTED; i++) {
        const struct kernel *k = &t->kernels[i];
        TRY(bytes_printf(ret, e, "%7.2f%% %10.3f %8lld %10.2f  %s: %s\n", percent(k->ns, total), (double)k->ns / 1e6,
                         (long long)k->runs, (double)k->ns / 1e3 / (double)k->runs, k->name,
                         k->row ? k->row->name : "unknown"));
    }
    if (t->n_kernels > MAX_KERNELS_PRINTED)
        TRY(bytes_printf(ret, e, "%7.2f%% %10.3f %8s %10s  %lld more\n", percent(rest, total), (double)rest / 1e6, "",
                         "", (long long)(t->n_kernels - MAX_KERNELS_PRINTED)));
    return t->lost ? bytes_printf(ret, e, "%lld more were lost\n", (long long)t->lost) : ST_OK;
}

static int64_t track_ns(const struct track *l) {
    int64_t ns = 0;
    for (int64_t i = 0; i < l->n; i++)
        ns += l->events[i].end - l->events[i].start;
    return ns;
}

static status_t print_lanes(const struct profiler *p, struct bytes *ret, struct err *e) {
    for (int l = PROFILER_DATA; l < PROFILER_TRACKS; l++)
        if (p->tracks[l].n)
            TRY(bytes_printf(ret, e, "%s%s: %.3f ms in %lld\n", l == PROFILER_DATA ? "\n" : "", PROFILER_TRACK_NAME[l],
                             (double)track_ns(&p->tracks[l]) / 1e6, (long long)p->tracks[l].n));
    for (int l = 0; l < TRACKS; l++)
        if (p->tracks[l].dropped)
            TRY(bytes_printf(ret, e, "%s: %lld more were not recorded\n", PROFILER_TRACK_NAME[l],
                             (long long)p->tracks[l].dropped));
    return ST_OK;
}

static status_t print_table(const struct profiler *p, int rank, struct table *t, struct bytes *ret, struct err *e) {
    const int64_t total = track_ns(&p->tracks[PROFILER_COMPUTE]);
    TRY(bytes_printf(ret, e, "rank %d: %lld steps, %.3f ms of compute on the device, %.3f ms of calls\n", rank,
                     (long long)p->tracks[STEPS_TRACK].n, (double)total / 1e6,
                     (double)track_ns(&p->tracks[CALLS_TRACK]) / 1e6));
    if (p->kernels->deferred)
        TRY(bytes_printf(ret, e,
                         "the trace relates the device's clock to the host's with an error of at most %.3f ms\n",
                         (double)p->error_ns / 1e6));
    if (profiler_untraced(p))
        TRY(bytes_printf(ret, e, "kernel names are missing: %s\n", profiler_untraced(p)));
    TRY(bytes_printf(ret, e, "\n"));
    TRY(print_rows(p, t, total, ret, e));
    TRY(print_lanes(p, ret, e));
    return p->trace ? print_kernels(t, ret, e) : ST_OK;
}

status_t profiler_table(const struct profiler *p, int rank, struct bytes *ret, struct err *e) {
    struct table t = { 0 };
    status_t st = table_fill(p, &t, e);
    if (st == ST_OK)
        st = print_table(p, rank, &t, ret, e);
    table_done(&t);
    return st;
}
