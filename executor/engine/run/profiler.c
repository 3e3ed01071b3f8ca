#include "executor/engine/run/profiler.h"

#include "base/file.h"
#include "executor/engine/graph/op.h"
#include "executor/engine/plan/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_NAME = 96, STEPS_LANE = PROFILER_LANES };

static const char *const LANE_NAME[PROFILER_LANES + 1] = {
    [PROFILER_COMPUTE] = "compute",
    [PROFILER_DATA] = "data parallel",
    [PROFILER_ACTIVATIONS] = "activations",
    [PROFILER_GRADIENTS] = "gradients",
    [PROFILER_DATA_WAIT] = "data wait",
    [PROFILER_CHECKPOINT] = "checkpoint",
    [STEPS_LANE] = "steps",
};

struct event {
    int64_t start, end;
    int64_t number; /* instruction, or step */
};

struct lane {
    struct event *events;
    int64_t n, room, dropped;
};

struct profiler {
    const struct plan *plan;
    struct lane lanes[PROFILER_LANES + 1];
};

static status_t lane_open(struct lane *l, int64_t room, struct err *e) {
    l->room = room;
    l->events = malloc(((size_t)room + 1) * sizeof *l->events);
    if (!l->events)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a profile of %lld instructions", (long long)room);
    memset(l->events, 0, ((size_t)room + 1) * sizeof *l->events);
    return ST_OK;
}

status_t profiler_open(const struct plan *plan, int64_t steps, struct profiler **ret, struct err *e) {
    CLEANUP(profiler_closep) struct profiler *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a profiler");
    p->plan = plan;
    for (int q = 0; q < QUEUES; q++)
        TRY(lane_open(&p->lanes[q], steps * plan->queue[q].n, e));
    TRY(lane_open(&p->lanes[PROFILER_DATA_WAIT], steps * plan->layout.micro_batches, e));
    TRY(lane_open(&p->lanes[PROFILER_CHECKPOINT], steps, e));
    TRY(lane_open(&p->lanes[STEPS_LANE], steps, e));
    *ret = take_ptr(&p);
    return ST_OK;
}

struct profiler *profiler_close(struct profiler *p) {
    for (int l = 0; p && l <= PROFILER_LANES; l++)
        free(p->lanes[l].events);
    free(p);
    return NULL;
}

static void note(struct lane *l, int64_t number, int64_t start, int64_t end) {
    if (l->n == l->room)
        l->dropped++;
    else
        l->events[l->n++] = (struct event){ .start = start, .end = end, .number = number };
}

void profiler_note(struct profiler *p, const struct plan *plan, enum plan_queue queue, int n, int64_t start,
                   int64_t end) {
    if (plan == p->plan)
        note(&p->lanes[queue], n, start, end);
}

void profiler_span(struct profiler *p, enum profiler_lane lane, int64_t start, int64_t end) {
    note(&p->lanes[lane], 0, start, end);
}

void profiler_step(struct profiler *p, int64_t step, int64_t start) { note(&p->lanes[STEPS_LANE], step, start, start); }

/* --- what an instruction is called and what it does ---*/

static const char *op_name(const struct plan *plan, const struct instruction *i) {
    const struct graph *g = plan->graph;
    switch (i->kind) {
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: return g->ops[i->op].name;
    case INSTRUCTION_BACKWARD_INPUT:
    case INSTRUCTION_BACKWARD_WEIGHT:
    case INSTRUCTION_KEEP: return g->ops[g->reverse[i->op].op].name;
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECV:
        if (i->what == WHAT_TENSOR && i->op < g->n_tensors)
            return g->tensors[i->op].name;
        return i->what == WHAT_WEIGHT ? g->parameters[i->op].name
                                      : g->parameters[g->slots[i->what == WHAT_GRADIENT ? i->op : 0].parameter].name;
    default: return "";
    }
}

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
    int64_t ns, calls;
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
    int n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        const struct instruction *in = &p->plan->queue[QUEUE_COMPUTE].items[l->events[i].number];
        char name[ROW_NAME];
        row_name(p->plan, in, name);
        struct row *row = find_row(rows, &n, name);
        struct op_cost cost = cost_of(p->plan, in);
        row->ns += l->events[i].end - l->events[i].start;
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

