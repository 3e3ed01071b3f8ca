/* Mixup (Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018) of the training samples of a source of
 * labelled images: sample i becomes share x (image i) + (1 - share) x (image i + 1), pixel by pixel, after both images
 * were changed at random. Its label keeps the weight `share`; the label of sample i + 1, its partner, gets the rest.
 *
 * Sample i + 1 is the next one of the job, across micro-batches, steps and epochs, and the share depends on the seed
 * and the sample's number only. So a sample is the same in every layout, batch size and resume, and a micro-batch of B
 * samples makes B + 1 images. Private to this folder. */
#ifndef ENGINE_DATA_MIXUP_H
#define ENGINE_DATA_MIXUP_H

#include "engine/data/source.h"

#define MIXUP_ALPHA_MAX 100.0

/* Gives a source of labelled images the inputs partners and shares; its read stays that of samples that are not mixed.
 * To be called when the source has all of its other inputs. alpha 0: changes nothing. INVALID_ARGUMENT: alpha is not
 * within 0 and MIXUP_ALPHA_MAX. */
MUST_CHECK status_t mixup_open(struct source *s, double alpha, struct err *e);

/* Of a training sample: drawn from Beta(alpha, alpha), 0 .. 1. alpha > 0. Pure. */
float mixup_share(double alpha, int64_t seed, int64_t sample);

/* As source_read, of a source with mixup. Validation samples are not mixed: their share is 1, and their own label is
 * their partner. */
MUST_CHECK status_t mixup_read(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                               const struct batch *to, struct err *e);

#endif
