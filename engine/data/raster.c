#include "engine/data/raster.h"

#include <errno.h>
#include <stdlib.h>

status_t raster_check_size(int64_t height, int64_t width, struct err *e) {
    if (height < 1 || width < 1 || height > IMAGE_SIDE || width > IMAGE_SIDE || height * width > IMAGE_PIXELS)
        return err_set(e, ST_INVALID_ARGUMENT, "it has %lld x %lld pixels; at most %d a side and %d in all are read",
                       (long long)width, (long long)height, IMAGE_SIDE, IMAGE_PIXELS);
    return ST_OK;
}

status_t raster_allocate(struct raster *ret, int64_t height, int64_t width, int channels, struct err *e) {
    TRY(raster_check_size(height, width, e));
    *ret = (struct raster){ .height = (int)height, .width = (int)width, .channels = channels };
    size_t bytes = (size_t)height * (size_t)width * (size_t)channels;
    return (ret->data = malloc(bytes)) ? ST_OK : err_errno(e, "allocate an image of %zu bytes", bytes);
}
