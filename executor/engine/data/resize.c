#include "executor/engine/data/resize.h"

#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };

/* Of one side: destination pixel i is the sum of weights[i * most + k] * source[first[i] + k], k < count[i]. */
struct filter {
    int most;
    int *first, *count;
    int32_t *weights;
};

static void filter_done(struct filter *f) {
    free(f->first);
    free(f->count);
    free(f->weights);
}

/* Destination pixels skip .. skip + n - 1 of `to` in all, from `from` source pixels. */
static status_t filter_make(struct filter *f, int from, int to, int skip, int n, struct err *e) {
    const double scale = (double)from / to, reach = scale > 1 ? scale : 1;
    f->most = (int)ceil(reach) * 2 + 1;
    f->first = malloc((size_t)n * sizeof *f->first);
    f->count = malloc((size_t)n * sizeof *f->count);
    f->weights = calloc((size_t)n * (size_t)f->most, sizeof *f->weights);
    CLEANUP(freep) double *w = malloc((size_t)f->most * sizeof *w);
    if (!f->first || !f->count || !f->weights || !w)
        return err_errno(e, "allocate the weights to resize an image");
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
            f->weights[i * f->most + k] = (int32_t)(0.5 + w[k] / sum * (1 << WEIGHT_BITS));
    }
    return ST_OK;
}

static uint8_t rounded(int32_t sum) {
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One destination pixel of `channels` numbers; the source pixels are `stride` bytes apart. */
static void weigh(const struct filter *f, int i, const uint8_t *from, size_t stride, int channels, uint8_t *to) {
    const int32_t *w = f->weights + (size_t)i * (size_t)f->most;
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
            weigh(f, x, from->data + (size_t)y * (size_t)from->width * C, C, from->channels,
                  to + ((size_t)y * (size_t)n + (size_t)x) * C);
}

/* (from, columns, channels) -> (n, columns, channels). */
static void fit_rows(const struct filter *f, const uint8_t *from, int columns, int channels, int n, uint8_t *to) {
    const size_t row = (size_t)columns * (size_t)channels;
    for (int y = 0; y < n; y++)
        for (int x = 0; x < columns; x++)
            weigh(f, y, from + (size_t)x * (size_t)channels, row, channels,
                  to + (size_t)y * row + (size_t)x * (size_t)channels);
}

/* The middle of a picture whose shorter side is right already. */
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
    status_t st = narrow ? filter_make(&columns, W, width, (width - size) / 2, size, e)
                         : err_errno(e, "allocate an image");
    if (st == ST_OK)
        st = filter_make(&rows, H, height, (height - size) / 2, size, e);
    if (st == ST_OK) {
        fit_columns(&columns, from, size, narrow);
        fit_rows(&rows, narrow, size, from->channels, size, to);
    }
    filter_done(&columns);
    filter_done(&rows);
    return st;
}
