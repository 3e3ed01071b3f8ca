#include "base/shares.h"

#include <math.h>

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A double has 15 exact decimal digits: of a weight up to 10^6 the millionths differ from a whole number by less than
 * this if, and only if, the weight was written with at most six digits. */
static const double ROUNDING = 1e-3;

status_t shares_check(double weight, struct err *e) {
    const double scaled = weight * 1e6;
    if (!(weight >= 0 && weight <= SHARES_WEIGHT_MAX))
        return err_set(e, ST_INVALID_ARGUMENT, "%g is not from 0 to %d", weight, SHARES_WEIGHT_MAX);
    if (fabs(scaled - round(scaled)) > ROUNDING)
        return err_set(e, ST_INVALID_ARGUMENT, "%.9g has more than six digits behind the point", weight);
    return ST_OK;
}

static status_t millionths(const double *weights, int i, int64_t *ret, struct err *e) {
    struct err why;
    if (shares_check(weights[i], &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "weight %d: %s", i, why.msg);
    *ret = (int64_t)round(weights[i] * 1e6);
    return ST_OK;
}

status_t shares_of(const double *weights, int n, int64_t *units, int64_t *ret_all, struct err *e) {
    int64_t divisor = 0, all = 0;
    for (int i = 0; i < n; i++) {
        TRY(millionths(weights, i, &units[i], e));
        divisor = common_divisor(units[i], divisor);
    }
    if (divisor == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "all weights are 0");
    for (int i = 0; i < n; i++)
        all += units[i] /= divisor;
    if (all > SHARES_UNITS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the shares of the weights are exact in %lld parts only, and at most %d are possible: round the "
                       "weights, for example to three digits that add up to 1",
                       (long long)all, SHARES_UNITS_MAX);
    *ret_all = all;
    return ST_OK;
}
