/* The step decision: the arithmetic of `decide` in kernels.h once its sums are known. One thread of the host or of a
 * device runs it, in the same order on both, with the same bits. Pure functions. */
#ifndef KERNELS_STEP_DECISION_H
#define KERNELS_STEP_DECISION_H

#include "kernels/kernels.h"

#include <math.h>

#ifdef __CUDACC__
#define DECIDE_FUNCTION static __host__ __device__ inline
#else
#define DECIDE_FUNCTION static inline
#endif

/* The factor of a loss's gradient: the loss scale divided by the number of targets in a step. */
DECIDE_FUNCTION float decide_loss_gradient(double scale, int64_t targets) { return (float)(scale / (double)targets); }

/* Appends to the norms of the newest applied steps, and drops the oldest beyond `window`. */
DECIDE_FUNCTION void decide_norm_add(struct decision *d, double norm, int64_t window) {
    if (d->n_norms == window) {
        d->n_norms--;
        for (uint32_t i = 0; i < d->n_norms; i++)
            d->norms[i] = d->norms[i + 1];
    }
    d->norms[d->n_norms++] = norm;
}

/* Whether a norm lies more than z_score standard deviations above the mean of the window. Never before the window holds
 * DECISION_MIN_NORMS norms. */
DECIDE_FUNCTION bool decide_is_spike(const struct decision *d, double norm, const struct decision_rules *o) {
    double mean = 0, square = 0;
    if (d->n_norms < (o->window < DECISION_MIN_NORMS ? o->window : (int64_t)DECISION_MIN_NORMS))
        return false;
    for (uint32_t i = 0; i < d->n_norms; i++)
        mean += d->norms[i];
    mean /= d->n_norms;
    for (uint32_t i = 0; i < d->n_norms; i++)
        square += (d->norms[i] - mean) * (d->norms[i] - mean);
    return norm > mean + o->z_score * sqrt(square / d->n_norms);
}

DECIDE_FUNCTION enum step_skip decide_outcome(const struct decision *d, bool losses_finite,
                                              const struct decision_rules *o) {
    if (!losses_finite)
        return STEP_NOT_FINITE;
    if (d->grad_norm - d->grad_norm != 0)
        return o->dynamic_scale ? STEP_OVERFLOW : STEP_NOT_FINITE;
    return o->z_score > 0 && decide_is_spike(d, d->grad_norm, o) ? STEP_SPIKE : STEP_APPLIED;
}

DECIDE_FUNCTION void decide_scale(struct decision *d, const struct decision_rules *o) {
    if (d->update.skip == STEP_OVERFLOW) {
        d->scale /= 2;
        d->growth_count = 0;
    } else if (++d->growth_count >= o->growth_interval) {
        d->scale *= 2;
        d->growth_count = 0;
    }
    d->loss_gradient = decide_loss_gradient(d->scale, o->targets);
}

/* squares: the sum of squares of all gradients, loss scale included. */
DECIDE_FUNCTION void decide_step(struct decision *d, double squares, bool losses_finite,
                                 const struct decision_rules *o) {
    if (d->update.skip == STEP_FAILED)
        return;
    const double unscale = 1 / d->scale;
    d->grad_norm = sqrt(squares) * unscale;
    d->update.skip = decide_outcome(d, losses_finite, o);
    if (d->update.skip == STEP_NOT_FINITE) {
        if (++d->not_finite > o->max_not_finite)
            d->update.skip = STEP_FAILED;
        return;
    }
    d->not_finite = 0;
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
