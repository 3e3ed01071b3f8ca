#include "engine/run/learning_rate.h"

#include "engine/run/engine_config.h"

#include <math.h>
#include <string.h>

#define RATE_ADDRESS(name) &rate_##name,
static const struct rate_kind *const KINDS[] = { RATE_KINDS(RATE_ADDRESS) NULL };

const struct member RATE_MEMBER[RATE_MEMBERS] = {
    MEMBER_INT64(struct rate_schedule, warmup_steps),
    MEMBER_INT64(struct rate_schedule, decay_steps),
    MEMBER_REAL(struct rate_schedule, min_lr),
};

const struct rate_kind *rate_kind_find(const char *name) {
    for (int i = 0; KINDS[i]; i++)
        if (strcmp(KINDS[i]->name, name) == 0)
            return KINDS[i];
    return NULL;
}

double rate_line(int64_t steps, int64_t top, int64_t step) {
    const int64_t last = steps - 1;
    if (step <= top && top < last)
        return 1;
    return step >= last ? 0 : (double)(last - step) / (double)(last - top);
}

static double scaling(const struct engine_train *t) {
    if (t->rate_scaling.kind == ENGINE_RATE_UNSCALED || t->rate_scaling.reference_batch < 1)
        return 1;
    double factor = (double)t->global_batch / t->rate_scaling.reference_batch;
    return t->rate_scaling.kind == ENGINE_RATE_LINEAR ? factor : sqrt(factor);
}

static double fraction_at(const struct engine_train *t, int64_t step) {
    const struct rate_kind *kind = t->schedule.kind;
    if (!kind || !kind->fraction)
        return 1;
    return step >= t->steps ? 0 : kind->fraction(&t->schedule, t->steps, step);
}

double learning_rate(const struct engine_train *t, int64_t step) {
    const double scale = scaling(t), lr = t->optimizer.kind->rate(&t->optimizer) * scale,
                 min = t->schedule.min_lr * scale;
    const int64_t warmup = t->schedule.warmup_steps;
    if (step < warmup)
        return lr * (double)(step + 1) / (double)(warmup + 1);
    double fraction = fraction_at(t, step);
    return fraction == 1 ? lr : min + fraction * (lr - min);
}
