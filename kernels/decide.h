/* How a step is decided upon: the arithmetic of kernels.h's `decide` behind its sums, for one thread of the host or of
 * a device, in the same order on both. Pure. */
#ifndef KERNELS_DECIDE_H
#define KERNELS_DECIDE_H

#include "kernels/kernels.h"

#include <math.h>

#ifdef __CUDACC__
#define DECIDE_FUNCTION static __host__ __device__ inline
#else
#define DECIDE_FUNCTION static inline
#endif

/* What a loss's gradient is multiplied by: divided by the step's targets, at fp16's scale. */
DECIDE_FUNCTION float decide_loss_gradient(double scale, int64_t targets) { return (float)(scale / (double)targets); }

/* The norms of the newest applied steps, at most `window` of them. */
DECIDE_FUNCTION void decide_norm_add(struct decision *d, double norm, int64_t window) {
    if (d->n_norms == window) {
        d->n_norms--;
        for (uint32_t i = 0; i < d->n_norms; i++)
            d->norms[i] = d->norms[i + 1];
    }
    d->norms[d->n_norms++] = norm;
}

/* A norm that lies more than z_score deviations above the mean of the window: nothing is one until it holds a few. */
DECIDE_FUNCTION bool decide_is_spike(const struct decision *d, double norm, const struct decide *o) {
    double mean = 0, square = 0;
    if (d->n_norms < (o->window < DECISION_NORMS_LEAST ? o->window : (int64_t)DECISION_NORMS_LEAST))
        return false;
    for (uint32_t i = 0; i < d->n_norms; i++)
        mean += d->norms[i];
    mean /= d->n_norms;
    for (uint32_t i = 0; i < d->n_norms; i++)
        square += (d->norms[i] - mean) * (d->norms[i] - mean);
    return norm > mean + o->z_score * sqrt(square / d->n_norms);
}

DECIDE_FUNCTION enum step_skip decide_judge(const struct decision *d, bool losses_finite, const struct decide *o) {
    if (!losses_finite)
        return STEP_NOT_FINITE;
    if (d->grad_norm - d->grad_norm != 0)
        return o->dynamic_scale ? STEP_OVERFLOW : STEP_NOT_FINITE;
    return o->z_score > 0 && decide_is_spike(d, d->grad_norm, o) ? STEP_SPIKE : STEP_APPLIED;
}

DECIDE_FUNCTION void decide_scale(struct decision *d, const struct decide *o) {
    if (d->update.skip == STEP_OVERFLOW) {
        d->scale /= 2;
        d->growth_count = 0;
    } else if (++d->growth_count >= o->growth_interval) {
        d->scale *= 2;
        d->growth_count = 0;
    }
    d->loss_gradient = decide_loss_gradient(d->scale, o->targets);
}

/* squares: of all gradients, as they are scaled. */
DECIDE_FUNCTION void decide_step(struct decision *d, double squares, bool losses_finite, const struct decide *o) {
    if (d->update.skip == STEP_NOT_FINITE)
        return;
    const double unscale = 1 / d->scale;
    d->grad_norm = sqrt(squares) * unscale;
    d->update.skip = decide_judge(d, losses_finite, o);
    if (d->update.skip == STEP_NOT_FINITE)
        return;
    const double clip = o->clip_norm > 0 ? o->clip_norm / (d->grad_norm + 1e-6) : 1;
    d->update.gradient_scale = (float)(unscale * (clip < 1 ? clip : 1));
    if (d->update.skip == STEP_APPLIED) {
        d->update.number++;
        if (o->z_score > 0)
            decide_norm_add(d, d->grad_norm, o->window);
    }
    if (o->dynamic_scale)
        decide_scale(d, o);
}

#endif
