#include "engine/data/decode.h"

#include <stdbool.h>
#include <string.h>

static bool is_png(const void *bytes, size_t n) {
    static const uint8_t png[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    return n >= sizeof png && memcmp(bytes, png, sizeof png) == 0;
}

static bool is_jpeg(const void *bytes, size_t n) {
    static const uint8_t jpeg[] = { 0xff, 0xd8, 0xff };
    return n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0;
}

static status_t refuse(struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "it begins neither as a PNG nor as a JPEG does");
}

/* Moves the rows of the part to the beginning. */
static void cut(struct raster *r, const struct image_box *part) {
    const size_t C = (size_t)r->channels, row = (size_t)part->width * C;
    for (size_t y = 0; y < (size_t)part->height; y++)
        memmove(r->data + y * row, r->data + (((size_t)part->top + y) * (size_t)r->width + (size_t)part->left) * C,
                row);
    r->height = part->height;
    r->width = part->width;
}

status_t image_decode(const void *bytes, size_t n, int channels, const struct image_box *part, struct raster *ret,
                      struct err *e) {
    if (is_jpeg(bytes, n))
        return jpeg_decode(bytes, n, channels, part, ret, e);
    if (!is_png(bytes, n))
        return refuse(e);
    TRY(png_decode(bytes, n, channels, ret, e));
    if (part)
        cut(ret, part);
    return ST_OK;
}

status_t image_size(const void *bytes, size_t n, int *ret_height, int *ret_width, struct err *e) {
    if (!is_jpeg(bytes, n) && !is_png(bytes, n))
        return refuse(e);
    TRY((is_jpeg(bytes, n) ? jpeg_size : png_size)(bytes, n, ret_height, ret_width, e));
    return raster_check_size(*ret_height, *ret_width, e);
}
