#include "engine/data/image_color.h"

#include "engine/data/image_random.h"

struct image_color image_color_draw(const struct data_augmentation *a, int64_t seed, int64_t sample) {
    static const enum image_color_change ORDERS[6][IMAGE_COLOR_CHANGES] = {
        { IMAGE_BRIGHTNESS, IMAGE_CONTRAST, IMAGE_SATURATION }, { IMAGE_BRIGHTNESS, IMAGE_SATURATION, IMAGE_CONTRAST },
        { IMAGE_CONTRAST, IMAGE_BRIGHTNESS, IMAGE_SATURATION }, { IMAGE_CONTRAST, IMAGE_SATURATION, IMAGE_BRIGHTNESS },
        { IMAGE_SATURATION, IMAGE_BRIGHTNESS, IMAGE_CONTRAST }, { IMAGE_SATURATION, IMAGE_CONTRAST, IMAGE_BRIGHTNESS },
    };
    const double change[IMAGE_COLOR_CHANGES] = { a->brightness, a->contrast, a->saturation };
    struct image_color color;
    uint32_t random[4];
    image_random(seed, sample, IMAGE_RANDOM_COLOR, random);
    const enum image_color_change *order = ORDERS[(uint64_t)random[3] * 6 >> 32];
    for (int i = 0; i < IMAGE_COLOR_CHANGES; i++) {
        color.order[i] = order[i];
        color.factor[i] = (float)image_uniform(random[i], change[i] < 1 ? 1 - change[i] : 0, 1 + change[i]);
    }
    return color;
}

/* Between `from` (factor 0) and `to` (factor 1), and beyond. */
static uint8_t blend(int from, int to, float factor) {
    const float mixed = (float)from + factor * (float)(to - from);
    return mixed <= 0 ? 0 : mixed >= 255 ? 255 : (uint8_t)mixed;
}

/* Of ITU-R BT.601. */
static int grey_of(const uint8_t *pixel, int channels) {
    return channels == 1 ? pixel[0] : (int)((pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 0x8000) >> 16);
}

static int mean_of(const uint8_t *pixels, size_t n, int channels) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (uint64_t)grey_of(pixels + i * (size_t)channels, channels);
    return (int)((double)sum / (double)n + 0.5);
}

static void towards(int from, float factor, uint8_t *pixels, size_t n) {
    uint8_t table[256];
    for (int v = 0; v < 256; v++)
        table[v] = blend(from, v, factor);
    for (size_t i = 0; i < n; i++)
        pixels[i] = table[pixels[i]];
}

static void saturate(float factor, uint8_t *pixels, size_t n) {
    for (size_t i = 0; i < n; i++, pixels += 3) {
        const int grey = grey_of(pixels, 3);
        for (int c = 0; c < 3; c++)
            pixels[c] = blend(grey, pixels[c], factor);
    }
}

void image_color_apply(const struct image_color *color, uint8_t *pixels, size_t n, int channels) {
    for (int i = 0; i < IMAGE_COLOR_CHANGES; i++) {
        const enum image_color_change kind = color->order[i];
        const float factor = color->factor[kind];
        if (factor == 1)
            continue;
        if (kind == IMAGE_BRIGHTNESS)
            towards(0, factor, pixels, n * (size_t)channels);
        else if (kind == IMAGE_CONTRAST)
            towards(mean_of(pixels, n, channels), factor, pixels, n * (size_t)channels);
        else if (channels == 3)
            saturate(factor, pixels, n);
    }
}
