/* PNG and JPEG files as pixels: what stands in the file, without colour management. Files are not trusted: what is
 * broken, cut or too large is one sentence. Any thread. Private to this folder and its fuzz target. */
#ifndef EXECUTOR_ENGINE_DATA_DECODE_H
#define EXECUTOR_ENGINE_DATA_DECODE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { IMAGE_SIDE = 16384, IMAGE_PIXELS = 1 << 26, IMAGE_FILE_BYTES = 256 << 20 };

/* Pixels by row, then column, then channel; 1 channel (luma of ITU-R BT.601) or 3 (red, green, blue). */
struct raster {
    int height, width, channels;
    uint8_t *data; /* (height, width, channels), malloc'd */
};

/* channels: 1 or 3, what is wanted; alpha is dropped, 16 bits become their upper 8. INVALID_ARGUMENT says what is wrong
 * with the file, without its name. ret->data is the caller's, to be freed with free(). */
MUST_CHECK status_t image_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e);

/* The two formats, for image_decode. */
MUST_CHECK status_t png_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e);
MUST_CHECK status_t jpeg_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e);

/* Allocates ret->data; INVALID_ARGUMENT for a picture that is larger than the limits above. */
MUST_CHECK status_t raster_allocate(struct raster *ret, int64_t height, int64_t width, int channels, struct err *e);

#endif
