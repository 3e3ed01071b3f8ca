/* Targets come from files, so that they are checked before they are used as an index. */
#ifndef KERNELS_CPU_TARGET_H
#define KERNELS_CPU_TARGET_H

#include "base/status.h"

#include <stdint.h>

/* INVALID_ARGUMENT for a target that is neither -1 (ignored) nor in 0 .. vocabulary - 1. */
MUST_CHECK static inline status_t targets_check(const int32_t *targets, int64_t n, int64_t vocabulary, struct err *e) {
    for (int64_t i = 0; i < n; i++)
        if (targets[i] < -1 || targets[i] >= vocabulary)
            return err_set(e, ST_INVALID_ARGUMENT, "target %d at row %lld is outside the vocabulary of %lld",
                           targets[i], (long long)i, (long long)vocabulary);
    return ST_OK;
}

#endif
