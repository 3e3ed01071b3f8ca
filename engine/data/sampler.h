/* Maps a sample's number to its window or image. The map is computed and has no state, so every rank can read every
 * sample of every step, before and after a resume.
 *
 * A window is context + 1 adjacent tokens, at any start (nanoGPT's windows). With `windows` possible starts, sample
 * number i (counted from 0 over the whole job: step * global_batch + its place in the batch) belongs to epoch
 * i / windows; in each epoch a keyed permutation visits every start exactly once.
 *
 * The permutation is a Feistel network over the next power of four, applied until the result is below n (cycle walking:
 * Black and Rogaway 2002), with Philox4x32-10 (Salmon et al. 2011) as its round function; at most 4 steps on average.
 * All functions are pure. */
#ifndef ENGINE_DATA_SAMPLER_H
#define ENGINE_DATA_SAMPLER_H

#include <stdint.h>

/* Two independent streams under the same seed. */
enum sampler_stream { SAMPLER_TRAIN, SAMPLER_VALIDATION };

/* A permutation of 0 .. n-1, different for each (seed, epoch, stream). n >= 1, 0 <= i < n. */
int64_t sampler_permute(int64_t seed, int64_t epoch, enum sampler_stream stream, int64_t n, int64_t i);

/* The start of sample number `sample` (>= 0) among n possible starts. */
int64_t sampler_start(int64_t seed, enum sampler_stream stream, int64_t n, int64_t sample);

#endif
