/* Which part of an image a training sample shows: torchvision's RandomResizedCrop. The area is a uniform part of the
 * image's, the logarithm of the ratio of the sides is uniform, and the place is uniform. If ten such boxes do not lie
 * within the image, the part is the largest one in the middle whose ratio is allowed. Random values come from
 * image_random.h. Pure; any thread. Private to this folder. */
#ifndef ENGINE_DATA_IMAGE_CROP_H
#define ENGINE_DATA_IMAGE_CROP_H

#include "engine/data/raster.h"
#include "engine/data/source.h"

#include <stdbool.h>
#include <stdint.h>

static inline bool image_crop_is_drawn(const struct data_augmentation *a) { return a->resized_crop.max_scale > 0; }

struct image_box image_crop_draw(const struct data_resized_crop *c, int64_t seed, int64_t sample, int height,
                                 int width);

#endif
