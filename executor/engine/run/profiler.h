/* What steps spend their time on: every instruction of every queue, timed, and beside them the waits for data and the
 * checkpoints. Written as a table of the most expensive operations and as a trace for Perfetto (Chrome's JSON).
 *
 *     TRY(profiler_open(plan, steps, kernels, &p, e));      // room for that many steps, touched now
 *     x.profiler = p;
 *     TRY(profiler_step_begin(p, step, e));                 // nothing is under way on the device; waits for its clock
 *     execute(&x, plan, e);                                 // profiler_enter, _leave of each compute instruction
 *     profiler_span(p, PROFILER_DATA_WAIT, start, end);
 *     profiler_step_end(p);                                 // the device has come to the step's end
 *     TRY(profiler_write(p, directory, rank, e));           // rank-<r>.txt and rank-<r>.json
 *
 * An instruction of the compute queue has two times:
 *   the device's   from the end of the instruction before to its own, by the table of kernels' timers, one between two
 *                  instructions, which are read when the step has ended: nothing waits for the device. Where the device
 *                  had nothing to do, because the host had not called yet or another rank's bytes were not there, that
 *                  is time of the instruction it waited for. All of them together are the step, without a gap
 *   its calls'     what the calls took on the compute thread (clock_mono_ns)
 * On the CPU calls have run when they return: the two are the same but for the profiler's own time.
 *
 * The other queues and spans have the host's time (clock_mono_ns): transfers and, on a device, collectives from where
 * they were called to where the host knew of their end, for which it waits in a profiled step of several ranks.
 *
 * In the trace all stand on clock_mono_ns. What ties the device's clock to it is a timer that is recorded and waited
 * for as each step begins, the one wait of one rank's profiled step: the device came to it between the two readings of
 * the host's clock around it, and half their distance is the error that the table tells.
 *
 * Where the device has a trace (kernels/trace.h) it is on while profiled steps run, and each kernel and copy of the
 * device comes into the table under the operation that called it, and into the trace as a track of its queue. Without
 * one the profile has no kernels' names; why: profiler_untraced.
 *
 * Each lane has one writing thread at a time. When the room is used up, further notes are dropped and the table says
 * how many. Nothing is allocated after open, but by write. FLOPs and bytes are what plan/cost.h says of an op, so
 * FLOP/s and bytes/s are rates of useful work. */
#ifndef EXECUTOR_ENGINE_RUN_PROFILER_H
#define EXECUTOR_ENGINE_RUN_PROFILER_H

#include "executor/engine/plan/plan.h"
#include "kernels/kernels.h"

struct profiler;

enum profiler_lane {
    PROFILER_COMPUTE,     /* = QUEUE_COMPUTE: the device's times */
    PROFILER_DATA,        /* = QUEUE_DATA: reductions and gathers */
    PROFILER_ACTIVATIONS, /* = QUEUE_ACTIVATIONS: from the post to the end of the wait */
    PROFILER_GRADIENTS,   /* = QUEUE_GRADIENTS */
    PROFILER_DATA_WAIT,   /* the compute thread waits for the loader */
    PROFILER_CHECKPOINT,  /* the compute thread copies a snapshot */
    PROFILER_LANES,
};

/* The plan and the kernels are borrowed until close. Makes as many timers as the compute queue has instructions, and
 * two. */
MUST_CHECK status_t profiler_open(const struct plan *plan, int64_t steps, const struct kernels *kernels,
                                  struct profiler **ret, struct err *e);
struct profiler *profiler_close(struct profiler *p);
CLEANUP_DEFINE(struct profiler *, profiler_close)

/* Fails only with what the device tells whoever waits for it: a timer that fails is told by profiler_write. */
MUST_CHECK status_t profiler_step_begin(struct profiler *p, int64_t step, struct err *e);
/* Around the calls of compute instruction n; all of a step, in order. Other plans than the one of open are left out. */
void profiler_enter(struct profiler *p, const struct plan *plan, int n);
void profiler_leave(struct profiler *p, const struct plan *plan, int n);
void profiler_step_end(struct profiler *p);

/* Why the device's kernels have no names; NULL: they have, or the device is the CPU. */
const char *profiler_untraced(const struct profiler *p);

/* Instruction n of another queue ran from start to end (clock_mono_ns). */
void profiler_note(struct profiler *p, const struct plan *plan, enum plan_queue queue, int n, int64_t start,
                   int64_t end);
void profiler_span(struct profiler *p, enum profiler_lane lane, int64_t start, int64_t end);

/* Both files into a folder, which is made when missing; or the first failure of a timer. */
MUST_CHECK status_t profiler_write(const struct profiler *p, const char *directory, int rank, struct err *e);
/* The table alone. */
MUST_CHECK status_t profiler_table(const struct profiler *p, int rank, struct bytes *ret, struct err *e);

#endif
