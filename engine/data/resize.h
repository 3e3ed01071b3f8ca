/* Scales images.
 *
 * Each pass (columns and rows, in the order of Pillow 13, each rounded to 8 bits) weights the source pixels by a
 * triangle as wide as two source or two destination pixels, whichever is wider: linear interpolation upwards, without
 * aliasing downwards. The weights are integers of 22 bits, so every machine gets the same pixels, equal to Pillow's
 * BILINEAR. Pure functions. Private to this folder. */
#ifndef ENGINE_DATA_RESIZE_H
#define ENGINE_DATA_RESIZE_H

#include "engine/data/raster.h"

/* Scales the shorter side to `shorter` pixels, in proportion, and cuts size x size pixels out of the middle, as
 * torchvision's Resize and CenterCrop do. shorter >= size. to: (size, size, channels). RESOURCE_EXHAUSTED. */
MUST_CHECK status_t raster_fit(const struct raster *from, int shorter, int size, uint8_t *to, struct err *e);

/* Scales the whole image to height x width pixels. RESOURCE_EXHAUSTED. */
MUST_CHECK status_t raster_scale(const struct raster *from, int height, int width, uint8_t *to, struct err *e);

#endif
