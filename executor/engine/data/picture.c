#include "executor/engine/data/picture.h"

#include "kernels/philox.h"

/* Keeps these draws apart from those of other users of the seed. */
static const uint64_t PICTURE_STREAM = 0x6a09e667f3bcc908u;

struct picture_view picture_draw(const struct data_augmentation *a, int64_t seed, int64_t sample) {
    const uint32_t counter[4] = { (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32), 0, 0 };
    uint32_t random[4];
    philox4x32_10(counter, (uint64_t)seed ^ PICTURE_STREAM, random);
    const uint64_t places = 2 * (uint64_t)a->crop_padding + 1;
    return (struct picture_view){ .down = (int)(random[0] * places >> 32) - a->crop_padding,
                                  .right = (int)(random[1] * places >> 32) - a->crop_padding,
                                  .flip = a->flip && random[2] >> 31 };
}

void picture_numbers(const struct picture_shape *shape, const uint8_t *pixels, struct picture_view view, float scale,
                     float shift, float *to) {
    const int H = shape->height, W = shape->width, C = shape->channels;
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++) {
            const int row = y + view.down;
            for (int x = 0; x < W; x++) {
                const int column = (view.flip ? W - 1 - x : x) + view.right;
                const bool inside = row >= 0 && row < H && column >= 0 && column < W;
                const int value = inside ? pixels[((int64_t)row * W + column) * C + c] : 0;
                *to++ = (float)value * scale + shift;
            }
        }
}
