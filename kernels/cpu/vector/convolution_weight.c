/* The gradient of a convolution's weights.
 *
 * The weights are divided into blocks of EDGE x EDGE channels, and the batch into pieces (convolution_weight.h). A task
 * is one block over one piece. For each sample a task goes down the rows of dy, a few rows at a time:
 *   1. fill_panels copies these rows of dy, and the rows of x that they read, into panels of fp32 that the tile
 *      product reads in order
 *   2. add_tap adds, for each tap of the kernel, the product of the pixels of x, transposed, with the pixels of dy.
 *      Pixels outside the image are left out.
 *
 * After that the sums of the pieces are added in their order and stored in dw. If the processor multiplies bf16, a
 * panel holds pairs of pixels that are adjacent in dy. */
#include "kernels/cpu/convolution_weight.h"

#include "kernels/cpu/convolution_1x1.h"
#include "kernels/cpu/vector/elements.h"
#include "kernels/cpu/vector/images.h"
#include "kernels/cpu/vector/tile.h"

#include <omp.h>
#include <string.h>

#if defined ELEMENT_BF16 && defined __AVX512BF16__
#define BACKWARD_WEIGHT convolution_backward_weight_pairs
#define TILE_SUM        tile_sum_pairs
enum { PIXELS = 2 }; /* pixels of dy in a row of its panel */
#else
#define BACKWARD_WEIGHT convolution_backward_weight
#define TILE_SUM        tile_sum
enum { PIXELS = 1 };
#endif

enum { EDGE = WEIGHT_EDGE };

/* One block of channels over one piece of the batch. */
struct task {
    const struct convolution_dims *d;
    const struct weight_shape *s;
    const element *x, *dy;                /* at the first channels of the block */
    int64_t first_in, first_out, in, out; /* channels */
    float *sums, *x_panel, *dy_panel;
};

/* Copies n channels of a pixel (0 if `from` is NULL) into whole vectors; in the build for pairs, as pairs with the
 * channels of `next`. The same channels of the next panel are `ahead` elements further; they are prefetched into the L2
 * cache. */
static inline void put(float *to, const element *from, const element *next, int64_t n, int64_t ahead) {
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t lanes = lanes_at(c, n);
        if (from)
            _mm_prefetch((const char *)(from + c + ahead), _MM_HINT_T1);
#if defined ELEMENT_BF16 && defined __AVX512BF16__
        const vh low = from ? vh_load_first(from + c, lanes) : _mm256_setzero_si256();
        const vh high = next ? vh_load_first(next + c, lanes) : _mm256_setzero_si256();
        const __m512i pair = _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                             _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
        _mm512_storeu_si512(to + c, pair);
#else
        (void)next;
        vf_store(to + c, from ? ve_load_first(from + c, lanes) : vf_set(0));
#endif
    }
}

static const element *pixel_or_null(const element *row, int64_t column, int64_t columns, int64_t channels) {
    return column >= 0 && column < columns ? row + column * channels : NULL;
}

/* Fills both panels: `rows` rows of dy from row `first` on, and the rows of x that they read. */
static void fill_panels(const struct task *t, int64_t sample, int64_t first, int64_t rows) {
    const struct convolution_dims *d = t->d;
    const struct weight_shape *s = t->s;
    const int64_t top = first * d->stride - d->padding, end = top + (rows - 1) * d->stride + d->kernel;
    for (int64_t row = top < 0 ? 0 : top; row < end && row < d->height; row++) {
        const element *from = t->x + (sample * d->height + row) * d->width * d->in;
        float *to = t->x_panel + (row - top) * s->columns * s->x_pixel;
        for (int64_t i = 0; i < s->columns; i++)
            put(to + i * s->x_pixel, pixel_or_null(from, i - d->padding, d->width, d->in),
                pixel_or_null(from, i - d->padding + d->stride, d->width, d->in), t->in,
                s->rows * d->stride * d->width * d->in);
    }
    float *to = t->dy_panel;
    for (int64_t row = first; row < first + rows; row++) {
        const element *from = t->dy + (sample * s->out_height + row) * s->out_width * d->out;
        for (int64_t i = 0; i < s->out_width; i += PIXELS, to += EDGE)
            put(to, from + i * d->out, pixel_or_null(from, i + 1, s->out_width, d->out), t->out,
                s->rows * s->out_width * d->out);
    }
}

/* Returns the first output i, and in *end the end of the outputs, for which the input i stride + offset is within 0 ..
 * side - 1. `first` and *end give the range to search. */
static int64_t inside(const struct convolution_dims *d, int64_t offset, int64_t side, int64_t first, int64_t *end) {
    const int64_t first_position = offset < 0 ? weight_ceil(-offset, d->stride) : 0;
    *end = weight_min(*end, side > offset ? weight_ceil(side - offset, d->stride) : 0);
    return first > first_position ? first : first_position;
}

