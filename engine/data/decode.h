/* Decodes PNG and JPEG files to pixels, without colour management. Files are untrusted: a damaged, incomplete or too
 * large file is an error. Any thread. Private to this folder and its fuzz target. */
#ifndef ENGINE_DATA_DECODE_H
#define ENGINE_DATA_DECODE_H

#include "engine/data/raster.h"

#include <stddef.h>
#include <stdint.h>

enum { IMAGE_FILE_BYTES = 256 << 20 };

/* channels: 1 or 3, of the result; alpha is dropped, 16 bits become their upper 8. The message of INVALID_ARGUMENT
 * states the error in the file, without the file's name. The caller frees ret->data with free().
 *
 * part: what is decoded, within the image; NULL = all of it. The pixels are those that the whole image has there. Of a
 * JPEG the rest is skipped as far as it can be, so that damage below the part is not found. */
MUST_CHECK status_t image_decode(const void *bytes, size_t n, int channels, const struct image_box *part,
                                 struct raster *ret, struct err *e);

/* The pixels of an image by its header; errors as above. */
MUST_CHECK status_t image_size(const void *bytes, size_t n, int *ret_height, int *ret_width, struct err *e);

/* The two formats, for the functions above. */
MUST_CHECK status_t png_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e);
MUST_CHECK status_t png_size(const void *bytes, size_t n, int *ret_height, int *ret_width, struct err *e);
MUST_CHECK status_t jpeg_decode(const void *bytes, size_t n, int channels, const struct image_box *part,
                                struct raster *ret, struct err *e);
MUST_CHECK status_t jpeg_size(const void *bytes, size_t n, int *ret_height, int *ret_width, struct err *e);

#endif
