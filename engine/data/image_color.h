/* Random changes of an image's colours: torchvision's ColorJitter without hue, on bytes as Pillow computes them.
 *
 *   brightness   image * factor
 *   contrast     mean + (image - mean) * factor; the mean is that of the image in grey, rounded
 *   saturation   grey + (image - grey) * factor, for each pixel
 *
 * Each factor is uniform between 1 - x (at least 0) and 1 + x, and the order of the three is random. Results are
 * truncated to bytes. Random values come from image_random.h. Pure; any thread. Private to this folder. */
#ifndef ENGINE_DATA_IMAGE_COLOR_H
#define ENGINE_DATA_IMAGE_COLOR_H

#include "engine/data/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum image_color_change { IMAGE_BRIGHTNESS, IMAGE_CONTRAST, IMAGE_SATURATION, IMAGE_COLOR_CHANGES };

/* In the order in which they are applied; a factor of 1 changes nothing. */
struct image_color {
    enum image_color_change order[IMAGE_COLOR_CHANGES];
    float factor[IMAGE_COLOR_CHANGES]; /* by the kind of change */
};

static inline bool image_color_is_drawn(const struct data_augmentation *a) {
    return a->brightness > 0 || a->contrast > 0 || a->saturation > 0;
}

struct image_color image_color_draw(const struct data_augmentation *a, int64_t seed, int64_t sample);

/* pixels (n, channels), changed in place. With one channel saturation changes nothing. */
void image_color_apply(const struct image_color *color, uint8_t *pixels, size_t n, int channels);

#endif
