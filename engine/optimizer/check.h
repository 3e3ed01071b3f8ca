/* Checks that the kinds share. Private to this folder.
 *
 * The range of each setting is its option in spec.proto, and only there. The engine, whose callers in tests and tools
 * have no spec, refuses only what the formulas cannot compute with: NaN, a negative number, a decay rate of 1. */
#ifndef ENGINE_OPTIMIZER_CHECK_H
#define ENGINE_OPTIMIZER_CHECK_H

#include "engine/optimizer/optimizer.h"

#include <float.h>

/* A finite number of at least 0, else INVALID_ARGUMENT with the field's path. */
MUST_CHECK static inline status_t setting_not_negative(const char *kind, const char *field, double value,
                                                       struct err *e) {
    if (value >= 0 && value <= DBL_MAX)
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.%s.%s: %g is not at least 0", kind, field, value);
}

/* A decay rate: at least 0 and below 1, since an average with the rate 1 would never change. */
MUST_CHECK static inline status_t setting_rate(const char *kind, const char *field, double value, struct err *e) {
    if (value >= 0 && value < 1)
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.%s.%s: %g is not at least 0 and below 1", kind, field,
                   value);
}

/* weight_decay as it applies to this parameter. */
static inline double decay_of(const struct parameter *p, double weight_decay) { return p->decay ? weight_decay : 0; }

#endif
