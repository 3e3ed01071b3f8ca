#include "kernels/cpu/plain/ops.h"
#include "kernels/cpu/target.h"

#include <math.h>

/* Of a class in the row's target. */
static float weight_of(struct row_target t, int64_t v) {
    return v == t.target ? t.share : v == t.partner ? 1 - t.share : 0;
}

static float wanted_logit(const element *logits, struct row_target t) {
    const float own = float_of(logits[t.target]);
    return t.partner < 0 ? own : t.share * own + (1 - t.share) * float_of(logits[t.partner]);
}

static float row_loss(element *logits, struct row_target t, int64_t vocabulary, const float *scale) {
    float row_max = -INFINITY;
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; v++)
        row_max = float_of(logits[v]) > row_max ? float_of(logits[v]) : row_max;
    for (int64_t v = 0; v < vocabulary; v++)
        sum += expf(float_of(logits[v]) - row_max);
    const float loss = t.target < 0 ? 0 : logf((float)sum) + row_max - wanted_logit(logits, t);
    if (!scale)
        return loss;
    for (int64_t v = 0; v < vocabulary; v++) {
        const float p = expf(float_of(logits[v]) - row_max) / (float)sum;
        logits[v] = element_of(t.target < 0 ? 0 : *scale * (p - weight_of(t, v)));
    }
    return loss;
}

status_t PLAIN(cross_entropy)(const struct kernels *k, float *losses, element_t *logits, const int32_t *targets,
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

status_t PLAIN(top1)(const struct kernels *k, float *is_top1, const element_t *logits, const int32_t *targets,
                     int64_t rows, int64_t vocabulary, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const element *l = AT(logits, row * vocabulary);
        int64_t best = 0;
        for (int64_t v = 1; v < vocabulary; v++)
            best = float_of(l[v]) > float_of(l[best]) ? v : best;
        is_top1[row] = best == targets[row];
    }
    return ST_OK;
}
