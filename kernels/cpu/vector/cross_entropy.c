#include "kernels/cpu/vector/rows.h"

#include "kernels/cpu/target.h"
#include "kernels/cpu/vector/math.h"

#include <math.h>
#include <string.h>

static float row_most(const float *a, int64_t n) {
    const int64_t whole = n / LANES * LANES;
    vf most = vf_set(-INFINITY);
    for (int64_t i = 0; i < whole; i += LANES)
        most = vf_max(most, vf_load(a + i));
    float m = vf_most(most);
    for (int64_t i = whole; i < n; i++)
        m = a[i] > m ? a[i] : m;
    return m;
}

/* The sum of exp(a - most); `kept` not NULL: each exp is left there. Added in double: 50,257 small terms. */
static double row_exp(float *kept, const float *a, float most, int64_t n) {
    const int64_t whole = n / LANES * LANES;
    vd low = vd_zero(), high = vd_zero();
    for (int64_t i = 0; i < whole; i += LANES) {
        const vf x = vf_exp(vf_sub(vf_load(a + i), vf_set(most)));
        if (kept)
            vf_store(kept + i, x);
        low = vd_add(low, vd_low(x));
        high = vd_add(high, vd_high(x));
    }
    double sum = vd_sum(vd_add(low, high));
    if (whole < n) {
        float tail[LANES];
        vf_store(tail, vf_exp(vf_sub(vf_load_first(a + whole, n - whole), vf_set(most))));
        for (int64_t i = whole; i < n; i++) {
            sum += tail[i - whole];
            if (kept)
                kept[i] = tail[i - whole];
        }
    }
    return sum;
}

static void row_scale(float *a, float factor, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        vf_store_first(a + i, vf_mul(vf_load_first(a + i, lanes), vf_set(factor)), lanes);
    }
}

static float row_loss(float *logits, int32_t target, int64_t vocabulary, float scale, bool gradient) {
    if (target < 0) {
        if (gradient)
            memset(logits, 0, (size_t)vocabulary * sizeof *logits); /* a NaN times 0 would stay */
        return 0;
    }
    const float most = row_most(logits, vocabulary), own = logits[target];
    const double sum = row_exp(gradient ? logits : NULL, logits, most, vocabulary);
    if (gradient) {
        row_scale(logits, (float)(scale / sum), vocabulary);
        logits[target] -= scale;
    }
    return logf((float)sum) + most - own;
}

status_t VECTOR(cross_entropy)(const struct kernels *k, float *losses, float *logits, const int32_t *targets,
                               int64_t rows, int64_t vocabulary, float scale, bool gradient, struct err *e) {
    TRY(targets_check(targets, rows, vocabulary, e));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        losses[row] = row_loss(logits + row * vocabulary, targets[row], vocabulary, scale, gradient);
    return ST_OK;
}
