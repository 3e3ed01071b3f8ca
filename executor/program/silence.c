#include "executor/program/silence.h"

/* REPEAT_MS: the controller forgets a report after 12 s (service/scheduler/scheduler.h). */
enum { REPEAT_MS = 5000, TICK_MAX_MS = 2000 };

void silence_start(struct silence *s, const Trainyard__V1__ProgramSpec *program, struct emitter *emitter) {
    *s = (struct silence){ .emitter = emitter,
                           .timeout_ms = program->progress ? (int64_t)program->progress->timeout * 1000 : 0,
                           .ticked_ms = clock_mono_ms() };
}

void silence_sign(struct silence *s) { s->silent_ms = 0; }

static void report(struct silence *s, int64_t silent_ms, int64_t step, bool follows) {
    Trainyard__V1__RankSilence silence = TRAINYARD__V1__RANK_SILENCE__INIT;
    silence.silent_ms = silent_ms;
    silence.step = step;
    silence.follows = follows;
    emitter_put(s->emitter, WORKER_RECORD(SILENCE, silence, &silence));
    s->report_at = deadline_in(REPEAT_MS);
}

void silence_tick(struct silence *s, const struct output *output, int64_t step) {
    const int64_t now = clock_mono_ms(), passed = now - s->ticked_ms;
    if (s->timeout_ms == 0)
        return;
    s->ticked_ms = now;
    s->silent_ms += passed < TICK_MAX_MS ? passed : TICK_MAX_MS;
    for (int stream = 1; stream <= 2; stream++)
        if (output_last_ms(output, stream) > s->output_ms) {
            s->output_ms = output_last_ms(output, stream);
            s->silent_ms = 0;
        }
    const bool silent = s->silent_ms >= s->timeout_ms;
    if (silent ? now >= s->report_at : s->reported)
        report(s, silent ? s->silent_ms : 0, step, false);
    if (!silent)
        s->report_at = 0;
    s->reported = silent;
}

void silence_tick_follower(struct silence *s) {
    if (s->timeout_ms > 0 && clock_mono_ms() >= s->report_at)
        report(s, 0, -1, true);
}
