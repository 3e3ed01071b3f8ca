#include "base/alloc.h"
#include "engine/data/decode.h"

#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* This struct holds all values that must survive libpng's longjmp, because values in registers may be lost. */
struct reading {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t n, at;
    char why[160];
    struct raster colour; /* as decoded by libpng: 3 channels, or 1 if the file is grey */
    png_bytep *rows;
};

static void fail(png_structp png, png_const_charp message) {
    struct reading *r = png_get_error_ptr(png);
    snprintf(r->why, sizeof r->why, "%s", message);
    longjmp(png_jmpbuf(png), 1);
}

/* A warning does not stop libpng: it concerns data that does not affect the pixels (a damaged text chunk). */
static void ignore(png_structp png, png_const_charp message) { (void)png, (void)message; }

static void take(png_structp png, png_bytep to, size_t n) {
    struct reading *r = png_get_io_ptr(png);
    if (n > r->n - r->at)
        png_error(png, "the file is incomplete");
    memcpy(to, r->bytes + r->at, n);
    r->at += n;
}

/* Configures libpng to convert every kind of file to 8 bits of grey or of colour, without alpha. */
static void set_conversions(struct reading *r) {
    int kind = png_get_color_type(r->png, r->info);
    png_set_expand(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_interlace_handling(r->png);
    r->colour.channels = kind & PNG_COLOR_MASK_COLOR ? 3 : 1;
    png_read_update_info(r->png, r->info);
}

static status_t read_pixels(struct reading *r, struct err *e) {
    if (setjmp(png_jmpbuf(r->png)))
        return err_set(e, ST_INVALID_ARGUMENT, "it is not a complete PNG: %s", r->why);
    png_set_read_fn(r->png, r, take);
    png_set_user_limits(r->png, IMAGE_SIDE, IMAGE_SIDE);
    png_set_chunk_malloc_max(r->png, 8 << 20);
    png_read_info(r->png, r->info);
    set_conversions(r);
    TRY(raster_allocate(&r->colour, png_get_image_height(r->png, r->info), png_get_image_width(r->png, r->info),
                        r->colour.channels, e));
    size_t row = (size_t)r->colour.width * (size_t)r->colour.channels;
    if (png_get_rowbytes(r->png, r->info) != row)
        png_error(r->png, "a row has another length than its pixels");
    r->rows = alloc_zeroed((size_t)r->colour.height, sizeof *r->rows);
    for (int y = 0; y < r->colour.height; y++)
        r->rows[y] = r->colour.data + (size_t)y * row;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
    return ST_OK;
}

static uint8_t luma(const uint8_t *rgb) {
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000) >> 16);
}

static status_t convert(struct reading *r, int channels, struct raster *ret, struct err *e) {
    if (r->colour.channels == channels) {
        *ret = r->colour;
        r->colour.data = NULL;
        return ST_OK;
    }
    TRY(raster_allocate(ret, r->colour.height, r->colour.width, channels, e));
    size_t n = (size_t)ret->height * (size_t)ret->width;
    for (size_t i = 0; i < n; i++) {
        if (channels == 1)
            ret->data[i] = luma(r->colour.data + 3 * i);
        else
            memset(ret->data + 3 * i, r->colour.data[i], 3);
    }
    return ST_OK;
}

status_t png_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e) {
    struct reading r = { .bytes = bytes, .n = n };
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, ignore);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    status_t st = r.info ? read_pixels(&r, e) : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to read a PNG");
    png_destroy_read_struct(&r.png, &r.info, NULL);
    if (st == ST_OK)
        st = convert(&r, channels, ret, e);
    free(r.rows);
    free(r.colour.data);
    return st;
}

status_t png_size(const void *bytes, size_t n, int *ret_height, int *ret_width, struct err *e) {
    enum { WIDTH_AT = 16, HEIGHT_AT = 20, END = 24 };
    const uint8_t *p = bytes;
    if (n < END || memcmp(p + 12, "IHDR", 4) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "it is not a complete PNG: it does not begin with its size");
    *ret_width = (int)((uint32_t)(p[WIDTH_AT] & 0x7f) << 24 | p[17] << 16 | p[18] << 8 | p[19]);
    *ret_height = (int)((uint32_t)(p[HEIGHT_AT] & 0x7f) << 24 | p[21] << 16 | p[22] << 8 | p[23]);
    return ST_OK;
}
