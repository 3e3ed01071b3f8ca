/* Maps a sample's number to its window or image. The map is computed and has no state, so every rank can read every
 * sample of every step, before and after a resume.
 *
 * Training sample number i (counted from 0 over the whole job) of n windows or images belongs to epoch i / n. In each
 * epoch a keyed permutation visits each of them exactly once. Validation samples come in their own order.
 *
 * The permutation is a Feistel network over the next power of four, applied until the result is below n (cycle walking:
 * Black and Rogaway 2002), with Philox4x32-10 (Salmon et al. 2011) as its round function; at most 4 steps on average.
 * All functions are pure. */
#ifndef ENGINE_DATA_SAMPLER_H
#define ENGINE_DATA_SAMPLER_H

#include "engine/data/source.h"

#include <stdint.h>

/* Independent permutations under the same seed: of the samples of an epoch, and of the offsets of windows. */
enum sampler_stream { SAMPLER_ORDER, SAMPLER_OFFSET };

/* A permutation of 0 .. n-1, different for each (seed, epoch, stream). n >= 1, 0 <= i < n. */
int64_t sampler_permute(int64_t seed, int64_t epoch, enum sampler_stream stream, int64_t n, int64_t i);

/* The window or image, 0 .. n-1, of sample number `sample` (>= 0) of a split that has n. */
int64_t sampler_index(enum source_split split, int64_t seed, int64_t n, int64_t sample);

/* The number of tokens, 0 .. context-1, before the first window of an epoch. 0 in epoch 0, so that the first pass
 * leaves out no token but the last ones; each value once in the next `context` epochs, so that a later pass cuts the
 * text at other places. */
int64_t sampler_offset(int64_t seed, int64_t epoch, int context);

#endif
