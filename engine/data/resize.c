#include "engine/data/resize.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };

/* Along one side: destination pixel i is the sum of weights[i * max + k] * source[first[i] + k], k < count[i]. */
struct filter {
    int max;
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

/* One destination pixel of `channels` numbers; the source pixels are `stride` bytes apart. */
static void apply_filter(const struct filter *f, int i, const uint8_t *from, size_t stride, int channels, uint8_t *to) {
    const int32_t *w = f->weights + (size_t)i * (size_t)f->max;
    const uint8_t *p = from + (size_t)f->first[i] * stride;
    for (int c = 0; c < channels; c++) {
        int32_t sum = 1 << (WEIGHT_BITS - 1);
        for (int k = 0; k < f->count[i]; k++)
            sum += w[k] * p[(size_t)k * stride + (size_t)c];
        to[c] = rounded(sum);
    }
}

/* (rows, from, channels) -> (rows, n, channels). */
static void fit_columns(const struct filter *f, const struct raster *from, int n, uint8_t *to) {
    const size_t C = (size_t)from->channels;
    for (int y = 0; y < from->height; y++)
        for (int x = 0; x < n; x++)
            apply_filter(f, x, from->data + (size_t)y * (size_t)from->width * C, C, from->channels,
                         to + ((size_t)y * (size_t)n + (size_t)x) * C);
}

/* (from, columns, channels) -> (n, columns, channels). */
static void fit_rows(const struct filter *f, const uint8_t *from, int columns, int channels, int n, uint8_t *to) {
    const size_t row = (size_t)columns * (size_t)channels;
    for (int y = 0; y < n; y++)
        for (int x = 0; x < columns; x++)
            apply_filter(f, y, from + (size_t)x * (size_t)channels, row, channels,
                         to + (size_t)y * row + (size_t)x * (size_t)channels);
}

/* Copies the middle of an image whose shorter side already has `size` pixels. */
static void crop(const struct raster *from, int size, uint8_t *to) {
    const size_t C = (size_t)from->channels, row = (size_t)size * C;
    const size_t down = (size_t)(from->height - size) / 2, right = (size_t)(from->width - size) / 2;
    for (size_t y = 0; y < (size_t)size; y++)
        memcpy(to + y * row, from->data + ((down + y) * (size_t)from->width + right) * C, row);
}

status_t raster_fit(const struct raster *from, int size, uint8_t *to, struct err *e) {
    const int H = from->height, W = from->width, shorter = H < W ? H : W;
    const int height = H == shorter ? size : (int)((int64_t)size * H / shorter);
    const int width = W == shorter ? size : (int)((int64_t)size * W / shorter);
    const size_t C = (size_t)from->channels;
    if (shorter == size) {
        crop(from, size, to);
        return ST_OK;
    }
    struct filter columns = { 0 }, rows = { 0 };
    CLEANUP(freep) uint8_t *narrow = malloc((size_t)H * (size_t)size * C);
    if (!narrow)
        return err_errno(e, "allocate an image");
    filter_make(&columns, W, width, (width - size) / 2, size);
    filter_make(&rows, H, height, (height - size) / 2, size);
    fit_columns(&columns, from, size, narrow);
    fit_rows(&rows, narrow, size, from->channels, size, to);
    filter_done(&columns);
    filter_done(&rows);
    return ST_OK;
}
