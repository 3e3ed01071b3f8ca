/* What the settings of every kind have in common. Private to this folder. */
#ifndef EXECUTOR_ENGINE_OPTIMIZER_CHECK_H
#define EXECUTOR_ENGINE_OPTIMIZER_CHECK_H

#include "executor/engine/optimizer/optimizer.h"

/* least <= value < below, else INVALID_ARGUMENT with the field's path. NaN is outside everything. */
MUST_CHECK static inline status_t setting_within(const char *kind, const char *field, double value, double least,
                                                 double below, struct err *e) {
    if (value >= least && value < below)
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.%s.%s: %g is not in [%g, %g)", kind, field, value, least,
                   below);
}

/* weight_decay as it applies to this parameter. */
static inline double decay_of(const struct parameter *p, double weight_decay) { return p->decay ? weight_decay : 0; }

#endif
