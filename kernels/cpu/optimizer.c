#include "kernels/cpu/optimizer.h"

status_t optimizer_sgd_step(const struct kernels *k, float *p, element_t *weight, const float *x, int64_t n,
                            const struct sgd_step *o, struct err *e) {
    (void)e;
    const double rate = *o->learning_rate;
    if (o->update->skip == STEP_APPLIED)
        cpu_of(k)->step_along(k, p, weight, x, n, (float)(1 - rate * o->weight_decay), (float)(-rate * o->factor));
    return ST_OK;
}

status_t optimizer_scale_add(const struct kernels *k, const struct span *spans, int n_spans, double keep, double by,
                             const struct update *update, struct err *e) {
    (void)e;
    if (!update || update->skip == STEP_APPLIED)
        for (const struct span *s = spans; s < spans + n_spans; s++)
            cpu_of(k)->step_along(k, s->p, s->weight, s->x, s->n, (float)keep, (float)by);
    return ST_OK;
}