static void add_tap(const struct task *t, int64_t kernel_row, int64_t kernel_column, int64_t first, int64_t rows) {
    const struct convolution_dims *d = t->d;
    const struct weight_shape *s = t->s;
    const int64_t dy_columns = weight_ceil(s->out_width, PIXELS), pixel = d->stride * s->x_pixel;
    int64_t end = first + rows, column = 0, column_end = s->out_width;
    const int64_t row = inside(d, kernel_row - d->padding, d->height, first, &end);
    if (PIXELS == 1) /* pairs begin at even columns, so that they multiply the padding instead */
        column = inside(d, kernel_column - d->padding, d->width, 0, &column_end);
    if (row >= end || column >= column_end)
        return;
    const struct tile_runs runs = { end - row, d->stride * s->columns * s->x_pixel, dy_columns * EDGE };
    VECTOR_ISA(TILE_SUM)
    (t->sums + (kernel_row * d->kernel + kernel_column) * EDGE * EDGE, EDGE,
     t->x_panel + (((row - first) * d->stride + kernel_row) * s->columns + kernel_column) * s->x_pixel + column * pixel,
     PIXELS * pixel, t->dy_panel + ((row - first) * dy_columns + column) * EDGE, EDGE, t->in, t->out,
     weight_ceil(column_end - column, PIXELS), &runs);
}

static void add_sample(const struct task *t, int64_t sample) {
    const struct weight_shape *s = t->s;
    for (int64_t first = 0; first < s->out_height; first += s->rows) {
        const int64_t rows = weight_min(s->rows, s->out_height - first);
        fill_panels(t, sample, first, rows);
        for (int64_t tap = 0; tap < t->d->kernel * t->d->kernel; tap++)
            add_tap(t, tap / t->d->kernel, tap % t->d->kernel, first, rows);
    }
}

/* Adds the sums of the other pieces to the sums of the first piece, in their order. */
static void add_pieces(const struct task *t) {
    const struct weight_shape *s = t->s;
    for (int64_t i = 1; i < s->pieces; i++) {
        const float *piece = t->sums + i * s->blocks_in * s->blocks_out * s->block_floats;
        for (int64_t at = 0; at < s->block_floats; at += LANES)
            vf_store(t->sums + at, vf_add(vf_load(t->sums + at), vf_load(piece + at)));
    }
}

/* dw (out, in, taps) = or += sums (taps, in, out). WEIGHT_LINE input channels are processed at a time, so that their
 * lines of the sums stay in the cache. */
static void put_block(float *dw, const struct task *t, bool accumulate) {
    const int64_t taps = t->d->kernel * t->d->kernel;
    for (int64_t first = 0; first < t->in; first += WEIGHT_LINE)
        for (int64_t out = 0; out < t->out; out++)
            for (int64_t in = first; in < t->in && in < first + WEIGHT_LINE; in++)
                for (int64_t tap = 0; tap < taps; tap++) {
                    float *to = dw + ((t->first_out + out) * t->d->in + t->first_in + in) * taps + tap;
                    const float sum = t->sums[(tap * EDGE + in) * EDGE + out];
                    *to = accumulate ? *to + sum : sum;
                }
}

/* sums: the index of the task's sums in the workspace. */
static struct task task_of(const struct convolution_dims *d, const struct weight_shape *s, const element_t *x,
                           const element_t *dy, int64_t block, float *workspace, int64_t sums) {
    const int64_t in = block / s->blocks_out * EDGE, out = block % s->blocks_out * EDGE;
    float *panels = workspace + s->pieces * s->blocks_in * s->blocks_out * s->block_floats +
                    omp_get_thread_num() * (s->x_floats + s->dy_floats);
    return (struct task){ .d = d,
                          .s = s,
                          .x = AT(x, in),
                          .dy = AT(dy, out),
                          .first_in = in,
                          .first_out = out,
                          .in = weight_min(d->in - in, EDGE),
                          .out = weight_min(d->out - out, EDGE),
                          .sums = workspace + sums * s->block_floats,
                          .x_panel = panels,
                          .dy_panel = panels + s->x_floats };
}

status_t VECTOR(BACKWARD_WEIGHT)(const struct kernels *k, float *dw, const element_t *x, const element_t *dy,
                                 const struct convolution_dims *d, bool accumulate, void *workspace, struct err *e) {
    if (convolution_is_1x1(d))
        return convolution_1x1_backward_weight(k, dw, x, dy, d, accumulate, workspace, e);
    const struct weight_shape s = weight_shape_of(d);
    const int64_t blocks = s.blocks_in * s.blocks_out;
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < s.pieces * blocks; i++) {
        const struct task t = task_of(d, &s, x, dy, i % blocks, workspace, i);
        const int64_t piece = i / blocks;
        memset(t.sums, 0, (size_t)s.block_floats * sizeof(float));
        for (int64_t n = d->batch * piece / s.pieces; n < d->batch * (piece + 1) / s.pieces; n++)
            add_sample(&t, n);
        if (s.pieces == 1)
            put_block(dw, &t, accumulate);
    }
    if (s.pieces == 1)
        return ST_OK;
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int64_t i = 0; i < blocks; i++) {
        const struct task t = task_of(d, &s, x, dy, i, workspace, i);
        add_pieces(&t);
        put_block(dw, &t, accumulate);
    }
    return ST_OK;
}
