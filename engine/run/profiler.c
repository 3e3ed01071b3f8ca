/* Device times come from a chain of timers in the kernels' queue: timer 0 at the begin of a step, timer 1 before the
 * first instruction, timer n + 2 after instruction n. profiler_step_end reads the differences of neighbours and adds
 * them up from the host's time of timer 0 (anchor_ns). */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/run/profiler_state.h"

#include <stdlib.h>
#include <string.h>

static status_t track_open(struct track *l, int64_t capacity, struct err *e) {
    l->capacity = capacity;
    l->events = malloc(((size_t)capacity + 1) * sizeof *l->events);
    if (!l->events)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a profile of %lld instructions", (long long)capacity);
    memset(l->events, 0, ((size_t)capacity + 1) * sizeof *l->events);
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

/* Kernel runs per instruction. A GPT's instruction has at most three, except the optimizer with one per parameter. */
enum { RUNS_PER_INSTRUCTION = 8, MAX_RUNS = 1 << 18 };

/* A profile works without a trace, so a failure is kept in `untraced` and not returned. */
static void trace_open(struct profiler *p, int64_t steps) {
    const int64_t wanted = steps * p->plan->queue[QUEUE_COMPUTE].n * RUNS_PER_INSTRUCTION;
    p->tracer = kernels_trace(p->kernels);
    if (p->tracer && p->tracer->open(wanted < MAX_RUNS ? wanted : MAX_RUNS, &p->trace, &p->untraced) != ST_OK)
        p->trace = NULL;
}

status_t profiler_open(const struct plan *plan, int64_t steps, const struct kernels *kernels, struct profiler **ret,
                       struct err *e) {
    CLEANUP(profiler_closep) struct profiler *p = alloc_zeroed(1, sizeof *p);
    p->plan = plan;
    p->kernels = kernels;
    for (int q = 0; q < QUEUES; q++)
        TRY(track_open(&p->tracks[q], steps * plan->queue[q].n, e));
    TRY(track_open(&p->tracks[PROFILER_DATA_WAIT], steps * plan->layout.micro_batches, e));
    TRY(track_open(&p->tracks[PROFILER_CHECKPOINT], steps, e));
    TRY(track_open(&p->tracks[CALLS_TRACK], steps * plan->queue[QUEUE_COMPUTE].n, e));
    TRY(track_open(&p->tracks[STEPS_TRACK], steps, e));
    TRY(timers_open(p, e));
    trace_open(p, steps);
    *ret = take_ptr(&p);
    return ST_OK;
}

struct profiler *profiler_close(struct profiler *p) {
    if (!p)
        return NULL;
    for (int l = 0; l < TRACKS; l++)
        free(p->tracks[l].events);
    for (int i = 0; p->timers && i < timers_of(p->plan); i++)
        p->kernels->timer_free(p->kernels, p->timers[i]);
    free(p->timers);
    if (p->trace)
        p->trace = p->tracer->close(p->trace);
    free(p);
    return NULL;
}

static void add_event(struct track *l, int64_t number, int64_t start, int64_t end) {
    if (l->n == l->capacity)
        l->dropped++;
    else
        l->events[l->n++] = (struct event){ .start = start, .end = end, .number = number };
}

void profiler_record(struct profiler *p, const struct plan *plan, enum plan_queue queue, int n, int64_t start,
                     int64_t end) {
    if (plan == p->plan)
        add_event(&p->tracks[queue], n, start, end);
}

void profiler_span(struct profiler *p, enum profiler_track track, int64_t start, int64_t end) {
    add_event(&p->tracks[track], 0, start, end);
}

/* --- the compute queue --- */

static void record_timer(struct profiler *p, int timer) {
    if (p->status == ST_OK)
        p->status = p->kernels->timer_record(p->kernels, p->timers[timer], &p->failure);
}

static int64_t timer_difference(struct profiler *p, int from, int to) {
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
    record_timer(p, 0);
    TRY(p->kernels->finish(p->kernels, e));
    const int64_t after = clock_mono_ns(), error = (after - before) / 2;
    add_event(&p->tracks[STEPS_TRACK], step, before, after);
    p->anchor_ns = before + error;
    p->error_ns = error > p->error_ns ? error : p->error_ns;
    return ST_OK;
}

void profiler_enter(struct profiler *p, const struct plan *plan, int n) {
    if (plan != p->plan)
        return;
    if (n == 0)
        record_timer(p, 1);
    if (p->trace)
        p->tracer->mark(p->trace, p->tracks[CALLS_TRACK].n);
    p->called_ns = clock_mono_ns();
}

void profiler_leave(struct profiler *p, const struct plan *plan, int n) {
    if (plan != p->plan)
        return;
    add_event(&p->tracks[CALLS_TRACK], n, p->called_ns, clock_mono_ns());
    if (p->trace)
        p->tracer->unmark(p->trace);
    record_timer(p, n + 2);
}

/* Timers are rounded to the device's ticks, but their differences are exact, so the sum does not drift. */
void profiler_step_end(struct profiler *p) {
    const struct track *calls = &p->tracks[CALLS_TRACK];
    struct track *compute = &p->tracks[PROFILER_COMPUTE];
    int64_t at = p->anchor_ns + timer_difference(p, 0, 1);
    while (compute->n < calls->n && p->status == ST_OK) {
        const int n = (int)calls->events[compute->n].number;
        const int64_t ns = timer_difference(p, n + 1, n + 2);
        add_event(compute, n, at, at + ns);
        at += ns;
    }
    if (p->trace)
        trace_check(p, p->tracer->end(p->trace, &p->untraced));
}
