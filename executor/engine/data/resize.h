/* A picture brought to size x size pixels: its shorter side to size, in proportion, then the middle of the longer one.
 *
 * Each pass (columns, then rows, each rounded to 8 bits) weights the source pixels by a triangle as wide as two source
 * or two destination pixels, whichever is wider: linear interpolation upwards, without aliasing downwards. The weights
 * are integers of 22 bits, so that every machine has the same pixels; they are those of Pillow's BILINEAR. Pure.
 * Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_RESIZE_H
#define EXECUTOR_ENGINE_DATA_RESIZE_H

#include "executor/engine/data/decode.h"

/* to: (size, size, channels). RESOURCE_EXHAUSTED. */
MUST_CHECK status_t raster_fit(const struct raster *from, int size, uint8_t *to, struct err *e);

#endif
