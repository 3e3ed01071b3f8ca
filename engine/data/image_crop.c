#include "engine/data/image_crop.h"

#include "engine/data/image_random.h"

#include <math.h>

enum { TRIES = 10 };

/* One of n places. */
static int place(uint32_t random, int n) { return (int)((uint64_t)random * (uint64_t)n >> 32); }

/* False: the box does not lie within the image. */
static bool draw(const struct data_resized_crop *c, const uint32_t random[4], int height, int width,
                 struct image_box *ret) {
    const double area = (double)height * width * image_uniform(random[0], c->min_scale, c->max_scale);
    const double ratio = exp(image_uniform(random[1], log(c->min_ratio), log(c->max_ratio)));
    const double w = rint(sqrt(area * ratio)), h = rint(sqrt(area / ratio));
    if (!(w >= 1 && w <= width && h >= 1 && h <= height))
        return false;
    ret->width = (int)w;
    ret->height = (int)h;
    ret->top = place(random[2], height - ret->height + 1);
    ret->left = place(random[3], width - ret->width + 1);
    return true;
}

static int within(double side, int max) { return side < 1 ? 1 : side > max ? max : (int)side; }

static struct image_box middle(const struct data_resized_crop *c, int height, int width) {
    const double ratio = (double)width / height;
    struct image_box b = { .height = height, .width = width };
    if (ratio < c->min_ratio)
        b.height = within(rint(width / c->min_ratio), height);
    else if (ratio > c->max_ratio)
        b.width = within(rint(height * c->max_ratio), width);
    b.top = (height - b.height) / 2;
    b.left = (width - b.width) / 2;
    return b;
}

struct image_box image_crop_draw(const struct data_resized_crop *c, int64_t seed, int64_t sample, int height,
                                 int width) {
    struct image_box box;
    for (int i = 0; i < TRIES; i++) {
        uint32_t random[4];
        _Static_assert(IMAGE_RANDOM_CROP + TRIES <= IMAGE_RANDOM_MIXUP, "the blocks of crops end before mixup's");
        image_random(seed, sample, IMAGE_RANDOM_CROP + (uint32_t)i, random);
        if (draw(c, random, height, width, &box))
            return box;
    }
    return middle(c, height, width);
}
