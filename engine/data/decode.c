#include "engine/data/decode.h"

#include <string.h>

status_t image_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e) {
    static const uint8_t png[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' }, jpeg[] = { 0xff, 0xd8, 0xff };
    if (n >= sizeof png && memcmp(bytes, png, sizeof png) == 0)
        return png_decode(bytes, n, channels, ret, e);
    if (n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0)
        return jpeg_decode(bytes, n, channels, ret, e);
    return err_set(e, ST_INVALID_ARGUMENT, "it begins neither as a PNG nor as a JPEG does");
}
