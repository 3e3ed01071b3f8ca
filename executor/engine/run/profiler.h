/* What a step spends its time on: every instruction of every queue, timed, and beside them the waits for data and the
 * checkpoints. Written as a table of the most expensive operations and as a trace for Perfetto (Chrome's JSON).
 *
 *     TRY(profiler_open(plan, steps, &p, e));            // room for that many steps, touched now
 *     x.profiler = p; execute(&x, plan, e);              // notes each instruction
 *     profiler_span(p, PROFILER_DATA_WAIT, step, start, end);
 *     TRY(profiler_write(p, directory, rank, e));        // rank-<r>.txt and rank-<r>.json
 *
 * Each lane has one writing thread at a time. When the room is used up, further notes are dropped and the table says
 * how many. FLOPs and bytes are what plan/cost.h says of an op, so FLOP/s and bytes/s are rates of useful work. */
#ifndef EXECUTOR_ENGINE_RUN_PROFILER_H
#define EXECUTOR_ENGINE_RUN_PROFILER_H

#include "executor/engine/plan/plan.h"

struct profiler;

enum profiler_lane {
    PROFILER_COMPUTE,     /* = QUEUE_COMPUTE */
    PROFILER_DATA,        /* = QUEUE_DATA: reductions and gathers */
    PROFILER_ACTIVATIONS, /* = QUEUE_ACTIVATIONS: from the post to the end of the wait */
    PROFILER_GRADIENTS,   /* = QUEUE_GRADIENTS */
    PROFILER_DATA_WAIT,   /* the compute thread waits for the loader */
    PROFILER_CHECKPOINT,  /* the compute thread copies a snapshot */
    PROFILER_LANES,
};

/* The plan is borrowed until close. */
MUST_CHECK status_t profiler_open(const struct plan *plan, int64_t steps, struct profiler **ret, struct err *e);
struct profiler *profiler_close(struct profiler *p);
CLEANUP_DEFINE(struct profiler *, profiler_close)

/* Instruction n of a queue ran from start to end (clock_mono_ns). Other plans than the one of open are left out. */
void profiler_note(struct profiler *p, const struct plan *plan, enum plan_queue queue, int n, int64_t start,
                   int64_t end);
void profiler_span(struct profiler *p, enum profiler_lane lane, int64_t start, int64_t end);
/* A step begins: its number goes into the trace. */
void profiler_step(struct profiler *p, int64_t step, int64_t start);

/* Both files into a folder, which is made when missing. */
MUST_CHECK status_t profiler_write(const struct profiler *p, const char *directory, int rank, struct err *e);
/* The table alone. */
MUST_CHECK status_t profiler_table(const struct profiler *p, int rank, struct bytes *ret, struct err *e);

#endif
