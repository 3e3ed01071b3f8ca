/* Converts an image from bytes to a model's input: random changes of a training sample, then floats, one plane for each
 * channel, normalised. Random values come from image_random.h. Pure functions; any thread. Private to this folder. */
#ifndef ENGINE_DATA_IMAGE_VIEW_H
#define ENGINE_DATA_IMAGE_VIEW_H

#include "base/status.h"
#include "engine/data/source.h"

#include <stdbool.h>
#include <stdint.h>

enum { IMAGE_CHANNELS = DATA_CHANNELS };

struct image_shape {
    int height, width, channels;
};

/* The offset of the crop, -padding .. padding, and whether to flip horizontally. */
struct image_view {
    int down, right;
    bool flip;
};

struct image_view image_view_draw(const struct data_augmentation *a, int64_t seed, int64_t sample);

/* A byte of a channel becomes byte * scale + shift. */
struct image_scale {
    float scale[IMAGE_CHANNELS], shift[IMAGE_CHANNELS];
};

/* 0 .. 255 -> 0 .. 1, then (value - mean) / std; without a mean -1 .. 1. INVALID_ARGUMENT: the numbers of means and of
 * standard deviations are not those of the channels, or a standard deviation is not positive. */
MUST_CHECK status_t image_scale_of(const struct data_normalization *n, int channels, struct image_scale *ret,
                                   struct err *e);

/* pixels (H,W,C) -> to (C,H,W). Pixels of the crop outside the image are black (0). */
void image_to_floats(const struct image_shape *shape, const uint8_t *pixels, struct image_view view,
                     const struct image_scale *scale, float *to);

/* How the samples of a source are made. */
struct image_making {
    struct image_shape shape;
    struct data_augmentation augment;
    struct image_scale scale;
};

/* INVALID_ARGUMENT: an augmentation outside of its range, or for images of other channels; as image_scale_of. */
MUST_CHECK status_t image_making_init(struct image_making *m, const struct image_shape *shape,
                                      const struct data_augmentation *augment, const struct data_normalization *n,
                                      struct err *e);

/* Bytes of the workspace of image_make: an image's, or 0. */
size_t image_making_bytes(const struct image_making *m);

/* pixels (H,W,C) -> to (C,H,W). train: the sample is changed at random. With augment.resized_crop `pixels` are the part
 * of the image that was drawn, already (image_crop.h). */
void image_make(const struct image_making *m, bool train, int64_t seed, int64_t sample, const uint8_t *pixels,
                uint8_t *workspace, float *to);

/* The members of a data kind that has images: struct data_augmentation augment, struct data_normalization normalize. */
#define IMAGE_MEMBERS(type)                                                                                            \
    MEMBER_INT(type, augment.crop_padding), MEMBER_BOOL(type, augment.flip),                                           \
        MEMBER_REAL(type, augment.resized_crop.min_scale), MEMBER_REAL(type, augment.resized_crop.max_scale),          \
        MEMBER_REAL(type, augment.resized_crop.min_ratio), MEMBER_REAL(type, augment.resized_crop.max_ratio),          \
        MEMBER_REAL(type, augment.brightness), MEMBER_REAL(type, augment.contrast),                                    \
        MEMBER_REAL(type, augment.saturation), MEMBER_REAL(type, augment.mixup),                                       \
        MEMBER_REALS(type, normalize.mean, normalize.n_mean, DATA_CHANNELS),                                           \
        MEMBER_REALS(type, normalize.std, normalize.n_std, DATA_CHANNELS)

#endif
