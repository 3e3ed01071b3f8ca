#include "engine/data/image_view.h"

#include "kernels/philox.h"

/* Makes these random numbers independent of those of other users of the seed. */
static const uint64_t IMAGE_VIEW_STREAM = 0x6a09e667f3bcc908u;

struct image_view image_view_draw(const struct data_augmentation *a, int64_t seed, int64_t sample) {
    const uint32_t counter[4] = { (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32), 0, 0 };
    uint32_t random[4];
    philox4x32_10(counter, (uint64_t)seed ^ IMAGE_VIEW_STREAM, random);
    const uint64_t places = 2 * (uint64_t)a->crop_padding + 1;
    return (struct image_view){ .down = (int)(random[0] * places >> 32) - a->crop_padding,
                                .right = (int)(random[1] * places >> 32) - a->crop_padding,
                                .flip = a->flip && random[2] >> 31 };
}

static int clamp(int n, int max) { return n < 0 ? 0 : n > max ? max : n; }

/* Each row has three loops (black, pixels, black) instead of a test for each pixel, because this is the loader's inner
 * loop. */
void image_to_floats(const struct image_shape *shape, const uint8_t *pixels, struct image_view view, float scale,
                     float shift, float *to) {
    const int H = shape->height, W = shape->width, C = shape->channels;
    const float outside = 0.0F * scale + shift;
    /* Columns from .. end - 1 of the result are inside the image; column x is read from column first + x * step. */
    const int from = clamp(view.flip ? view.right : -view.right, W),
              end = W - clamp(view.flip ? -view.right : view.right, W);
    const int step = view.flip ? -1 : 1, first = (view.flip ? W - 1 : 0) + view.right;
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++, to += W) {
            const int row = y + view.down;
            const bool inside = row >= 0 && row < H && from < end;
            const int a = inside ? from : W, b = inside ? end : W;
            for (int x = 0; x < a; x++)
                to[x] = outside;
            const int64_t line = ((int64_t)row * W + first) * C + c;
            for (int x = a; x < b; x++)
                to[x] = (float)pixels[line + (int64_t)x * step * C] * scale + shift;
            for (int x = b; x < W; x++)
                to[x] = outside;
        }
}
