/* A decoded image in memory. Private to this folder and its fuzz target. */
#ifndef ENGINE_DATA_RASTER_H
#define ENGINE_DATA_RASTER_H

#include "base/status.h"

#include <stdint.h>

enum { IMAGE_SIDE = 16384, IMAGE_PIXELS = 1 << 26 };

/* Pixels by row, then column, then channel; 1 channel (luma of ITU-R BT.601) or 3 (red, green, blue). */
struct raster {
    int height, width, channels;
    uint8_t *data; /* (height, width, channels), malloc'd */
};

/* A part of an image, in pixels. */
struct image_box {
    int top, left, height, width;
};

/* INVALID_ARGUMENT for an image larger than the limits above. */
MUST_CHECK status_t raster_check_size(int64_t height, int64_t width, struct err *e);

/* Allocates ret->data; INVALID_ARGUMENT for an image larger than the limits above. */
MUST_CHECK status_t raster_allocate(struct raster *ret, int64_t height, int64_t width, int channels, struct err *e);

#endif
