#include "executor/engine/run/learning_rate.h"

#include <math.h>

double learning_rate(const struct engine_train *t, int64_t step) {
    const double lr = t->adamw.lr, least = t->schedule.min_lr;
    const int64_t warmup = t->schedule.warmup_steps;
    if (step < warmup)
        return lr * (double)(step + 1) / (double)(warmup + 1);
    if (t->schedule.kind == ENGINE_SCHEDULE_CONSTANT)
        return lr;
    if (step >= t->steps)
        return least;
    double done = (double)(step - warmup) / (double)(t->steps - warmup);
    double left = t->schedule.kind == ENGINE_SCHEDULE_COSINE ? 0.5 * (1 + cos(M_PI * done)) : 1 - done;
    return least + left * (lr - least);
}
