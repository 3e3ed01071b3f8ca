/* Labelled folders of images as a source. */
#include "executor/engine/data/pictures.h"
#include "executor/engine/data/sampler.h"
#include "executor/engine/data/source_kind.h"

#include <errno.h>
#include <stdlib.h>

struct images {
    struct source source;
    struct pictures *parts[SOURCE_PARTS]; /* validation: may be NULL */
    struct picture_shape shape;
    struct data_augmentation augment;
};

static status_t read_images(const struct source *s, enum source_part part, int64_t seed, int64_t first, int B,
                            const struct batch *to, struct err *e) {
    const struct images *m = (const struct images *)s;
    const struct pictures *p = m->parts[part];
    const size_t n = (size_t)m->shape.height * (size_t)m->shape.width * (size_t)m->shape.channels;
    float *images = to->of[BATCH_IMAGES];
    int32_t *labels = to->of[BATCH_LABELS];
    const size_t bytes = pictures_room(p);
    CLEANUP(freep) uint8_t *room = bytes ? malloc(bytes) : NULL;
    if (bytes && !room)
        return err_errno(e, "allocate an image of %zu bytes", bytes);
    for (int b = 0; b < B; b++) {
        const bool train = part == SOURCE_TRAIN;
        int64_t i = sampler_start(seed, train ? SAMPLER_TRAIN : SAMPLER_VALIDATION, s->info.samples[part], first + b);
        if (labels)
            labels[b] = pictures_folder(p)->files[i].label;
        if (!images)
            continue;
        const uint8_t *pixels;
        struct picture_view view = { 0 };
        if (train)
            view = picture_draw(&m->augment, seed, first + b);
        TRY(pictures_read(p, i, room, &pixels, e));
        picture_numbers(&m->shape, pixels, view, PICTURE_SCALE, PICTURE_SHIFT, images + (size_t)b * n);
    }
    return ST_OK;
}

static void close_images(struct source *s) {
    struct images *m = (struct images *)s;
    for (int part = 0; part < SOURCE_PARTS; part++)
        pictures_close(m->parts[part]);
    free(m);
}

static status_t open_part(struct images *m, enum source_part part, struct folder **folder,
                          const struct source_options *options, struct err *e) {
    TRY(pictures_open(*folder, m->shape.height, m->shape.channels, options, &m->parts[part], e));
    *folder = NULL;
    m->source.info.samples[part] = pictures_folder(m->parts[part])->n;
    return ST_OK;
}

static status_t open_parts(struct images *m, const struct data_images *config, const struct source_options *options,
                           struct err *e) {
    CLEANUP(folder_freep) struct folder *train = NULL, *validation = NULL;
    TRY(folder_classes(config->train, NULL, &train, e));
    if (config->validation && *config->validation)
        TRY(folder_classes(config->validation, train, &validation, e));
    else if (config->validation_fraction > 0)
        TRY(folder_split(train, config->validation_fraction, &validation, e));
    m->source.info.classes = train->n_classes;
    m->shape.channels = config->channels ? config->channels : 3;
    if (train->n == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the folder '%s' has no image left for training", config->train);
    int side = config->size;
    if (side == 0)
        TRY(pictures_side(train, &side, e));
    if (side > SOURCE_SIDE)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the image '%s' has %d pixels a side, more than %d: give the size that "
                       "images are brought to",
                       train->files[0].path, side, SOURCE_SIDE);
    m->shape.height = m->shape.width = side;
    TRY(open_part(m, SOURCE_TRAIN, &train, options, e));
    return validation && validation->n ? open_part(m, SOURCE_VALIDATION, &validation, options, e) : ST_OK;
}

static status_t check(const struct data_images *config, struct err *e) {
    if (config->channels != 0 && config->channels != 1 && config->channels != 3)
        return err_set(e, ST_INVALID_ARGUMENT, "images of %d channels: 1 and 3 are read", config->channels);
    if (config->size < 0 || config->size > SOURCE_SIDE || config->augment.crop_padding < 0 ||
        config->augment.crop_padding > SOURCE_SIDE)
        return err_set(e, ST_INVALID_ARGUMENT, "an image side of %d and a crop padding of %d are not within %d",
                       config->size, config->augment.crop_padding, SOURCE_SIDE);
    if (!(config->validation_fraction >= 0 && config->validation_fraction < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "a validation fraction of %g is outside [0, 1)",
                       config->validation_fraction);
    return ST_OK;
}

status_t source_open_images(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    TRY(check(&config->images, e));
    struct images *m = calloc(1, sizeof *m);
    if (!m)
        return err_errno(e, "allocate a source");
    m->source.read = read_images;
    m->source.close = close_images;
    m->augment = config->images.augment;
    status_t st = open_parts(m, &config->images, options, e);
    if (st == ST_OK)
        st = pictures_digest(m->parts, SOURCE_PARTS, m->source.info.sha256, e);
    if (st != ST_OK) {
        close_images(&m->source);
        return st;
    }
    struct source_info *info = &m->source.info;
    info->reading_threads = pictures_room(m->parts[SOURCE_TRAIN]) ? PICTURES_READERS : 1;
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_IMAGES,
                                                            3,
                                                            { m->shape.channels, m->shape.height, m->shape.width } };
    info->inputs[info->n_inputs++] = (struct source_input){ .input = BATCH_LABELS };
    *ret = &m->source;
    return ST_OK;
}
