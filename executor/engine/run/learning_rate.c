#include "executor/engine/run/learning_rate.h"

#include <math.h>

static double scaling(const struct engine_train *t) {
    if (t->rate_scaling.kind == ENGINE_RATE_AS_IT_IS || t->rate_scaling.reference_batch < 1)
        return 1;
    double factor = (double)t->global_batch / t->rate_scaling.reference_batch;
    return t->rate_scaling.kind == ENGINE_RATE_LINEAR ? factor : sqrt(factor);
}

/* How much of the way from min_lr to lr is left at a step behind the warm-up. */
static double left_at(const struct engine_train *t, int64_t step) {
    int64_t begin = t->schedule.warmup_steps;
    if (t->schedule.kind == ENGINE_SCHEDULE_CONSTANT)
        return 1;
    if (t->schedule.kind == ENGINE_SCHEDULE_WSD && t->steps - t->schedule.decay_steps > begin)
        begin = t->steps - t->schedule.decay_steps;
    if (step < begin)
        return 1;
    if (step >= t->steps)
        return 0;
    double done = (double)(step - begin) / (double)(t->steps - begin);
    return t->schedule.kind == ENGINE_SCHEDULE_COSINE ? 0.5 * (1 + cos(M_PI * done)) : 1 - done;
}

double learning_rate(const struct engine_train *t, int64_t step) {
    const double scale = scaling(t), lr = t->optimizer.kind->rate(&t->optimizer) * scale,
                 least = t->schedule.min_lr * scale;
    const int64_t warmup = t->schedule.warmup_steps;
    if (step < warmup)
        return lr * (double)(step + 1) / (double)(warmup + 1);
    double left = left_at(t, step);
    return left == 1 ? lr : least + left * (lr - least);
}
