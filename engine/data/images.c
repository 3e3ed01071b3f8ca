/* Labelled folders of images as a source. */
#include "base/alloc.h"
#include "engine/data/image_crop.h"
#include "engine/data/image_set.h"
#include "engine/data/image_view.h"
#include "engine/data/mixup.h"
#include "engine/data/sampler.h"
#include "engine/data/source_kind.h"

#include <errno.h>
#include <stdlib.h>

struct images {
    struct source source;
    struct image_set *splits[SOURCE_SPLITS]; /* validation: may be NULL */
    struct image_shape shape;
    struct image_making making;
};

/* The pixels of image i as sample `number` shows them, before image_make. */
static status_t read_pixels(const struct images *m, enum source_split split, int64_t i, int64_t seed, int64_t number,
                            uint8_t *buffer, const uint8_t **ret, struct err *e) {
    const struct image_set *p = m->splits[split];
    const struct data_augmentation *a = &m->making.augment;
    if (split != SOURCE_TRAIN || !image_crop_is_drawn(a))
        return image_set_read(p, i, buffer, ret, e);
    *ret = buffer;
    return image_set_crop(p, i, &a->resized_crop, seed, number, buffer, e);
}

static status_t read_images(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                            const struct batch *to, struct err *e) {
    const struct images *m = (const struct images *)s;
    const struct image_set *p = m->splits[split];
    const size_t n = (size_t)m->shape.height * (size_t)m->shape.width * (size_t)m->shape.channels;
    float *images = to->of[BATCH_IMAGES];
    int32_t *labels = to->of[BATCH_LABELS];
    const size_t bytes = image_set_buffer_bytes(p), all = bytes + image_making_bytes(&m->making);
    CLEANUP(freep) uint8_t *buffer = all ? malloc(all) : NULL;
    if (all && !buffer)
        return err_errno(e, "allocate images of %zu bytes", all);
    for (int b = 0; b < B; b++) {
        int64_t i = sampler_index(split, seed, s->info.samples[split], first + b);
        if (labels)
            labels[b] = image_set_files(p)->files[i].label;
        if (!images)
            continue;
        const uint8_t *pixels;
        TRY(read_pixels(m, split, i, seed, first + b, buffer, &pixels, e));
        image_make(&m->making, split == SOURCE_TRAIN, seed, first + b, pixels, buffer + bytes, images + (size_t)b * n);
    }
    return ST_OK;
}

static void close_images(struct source *s) {
    struct images *m = (struct images *)s;
    for (int split = 0; split < SOURCE_SPLITS; split++)
        image_set_close(m->splits[split]);
    free(m);
}

static status_t open_split(struct images *m, enum source_split split, struct image_files **folder, int shorter,
                           const struct source_options *options, struct err *e) {
    const struct image_format format = { .size = m->shape.height,
                                         .shorter = shorter,
                                         .channels = m->shape.channels,
                                         .parts = split == SOURCE_TRAIN && image_crop_is_drawn(&m->making.augment) };
    TRY(image_set_open(*folder, &format, options, &m->splits[split], e));
    *folder = NULL;
    m->source.info.samples[split] = image_set_files(m->splits[split])->n;
    return ST_OK;
}

static status_t list_images(const struct roots *roots, const char *folder, const struct member_files *files,
                            const struct image_files *known, const struct source_options *options,
                            struct image_files **ret, struct err *e) {
    return files->n > 0 ? image_files_of_list(roots, files, true, known, options->progress, options->ctx, ret, e)
                        : image_files_of_classes(roots, folder, known, ret, e);
}

