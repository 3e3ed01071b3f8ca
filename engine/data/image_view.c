/* Without changes of colours, crop, flip and conversion are one pass over the pixels. With them, crop and flip make
 * bytes first, because the mean of the contrast is that of the sample as it is seen, as in torchvision. */
#include "engine/data/image_view.h"

#include "engine/data/image_color.h"
#include "engine/data/image_crop.h"
#include "engine/data/image_random.h"

#include <string.h>

struct image_view image_view_draw(const struct data_augmentation *a, int64_t seed, int64_t sample) {
    uint32_t random[4];
    image_random(seed, sample, IMAGE_RANDOM_VIEW, random);
    const uint64_t places = 2 * (uint64_t)a->crop_padding + 1;
    return (struct image_view){ .down = (int)(random[0] * places >> 32) - a->crop_padding,
                                .right = (int)(random[1] * places >> 32) - a->crop_padding,
                                .flip = a->flip && random[2] >> 31 };
}

status_t image_scale_of(const struct data_normalization *n, int channels, struct image_scale *ret, struct err *e) {
    if (n->n_mean != n->n_std || (n->n_mean != 0 && n->n_mean != channels))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%d means and %d standard deviations are given for images of %d channels: give one of each for "
                       "every channel, or none",
                       n->n_mean, n->n_std, channels);
    for (int c = 0; c < channels; c++) {
        const double mean = n->n_mean ? n->mean[c] : 0.5, std = n->n_std ? n->std[c] : 0.5;
        if (!(std > 0 && std <= 1e6) || !(mean >= -1e6 && mean <= 1e6))
            return err_set(e, ST_INVALID_ARGUMENT,
                           "a mean of %g and a standard deviation of %g cannot normalise a channel", mean, std);
        ret->scale[c] = (float)(1 / (255 * std));
        ret->shift[c] = (float)(-mean / std);
    }
    return ST_OK;
}

static int clamp(int n, int max) { return n < 0 ? 0 : n > max ? max : n; }

/* The columns of a view that lie inside the image: from .. end - 1; column x is column first + x * step of it. */
struct span {
    int from, end, first, step;
};

static struct span span_of(const struct image_shape *s, struct image_view view) {
    const int W = s->width;
    return (struct span){ .from = clamp(view.flip ? view.right : -view.right, W),
                          .end = W - clamp(view.flip ? -view.right : view.right, W),
                          .first = (view.flip ? W - 1 : 0) + view.right,
                          .step = view.flip ? -1 : 1 };
}

/* Each row has three loops (black, pixels, black) instead of a test for each pixel, because this is the loader's inner
 * loop. */
void image_to_floats(const struct image_shape *shape, const uint8_t *pixels, struct image_view view,
                     const struct image_scale *by, float *to) {
    const int H = shape->height, W = shape->width, C = shape->channels;
    const struct span in = span_of(shape, view);
    for (int c = 0; c < C; c++) {
        const float scale = by->scale[c], shift = by->shift[c], outside = 0.0F * scale + shift;
        for (int y = 0; y < H; y++, to += W) {
            const int row = y + view.down;
            const bool inside = row >= 0 && row < H && in.from < in.end;
            const int a = inside ? in.from : W, b = inside ? in.end : W;
            for (int x = 0; x < a; x++)
                to[x] = outside;
            const int64_t line = ((int64_t)row * W + in.first) * C + c;
            for (int x = a; x < b; x++)
                to[x] = (float)pixels[line + (int64_t)x * in.step * C] * scale + shift;
            for (int x = b; x < W; x++)
                to[x] = outside;
        }
    }
}

/* The same as bytes: (H,W,C) -> (H,W,C). */
static void view_bytes(const struct image_shape *shape, const uint8_t *pixels, struct image_view view, uint8_t *to) {
    const int H = shape->height, W = shape->width;
    const size_t C = (size_t)shape->channels, row_bytes = (size_t)W * C;
    const struct span in = span_of(shape, view);
    memset(to, 0, (size_t)H * row_bytes);
    for (int y = 0; y < H; y++, to += row_bytes) {
        const int row = y + view.down;
        if (row < 0 || row >= H)
            continue;
        const uint8_t *line = pixels + (size_t)row * row_bytes;
        for (int x = in.from; x < in.end; x++)
            memcpy(to + (size_t)x * C, line + (size_t)(in.first + x * in.step) * C, C);
    }
}

/* ---- samples ---- */

static bool in_range(double x, double max) { return x >= 0 && x <= max; }

static status_t check_crop(const struct data_augmentation *a, struct err *e) {
    const struct data_resized_crop *c = &a->resized_crop;
    if (!image_crop_is_drawn(a))
        return ST_OK;
    if (!(c->min_scale > 0 && c->min_scale <= c->max_scale && c->max_scale <= 1))
        return err_set(e, ST_INVALID_ARGUMENT, "a part of %g to %g of an image is not within (0, 1]", c->min_scale,
                       c->max_scale);
    if (!(c->min_ratio >= 0.01 && c->min_ratio <= c->max_ratio && c->max_ratio <= 100))
        return err_set(e, ST_INVALID_ARGUMENT, "a ratio of the sides from %g to %g is not within 0.01 to 100",
                       c->min_ratio, c->max_ratio);
    if (a->crop_padding)
        return err_set(e, ST_INVALID_ARGUMENT, "an image has either a crop padding or a resized crop, not both");
    return ST_OK;
}

status_t image_making_init(struct image_making *m, const struct image_shape *shape,
                           const struct data_augmentation *augment, const struct data_normalization *n, struct err *e) {
    enum { MAX_CHANGE = 100 };
    if (augment->crop_padding < 0 || augment->crop_padding > SOURCE_SIDE)
        return err_set(e, ST_INVALID_ARGUMENT, "a crop padding of %d is not within %d", augment->crop_padding,
                       SOURCE_SIDE);
    TRY(check_crop(augment, e));
    if (!in_range(augment->brightness, MAX_CHANGE) || !in_range(augment->contrast, MAX_CHANGE) ||
        !in_range(augment->saturation, MAX_CHANGE))
        return err_set(e, ST_INVALID_ARGUMENT, "a change of brightness %g, contrast %g, saturation %g is not within %d",
                       augment->brightness, augment->contrast, augment->saturation, MAX_CHANGE);
    if (augment->saturation > 0 && shape->channels != 3)
        return err_set(e, ST_INVALID_ARGUMENT, "images of %d channel have no saturation to change", shape->channels);
    *m = (struct image_making){ .shape = *shape, .augment = *augment };
    return image_scale_of(n, shape->channels, &m->scale, e);
}

size_t image_making_bytes(const struct image_making *m) {
    const struct image_shape *s = &m->shape;
    return image_color_is_drawn(&m->augment) ? (size_t)s->height * (size_t)s->width * (size_t)s->channels : 0;
}

void image_make(const struct image_making *m, bool train, int64_t seed, int64_t sample, const uint8_t *pixels,
                uint8_t *workspace, float *to) {
    struct image_view view = { 0 };
    if (train)
        view = image_view_draw(&m->augment, seed, sample);
    if (train && image_color_is_drawn(&m->augment)) {
        const struct image_color color = image_color_draw(&m->augment, seed, sample);
        view_bytes(&m->shape, pixels, view, workspace);
        image_color_apply(&color, workspace, (size_t)m->shape.height * (size_t)m->shape.width, m->shape.channels);
        pixels = workspace;
        view = (struct image_view){ 0 };
    }
    image_to_floats(&m->shape, pixels, view, &m->scale, to);
}
