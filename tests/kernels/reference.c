#include "tests/kernels/reference.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdlib.h>

void reference_gelu(double *y, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = 0.5 * x[i] * (1 + tanh(sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
}

void reference_gelu_erf(double *y, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = 0.5 * x[i] * erfc(-x[i] * M_SQRT1_2);
}

void reference_layernorm(double *y, const double *x, const double *branch, const double *gamma, const double *beta,
                         int64_t rows, int64_t width, double epsilon) {
    for (int64_t row = 0; row < rows; row++) {
        double *to = y + row * width, mean = 0, variance = 0;
        for (int64_t c = 0; c < width; c++) {
            to[c] = x[row * width + c] + (branch ? branch[row * width + c] : 0);
            mean += to[c] / (double)width;
        }
        for (int64_t c = 0; c < width; c++)
            variance += (to[c] - mean) * (to[c] - mean) / (double)width;
        for (int64_t c = 0; c < width; c++)
            to[c] = (to[c] - mean) / sqrt(variance + epsilon) * gamma[c] + (beta ? beta[c] : 0);
    }
}

double reference_mask(const struct dropout *d, int64_t sample, int64_t element) {
    if (d->probability == 0)
        return 1;
    uint32_t counter[4] = { (uint32_t)(element / 4), (uint32_t)(d->first_sample + sample), d->key.op,
                            (uint32_t)*d->key.step },
             four[4];
    philox4x32_10(counter, d->key.seed, four);
    return four[element % 4] < (double)d->probability * 4294967296.0 ? 0 : 1 / (1 - (double)d->probability);
}

void reference_attention(double *out, double *lse, const double *qkv, const struct attention_dims *d,
                         const struct dropout *dropout) {
    const int64_t time = d->time, width = d->head, row = (d->heads + 2 * d->kv_heads) * width;
    double *p = malloc((size_t)time * sizeof *p);
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t t = 0; t < time; t++) {
                const int64_t shared = d->heads + h / (d->heads / d->kv_heads), end = d->causal ? t + 1 : time;
                const double *q = qkv + (b * time + t) * row + h * width;
                double *o = out + ((b * time + t) * d->heads + h) * width, sum = 0;
                for (int64_t s = 0; s < end; s++) {
                    const double *key = qkv + (b * time + s) * row + shared * width;
                    p[s] = 0;
                    for (int64_t c = 0; c < width; c++)
                        p[s] += q[c] * key[c];
                    p[s] = exp(p[s] / sqrt((double)width));
                    sum += p[s];
                }
                if (lse)
                    lse[(b * d->heads + h) * time + t] = log(sum);
                for (int64_t c = 0; c < width; c++)
                    o[c] = 0;
                for (int64_t s = 0; s < end; s++) {
                    const double *value = qkv + (b * time + s) * row + (shared + d->kv_heads) * width;
                    const double weight = p[s] / sum * reference_mask(dropout, b, (h * time + t) * time + s);
                    for (int64_t c = 0; c < width; c++)
                        o[c] += weight * value[c];
                }
            }
    free(p);
}

void reference_cross_entropy(double *losses, const double *logits, const int32_t *targets, int64_t rows,
                             int64_t vocabulary) {
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t v = 0; v < vocabulary; v++)
            sum += exp(logits[row * vocabulary + v]);
        losses[row] = targets[row] < 0 ? 0 : log(sum) - logits[row * vocabulary + targets[row]];
    }
}

void reference_embedding(double *y, const int32_t *tokens, const double *wte, const double *wpe, int64_t batch,
                         int64_t time, int64_t width) {
    for (int64_t i = 0; i < batch * time * width; i++) {
        const int64_t row = i / width, c = i % width;
        y[i] = wte[tokens[row] * width + c] + wpe[row % time * width + c];
    }
}

void reference_rmsnorm(double *y, const double *x, const double *gamma, int64_t rows, int64_t width, double epsilon) {
    for (int64_t row = 0; row < rows; row++) {
        double square = 0;
        for (int64_t c = 0; c < width; c++)
            square += x[row * width + c] * x[row * width + c] / (double)width;
        for (int64_t c = 0; c < width; c++)
            y[row * width + c] = x[row * width + c] / sqrt(square + epsilon) * gamma[c];
    }
}

void reference_swiglu(double *y, const double *gate_up, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < width; c++) {
            const double gate = gate_up[2 * row * width + c], up = gate_up[(2 * row + 1) * width + c];
            y[row * width + c] = gate / (1 + exp(-gate)) * up;
        }
}

/* Rotates pair i, as the complex number x_i + j x_(i + head/2). */
void reference_rope(double *y, const double *x, int64_t head, int64_t position, double theta) {
    for (int64_t i = 0; i < head / 2; i++) {
        const double angle = (double)position / pow(theta, 2.0 * (double)i / (double)head);
        y[i] = x[i] * cos(angle) - x[i + head / 2] * sin(angle);
        y[i + head / 2] = x[i] * sin(angle) + x[i + head / 2] * cos(angle);
    }
}
