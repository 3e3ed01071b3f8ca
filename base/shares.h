/* Weights as exact shares. A weight is a decimal number with at most six digits behind the point, so weights are whole
 * numbers of millionths, and their ratios are ratios of whole numbers:
 *
 *     const double weights[] = { 0.7, 0.3 };
 *     int64_t units[2], all;
 *     TRY(shares_of(weights, 2, units, &all, e));      // 7 and 3 of 10 */
#ifndef BASE_SHARES_H
#define BASE_SHARES_H

#include "base/status.h"

#include <stdint.h>

/* The largest weight, and the most units in which shares are counted. */
#define SHARES_WEIGHT_MAX 1000000
#define SHARES_UNITS_MAX  1000000

/* INVALID_ARGUMENT: "0.1234567 has more than six digits behind the point", or the weight is out of range. */
MUST_CHECK status_t shares_check(double weight, struct err *e);

/* units (n): the shares of the weights, of *ret_all units, without a common divisor. INVALID_ARGUMENT names the weight
 * by its index, or says that all are zero, or that the shares need more than SHARES_UNITS_MAX units. */
MUST_CHECK status_t shares_of(const double *weights, int n, int64_t *units, int64_t *ret_all, struct err *e);

#endif