status_t profiler_table(const struct profiler *p, int rank, struct bytes *ret, struct err *e) {
    CLEANUP(freep) struct row *rows = calloc((size_t)p->plan->queue[QUEUE_COMPUTE].n + 1, sizeof *rows);
    if (!rows)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the profile's table");
    int n = fill_rows(p, rows);
    int64_t total = 0;
    for (int i = 0; i < n; i++)
        total += rows[i].ns;
    TRY(bytes_printf(ret, e, "rank %d: %lld steps, %.3f ms of compute\n\n", rank, (long long)p->lanes[STEPS_LANE].n,
                     (double)total / 1e6));
    TRY(bytes_printf(ret, e, "%8s %10s %8s %10s %10s  %s\n", "share", "ms", "calls", "GFLOP/s", "GB/s", "operation"));
    for (int i = 0; i < n; i++) {
        double ns = rows[i].ns > 0 ? (double)rows[i].ns : 1;
        TRY(bytes_printf(ret, e, "%7.2f%% %10.3f %8lld %10.2f %10.2f  %s\n",
                         100 * (double)rows[i].ns / (total ? (double)total : 1), (double)rows[i].ns / 1e6,
                         (long long)rows[i].calls, rows[i].cost.flops / ns, rows[i].cost.bytes / ns, rows[i].name));
    }
    for (int l = PROFILER_DATA; l < PROFILER_LANES; l++)
        if (p->lanes[l].n)
            TRY(bytes_printf(ret, e, "%s%s: %.3f ms in %lld\n", l == PROFILER_DATA ? "\n" : "", LANE_NAME[l],
                             (double)lane_ns(&p->lanes[l]) / 1e6, (long long)p->lanes[l].n));
    for (int l = 0; l <= PROFILER_LANES; l++)
        if (p->lanes[l].dropped)
            TRY(bytes_printf(ret, e, "%s: %lld more were not noted\n", LANE_NAME[l], (long long)p->lanes[l].dropped));
    return ST_OK;
}

/* --- the trace ---*/

static status_t trace_event(const struct profiler *p, int rank, int lane, const struct event *v, int64_t zero,
                            struct bytes *ret, struct err *e) {
    const double us = (double)(v->start - zero) / 1e3, long_us = (double)(v->end - v->start) / 1e3;
    if (lane == STEPS_LANE)
        return bytes_printf(ret, e,
                            ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"name\":\"step %lld\"}",
                            rank, us, (long long)v->number);
    if (lane >= PROFILER_DATA_WAIT)
        return bytes_printf(ret, e, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\"}",
                            rank, lane, us, long_us, LANE_NAME[lane]);
    const struct instruction *i = &p->plan->queue[lane].items[v->number];
    const char *name = op_name(p->plan, i);
    TRY(bytes_printf(ret, e, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s%s%s\"",
                     rank, lane, us, long_us, instruction_name(i->kind), *name ? " " : "", name));
    if (i->micro_batch >= 0)
        TRY(bytes_printf(ret, e, ",\"args\":{\"micro_batch\":%d}", i->micro_batch));
    return bytes_printf(ret, e, "}");
}

static status_t trace(const struct profiler *p, int rank, struct bytes *ret, struct err *e) {
    int64_t zero = p->lanes[STEPS_LANE].n ? p->lanes[STEPS_LANE].events[0].start : 0;
    TRY(bytes_printf(
        ret, e,
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
        "\"args\":{\"name\":\"rank %d\"}}",
        rank, rank));
    for (int l = 0; l < PROFILER_LANES; l++)
        TRY(bytes_printf(ret, e,
                         ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                         rank, l, LANE_NAME[l]));
    for (int l = 0; l <= PROFILER_LANES; l++)
        for (int64_t i = 0; i < p->lanes[l].n; i++)
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
    TRY(dir_make(directory, 0755, e));
    TRY(write_one(p, directory, rank, true, e));
    return write_one(p, directory, rank, false, e);
}
