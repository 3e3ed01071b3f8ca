/* Decodes PNG and JPEG files to pixels, without colour management. Files are untrusted: a damaged, incomplete or too
 * large file is an error. Any thread. Private to this folder and its fuzz target. */
#ifndef ENGINE_DATA_DECODE_H
#define ENGINE_DATA_DECODE_H

#include "engine/data/raster.h"

#include <stddef.h>
#include <stdint.h>

enum { IMAGE_FILE_BYTES = 256 << 20 };

/* channels: 1 or 3, of the result; alpha is dropped, 16 bits become their upper 8. The message of INVALID_ARGUMENT
 * states the error in the file, without the file's name. The caller frees ret->data with free(). */
MUST_CHECK status_t image_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e);

/* The two formats, for image_decode. */
MUST_CHECK status_t png_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e);
MUST_CHECK status_t jpeg_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e);

#endif
