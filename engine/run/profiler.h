/* Times every instruction of every queue in the profiled steps, and the waits for data and the checkpoints. Written as
 * a table of the most expensive operations and as a trace for Perfetto (Chrome's JSON format).
 *
 *     TRY(profiler_open(plan, steps, kernels, &p, e));      // with capacity for this number of steps
 *     x.profiler = p;
 *     TRY(profiler_step_begin(p, step, e));                 // the device must be idle; reads its clock
 *     execute(&x, plan, e);                                 // profiler_enter, _leave of each compute instruction
 *     profiler_span(p, PROFILER_DATA_WAIT, start, end);
 *     profiler_step_end(p);                                 // the device has finished the step
 *     TRY(profiler_write(p, NULL, directory, rank, e));     // rank-<r>.txt and rank-<r>.json
 *
 * An instruction of the compute queue has two times:
 *   device time   from the end of the instruction before to its own end, by timers of the kernel table: one timer
 *   between
 *                 two instructions, read after the step, so that nothing waits for the device. If the device was idle,
 *                 because the host had not issued the call or another rank's bytes had not arrived, this idle time
 *                 counts for the instruction it waited for. All device times together are the step, without gaps
 *   call time     how long the calls took on the compute thread (clock_mono_ns)
 * On the CPU the two are equal, except for the profiler's own time.
 *
 * The other queues and spans have host times (clock_mono_ns). Transfers, and on a device collectives, last from their
 * call until the host knows that they have ended; in a profiled step of several ranks it waits for that.
 *
 * The trace uses clock_mono_ns for everything. To relate the device's clock to it, a timer is recorded and waited for
 * at the begin of each step (the only wait in a profiled step of a single rank): the device reached it between two
 * readings of the host's clock, and half of their difference is the error that the table reports.
 *
 * If the device has a trace (kernels/trace.h), it is active during profiled steps. Each kernel and copy then appears in
 * the table below the operation that called it, and in the trace on a track of its queue. profiler_untraced says why
 * kernel names are missing.
 *
 * Each track has one writing thread at a time. When its capacity is used up, further events are dropped and the table
 * reports their number. Nothing is allocated after open, except by write. FLOPs and bytes are those of plan/cost.h, so
 * FLOP/s and bytes/s are rates of useful work. */
#ifndef ENGINE_RUN_PROFILER_H
#define ENGINE_RUN_PROFILER_H

#include "engine/plan/plan.h"
#include "kernels/kernels.h"

struct roots;
struct profiler;

enum profiler_track {
    PROFILER_COMPUTE,     /* = QUEUE_COMPUTE: device times */
    PROFILER_DATA,        /* = QUEUE_DATA: reductions and gathers */
    PROFILER_ACTIVATIONS, /* = QUEUE_ACTIVATIONS: from the post to the end of the wait */
    PROFILER_GRADIENTS,   /* = QUEUE_GRADIENTS */
    PROFILER_DATA_WAIT,   /* the compute thread waits for the loader */
    PROFILER_CHECKPOINT,  /* the compute thread copies a snapshot */
    PROFILER_TRACKS,
};

/* The plan and the kernels are borrowed until close. Makes one timer for each instruction of the compute queue, and two
 * more. */
MUST_CHECK status_t profiler_open(const struct plan *plan, int64_t steps, const struct kernels *kernels,
                                  struct profiler **ret, struct err *e);
struct profiler *profiler_close(struct profiler *p);
CLEANUP_DEFINE(struct profiler *, profiler_close)

/* Fails only if waiting for the device fails. profiler_write reports a timer that failed. */
MUST_CHECK status_t profiler_step_begin(struct profiler *p, int64_t step, struct err *e);
/* Around the calls of compute instruction n: all instructions of a step, in order. Plans other than that of
 * profiler_open are ignored. */
void profiler_enter(struct profiler *p, const struct plan *plan, int n);
void profiler_leave(struct profiler *p, const struct plan *plan, int n);
void profiler_step_end(struct profiler *p);

/* Why the profile has no kernel names; NULL if it has them, or if the device is the CPU. */
const char *profiler_untraced(const struct profiler *p);

/* Records that instruction n of another queue, or a span, took from start to end (clock_mono_ns). */
void profiler_record(struct profiler *p, const struct plan *plan, enum plan_queue queue, int n, int64_t start,
                     int64_t end);
void profiler_span(struct profiler *p, enum profiler_track track, int64_t start, int64_t end);

/* Writes both files to a folder, which is made if it is missing, below a root (base/roots.h; NULL: anywhere). Returns
 * the first failure of a timer, if there was one. */
MUST_CHECK status_t profiler_write(const struct profiler *p, const struct roots *roots, const char *directory, int rank,
                                   struct err *e);
/* The table alone. */
MUST_CHECK status_t profiler_table(const struct profiler *p, int rank, struct bytes *ret, struct err *e);

#endif
