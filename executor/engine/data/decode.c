#include "executor/engine/data/decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

status_t raster_allocate(struct raster *ret, int64_t height, int64_t width, int channels, struct err *e) {
    if (height < 1 || width < 1 || height > IMAGE_SIDE || width > IMAGE_SIDE || height * width > IMAGE_PIXELS)
        return err_set(e, ST_INVALID_ARGUMENT, "it has %lld x %lld pixels; at most %d a side and %d in all are read",
                       (long long)width, (long long)height, IMAGE_SIDE, IMAGE_PIXELS);
    *ret = (struct raster){ .height = (int)height, .width = (int)width, .channels = channels };
    size_t bytes = (size_t)height * (size_t)width * (size_t)channels;
    return (ret->data = malloc(bytes)) ? ST_OK : err_errno(e, "allocate an image of %zu bytes", bytes);
}

status_t image_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e) {
    static const uint8_t png[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' }, jpeg[] = { 0xff, 0xd8, 0xff };
    if (n >= sizeof png && memcmp(bytes, png, sizeof png) == 0)
        return png_decode(bytes, n, channels, ret, e);
    if (n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0)
        return jpeg_decode(bytes, n, channels, ret, e);
    return err_set(e, ST_INVALID_ARGUMENT, "it begins neither as a PNG nor as a JPEG does");
}
