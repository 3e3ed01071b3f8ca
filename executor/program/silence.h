/* Reports to the controller that this rank is silent: that its program has written no metric, no checkpoint and nothing
 * to its log for progress.timeout. The controller decides (service/scheduler/silence.c): a gang hangs if all its ranks
 * are silent.
 *
 *     silence_start(&silence, spec->program, emitter);
 *     silence_sign(&silence);                   // at each metric and checkpoint; a refused line of metrics counts too
 *     silence_tick(&silence, output, step);     // about once a second
 *
 * Time in which this process itself was stopped does not count. One thread. */
#ifndef EXECUTOR_PROGRAM_SILENCE_H
#define EXECUTOR_PROGRAM_SILENCE_H

#include "base/clock.h"
#include "executor/program/output.h"
#include "executor/worker/emit.h"

#include <stdbool.h>
#include <stdint.h>

struct silence {
    struct emitter *emitter;
    int64_t timeout_ms; /* 0: nothing is reported */
    int64_t silent_ms, ticked_ms, output_ms;
    deadline_ms_t report_at;
    bool reported;
};

void silence_start(struct silence *s, const Trainyard__V1__ProgramSpec *program, struct emitter *emitter);
void silence_sign(struct silence *s);
/* step: of the last metric; -1: there was none. */
void silence_tick(struct silence *s, const struct output *output, int64_t step);
/* In place of silence_tick, for a rank that starts no command. */
void silence_tick_follower(struct silence *s);

#endif