static status_t open_splits(struct images *m, const struct data_config *data, const struct source_options *options,
                            struct err *e) {
    const struct data_images *config = &data->images;
    CLEANUP(image_files_freep) struct image_files *train = NULL, *validation = NULL;
    TRY(list_images(data->roots, config->train, &config->train_files, NULL, options, &train, e));
    if (config->validation_files.n > 0 || (config->validation && *config->validation))
        TRY(list_images(data->roots, config->validation, &config->validation_files, train, options, &validation, e));
    else if (config->validation_fraction > 0)
        TRY(image_files_split(train, config->validation_fraction, &validation, e));
    m->source.info.classes = train->n_classes;
    m->shape.channels = config->channels ? config->channels : 3;
    if (train->n == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "%s has no image left for training",
                       config->train_files.n > 0 ? "the list of files" : config->train);
    char name[IMAGE_NAME_BYTES];
    int side = config->size;
    if (side == 0)
        TRY(image_files_first_side(train, &side, e));
    if (side > SOURCE_SIDE)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%s has %d pixels a side, more than %d: give the size that "
                       "images are scaled to",
                       image_files_name(train, 0, name), side, SOURCE_SIDE);
    m->shape.height = m->shape.width = side;
    const int shorter = config->resize ? config->resize : side;
    if (shorter < side)
        return err_set(e, ST_INVALID_ARGUMENT, "images whose shorter side is scaled to %d pixels have no middle of %d",
                       shorter, side);
    TRY(image_making_init(&m->making, &m->shape, &config->augment, &config->normalize, e));
    TRY(open_split(m, SOURCE_TRAIN, &train, shorter, options, e));
    return validation && validation->n ? open_split(m, SOURCE_VALIDATION, &validation, shorter, options, e) : ST_OK;
}

static status_t check(const struct data_images *config, struct err *e) {
    if (config->channels != 0 && config->channels != 1 && config->channels != 3)
        return err_set(e, ST_INVALID_ARGUMENT, "images of %d channels: 1 and 3 are read", config->channels);
    if (config->size < 0 || config->size > SOURCE_SIDE || config->resize < 0 || config->resize > SOURCE_SIDE)
        return err_set(e, ST_INVALID_ARGUMENT, "an image side of %d, scaled from %d, is not within %d", config->size,
                       config->resize, SOURCE_SIDE);
    if (!(config->validation_fraction >= 0 && config->validation_fraction < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "a validation fraction of %g is outside [0, 1)",
                       config->validation_fraction);
    return ST_OK;
}

static status_t open_source(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    TRY(check(&config->images, e));
    struct images *m = alloc_zeroed(1, sizeof *m);
    m->source.read = read_images;
    m->source.close = close_images;
    status_t st = open_splits(m, config, options, e);
    if (st == ST_OK)
        st = image_set_digest(m->splits, SOURCE_SPLITS, m->source.info.sha256, e);
    if (st != ST_OK) {
        close_images(&m->source);
        return st;
    }
    struct source_info *info = &m->source.info;
    info->memory_bytes = image_set_bytes(m->splits[SOURCE_TRAIN]) + image_set_bytes(m->splits[SOURCE_VALIDATION]);
    info->reading_threads = image_set_buffer_bytes(m->splits[SOURCE_TRAIN]) ? IMAGE_SET_READERS : 1;
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_IMAGES,
                                                            3,
                                                            { m->shape.channels, m->shape.height, m->shape.width } };
    info->inputs[info->n_inputs++] = (struct source_input){ .input = BATCH_LABELS };
    if ((st = mixup_open(&m->source, config->images.augment.mixup, e)) != ST_OK) {
        close_images(&m->source);
        return st;
    }
    *ret = &m->source;
    return ST_OK;
}

static const struct member MEMBERS[] = {
    MEMBER_TREE(struct data_images, train, train_files),
    MEMBER_TREE(struct data_images, validation, validation_files),
    MEMBER_INT(struct data_images, size),
    MEMBER_INT(struct data_images, channels),
    MEMBER_INT(struct data_images, resize),
    IMAGE_MEMBERS(struct data_images),
};

const struct data_kind data_images = {
    .name = "images", .members = MEMBERS, .n_members = (int)(sizeof MEMBERS / sizeof *MEMBERS), .open = open_source
};
