/* Converts an image from bytes to a model's input: a random crop and flip, then floats, one plane for each channel.
 *
 * Random values come from Philox4x32-10 (kernels/philox.h) with the seed as key and the number of the training sample
 * as counter, so every rank, layout and resume draws the same. Pure functions; any thread. Private to this folder. */
#ifndef ENGINE_DATA_IMAGE_VIEW_H
#define ENGINE_DATA_IMAGE_VIEW_H

#include "engine/data/source.h"

#include <stdbool.h>
#include <stdint.h>

struct image_shape {
    int height, width, channels;
};

/* The offset of the crop, -padding .. padding, and whether to flip horizontally. */
struct image_view {
    int down, right;
    bool flip;
};

struct image_view image_view_draw(const struct data_augmentation *a, int64_t seed, int64_t sample);

/* pixels (H,W,C) -> to (C,H,W), value * scale + shift. Pixels of the crop outside the image are black (0). */
void image_to_floats(const struct image_shape *shape, const uint8_t *pixels, struct image_view view, float scale,
                     float shift, float *to);

/* For BATCH_IMAGES: 0 .. 255 -> -1 .. 1. */
#define IMAGE_SCALE (1 / 127.5f)
#define IMAGE_SHIFT (-1.0f)

#endif
