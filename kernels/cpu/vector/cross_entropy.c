#include "kernels/cpu/vector/rows.h"

#include "kernels/cpu/target.h"
#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/math.h"

#include <math.h>
#include <string.h>

static float row_maximum(const element *a, int64_t n) {
    const int64_t whole = n / LANES * LANES;
    vf row_max = vf_set(-INFINITY);
    for (int64_t i = 0; i < whole; i += LANES)
        row_max = vf_max(row_max, ve_load(a + i));
    float m = vf_reduce_max(row_max);
    for (int64_t i = whole; i < n; i++)
        m = float_of(a[i]) > m ? float_of(a[i]) : m;
    return m;
}

/* This many vectors of exps are added in fp32, then their sum in double: a sum of 50,257 small terms in fp32 would lose
 * digits. */
enum { ADDED = 8 };

/* Returns the sum of exp(a - row_max) over n numbers. If `kept` is not NULL, each exp is stored there, rounded. */
static double row_exp(element *kept, const element *a, float row_max, int64_t n) {
    vd low = vd_zero(), high = vd_zero();
    for (int64_t i = 0; i < n;) {
        vf sum = vf_set(0);
        for (int64_t end = i + ADDED * LANES; i < end && i < n; i += LANES) {
            const int64_t lanes = lanes_at(i, n);
            vf x = vf_exp(vf_sub(ve_load_first(a + i, lanes), vf_set(row_max)));
            if (kept)
                ve_store_first(kept + i, x, lanes);
            if (lanes < LANES) {
                float tail[LANES];
                vf_store(tail, x);
                x = vf_load_first(tail, lanes);
            }
            sum = vf_add(sum, x);
        }
        low = vd_add(low, vd_low(sum));
        high = vd_add(high, vd_high(sum));
    }
    return vd_sum(vd_add(low, high));
}

/* fp32 and bf16 store each exp in place of its logit. fp16 would lose the small ones, so that row_gradient computes
 * them again. */
#ifdef ELEMENT_FP16

static double row_sum(element *logits, float row_max, int64_t n, bool gradient) {
    (void)gradient;
    return row_exp(NULL, logits, row_max, n);
}

static void row_gradient(element *a, float row_max, float factor, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf x = vf_exp(vf_sub(ve_load_first(a + i, lanes), vf_set(row_max)));
        ve_store_first(a + i, vf_mul(x, vf_set(factor)), lanes);
    }
}

#else

static double row_sum(element *logits, float row_max, int64_t n, bool gradient) {
    return row_exp(gradient ? logits : NULL, logits, row_max, n);
}

static void row_gradient(element *a, float row_max, float factor, int64_t n) {
    (void)row_max;
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = lanes_at(i, n);
        ve_store_first(a + i, vf_mul(ve_load_first(a + i, lanes), vf_set(factor)), lanes);
    }
}

#endif

/* factor exp(x), with the bits of row_gradient in fp32. */
static float factor_exp(float x, float factor) {
    float lanes[LANES];
    vf_store(lanes, vf_mul(vf_exp(vf_set(x)), vf_set(factor)));
    return lanes[0];
}

static float row_loss(element *logits, struct row_target t, int64_t vocabulary, const float *scale) {
    if (t.target < 0) {
        if (scale)
            memset(logits, 0, (size_t)vocabulary * sizeof *logits); /* multiplying by 0 would keep a NaN */
        return 0;
    }
    const float row_max = row_maximum(logits, vocabulary), own = float_of(logits[t.target]);
    const float other = t.partner < 0 ? 0 : float_of(logits[t.partner]);
    const double sum = row_sum(logits, row_max, vocabulary, scale != NULL);
    if (scale) {
        const float factor = (float)(*scale / sum);
        row_gradient(logits, row_max, factor, vocabulary);
        logits[t.target] = element_of(factor_exp(own - row_max, factor) - *scale * t.share);
        if (t.partner >= 0)
            logits[t.partner] = element_of(factor_exp(other - row_max, factor) - *scale * (1 - t.share));
    }
    return logf((float)sum) + row_max - (t.partner < 0 ? own : t.share * own + (1 - t.share) * other);
}

status_t VECTOR(cross_entropy)(const struct kernels *k, float *losses, element_t *logits, const int32_t *targets,
                               const int32_t *partners, const float *shares, int64_t rows, int64_t vocabulary,
                               const float *scale, struct err *e) {
    TRY(targets_check(targets, rows, vocabulary, e));
    if (partners)
        TRY(targets_check(partners, rows, vocabulary, e));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        losses[row] = row_loss(AT(logits, row * vocabulary), row_target_of(targets, partners, shares, row), vocabulary,
                               scale);
    return ST_OK;
}
