/* Scales an image to size x size pixels: the shorter side to `size`, in proportion, then crops the middle of the longer
 * side.
 *
 * Each pass (columns, then rows, each rounded to 8 bits) weights the source pixels by a triangle as wide as two source
 * or two destination pixels, whichever is wider: linear interpolation upwards, without aliasing downwards. The weights
 * are integers of 22 bits, so every machine gets the same pixels, equal to Pillow's BILINEAR. Pure functions.
 * Private to this folder. */
#ifndef ENGINE_DATA_RESIZE_H
#define ENGINE_DATA_RESIZE_H

#include "engine/data/raster.h"

/* to: (size, size, channels). RESOURCE_EXHAUSTED. */
MUST_CHECK status_t raster_fit(const struct raster *from, int size, uint8_t *to, struct err *e);

#endif
