#include "kernels/cpu/plain/ops.h"

status_t PLAIN(patches)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t channels,
                        int64_t height, int64_t width, int64_t patch, struct err *e) {
    (void)e;
    const int64_t down = height / patch, across = width / patch;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < batch * down * across; at++) {
        const int64_t sample = at / (down * across), top = at / across % down * patch, left = at % across * patch;
        element *to = AT(y, at * channels * patch * patch);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < patch; i++)
                for (int64_t j = 0; j < patch; j++)
                    *to++ = *AT(x, ((sample * channels + c) * height + top + i) * width + left + j);
    }
    return ST_OK;
}

status_t PLAIN(class_token_forward)(const struct kernels *k, element_t *y, const element_t *x, const element_t *token,
                                    const element_t *positions, int64_t batch, int64_t time, int64_t width,
                                    struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < batch * time; at++) {
        const int64_t sample = at / time, t = at % time;
        const element *from = t ? AT(x, (sample * (time - 1) + t - 1) * width) : AT(token, 0);
        for (int64_t c = 0; c < width; c++)
            *AT(y, at * width + c) = element_of(float_of(from[c]) + float_of(*AT(positions, t * width + c)));
    }
    return ST_OK;
}

status_t PLAIN(class_token_backward)(const struct kernels *k, element_t *dx, float *dtoken, float *dpositions,
                                     const element_t *dy, int64_t batch, int64_t time, int64_t width, bool accumulate,
                                     struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t t = 0; t < time; t++)
        for (int64_t c = 0; c < width; c++) {
            float sum = 0, *to = dpositions + t * width + c;
            for (int64_t sample = 0; sample < batch; sample++) {
                const element d = *AT(dy, (sample * time + t) * width + c);
                sum += float_of(d);
                if (t)
                    *AT(dx, (sample * (time - 1) + t - 1) * width + c) = d;
            }
            *to = accumulate ? *to + sum : sum;
            if (t == 0)
                dtoken[c] = accumulate ? dtoken[c] + sum : sum;
        }
    return ST_OK;
}

status_t PLAIN(first_forward)(const struct kernels *k, element_t *y, const element_t *x, int64_t batch, int64_t time,
                              int64_t width, struct err *e) {
    (void)k, (void)e;
    for (int64_t sample = 0; sample < batch; sample++)
        for (int64_t c = 0; c < width; c++)
            *AT(y, sample * width + c) = *AT(x, sample * time * width + c);
    return ST_OK;
}

status_t PLAIN(first_backward)(const struct kernels *k, element_t *dx, const element_t *dy, int64_t batch, int64_t time,
                               int64_t width, struct err *e) {
    (void)e;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t at = 0; at < batch * time; at++)
        for (int64_t c = 0; c < width; c++)
            *AT(dx, at * width + c) = at % time ? element_of(0) : *AT(dy, at / time * width + c);
    return ST_OK;
}
