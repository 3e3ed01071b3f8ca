/* How a rank of a program stops.
 *
 * A stop order sends SIGTERM to the command's process group. If the spec has `stop: step` and the order leaves time,
 * all ranks stop after the same step: rank 0 chooses the step and sends it up, the controller passes it on, and each
 * rank shares it with its program (stop_step.h). If no step arrives in time, the program gets SIGTERM. */
#include "executor/program/failure.h"
#include "executor/program/rank_state.h"
#include "executor/program/stacks.h"

#include <signal.h>
#include <stdio.h>

enum {
    STOP_STEP_GRACE_MS = 60 * 1000, /* with less time, as for a cancel, a program is not asked to finish a step */
    STOP_STEP_WAIT_MS = 10 * 1000,  /* from the stop to the stop step, which usually takes half a second */
    RAISED_MS = 30 * 1000,          /* an exception may be that old when a stop meets the end of its command */
};

/* The ranks that lose another rank may end before that rank has ended: then it is stopped, but it is the cause. */
void rank_raised_keep(struct rank *r) {
    static char tail[OUTPUT_TAIL_BYTES];
    if (r->output && clock_mono_ms() - output_last_ms(r->output, 2) < RAISED_MS)
        failure_raised(tail, output_tail(r->output, tail), &r->raised);
}

static void stop_note(struct rank *r, const char *reason) {
    if (!r->stopped)
        snprintf(r->reason, sizeof r->reason, "%s", reason);
    r->stopped = true;
}

void rank_stop_at_once(struct rank *r, const char *reason) {
    stop_note(r, reason);
    process_tree_signal(&r->tree, SIGTERM);
}

void rank_stop_step_sample(struct rank *r) {
    if (r->stop_step.fd >= 0)
        stop_step_sample(&r->stop_step, r->measured ? r->step : -1, clock_mono_ms());
}

/* Rank 0 has no step if its command does not run. */
void rank_stop_step_send(struct rank *r) {
    Trainyard__V1__StopStep step = TRAINYARD__V1__STOP_STEP__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    if (!r->chosen && !r->tree.command)
        r->stop_at = -1;
    else if (!r->chosen && !stop_step_choose(&r->stop_step, clock_mono_ms(), &r->stop_at))
        return;
    r->chosen = true;
    r->choosing = false;
    step.step = r->stop_at;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_STOP_STEP;
    record.stop_step = &step;
    emitter_put(r->emitter, &record);
}

/* All ranks stop after the same step: rank 0 chooses it, the others wait for the choice. A stop with a long grace is a
 * pause or a drain: no rank has failed before it. */
void rank_stop_handle(struct rank *r, const Trainyard__V1__WorkerStop *command) {
    const bool at_leisure = command->grace_ms >= STOP_STEP_GRACE_MS, agreed = at_leisure && r->stop_step.fd >= 0;
    const bool first = !r->stopped;
    if (first && !at_leisure)
        rank_raised_keep(r);
    r->choosing = agreed && r->start->rank == 0;
    if (agreed && r->tree.command) {
        stop_note(r, command->reason);
        if (first) /* a second order comes after an attach: this rank may know the step and save its state */
            r->step_by = deadline_in(STOP_STEP_WAIT_MS);
    } else {
        rank_stop_at_once(r, command->reason);
    }
    rank_stop_step_sample(r); /* the first step may be newer than the last look */
    if (r->choosing)
        rank_stop_step_send(r);
}

/* Rank 0 may have ended before it could choose, or the step was lost with a connection. */
void rank_stop_step_wait(struct rank *r) {
    if (clock_mono_ms() < r->step_by)
        return;
    r->step_by = DEADLINE_NEVER;
    rank_put_notice(r, "stop_step_missed",
                    "the step after which all ranks stop did not arrive: the program got SIGTERM");
    rank_stop_at_once(r, "");
}

void rank_stop_step_handle(struct rank *r, int64_t step) {
    if (r->stop_step.fd < 0 || !r->stopped)
        return;
    r->step_by = DEADLINE_NEVER;
    if (step < 0)
        rank_stop_at_once(r, "");
    else if (!stop_step_set(&r->stop_step, step))
        rank_put_notice(r, "stop_step_missed", "the program had finished the step after which all ranks stop");
}

/* The collection ends the command. The stop order follows, and may come later than the command's end. */
void rank_stop_for_stacks(struct rank *r) {
    stop_note(r, "no rank made progress");
    stacks_collect(r->output, r->emitter, r->nccl_address);
}
