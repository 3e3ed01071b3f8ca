/* A Beta(a, a) number is G / (G + H) of two Gamma(a) numbers. Gamma(a) is Gamma(a + 1) x U^(1/a), with Gamma(a + 1) by
 * Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000). Logarithms are kept
 * instead of the numbers, because U^(1/a) of a small a is 0 in floating point, and G / (G + H) would have no value. For
 * the same reason they are finite. */
#include "engine/data/mixup.h"

#include "base/cleanup.h"
#include "engine/data/image_random.h"
#include "engine/data/loader.h"
#include "engine/data/source_kind.h"
#include "kernels/normal.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Each attempt is accepted with a probability above 0.95. */
enum { ATTEMPTS = 64 };

/* 0 < u < 1 */
static double open_uniform(uint32_t random) { return ((double)random + 0.5) * 0x1p-32; }

/* From the blocks `block` .. block + ATTEMPTS - 1 of the sample. */
static double log_gamma(double alpha, int64_t seed, int64_t sample, uint32_t block) {
    const double d = alpha + 1 - 1.0 / 3, c = 1 / sqrt(9 * d);
    double boost = 0, v = 1;
    for (uint32_t i = 0; i < ATTEMPTS; i++) {
        uint32_t random[4];
        float normal[2];
        image_random(seed, sample, block + i, random);
        normal2(random, normal);
        boost = fmax(log(open_uniform(random[3])) / alpha, -DBL_MAX / 4);
        const double x = normal[0], root = 1 + c * x;
        v = root * root * root;
        if (root > 0 && log(open_uniform(random[2])) < 0.5 * x * x + d * (1 - v + log(v)))
            break;
        v = 1; /* the mode, if no attempt is accepted */
    }
    return log(d * v) + boost;
}

float mixup_share(double alpha, int64_t seed, int64_t sample) {
    const double g = log_gamma(alpha, seed, sample, IMAGE_RANDOM_MIXUP),
                 h = log_gamma(alpha, seed, sample, IMAGE_RANDOM_MIXUP + ATTEMPTS);
    return (float)(1 / (1 + exp(h - g)));
}

status_t mixup_open(struct source *s, double alpha, struct err *e) {
    if (!(alpha >= 0 && alpha <= MIXUP_ALPHA_MAX))
        return err_set(e, ST_INVALID_ARGUMENT, "a mixup of %g is not from 0 to %g", alpha, MIXUP_ALPHA_MAX);
    if (alpha == 0)
        return ST_OK;
    struct source_info *info = &s->info;
    s->mixup = alpha;
    info->inputs[info->n_inputs++] = (struct source_input){ .input = BATCH_PARTNERS };
    info->inputs[info->n_inputs++] = (struct source_input){ .input = BATCH_SHARES };
    info->memory_bytes += LOADER_THREADS * sizeof(float) * (size_t)source_elements(s, BATCH_IMAGES);
    return ST_OK;
}

static void mix(float *a, const float *b, float share, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        a[i] = share * a[i] + (1 - share) * b[i];
}

/* Each image is still as it was read when the one before it needs it. The sample after the last one is read beside
 * them. */
static status_t mix_images(const struct source *s, int64_t seed, int64_t first, int B, float *images, struct err *e) {
    const int64_t n = source_elements(s, BATCH_IMAGES);
    CLEANUP(freep) float *after = malloc((size_t)n * sizeof *after);
    if (!after)
        return err_errno(e, "allocate an image of %lld numbers", (long long)n);
    const struct batch last = { .of = { [BATCH_IMAGES] = after } };
    TRY(s->read(s, SOURCE_TRAIN, seed, first + B, 1, &last, e));
    for (int b = 0; b < B; b++)
        mix(images + b * n, b + 1 < B ? images + (b + 1) * n : after, mixup_share(s->mixup, seed, first + b), n);
    return ST_OK;
}

status_t mixup_read(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                    const struct batch *to, struct err *e) {
    const bool train = split == SOURCE_TRAIN;
    const struct batch partners = { .of = { [BATCH_LABELS] = to->of[BATCH_PARTNERS] } };
    float *shares = to->of[BATCH_SHARES];
    TRY(s->read(s, split, seed, first, B, to, e));
    if (partners.of[BATCH_LABELS])
        TRY(s->read(s, split, seed, first + train, B, &partners, e));
    for (int b = 0; shares && b < B; b++)
        shares[b] = train ? mixup_share(s->mixup, seed, first + b) : 1;
    return train && to->of[BATCH_IMAGES] && B > 0 ? mix_images(s, seed, first, B, to->of[BATCH_IMAGES], e) : ST_OK;
}
