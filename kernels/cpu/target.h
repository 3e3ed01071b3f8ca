/* Targets come from files, so that they are checked before they are used as an index. */
#ifndef KERNELS_CPU_TARGET_H
#define KERNELS_CPU_TARGET_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* INVALID_ARGUMENT for a target that is neither -1 (ignored) nor in 0 .. vocabulary - 1. */
MUST_CHECK static inline status_t targets_check(const int32_t *targets, int64_t n, int64_t vocabulary, struct err *e) {
    for (int64_t i = 0; i < n; i++)
        if (targets[i] < -1 || targets[i] >= vocabulary)
            return err_set(e, ST_INVALID_ARGUMENT, "target %d at row %lld is outside the vocabulary of %lld",
                           targets[i], (long long)i, (long long)vocabulary);
    return ST_OK;
}

/* What a row of cross_entropy should predict: `target` with the weight `share`, and `partner` with the rest. */
struct row_target {
    int32_t target, partner; /* partner: -1 if the row is not mixed */
    float share;             /* 1 if the row is not mixed */
};

static inline struct row_target row_target_of(const int32_t *targets, const int32_t *partners, const float *shares,
                                              int64_t row) {
    const bool mixed = partners && partners[row] >= 0 && partners[row] != targets[row];
    return (struct row_target){ targets[row], mixed ? partners[row] : -1, mixed ? shares[row] : 1 };
}

#endif
