#include "base/alloc.h"
#include "engine/data/decode.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

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

static status_t read_pixels(struct reading *r, const void *bytes, size_t n, int channels, struct err *e) {
    if (setjmp(r->back))
        return err_set(e, ST_INVALID_ARGUMENT, "it is not a complete JPEG: %s", r->why);
    jpeg_create_decompress(&r->jpeg);
    r->progress.progress_monitor = limit_scans;
    r->jpeg.progress = &r->progress;
    r->jpeg.mem->max_memory_to_use = 512 << 20;
    jpeg_mem_src(&r->jpeg, bytes, n);
    jpeg_read_header(&r->jpeg, TRUE);
    if (r->jpeg.num_components != 1 && r->jpeg.num_components != 3)
        return err_set(e, ST_INVALID_ARGUMENT, "it is a JPEG of %d colour components; 1 and 3 are read",
                       r->jpeg.num_components);
    r->jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    r->jpeg.dct_method = JDCT_ISLOW; /* the same in all versions and on all machines */
    TRY(raster_allocate(&r->raster, r->jpeg.image_height, r->jpeg.image_width, channels, e));
    jpeg_start_decompress(&r->jpeg);
    size_t row = (size_t)r->raster.width * (size_t)channels;
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW to = r->raster.data + (size_t)r->jpeg.output_scanline * row;
        jpeg_read_scanlines(&r->jpeg, &to, 1);
    }
    jpeg_finish_decompress(&r->jpeg);
    return ST_OK;
}

status_t jpeg_decode(const void *bytes, size_t n, int channels, struct raster *ret, struct err *e) {
    struct reading *r = alloc_zeroed(1, sizeof *r);
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = fail;
    r->errors.emit_message = warn;
    status_t st = read_pixels(r, bytes, n, channels, e);
    jpeg_destroy_decompress(&r->jpeg);
    if (st == ST_OK)
        *ret = r->raster;
    else
        free(r->raster.data);
    free(r);
    return st;
}
