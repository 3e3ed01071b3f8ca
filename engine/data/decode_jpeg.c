#include "base/alloc.h"
#include "engine/data/decode.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

/* This struct holds all values that must survive libjpeg's longjmp, because values in registers may be lost. */
struct reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char why[JMSG_LENGTH_MAX];
    struct raster raster;
    JSAMPLE *row; /* of a part: a row and what lies beside it */
    JDIMENSION left, width;
};

static void fail(j_common_ptr jpeg) {
    struct reading *r = jpeg->client_data;
    r->errors.format_message(jpeg, r->why);
    longjmp(r->back, 1);
}

/* libjpeg replaces missing pixels by grey pixels and reports a warning; this decoder returns an error. Bytes between
 * two markers do not belong to the image and are ignored. */
static void warn(j_common_ptr jpeg, int level) {
    if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA)
        fail(jpeg);
}

/* A progressive file of thousands of empty scans would take minutes. */
static void limit_scans(j_common_ptr jpeg) {
    enum { MAX_SCANS = 100 };
    struct reading *r = jpeg->client_data;
    if (r->jpeg.input_scan_number <= MAX_SCANS)
        return;
    snprintf(r->why, sizeof r->why, "more than %d scans", MAX_SCANS);
    longjmp(r->back, 1);
}

static void read_header(struct reading *r, const void *bytes, size_t n) {
    jpeg_create_decompress(&r->jpeg);
    r->progress.progress_monitor = limit_scans;
    r->jpeg.progress = &r->progress;
    r->jpeg.mem->max_memory_to_use = 512 << 20;
    jpeg_mem_src(&r->jpeg, bytes, n);
    jpeg_read_header(&r->jpeg, TRUE);
}

static void read_all(struct reading *r) {
    const size_t row = (size_t)r->raster.width * (size_t)r->raster.channels;
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW to = r->raster.data + (size_t)r->jpeg.output_scanline * row;
        jpeg_read_scanlines(&r->jpeg, &to, 1);
    }
    jpeg_finish_decompress(&r->jpeg);
}

/* libjpeg interpolates colours over the pixels beside a pixel: a part that is read as far as one unit of the file
 * beyond its sides has the colours of the whole image. */
static void read_part(struct reading *r, const struct image_box *part) {
    const JDIMENSION unit = (JDIMENSION)(r->jpeg.max_h_samp_factor * DCTSIZE), all = r->jpeg.output_width,
                     left = (JDIMENSION)part->left, right = left + (JDIMENSION)part->width;
    const size_t C = (size_t)r->raster.channels, bytes = (size_t)part->width * C;
    r->left = left > unit ? left - unit : 0;
    r->width = (all - right > unit ? right + unit : all) - r->left;
    jpeg_crop_scanline(&r->jpeg, &r->left, &r->width);
    jpeg_skip_scanlines(&r->jpeg, (JDIMENSION)part->top);
    r->row = alloc_zeroed(r->width, C);
    for (size_t y = 0; y < (size_t)part->height; y++) {
        jpeg_read_scanlines(&r->jpeg, &r->row, 1);
        memcpy(r->raster.data + y * bytes, r->row + (left - r->left) * C, bytes);
    }
}

static status_t read_pixels(struct reading *r, const void *bytes, size_t n, int channels, const struct image_box *part,
                            struct err *e) {
    if (setjmp(r->back))
        return err_set(e, ST_INVALID_ARGUMENT, "it is not a complete JPEG: %s", r->why);
    read_header(r, bytes, n);
    if (r->jpeg.num_components != 1 && r->jpeg.num_components != 3)
        return err_set(e, ST_INVALID_ARGUMENT, "it is a JPEG of %d colour components; 1 and 3 are read",
                       r->jpeg.num_components);
    r->jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    r->jpeg.dct_method = JDCT_ISLOW; /* the same in all versions and on all machines */
    TRY(raster_check_size(r->jpeg.image_height, r->jpeg.image_width, e));
    TRY(raster_allocate(&r->raster, part ? part->height : (int64_t)r->jpeg.image_height,
                        part ? part->width : (int64_t)r->jpeg.image_width, channels, e));
    jpeg_start_decompress(&r->jpeg);
    if (part)
        read_part(r, part);
    else
        read_all(r);
    return ST_OK;
}

static struct reading *reading_open(void) {
    struct reading *r = alloc_zeroed(1, sizeof *r);
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = fail;
    r->errors.emit_message = warn;
    return r;
}

static void reading_close(struct reading *r) {
    jpeg_destroy_decompress(&r->jpeg);
    free(r->row);
    free(r);
}

status_t jpeg_decode(const void *bytes, size_t n, int channels, const struct image_box *part, struct raster *ret,
                     struct err *e) {
    struct reading *r = reading_open();
    status_t st = read_pixels(r, bytes, n, channels, part, e);
    if (st == ST_OK)
        *ret = r->raster;
    else
        free(r->raster.data);
    reading_close(r);
    return st;
}

static status_t read_size(struct reading *r, const void *bytes, size_t n, struct err *e) {
    if (setjmp(r->back))
        return err_set(e, ST_INVALID_ARGUMENT, "it is not a complete JPEG: %s", r->why);
    read_header(r, bytes, n);
    return ST_OK;
}

status_t jpeg_size(const void *bytes, size_t n, int *ret_height, int *ret_width, struct err *e) {
    struct reading *r = reading_open();
    status_t st = read_size(r, bytes, n, e);
    *ret_height = (int)r->jpeg.image_height;
    *ret_width = (int)r->jpeg.image_width;
    reading_close(r);
    return st;
}
