#include "base/clock.h"
#include "executor/engine/run/profiler_lanes.h"

#include <stdlib.h>
#include <string.h>

static status_t lane_open(struct lane *l, int64_t room, struct err *e) {
    l->room = room;
    l->events = malloc(((size_t)room + 1) * sizeof *l->events);
    if (!l->events)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a profile of %lld instructions", (long long)room);
    memset(l->events, 0, ((size_t)room + 1) * sizeof *l->events);
    return ST_OK;
}

static int timers_of(const struct plan *plan) { return plan->queue[QUEUE_COMPUTE].n + 2; }

static status_t timers_open(struct profiler *p, struct err *e) {
    p->timers = calloc((size_t)timers_of(p->plan), sizeof *p->timers);
    if (!p->timers)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d timers", timers_of(p->plan));
    for (int i = 0; i < timers_of(p->plan); i++)
        TRY(p->kernels->timer_new(p->kernels, &p->timers[i], e));
    return ST_OK;
}

/* A GPT's instruction is three kernels at most but for the optimizer, which is one for each parameter. */
enum { RUNS_OF_INSTRUCTION = 8, RUNS_MOST = 1 << 18 };

/* What cannot be traced is profiled without. */
static void trace_open(struct profiler *p, int64_t steps) {
    const int64_t wanted = steps * p->plan->queue[QUEUE_COMPUTE].n * RUNS_OF_INSTRUCTION;
    p->tracer = kernels_trace(p->kernels);
    if (p->tracer && p->tracer->open(wanted < RUNS_MOST ? wanted : RUNS_MOST, &p->trace, &p->untraced) != ST_OK)
        p->trace = NULL;
}

status_t profiler_open(const struct plan *plan, int64_t steps, const struct kernels *kernels, struct profiler **ret,
                       struct err *e) {
    CLEANUP(profiler_closep) struct profiler *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a profiler");
    p->plan = plan;
    p->kernels = kernels;
    for (int q = 0; q < QUEUES; q++)
        TRY(lane_open(&p->lanes[q], steps * plan->queue[q].n, e));
    TRY(lane_open(&p->lanes[PROFILER_DATA_WAIT], steps * plan->layout.micro_batches, e));
    TRY(lane_open(&p->lanes[PROFILER_CHECKPOINT], steps, e));
    TRY(lane_open(&p->lanes[CALLS_LANE], steps * plan->queue[QUEUE_COMPUTE].n, e));
    TRY(lane_open(&p->lanes[STEPS_LANE], steps, e));
    TRY(timers_open(p, e));
    trace_open(p, steps);
    *ret = take_ptr(&p);
    return ST_OK;
}

struct profiler *profiler_close(struct profiler *p) {
    if (!p)
        return NULL;
    for (int l = 0; l < LANES; l++)
        free(p->lanes[l].events);
    for (int i = 0; p->timers && i < timers_of(p->plan); i++)
        p->kernels->timer_free(p->kernels, p->timers[i]);
    free(p->timers);
    if (p->trace)
        p->trace = p->tracer->close(p->trace);
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

/* --- the compute queue ---*/

static void record(struct profiler *p, int timer) {
    if (p->status == ST_OK)
        p->status = p->kernels->timer_record(p->kernels, p->timers[timer], &p->failure);
}

static int64_t between(struct profiler *p, int from, int to) {
    int64_t ns = 0;
    if (p->status == ST_OK)
        p->status = p->kernels->timer_between(p->kernels, p->timers[from], p->timers[to], &ns, &p->failure);
    return ns;
}

static void trace_check(struct profiler *p, status_t st) {
    if (st != ST_OK)
        p->trace = p->tracer->close(p->trace);
}

const char *profiler_untraced(const struct profiler *p) { return p->tracer && !p->trace ? p->untraced.msg : NULL; }

status_t profiler_step_begin(struct profiler *p, int64_t step, struct err *e) {
    if (p->trace)
        trace_check(p, p->tracer->begin(p->trace, &p->untraced));
    const int64_t before = clock_mono_ns();
    record(p, 0);
    TRY(p->kernels->finish(p->kernels, e));
    const int64_t after = clock_mono_ns(), error = (after - before) / 2;
    note(&p->lanes[STEPS_LANE], step, before, after);
    p->anchor_ns = before + error;
    p->error_ns = error > p->error_ns ? error : p->error_ns;
    return ST_OK;
}

void profiler_enter(struct profiler *p, const struct plan *plan, int n) {
    if (plan != p->plan)
        return;
    if (n == 0)
        record(p, 1);
    if (p->trace)
        p->tracer->mark(p->trace, p->lanes[CALLS_LANE].n);
    p->called_ns = clock_mono_ns();
}

void profiler_leave(struct profiler *p, const struct plan *plan, int n) {
    if (plan != p->plan)
        return;
    note(&p->lanes[CALLS_LANE], n, p->called_ns, clock_mono_ns());
    if (p->trace)
        p->tracer->unmark(p->trace);
    record(p, n + 2);
}

/* A timer's reading is rounded to the device's ticks, and a difference of two is exact: the sum does not drift. */
void profiler_step_end(struct profiler *p) {
    const struct lane *calls = &p->lanes[CALLS_LANE];
    struct lane *compute = &p->lanes[PROFILER_COMPUTE];
    int64_t at = p->anchor_ns + between(p, 0, 1);
    while (compute->n < calls->n && p->status == ST_OK) {
        const int n = (int)calls->events[compute->n].number;
        const int64_t ns = between(p, n + 1, n + 2);
        note(compute, n, at, at + ns);
        at += ns;
    }
    if (p->trace)
        trace_check(p, p->tracer->end(p->trace, &p->untraced));
}
