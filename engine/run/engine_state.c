#include "engine/run/engine_state.h"

#include <stdarg.h>

int64_t engine_steps_done(const struct engine *engine) { return atomic_load(&engine->training.step); }

int64_t engine_first_sample(const struct engine *engine, int64_t step) {
    return engine->first.sample + (step - engine->first.step) * engine->config.train.global_batch;
}

int engine_plans(const struct engine *engine, const struct plan *ret[ENGINE_PLANS]) {
    ret[0] = engine->train;
    ret[1] = engine->evaluate;
    ret[2] = engine->averages;
    return engine->averages ? 3 : engine->evaluate ? 2 : 1;
}

double engine_validation_loss(const struct engine *engine) {
    return engine->averages ? engine->training.averages.loss : engine->training.weights.loss;
}

void engine_progress(struct engine *engine) {
    if (engine->hooks.progress)
        engine->hooks.progress(engine->hooks.ctx);
}

void engine_notice(struct engine *engine, const char *kind, int64_t step, const char *fmt, ...) {
    if (!engine->hooks.notice)
        return;
    struct err text;
    va_list args;
    va_start(args, fmt);
    status_ignore(err_vset(&text, ST_OK, fmt, args));
    va_end(args);
    engine->hooks.notice(engine->hooks.ctx, kind, text.msg, step);
}
