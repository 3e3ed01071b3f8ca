/* What a model sees of a picture of bytes: drawn crop and flip, numbers around zero, one plane a channel.
 *
 * The draws come from Philox4x32-10 (kernels/philox.h) keyed by the seed and counted by the number of the training
 * sample, so any rank, layout and resume draws the same. Pure; any thread. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_PICTURE_H
#define EXECUTOR_ENGINE_DATA_PICTURE_H

#include "executor/engine/data/source.h"

#include <stdbool.h>
#include <stdint.h>

struct picture_shape {
    int height, width, channels;
};

/* Where the crop stands, relative to the picture itself: -padding .. padding. */
struct picture_view {
    int down, right;
    bool flip;
};

struct picture_view picture_draw(const struct data_augmentation *a, int64_t seed, int64_t sample);

/* pixels (H,W,C) -> to (C,H,W), value * scale + shift; what the crop has outside of the picture is black (0). */
void picture_numbers(const struct picture_shape *shape, const uint8_t *pixels, struct picture_view view, float scale,
                     float shift, float *to);

/* Of BATCH_IMAGES: 0 .. 255 -> -1 .. 1. */
#define PICTURE_SCALE (1 / 127.5f)
#define PICTURE_SHIFT (-1.0f)

#endif
