/* A filter says for each destination pixel of one side which source pixels it is the sum of, and with which weights. An
 * image passes the filter of its columns, then that of its rows, or the other way round. Only what the second filter
 * reads is made by the first one. */
#include "engine/data/resize.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };

/* Destination pixel i is the sum of weights[i * max + k] * source[first[i] + k], k < count[i]. */
struct filter {
    int n, max;
    int *first, *count;
    int32_t *weights;
};

static void filter_done(struct filter *f) {
    free(f->first);
    free(f->count);
    free(f->weights);
}

/* The filter from `from` source pixels to destination pixels skip .. skip + n - 1 of `to`. */
static void filter_make(struct filter *f, int from, int to, int skip, int n) {
    const double scale = (double)from / to, reach = scale > 1 ? scale : 1;
    f->n = n;
    f->max = (int)ceil(reach) * 2 + 1;
    f->first = alloc_zeroed((size_t)n, sizeof *f->first);
    f->count = alloc_zeroed((size_t)n, sizeof *f->count);
    f->weights = alloc_zeroed((size_t)n * (size_t)f->max, sizeof *f->weights);
    CLEANUP(freep) double *w = alloc_zeroed((size_t)f->max, sizeof *w);
    for (int i = 0; i < n; i++) {
        const double centre = (skip + i + 0.5) * scale;
        int first = (int)(centre - reach + 0.5), end = (int)(centre + reach + 0.5);
        first = first < 0 ? 0 : first;
        end = end > from ? from : end;
        double sum = 0;
        for (int k = 0; k < end - first; k++) {
            double distance = fabs((first + k - centre + 0.5) / reach);
            sum += w[k] = distance < 1 ? 1 - distance : 0;
        }
        f->first[i] = first;
        f->count[i] = end - first;
        for (int k = 0; k < end - first; k++)
            f->weights[i * f->max + k] = (int32_t)(0.5 + w[k] / sum * (1 << WEIGHT_BITS));
    }
}

static uint8_t rounded(int32_t sum) {
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One row, which begins with column `begin`. C is a constant where this is inlined. */
static inline void columns_of(const struct filter *f, const uint8_t *from, int begin, int C, uint8_t *to) {
    for (int x = 0; x < f->n; x++) {
        const int32_t *w = f->weights + (size_t)x * (size_t)f->max;
        const uint8_t *p = from + (size_t)(f->first[x] - begin) * (size_t)C;
        int32_t sum[3] = { 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1) };
        for (int k = 0; k < f->count[x]; k++, p += C)
            for (int c = 0; c < C; c++)
                sum[c] += w[k] * p[c];
        for (int c = 0; c < C; c++)
            *to++ = rounded(sum[c]);
    }
}

/* n rows, `stride` bytes apart, from column `begin` on -> (n, f->n, C). */
static void fit_columns(const struct filter *f, const uint8_t *from, size_t stride, int n, int begin, int C,
                        uint8_t *to) {
    const size_t row = (size_t)f->n * (size_t)C;
    for (int y = 0; y < n; y++, from += stride, to += row)
        if (C == 3)
            columns_of(f, from, begin, 3, to);
        else
            columns_of(f, from, begin, 1, to);
}

/* Rows of `row` numbers, `stride` bytes apart, from row `begin` on -> (f->n, row). sums: workspace (row). */
static void fit_rows(const struct filter *f, const uint8_t *from, size_t stride, int begin, size_t row, int32_t *sums,
                     uint8_t *to) {
    for (int y = 0; y < f->n; y++, to += row) {
        const int32_t *w = f->weights + (size_t)y * (size_t)f->max;
        const uint8_t *p = from + (size_t)(f->first[y] - begin) * stride;
        for (size_t x = 0; x < row; x++)
            sums[x] = 1 << (WEIGHT_BITS - 1);
        for (int k = 0; k < f->count[y]; k++, p += stride)
            for (size_t x = 0; x < row; x++)
                sums[x] += w[k] * p[x];
        for (size_t x = 0; x < row; x++)
            to[x] = rounded(sums[x]);
    }
}

/* The source pixels that a filter reads: from *ret_begin on. */
static int span_of(const struct filter *f, int *ret_begin) {
    *ret_begin = f->first[0];
    return f->first[f->n - 1] + f->count[f->n - 1] - f->first[0];
}

static status_t apply(const struct filter *columns, const struct filter *rows, bool rows_first,
                      const struct raster *from, uint8_t *to, struct err *e) {
    int left, top;
    const int across = span_of(columns, &left), down = span_of(rows, &top), C = from->channels;
    const size_t all = (size_t)from->width * (size_t)C, wide = (size_t)across * (size_t)C,
                 narrow = (size_t)columns->n * (size_t)C;
    CLEANUP(freep) uint8_t *between = malloc(rows_first ? (size_t)rows->n * wide : (size_t)down * narrow);
    CLEANUP(freep) int32_t *sums = malloc((rows_first ? wide : narrow) * sizeof *sums);
    if (!between || !sums)
        return err_errno(e, "allocate an image");
    if (rows_first) {
        fit_rows(rows, from->data + (size_t)left * (size_t)C, all, 0, wide, sums, between);
        fit_columns(columns, between, wide, rows->n, left, C, to);
    } else {
        fit_columns(columns, from->data + (size_t)top * all, all, down, 0, C, between);
        fit_rows(rows, between, narrow, top, narrow, sums, to);
    }
    return ST_OK;
}

/* Pillow 13 begins with the rows if many of them go: the rounding between the passes shows the order. */
static bool begins_with_rows(const struct raster *from, int height, int width) {
    return from->height > height && from->height - height > 2 * (from->width - width);
}

/* The image scaled to height x width, of which size_y x size_x pixels are made, from (down, right) on. */
static status_t scale(const struct raster *from, int height, int width, int down, int right, int size_y, int size_x,
                      uint8_t *to, struct err *e) {
    struct filter columns = { 0 }, rows = { 0 };
    filter_make(&columns, from->width, width, right, size_x);
    filter_make(&rows, from->height, height, down, size_y);
    status_t st = apply(&columns, &rows, begins_with_rows(from, height, width), from, to, e);
    filter_done(&columns);
    filter_done(&rows);
    return st;
}

/* Half of n, which torchvision rounds to the even one of two. */
static int half(int n) { return n / 2 + (n % 2 && n / 2 % 2); }

/* Copies the middle of an image whose shorter side already has its length. */
static void crop(const struct raster *from, int size, uint8_t *to) {
    const size_t C = (size_t)from->channels, row = (size_t)size * C;
    const size_t down = (size_t)half(from->height - size), right = (size_t)half(from->width - size);
    for (size_t y = 0; y < (size_t)size; y++)
        memcpy(to + y * row, from->data + ((down + y) * (size_t)from->width + right) * C, row);
}

status_t raster_fit(const struct raster *from, int shorter, int size, uint8_t *to, struct err *e) {
    const int H = from->height, W = from->width, side = H < W ? H : W;
    const int height = H == side ? shorter : (int)((int64_t)shorter * H / side);
    const int width = W == side ? shorter : (int)((int64_t)shorter * W / side);
    if (side == shorter) {
        crop(from, size, to);
        return ST_OK;
    }
    return scale(from, height, width, half(height - size), half(width - size), size, size, to, e);
}

status_t raster_scale(const struct raster *from, int height, int width, uint8_t *to, struct err *e) {
    if (from->height == height && from->width == width) {
        memcpy(to, from->data, (size_t)height * (size_t)width * (size_t)from->channels);
        return ST_OK;
    }
    return scale(from, height, width, 0, 0, height, width, to, e);
}
