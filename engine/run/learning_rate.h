/* The learning rate of a step. Linear warm-up from lr / (warmup + 1), as nanoGPT defines it; the step after it has lr.
 * Then the rate falls from lr to min_lr as the schedule's kind says. A kind is one struct in one file, rate_NAME.c,
 * which RATE_KINDS names.
 *
 * Scaling multiplies lr and min_lr by global_batch / reference_batch (Goyal et al. 2017) or by its root. The factor
 * depends on the batch, never on the number of ranks. */
#ifndef ENGINE_RUN_LEARNING_RATE_H
#define ENGINE_RUN_LEARNING_RATE_H

#include "base/member.h"

#include <stdint.h>

struct engine_train; /* engine_config.h */
struct rate_kind;

/* Every kind reads what it needs. The spec's fields have the same names. */
struct rate_schedule {
    const struct rate_kind *kind; /* NULL: constant */
    int64_t warmup_steps;
    int64_t decay_steps; /* the last ones */
    double min_lr;
};

/* The table of the members above. */
enum { RATE_MEMBERS = 3 };
extern const struct member RATE_MEMBER[RATE_MEMBERS];

struct rate_kind {
    const char *name; /* the spec's word */
    /* The fraction of lr - min_lr that is added to min_lr at a step after the warm-up and before `steps`. NULL: always
     * 1, also beyond the last step. */
    double (*fraction)(const struct rate_schedule *s, int64_t steps, int64_t step);
};

/* The kinds: rate_NAME is in rate_NAME.c.
 *   constant   lr
 *   cosine     half a cosine that would reach min_lr at the step after the last one, as nanoGPT, transformers and
 *              CosineAnnealingLR(T_max = steps - warmup) define it
 *   linear     a line to min_lr at the last step
 *   wsd        warm-up, stable, decay (Hu et al. 2024, MiniCPM): lr, and over the last decay_steps a line to min_lr at
 *              the last step; decay_steps 0: constant
 * If the last step is the first one after the warm-up, linear and wsd have min_lr there. */
#define RATE_KINDS(KIND) KIND(constant) KIND(cosine) KIND(linear) KIND(wsd)

#define RATE_DECLARE(name) extern const struct rate_kind rate_##name;
RATE_KINDS(RATE_DECLARE)
#undef RATE_DECLARE

/* NULL if the name is not in RATE_KINDS. */
const struct rate_kind *rate_kind_find(const char *name);

/* For kinds: the fraction on a line from step `top`, the last step at lr, to the last step of the run. */
double rate_line(int64_t steps, int64_t top, int64_t step);

/* step counts from 0: the batches consumed before this one. */
double learning_rate(const struct engine_train *train, int64_t step);

#endif
