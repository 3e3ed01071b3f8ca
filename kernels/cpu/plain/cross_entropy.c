#include "kernels/cpu/plain/ops.h"
#include "kernels/cpu/target.h"

#include <math.h>

static float row_loss(float *logits, int32_t target, int64_t vocabulary, float scale, bool gradient) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; v++)
        most = logits[v] > most ? logits[v] : most;
    for (int64_t v = 0; v < vocabulary; v++)
        sum += expf(logits[v] - most);
    const float loss = target < 0 ? 0 : logf((float)sum) + most - logits[target];
    if (!gradient)
        return loss;
    for (int64_t v = 0; v < vocabulary; v++)
        logits[v] = target < 0 ? 0 : scale * (expf(logits[v] - most) / (float)sum - (v == target));
    return loss;
}

status_t plain_cross_entropy(const struct kernels *k, float *losses, float *logits, const int32_t *targets,
                             int64_t rows, int64_t vocabulary, float scale, bool gradient, struct err *e) {
    TRY(targets_check(targets, rows, vocabulary, e));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        losses[row] = row_loss(logits + row * vocabulary, targets[row], vocabulary, scale, gradient);
    return ST_OK;
}
